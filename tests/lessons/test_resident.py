"""Lesson 05's launches by their resident warps: pairs are counted right, and the figure has every launch."""

from __future__ import annotations

import pandas as pd

from helpers import records
from helpers.lessons import resident


def test_pairs_are_those_with_clearly_more_warps_and_are_won_by_the_shorter_time():
    rows = pd.DataFrame({"warps_percent": [80.0, 20.0, 22.0, 40.0], "ncu_us": [30.0, 50.0, 25.0, 60.0]})
    # 20 and 22 hold the same; 40 loses to both; 80 beats 20 and 40 and loses to 22
    assert resident.faster_with_more(rows) == (2, 5)


def test_the_recorded_launches_differ_in_nothing_but_the_launch():
    counted = records.stored("triton/launch-sweep-counters")
    rows = resident.launches(counted)
    assert len(rows) == 48 and not rows.duplicated(["BLOCK_SIZE", "num_warps"]).any()
    assert set(rows.load_bytes) == {4, 8, 16}
    wins, pairs = resident.faster_with_more(rows)
    assert 0.4 * pairs < wins < 0.6 * pairs  # what the lesson says: a coin
    few, many = rows[rows.warps_percent < 25], rows[rows.warps_percent > 70]
    assert few.ncu_us.min() * 10 < many.ncu_us.max()
    fig = resident.draw(rows, title="launches")
    assert sum(len(trace.x) for trace in fig.data) == 48 and "H200" in fig.layout.title.text

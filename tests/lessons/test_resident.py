"""Lesson 05's launches by their resident warps: pairs are counted right, and the figure has every launch."""

from __future__ import annotations

import pandas as pd

from helpers import records
from helpers.lessons import occupancy


def test_pairs_with_clearly_more_warps_are_counted():
    rows = pd.DataFrame({"warps_percent": [80.0, 20.0, 22.0, 40.0], "ncu_us": [30.0, 50.0, 25.0, 60.0]})
    # 20 and 22 hold the same; 40 loses to both; 80 beats 20 and 40 and loses to 22
    assert occupancy.faster_with_more(rows) == (2, 5)


def test_the_recorded_launches_support_the_lesson():
    rows = occupancy.launches(records.stored("triton/launch-sweep-counters"))
    assert len(rows) == 38 and not rows.duplicated(["BLOCK_SIZE", "num_warps"]).any()
    assert (32 * rows.num_warps <= rows.BLOCK_SIZE).all(), "more threads than elements"
    wins, pairs = occupancy.faster_with_more(rows)
    assert 0.6 * pairs < wins < 0.72 * pairs  # two of three
    # the fastest with few warps are as fast as any
    assert rows[rows.warps_percent < 25].ncu_us.min() < 1.02 * rows.ncu_us.min()
    # over the bytes it is one curve: it falls, and from 20 kB on nothing is gained; what spills lies above it
    curve = rows[rows.waiting_kb < 200].sort_values("waiting_kb")
    falling, level = curve[curve.waiting_kb < 19], curve[curve.waiting_kb > 19]
    smoothed = falling.ncu_us.cummin()
    assert (falling.ncu_us <= 1.35 * smoothed).all() and falling.ncu_us.iloc[0] > 4 * falling.ncu_us.iloc[-1]
    assert level.ncu_us.max() < min(1.1 * level.ncu_us.min(), falling.ncu_us.min())
    (spilled,) = rows[rows.waiting_kb > 200].itertuples()
    assert (spilled.BLOCK_SIZE, spilled.num_warps) == (8192, 1) and spilled.ncu_us > 2 * level.ncu_us.min()


def test_the_figure_has_every_launch_in_both_panels():
    rows = occupancy.launches(records.stored("triton/launch-sweep-counters"))
    fig = occupancy.draw(rows, title="launches")
    assert sum(len(trace.x) for trace in fig.data) == 2 * len(rows)
    assert "H200" in fig.layout.title.text
    assert sum(bool(trace.showlegend) for trace in fig.data) == rows.load_bytes.nunique()

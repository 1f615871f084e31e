"""Lesson 05's launches by the warps and bytes on an SM: the records support what the lesson says of them."""

from __future__ import annotations

import pytest

from helpers import records
from helpers.lessons import occupancy


@pytest.fixture(scope="module")
def rows():
    return occupancy.launches(records.stored("triton/launch-sweep-counters"))


def test_every_launch_is_there_once(rows):
    assert len(rows) == 38 and not rows.duplicated(["BLOCK_SIZE", "num_warps"]).any()
    assert (32 * rows.num_warps <= rows.BLOCK_SIZE).all(), "more threads than elements"
    assert rows.warps.max() == 64 and (rows.warps % rows.num_warps == 0).all()


def test_few_warps_can_be_as_fast_as_many(rows):
    few, many = rows[rows.warps == 8].ncu_us.min(), rows[rows.warps == 64].ncu_us.min()
    assert few == pytest.approx(many, rel=0.02)


def test_time_falls_with_the_bytes_in_flight(rows):
    """Three levels: 8 kB, 16 kB, and from about 32 kB on nothing is gained."""
    free = rows[~rows.starting & (rows.in_flight_kb < 200)]
    eight, sixteen, enough = (
        free[free.in_flight_kb.between(low, high)].ncu_us for low, high in ((8, 9), (16, 17), (32, 200))
    )
    assert eight.min() > sixteen.max() > sixteen.min() > enough.max() and enough.max() < 1.1 * enough.min()
    (spilled,) = rows[rows.in_flight_kb > 200].itertuples()
    assert (spilled.BLOCK_SIZE, spilled.num_warps) == (8192, 1) and spilled.ncu_us > 2 * enough.min()


def test_launches_that_wait_for_blocks_start_them_at_one_rate(rows):
    waiting = rows[rows.starting]
    per_ns = 4096 * 4096 / waiting.BLOCK_SIZE / waiting.ncu_us / 1000
    assert len(waiting) == 8 and per_ns.between(1.55, 1.65).all()


def test_the_pair_differs_in_the_bytes_per_load_only(rows):
    pair = occupancy.same_warps(rows)
    assert list(pair.warps) == [64, 64] and list(pair.load_bytes) == [4, 16]
    assert list(pair.BLOCK_SIZE / (32 * pair.num_warps)) == [1, 4]  # elements per thread: one load each
    assert not pair.starting.any() and 1.5 < pair.ncu_us[0] / pair.ncu_us[1] < 4


def test_the_figure_has_every_launch_in_both_panels(rows):
    fig = occupancy.draw(rows, title="launches")
    assert sum(len(trace.x) for trace in fig.data) == 2 * len(rows)
    assert "H200" in fig.layout.title.text
    assert sum(bool(trace.showlegend) for trace in fig.data) == rows.load_bytes.nunique()
    open_symbols = [
        symbol for trace in fig.data for symbol in trace.marker.symbol if symbol.endswith("-open")
    ]
    assert len(open_symbols) == 2 * rows.starting.sum()

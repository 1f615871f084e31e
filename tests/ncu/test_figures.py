"""The summary to be read, and figures of a launch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers import ncu
from helpers.ncu import charts


def test_the_summary_table_has_ncus_columns(report):
    html = charts.summary_table(report).to_html()
    assert "est. speedup (%)" in html and "demangled name" in html and "4096, 1, 1" in html


def test_long_names_in_the_summary_may_break_and_are_escaped(report):
    cpp = replace(report[4], demangled_name="void square_rows_kernel<float>(float*)")
    assert "void square_<wbr>rows_<wbr>kernel&lt;float&gt;(float*)" in charts.summary_table(cpp).to_html()


@pytest.mark.parametrize("draw", ["draw_over_time", "draw_occupancy", "draw_hot_instructions"])
def test_figures_of_a_launch_are_plain_json_with_units(report, draw):
    fig = getattr(charts, draw)(report[4], title="a launch")
    assert fig.to_json() and len(fig.data) > 1
    assert any(axis.title.text and "%" in axis.title.text for axis in fig.select_yaxes())


def test_the_timeline_marks_its_moments(report):
    """What the lesson speaks of stands in the figure; a launch that was not sampled has no marks."""
    fig = charts.draw_over_time(report[4])
    assert [a.text for a in fig.layout.annotations] == ["DRAM writes begin", "last block starts", "tail"]
    at = ncu.moments(report[4])
    assert [a.x for a in fig.layout.annotations[:2]] == [at["writes_from_us"], at["last_start_us"]]
    assert {shape.x0 for shape in fig.layout.shapes} == set(at.values()) - {at["end_us"]}
    assert not charts.draw_over_time(report[0]).layout.annotations


def test_busy_has_a_bar_for_each_launch_and_measure(report):
    fig = charts.draw_busy(report)
    assert [list(trace.x) for trace in fig.data] == [["1", "8", "64", "512", "4,096"]] * 3


@pytest.mark.parametrize(
    ("addresses", "lane_bytes", "n_sectors"),
    [
        ([4 * lane for lane in range(32)], 4, 4),
        ([3124 + 4 * lane for lane in range(32)], 4, 5),
        ([3124 * lane for lane in range(32)], 4, 32),
        ([16 * lane for lane in range(32)], 16, 16),
        ([30], 4, 2),
    ],
)
def test_a_request_is_drawn_as_its_sectors_with_every_byte_that_a_lane_needs(
    addresses, lane_bytes, n_sectors
):
    fig = charts.draw_requests({"a warp": addresses}, lane_bytes=lane_bytes)
    carried, needed = fig.data
    assert len(carried.x) == n_sectors and sum(carried.x) == 32 * n_sectors
    assert sum(needed.x) == lane_bytes * len(addresses)
    assert fig.layout.annotations[0].text == f" {n_sectors} sectors"
    for base, length in zip(needed.base, needed.x, strict=True):
        assert base // 32 == (base + length - 1) // 32  # no piece lies across a boundary


@pytest.mark.parametrize(
    ("n_blocks", "at_once", "filled"), [(4096, 1056, [1056, 1056, 1056, 928]), (8, 4, [4, 4]), (1, 9, [1])]
)
def test_waves_are_filled_one_after_the_other(n_blocks, at_once, filled):
    blocks, empty = charts.draw_waves(n_blocks, at_once).data
    assert list(blocks.y) == filled
    assert list(empty.y) == [at_once - n for n in filled]

"""Lesson 05's drawing of an SM, its reading of a launch over time, and its tables of several reports."""

from __future__ import annotations

import math
import re

import pytest

from helpers import ncu, records
from helpers.lessons import column_sums, sm, timeline


@pytest.fixture(scope="module")
def five_grids():
    return ncu.load_report(records.folder() / "h200" / "ncu" / "five-grids.ncu-rep")


@pytest.fixture(scope="module")
def steps():
    """Two launches with the advice that lesson 05 follows, as two reports of one launch."""
    return [[kernel] for kernel in ncu.load_report(records.folder() / "h200" / "ncu" / "advice.ncu-rep")[:2]]


def filled(drawing) -> int:
    return len(re.findall(r'height="18" fill="#', drawing.data))


def test_the_drawing_has_the_warps_of_all_blocks_that_fit(five_grids):
    assert filled(sm.draw(five_grids[4])) == 64
    assert filled(sm.draw(five_grids[4], n_blocks=1)) == 8
    assert filled(sm.draw(five_grids[4], n_blocks=99)) == 64
    text = sm.draw(five_grids[4]).data
    assert text.count("warp scheduler") == 4 and "16,384 registers" in text and "of 132" in text


def test_until_the_first_dip_dram_has_read_the_first_wave(five_grids):
    dip = timeline.first_dip(five_grids[4])
    assert dip["at_us"] == pytest.approx(6, abs=0.1) and dip["writes_percent"] < 1
    assert dip["read_mb"] == pytest.approx(1056 * 4096 * 4 / 1e6, rel=0.03)


def test_a_report_without_samples_has_no_dip(five_grids):
    assert all(math.isnan(value) for value in timeline.first_dip(five_grids[0]).values())


def test_without_samples_the_recorded_h200_answers(five_grids):
    assert timeline.sampled(five_grids, 4) is five_grids
    recorded = timeline.sampled(five_grids, 0)
    assert recorded is not five_grids and "H200" in recorded.gpu
    assert timeline.first_wave_mb(recorded[4]) == pytest.approx(1056 * 4096 * 4 / 1e6)
    assert not math.isnan(timeline.first_dip(recorded[4])["at_us"])


def test_the_tail_costs_what_the_lesson_says(five_grids):
    """Close to the empty slots' share, and far from the rule's estimate."""
    from commands import cells

    space = {"ncu": ncu, "sampled": five_grids}
    exec(cells("notebooks/05_ncu.ipynb")["tail-cost"], space)
    empty = 1 - 4096 / (4 * 1056)
    promised = five_grids[4].rule("LaunchConfiguration", "Tail Effect").speedup_percent / 100
    assert promised == 0.25
    assert abs(space["lost"] - empty) < 0.01 and space["lost"] < promised / 5


def test_versions_are_compared_by_their_reports(steps):
    table = column_sums.compare({"across": steps[0], "along": steps[1]})
    assert list(table.version) == ["across", "along"] and list(table.sectors) == [32, 16]
    assert table.us[0] > 10 * table.us[1] and table.dram_percent[0] < 15 < 60 < table.dram_percent[1]
    assert table.warps.between(0, 64).all()


def test_promises_are_compared_with_what_came(steps):
    rules = {"across": ("UncoalescedGlobalAccess", "")}
    (row,) = column_sums.promises({"across": steps[0], "along": steps[1]}, rules).itertuples()
    assert row.change == "along" and 86 < row.estimate_percent < 87 and 90 < row.saved_percent < 92
    (row,) = column_sums.promises({"across": steps[0], "along": steps[1]}, {}).itertuples()
    assert math.isnan(row.estimate_percent)


def test_the_roof_of_additions_is_half_of_the_data_sheets(five_grids):
    fig = column_sums.draw_roofline({"small": five_grids[3], "large": five_grids[4]})
    roofs = {trace.name.split(":")[0]: max(trace.y) for trace in fig.data if trace.mode == "lines"}
    assert roofs["additions alone"] == pytest.approx(roofs["fused multiply-adds"] / 2)

"""Lesson 04's two places: what the counters say follows from the rows, whatever they are."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import helpers
from helpers import ncu
from helpers.lessons import widths


def made_up(**changes) -> pd.DataFrame:
    """Rows as ptx/load-widths has them: 1.04 times as long with 8 elements a thread, the same with 32."""
    rows = []
    for shape in widths.SHAPES:
        ratio = {8: 1.04, 16: 1.02}.get(shape.elements, 0.99)
        for n_bytes in widths.WIDTHS:
            narrow = n_bytes == 4
            row = {"kernel": shape.kernel, "block_size": shape.block_size, "num_warps": shape.num_warps}
            row |= {
                "elements": shape.elements,
                "load_bytes": n_bytes,
                "median_us": 267.0 * (ratio if narrow else 1),
            }
            row |= {"narrow_over_wide": ratio, "ratio_low": ratio - 0.001, "ratio_high": ratio + 0.001}
            row |= {"instructions": 3e7 if narrow else 1.5e7, "requests": 6.25e6 / (1 if narrow else 4)}
            row |= {"sectors": 2.5e7, "dram_mb": 790.0, "issue_percent": 12.0, "requests_percent": 9.0}
            row |= {"queue_percent": 3.0, "warps_percent": 90.0, "registers": 22}
            rows.append(row | {k: v[0 if narrow else 1] for k, v in changes.items()})
    return pd.DataFrame(rows)


def test_equal_counters_are_reported_as_equal():
    told = widths.verdict(made_up())
    assert "0.990 times (flat, 4,096 in 4 warps)" in told and "1.040 times (flat, 1,024 in 4 warps)" in told
    assert "4.0 times the requests" in told and "4 sectors and uses all" in told
    assert "neither is used up" in told and "the queue does not" in told
    assert "1.020 with 16" in told and "0.990 with 32" in told and "no difference of 1 %" in told


def test_a_unit_near_its_limit_is_named():
    assert "one of them is close to its limit" in widths.verdict(made_up(issue_percent=(85.0, 40.0)))


def test_other_sectors_and_other_traffic_are_named():
    told = widths.verdict(made_up(sectors=(1.0e8, 2.5e7), dram_mb=(869.0, 790.0)))
    assert "touches 16 sectors and uses a part of each" in told
    assert "DRAM traffic that differs by up to 10 %" in told


@pytest.mark.parametrize(("slow", "told"), [(1.2, "this is what"), (1.0, "this alone does not")])
def test_sectors_that_are_not_used_whole_are_named(slow, told):
    rows = made_up()
    flat = rows.kernel == "flat"
    rows.loc[flat, "narrow_over_wide"] = slow
    rows.loc[flat & (rows.load_bytes == 4), "sectors"] = 1.0e8
    said = widths.verdict(rows)
    assert "flat kernel" in said and "16 sectors" in said and told in said


def test_fewer_warps_are_named_if_they_cost_time():
    rows = made_up()
    last = (rows.kernel == "rows") & (rows.elements == 32)
    rows.loc[last, "narrow_over_wide"] = 1.05
    rows.loc[last & (rows.load_bytes == 4), ["registers", "warps_percent"]] = [87, 22.0]
    told = widths.verdict(rows)
    assert "87 registers" in told and "22 %" in told and "fewer warps" in told


def test_a_queue_that_explains_the_difference_is_named():
    rows = made_up()
    slow = (rows.narrow_over_wide > 1.01) & (rows.load_bytes == 4)
    rows.loc[slow, "queue_percent"] = 30.0
    assert "+27 points" in widths.verdict(rows) and "+0 elsewhere" in widths.verdict(rows)


def test_without_a_slower_launch_the_queue_is_not_mentioned():
    rows = made_up()
    rows["narrow_over_wide"] = 1.0
    told = widths.verdict(rows)
    assert "The queue" not in told and "it made no difference of 1 %" in told


def test_counters_are_read_from_a_real_report():
    report = ncu.load_report(Path(helpers.__file__).parent / "records/h100/ncu/alignment.ncu-rep")
    rows = widths.counters(report)
    assert len(rows) == len(report) == 5
    assert rows[0]["requests"] == 91_150 and rows[0]["sectors"] == 435_692 and rows[0]["registers"] == 22
    assert all(0 < row["issue_percent"] < 100 and 0 <= row["queue_percent"] <= 100 for row in rows)


def test_elements_per_thread_of_each_shape():
    assert [shape.elements for shape in widths.SHAPES] == [8, 16, 32, 16, 32]

"""Lesson 05's view of a launch over time: when DRAM first nearly stops, and how much it has read by then."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from helpers import ncu, records

if TYPE_CHECKING:
    from helpers.ncu import Kernel, Report

_ROW_BYTES = 4096 * 4


def sampled(report: Report, launch: int) -> Report:
    """Returns the report, or the recorded H200's if this launch wasn't sampled in time to show a dip."""
    if math.isnan(first_dip(report[launch])["at_us"]):
        return ncu.load_report(records.folder() / "h200" / "ncu" / "five-grids.ncu-rep")
    return report


def first_wave_mb(kernel: Kernel) -> float:
    """Returns the megabytes of the rows that a launch's first wave reads: 4,096 floats per block."""
    n_blocks = ncu.occupancy(kernel).attrs["blocks_per_sm"] * kernel.metrics["launch__sm_count"]
    return n_blocks * _ROW_BYTES / 1e6


def first_dip(kernel: Kernel) -> dict[str, float]:
    """Returns when DRAM reads least between the first samples and the tail, and how much it has read by then.

    Returns:
        `at_us`, `read_mb` (megabytes read from DRAM before that sample) and `writes_percent` (DRAM writes in
        that sample, in percent of the peak). All are NaN if the report has no samples over time.
    """
    time, at = ncu.over_time(kernel), ncu.moments(kernel)
    inner = (
        time[(time.index > time.dram_read_percent.idxmax()) & (time.time_us < at["last_start_us"])]
        if len(time)
        else time
    )
    if inner.empty:
        return dict.fromkeys(("at_us", "read_mb", "writes_percent"), math.nan)
    lowest = time.loc[inner.dram_read_percent.idxmin()]
    peak_gb_per_s = ncu.roofline_points(kernel).attrs["peak_gb_per_s"]
    step_us = time.time_us.diff().median()
    before = time[time.time_us < lowest.time_us]
    # GB/s × µs are kB.
    read_mb = (before.dram_read_percent / 100 * peak_gb_per_s * step_us).sum() / 1e3
    return {"at_us": lowest.time_us, "read_mb": read_mb, "writes_percent": lowest.dram_write_percent}

"""Lesson 05's view of a launch over time: when DRAM first nearly stops, and how much it has read by then."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from helpers import ncu

if TYPE_CHECKING:
    from helpers.ncu import Kernel


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

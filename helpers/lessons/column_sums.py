"""Lesson 05's five versions of a kernel that sums columns: a table and a figure of their reports."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from helpers import ncu, plots

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# The sections of a report that this lesson reads; together they take a tenth of the space of the full set.
SECTIONS = ",".join(
    (
        "SpeedOfLight",
        "SpeedOfLight_RooflineChart",
        "LaunchStats",
        "Occupancy",
        "WarpStateStats",
        "MemoryWorkloadAnalysis",
        "MemoryWorkloadAnalysis_Tables",
        "SourceCounters",
    )
)
_HEADINGS = {
    "version": "version",
    "us": "time (µs)",
    "blocks": "blocks",
    "warps": "warps per SM",
    "sectors": "sectors per request",
    "dram_percent": "DRAM (% of peak)",
}


def compare(reports: Mapping[str, ncu.Report]) -> pd.DataFrame:
    """Returns one row per version.

    Args:
        reports: A report per version, in order. Each has one launch.

    Returns:
        A DataFrame with `version`, `us`, `blocks`, `warps` (active warps per SM, on average), `sectors` (per
        load request) and `dram_percent` (DRAM's throughput as a percentage of its peak).
    """
    import pandas as pd

    rows = []
    for version, report in reports.items():
        kernel = report[0]
        rows.append(
            {
                "version": version,
                "us": kernel.duration_us,
                "blocks": kernel.n_blocks,
                "warps": kernel.metrics["sm__warps_active.avg.per_cycle_active"],
                "sectors": ncu.sectors(kernel).ld_sectors_per_request[0],
                "dram_percent": kernel.metrics["dram__cycles_active.avg.pct_of_peak_sustained_elapsed"],
            }
        )
    return pd.DataFrame(rows)


def table(reports: Mapping[str, ncu.Report]):
    """Returns `compare` as a formatted table."""
    decimals = {"us": 0, "warps": 0, "sectors": 0, "dram_percent": 0}
    return plots.table(compare(reports), _HEADINGS, decimals=decimals)


def promises(reports: Mapping[str, ncu.Report], rules: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    """Compares what a rule estimated for one version with what the next version saved.

    Args:
        reports: A report per version, in order.
        rules: For a version, the name and the title of the rule that the next version follows.

    Returns:
        A DataFrame with one row per pair of versions and the columns of `ncu.outcome`.
    """
    import pandas as pd

    names = list(reports)
    rows = []
    for before, after in itertools.pairwise(names):
        rule = reports[before][0].rule(*rules[before]) if before in rules else None
        rows.append(ncu.outcome(after, reports[before][0], reports[after][0], rule))
    return pd.DataFrame(rows)


def draw_roofline(reports: Mapping[str, ncu.Report], *, title: str = "") -> go.Figure:
    """Draws the versions below the roofs of their GPU.

    Three roofs are drawn: DRAM's peak, the peak of fp32 fused multiply-adds, and half of that, because a lone
    addition is one operation where a fused multiply-add is two.
    """
    import pandas as pd

    each = [ncu.roofline_points(report).assign(name=version) for version, report in reports.items()]
    points = pd.concat(each)
    peaks = each[-1].attrs
    fused = peaks["peak_gflop_per_s"]
    roofs = {"additions alone": fused / 2, "fused multiply-adds": fused}
    return plots.roofline(points, {"DRAM peak": peaks["peak_gb_per_s"]}, roofs, title=title)

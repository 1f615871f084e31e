"""Run Nsight Compute on a script or a notebook cell, and read its reports.

After `%load_ext helpers.ncu`, `%ncu …` runs `ncu …` as in a terminal, and `%%ncu` profiles a cell. `run`
profiles a script from Python. `load_report` reads a report file, which needs no GPU, and `summary`, `advice`,
`sectors`, `occupancy` and other functions turn a report into tables.

The modules: `runner` finds and runs ncu, `errors` explains why a run failed, `magic` defines `%ncu` and
`%%ncu`, `reader` reads reports with NVIDIA's own reader, `rules` presents the advice of ncu's rules, `views`
makes the tables, and `charts` draws the figures.
"""

from helpers.ncu.errors import NcuError, diagnose
from helpers.ncu.magic import last
from helpers.ncu.magic import register as load_ipython_extension
from helpers.ncu.reader import Kernel, Report, ReportError, Rule, load_report, readable, summary
from helpers.ncu.rules import advice, advice_html, outcome
from helpers.ncu.runner import command, count, profile, run, shell_line, terminal, why_not
from helpers.ncu.views import (
    STALLS,
    instructions,
    moments,
    occupancy,
    occupancy_curves,
    over_time,
    predicted_sectors,
    roofline_points,
    sectors,
    source_lines,
)

__all__ = [
    "STALLS",
    "Kernel",
    "NcuError",
    "Report",
    "ReportError",
    "Rule",
    "advice",
    "advice_html",
    "command",
    "count",
    "diagnose",
    "instructions",
    "last",
    "load_ipython_extension",
    "load_report",
    "moments",
    "occupancy",
    "occupancy_curves",
    "outcome",
    "over_time",
    "predicted_sectors",
    "profile",
    "readable",
    "roofline_points",
    "run",
    "sectors",
    "shell_line",
    "source_lines",
    "summary",
    "terminal",
    "why_not",
]

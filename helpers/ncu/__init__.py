"""Nsight Compute: run it on a script or on a notebook cell, and read what it found.

`%ncu …` (after `%load_ext helpers.ncu`) is a terminal's `ncu …`, `%%ncu` profiles a cell, `run` a script from Python;
`load_report` reads the file that they write; reading needs no GPU. `summary`, `advice`, `sectors`, `occupancy` and the others make tables
of a report.

`runner` finds and runs ncu, `errors` says in a sentence why it could not, `magic` is `%ncu` and `%%ncu`. `reader` reads a report
with NVIDIA's own reader, `rules` its advice, `views` makes the tables, `figures` the pictures.
"""

from helpers.ncu.errors import NcuError, diagnose
from helpers.ncu.magic import last
from helpers.ncu.magic import register as load_ipython_extension
from helpers.ncu.reader import Kernel, Report, ReportError, Rule, load_report, readable, summary
from helpers.ncu.rules import advice, advice_html, outcome
from helpers.ncu.runner import command, profile, run, shell_line, terminal, why_not
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

"""Plotly figures from tables: throughput curves, heat maps, rooflines, bars and dots; and tables formatted to be read.

All figures share one look: the Okabe–Ito palette (distinguishable with every common form of colour blindness),
dark text on the figure's own white paper (readable on light and on dark pages), units on the axes, error bars where the
table has an interval, and ceilings as dashed lines. Only plain `plotly.graph_objects` are used; plotly 5.24 and 7 both
draw them. A table that came from `records.measured` carries its provenance, and the figure names that GPU and day.

`figures` draws over two quantities (throughput curves, heat maps, rooflines), `categorical` over names (bars, dots);
`tables` makes the tables, `style` has the common look.
"""

from helpers.plots.categorical import bars, dots
from helpers.plots.figures import heatmap, roofline, throughput
from helpers.plots.style import (
    GRID_COLOUR,
    HEAT_COLOURS,
    MARKERS,
    PALETTE,
    PAPER_COLOUR,
    TEXT_COLOUR,
    axis_title,
    contrast,
    layout,
    log_axis,
    origin_of,
    text_on,
    theme,
)
from helpers.plots.tables import table

__all__ = [
    "GRID_COLOUR",
    "HEAT_COLOURS",
    "MARKERS",
    "PALETTE",
    "PAPER_COLOUR",
    "TEXT_COLOUR",
    "axis_title",
    "bars",
    "contrast",
    "dots",
    "heatmap",
    "layout",
    "log_axis",
    "origin_of",
    "roofline",
    "table",
    "text_on",
    "theme",
    "throughput",
]

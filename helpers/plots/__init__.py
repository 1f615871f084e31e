"""Plotly figures from tables (throughput curves, heat maps, rooflines, bars and dots), and formatted tables.

All figures share one style: the Okabe–Ito palette, which is distinguishable with every common form of color
blindness; dark text on a white figure background, which is readable on light and on dark pages; units on the
axes; error bars if the table has intervals; and ceilings as dashed lines. The figures use only plain
`plotly.graph_objects`, which both plotly 5.24 and 7 can draw. A table from `records.measured` carries its
provenance, and the figure shows its GPU and date.

The modules: `figures` draws over two quantities (throughput curves, heat maps, rooflines), `categorical`
draws over names (bars, dots), `tables` formats tables, and `style` defines the common style.
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

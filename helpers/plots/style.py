"""The look that all figures share, and what the functions that draw them have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Okabe and Ito, "Color Universal Design" (2008); black is a mid grey here, since the text is nearly black.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#767676")
# A figure brings its own paper: no one colour of text has a contrast of 4.5 (WCAG 2.2, 1.4.3) on white and on
# JupyterLab's dark page, and a figure does not know where it is shown.
PAPER_COLOUR = "#FFFFFF"
TEXT_COLOUR = "#404040"
GRID_COLOUR = "rgba(128,128,128,0.28)"
# Cividis from its middle on: black numbers can be read on all of it.
HEAT_COLOURS = ("#7D7C76", "#8A8678", "#A59C74", "#C3B369", "#E1CC55", "#FEE838")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "hexagon")

DASHES = ("dash", "dot", "dashdot", "longdash")

_AXIS_TITLES = {
    "gb_per_s": "effective bandwidth (GB/s)",
    "median_us": "time (µs)",
    "n_rows": "rows",
    "n_cols": "columns, N",
    "n_elements": "elements",
    "n_bytes": "bytes",
    "block_size": "BLOCK_SIZE (elements)",
    "num_warps": "warps a program",
    "flop_per_byte": "arithmetic intensity (FLOP/byte)",
    "gflop_per_s": "performance (GFLOP/s)",
}
_UNITS = {"_us": "µs", "_ms": "ms", "_s": "s", "_bytes": "bytes", "_percent": "%", "_gb_per_s": "GB/s"}


def contrast(a: str, b: str) -> float:
    """How well two colours, "#RRGGBB", can be told apart, 1 to 21 (WCAG 2.2, "contrast ratio")."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def text_on(colour: str) -> str:
    """Black or white, whichever can be read better on a colour, "#RRGGBB"."""
    return max(("#000000", "#FFFFFF"), key=lambda text: contrast(text, colour))


def axis_title(column: str) -> str:
    """A column's name in words, with its unit: "copy_ms" gives "copy (ms)".

    Example:
        >>> from helpers import plots
        >>> plots.axis_title("gb_per_s")
        'effective bandwidth (GB/s)'
    """
    if column in _AXIS_TITLES:
        return _AXIS_TITLES[column]
    for ending in sorted(_UNITS, key=len, reverse=True):
        if column.endswith(ending) and column != ending:
            return f"{column.removesuffix(ending).replace('_', ' ')} ({_UNITS[ending]})"
    return column.replace("_", " ")


def theme() -> go.layout.Template:
    """The look that all figures share, as a Plotly template."""
    import plotly.graph_objects as go

    axis = {
        "gridcolor": GRID_COLOUR,
        "zerolinecolor": GRID_COLOUR,
        "linecolor": TEXT_COLOUR,
        "ticks": "outside",
        "tickcolor": TEXT_COLOUR,
        "automargin": True,
        "title": {"standoff": 10},
    }
    return go.layout.Template(
        layout={
            "colorway": list(PALETTE),
            "paper_bgcolor": PAPER_COLOUR,
            "plot_bgcolor": PAPER_COLOUR,
            "font": {"color": TEXT_COLOUR, "size": 13},
            "title": {"x": 0.0, "xref": "paper", "font": {"size": 16}},
            "legend": {"bgcolor": "rgba(0,0,0,0)"},
            "margin": {"l": 70, "r": 20, "t": 70, "b": 60},
            "xaxis": axis,
            "yaxis": axis,
        }
    )


def layout(fig: go.Figure, title: str = "", x: str = "", y: str = "", *, note: str = "", height: int = 430):
    """Give a figure the shared look, a title and axis titles; returns the same figure.

    Args:
        fig: any Plotly figure with one pair of axes.
        title: what is shown, in one line.
        x: the title of the x axis, with its unit.
        y: the title of the y axis, with its unit.
        note: a smaller second line under the title, such as where the figures come from.
        height: pixels.
    """
    text = title + (f"<br><sub>{note}</sub>" if note else "")
    fig.update_layout(template=theme(), title_text=text, height=height)
    fig.update_xaxes(title_text=x)
    fig.update_yaxes(title_text=y)
    return fig


def require_columns(df: pd.DataFrame, columns: Sequence[str], what: str) -> None:
    """Raise a ValueError that names the columns which `what` needs and the table lacks."""
    missing = [c for c in columns if c not in df.columns]
    if missing:
        raise ValueError(
            f"{what}: the table has no column {', '.join(missing)}; it has {', '.join(map(str, df.columns))}."
        )


def usable_rows(df: pd.DataFrame, y: str) -> tuple[pd.DataFrame, str]:
    """The rows that have a value and are not wrong or refused, and a note on those that are left out."""
    keep = df[y].notna()
    if "verdict" in df.columns:
        keep &= df["verdict"].eq("ok")
    left_out = df[~keep]
    if left_out.empty:
        return df, ""
    if "verdict" not in df.columns:
        return df[keep], f"{len(left_out)} of {len(df)} points have no value"
    counts = left_out["verdict"].value_counts()
    return df[keep], "not drawn: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items())


def origin_of(df: pd.DataFrame) -> str:
    """Where and when the table was measured, as a figure's second line says it; empty where the table has no provenance.

    >>> import pandas as pd
    >>> from helpers import plots
    >>> plots.origin_of(pd.DataFrame({"median_us": [31.0]}))
    ''
    """
    provenance = df.attrs.get("provenance")
    return f"{provenance.gpu['name']}, {provenance.date}" if provenance is not None else ""


def join_notes(*notes: str) -> str:
    """The notes that are not empty, in one line."""
    return " · ".join(n for n in notes if n)


def _interval(df: pd.DataFrame, y: str) -> tuple[Sequence[float], Sequence[float]] | None:
    """The distances up and down from `y` to its interval's ends, or None where the table has no interval.

    A bandwidth's interval comes from the time's: the bytes are the same, so GB/s scales by median over bound.
    """
    if {f"{y}_low", f"{y}_high"} <= set(df.columns):
        return list(df[f"{y}_high"] - df[y]), list(df[y] - df[f"{y}_low"])
    if not {"median_us", "ci_low_us", "ci_high_us"} <= set(df.columns):
        return None
    if y == "median_us":
        return list(df["ci_high_us"] - df[y]), list(df[y] - df["ci_low_us"])
    if y == "gb_per_s":
        up = df[y] * (df["median_us"] / df["ci_low_us"] - 1)
        down = df[y] * (1 - df["median_us"] / df["ci_high_us"])
        return list(up), list(down)
    return None


def error_bar(df: pd.DataFrame, y: str, colour: str) -> dict | None:
    """Plotly's error bars for `y`, or None where the table has no interval."""
    distances = _interval(df, y)
    if distances is None:
        return None
    up, down = distances
    return {
        "type": "data",
        "symmetric": False,
        "array": up,
        "arrayminus": down,
        "color": colour,
        "thickness": 1.2,
        "width": 3,
    }


def draw_ceilings(
    fig: go.Figure,
    ceilings: Mapping[str, float] | None,
    *,
    ends: Sequence | None = None,
    horizontal: bool = False,
) -> None:
    """A dashed line across the figure for each ceiling, named with its value in the legend.

    Args:
        fig: the figure.
        ceilings: label to value; a value of None (a GPU whose peak the driver does not tell) is left out.
        ends: the first and the last value of the other axis, between which a line goes; without them it goes from
            edge to edge, as over bars.
        horizontal: the values lie along x.
    """
    import plotly.graph_objects as go

    known = {label: value for label, value in (ceilings or {}).items() if value is not None}
    for i, (label, value) in enumerate(known.items()):
        line = {"dash": DASHES[i % len(DASHES)], "color": TEXT_COLOUR, "width": 1.6}
        level, along = ([value] * len(ends), list(ends)) if ends is not None else ([None], [None])
        x, y = (level, along) if horizontal else (along, level)
        fig.add_trace(
            go.Scatter(x=x, y=y, mode="lines", line=line, name=f"{label}: {value:,.0f}", hoverinfo="name")
        )
        if ends is None:
            (fig.add_vline if horizontal else fig.add_hline)(value, line=line)
    if ends is None and known:
        # a shape alone would not keep its value inside the axis
        (fig.update_xaxes if horizontal else fig.update_yaxes)(
            autorangeoptions={"include": list(known.values())}
        )


def log_axis(values: Sequence[float]) -> dict:
    """A logarithmic axis for these values: labels at powers of ten where there are several, else in between too."""
    decades = math.log10(max(values) / min(values)) if len(values) and min(values) > 0 else 0
    return {"type": "log", "dtick": 1 if decades >= 1.5 else "D2", "tickformat": ",~f"}

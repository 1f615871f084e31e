"""The style that all figures share, and helper functions for drawing them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Okabe and Ito, "Color Universal Design" (2008), with medium gray for black, because the text is almost
# black.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#767676")
# Figures have their own background: no text color has a contrast of 4.5 (WCAG 2.2, 1.4.3) both on white and
# on JupyterLab's dark page, and a figure does not know on which page it is shown.
PAPER_COLOUR = "#FFFFFF"
TEXT_COLOUR = "#404040"
GRID_COLOUR = "rgba(128,128,128,0.28)"
# The upper half of Cividis: black numbers are readable on all of it.
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
    "num_warps": "warps per program",
    "flop_per_byte": "arithmetic intensity (FLOP/byte)",
    "gflop_per_s": "performance (GFLOP/s)",
}
_UNITS = {"_us": "µs", "_ms": "ms", "_s": "s", "_bytes": "bytes", "_percent": "%", "_gb_per_s": "GB/s"}


def contrast(a: str, b: str) -> float:
    """Returns the WCAG 2.2 contrast ratio (1 to 21) of two colors given as "#RRGGBB"."""

    def luminance(color: str) -> float:
        channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def text_on(color: str) -> str:
    """Returns black or white, whichever is more readable on a color given as "#RRGGBB"."""
    return max(("#000000", "#FFFFFF"), key=lambda text: contrast(text, color))


def axis_title(column: str) -> str:
    """Returns a column's name in words, with its unit: "copy (ms)" for "copy_ms".

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
    """Returns the style that all figures share, as a Plotly template."""
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
    """Applies the shared style, a title and axis titles to a figure, and returns the figure.

    Args:
        fig: any Plotly figure with one pair of axes.
        title: a one-line title.
        x: the title of the x axis, with its unit.
        y: the title of the y axis, with its unit.
        note: a smaller second line below the title, such as where the data was measured.
        height: the figure's height in pixels.
    """
    text = title + (f"<br><sub>{note}</sub>" if note else "")
    fig.update_layout(template=theme(), title_text=text, height=height)
    fig.update_xaxes(title_text=x)
    fig.update_yaxes(title_text=y)
    return fig


def require_columns(df: pd.DataFrame, columns: Sequence[str], what: str) -> None:
    """Raises a ValueError that lists the columns in `columns` that the table lacks."""
    missing = [c for c in columns if c not in df.columns]
    if missing:
        raise ValueError(
            f"{what}: the table has no column {', '.join(missing)}; it has {', '.join(map(str, df.columns))}."
        )


def usable_rows(df: pd.DataFrame, y: str) -> tuple[pd.DataFrame, str]:
    """Returns the rows that have a value and are neither wrong nor refused, and a note on the others."""
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
    """Returns where and when the table was measured, for a figure's subtitle, or "" if it has no provenance.

    >>> import pandas as pd
    >>> from helpers import plots
    >>> plots.origin_of(pd.DataFrame({"median_us": [31.0]}))
    ''
    """
    provenance = df.attrs.get("provenance")
    return f"{provenance.gpu['name']}, {provenance.date}" if provenance is not None else ""


def join_notes(*notes: str) -> str:
    """Returns the non-empty notes on one line."""
    return " · ".join(n for n in notes if n)


def _interval(df: pd.DataFrame, y: str) -> tuple[Sequence[float], Sequence[float]] | None:
    """Returns the distances from `y` up and down to the ends of its interval, or None without one.

    A bandwidth's interval is computed from that of the time: the number of bytes is constant, so GB/s scales
    with median / bound.
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


def error_bar(df: pd.DataFrame, y: str, color: str) -> dict | None:
    """Returns Plotly error bars for `y`, or None if the table has no interval."""
    distances = _interval(df, y)
    if distances is None:
        return None
    up, down = distances
    return {
        "type": "data",
        "symmetric": False,
        "array": up,
        "arrayminus": down,
        "color": color,
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
    """Draws a dashed line across the figure for each ceiling; the legend shows its name and value.

    Args:
        fig: the figure.
        ceilings: label to value; a value of None (the driver doesn't report the GPU's peak) is left out.
        ends: the first and the last value on the other axis, between which the lines are drawn; by default
            they extend from edge to edge, as in bar charts.
        horizontal: whether the values are on the x axis.
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
        # A line shape alone does not extend the axis range to its value.
        (fig.update_xaxes if horizontal else fig.update_yaxes)(
            autorangeoptions={"include": list(known.values())}
        )


def log_axis(values: Sequence[float]) -> dict:
    """Returns a logarithmic axis for the values.

    If the values span several powers of ten, only these are labeled; otherwise values in between are, too.
    """
    decades = math.log10(max(values) / min(values)) if len(values) and min(values) > 0 else 0
    return {"type": "log", "dtick": 1 if decades >= 1.5 else "D2", "tickformat": ",~f"}

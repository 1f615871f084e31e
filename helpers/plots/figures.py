"""Figures over two quantities: throughput curves, heat maps and rooflines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from helpers.plots.style import (
    DASHES,
    HEAT_COLOURS,
    MARKERS,
    PALETTE,
    TEXT_COLOUR,
    axis_title,
    draw_ceilings,
    error_bar,
    join_notes,
    layout,
    log_axis,
    origin_of,
    require_columns,
    usable_rows,
)

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


def throughput(
    df: pd.DataFrame,
    x: str,
    series: str | Sequence[str],
    y: str = "gb_per_s",
    ceilings: Mapping[str, float] | None = None,
    *,
    title: str = "",
    x_title: str | None = None,
    y_title: str | None = None,
    log_x: bool = False,
    log_y: bool = False,
    height: int = 460,
) -> go.Figure:
    """Draws one line per series, over a size.

    Args:
        df: a long table (one row per point) or a wide one (one column per series).
        x: the column of sizes.
        series: the column with the name of each row's series, or the list of a wide table's series columns.
        y: the column of values in a long table. Error bars are taken from `<y>_low` and `<y>_high`, or, for
            "median_us" and "gb_per_s", from `ci_low_us` and `ci_high_us`. Rows whose `verdict` is not "ok"
            and rows without a value are not drawn, and the figure shows how many there are.
        ceilings: dashed lines: label to value in the unit of `y`, such as `{"copy, GB/s": 2957}`.
        title: the figure's title.
        x_title: the title of the x axis, instead of one derived from the column name.
        y_title: the same for y.
        log_x: whether the x axis is logarithmic.
        log_y: whether the y axis is logarithmic; otherwise it starts at 0.
        height: the figure's height in pixels.

    Raises:
        ValueError: the table lacks a column, or has no row that can be drawn.

    Example:
        >>> import pandas as pd
        >>> from helpers import plots
        >>> rows = pd.DataFrame({"n_cols": [256, 512], "kernel": "mine", "gb_per_s": [900.0, 1800.0]})
        >>> plots.throughput(rows, "n_cols", "kernel").layout.yaxis.title.text
        'effective bandwidth (GB/s)'
    """
    import plotly.graph_objects as go

    origin = origin_of(df)
    if not isinstance(series, str):
        require_columns(df, [x, *series], "throughput")
        df = df.melt(id_vars=[x], value_vars=list(series), var_name="series", value_name="_value")
        df = df.rename(columns={"_value": y})
        series = "series"
    require_columns(df, [x, series, y], "throughput")
    usable, left_out = usable_rows(df, y)
    if usable.empty:
        raise ValueError(f"throughput: no row of the table has a value in {y!r} that can be drawn.")
    fig = go.Figure()
    for i, (name, rows) in enumerate(usable.groupby(series, sort=False)):
        rows = rows.sort_values(x)
        color = PALETTE[i % len(PALETTE)]
        fig.add_trace(
            go.Scatter(
                x=list(rows[x]),
                y=list(rows[y]),
                error_y=error_bar(rows, y, color),
                mode="lines+markers" if len(rows) > 1 else "markers",
                name=str(name),
                line={"color": color, "width": 2},
                marker={"color": color, "symbol": MARKERS[i % len(MARKERS)], "size": 7},
            )
        )
    draw_ceilings(fig, ceilings, ends=[usable[x].min(), usable[x].max()])
    note = join_notes(origin, left_out)
    layout(fig, title, x_title or axis_title(x), y_title or axis_title(y), note=note, height=height)
    fig.update_xaxes(**(log_axis(usable[x]) if log_x else {"tickformat": ","}))
    fig.update_yaxes(**(log_axis(usable[y]) if log_y else {"rangemode": "tozero"}))
    return fig


def heatmap(
    df: pd.DataFrame,
    x: str,
    y: str,
    z: str = "gb_per_s",
    *,
    title: str = "",
    z_format: str = ",.0f",
    from_zero: bool = True,
    height: int = 400,
) -> go.Figure:
    """Draws a grid of values, each printed in its cell.

    The cell of a wrong or refused result shows its verdict and is gray.

    Args:
        df: a table with one row per cell, such as a `sweep` over two axes.
        x: the column along the x axis.
        y: the column along the y axis.
        z: the column of values.
        title: the figure's title.
        z_format: the format of the values in the cells.
        from_zero: whether the color scale starts at 0, so that a small difference looks small.
        height: the figure's height in pixels.

    Raises:
        ValueError: the table lacks a column, or has two rows for the same cell.

    Example:
        >>> import pandas as pd
        >>> from helpers import plots
        >>> rows = pd.DataFrame({"num_warps": [1, 2], "n_cols": [256, 256], "gb_per_s": [900.0, 1100.0]})
        >>> plots.heatmap(rows, "num_warps", "n_cols", "gb_per_s").data[0].type
        'heatmap'
    """
    import plotly.graph_objects as go

    require_columns(df, [x, y, z], "heatmap")
    if df.duplicated([x, y]).any():
        raise ValueError(f"heatmap: several rows have the same {x} and {y}; keep one row per pair.")
    columns, rows = sorted(df[x].unique()), sorted(df[y].unique())
    cells = {(r[x], r[y]): r for r in df.to_dict("records")}
    cell_contents = [[_value_and_text(cells.get((c, r)), z, z_format) for c in columns] for r in rows]
    values = [[value for value, _ in line] for line in cell_contents]
    text = [[text for _, text in line] for line in cell_contents]
    common = {
        "x": [str(c) for c in columns],
        "y": [str(r) for r in rows],
        "texttemplate": "%{text}",
        "textfont": {"color": "#000000"},
        "xgap": 2,
        "ygap": 2,
        "hovertemplate": f"{axis_title(x)}: %{{x}}<br>{axis_title(y)}: %{{y}}<br>%{{text}}<extra></extra>",
    }
    bar = {"title": {"text": axis_title(z), "side": "right"}}
    fig = go.Figure(go.Heatmap(z=values, text=text, colorscale=list(HEAT_COLOURS), colorbar=bar, **common))
    if from_zero:
        fig.update_traces(zmin=0, zmax=max((v for line in values for v in line if v is not None), default=1))
    # Cells without a value are gray, so that it is clear that their text belongs to a cell.
    gray = [[1 if value is None and word else None for value, word in line] for line in cell_contents]
    if any(cell for line in gray for cell in line):
        gray_texts = [[word if value is None else "" for value, word in line] for line in cell_contents]
        flat = [[0, "#C8C8C8"], [1, "#C8C8C8"]]
        fig.add_trace(go.Heatmap(z=gray, text=gray_texts, colorscale=flat, showscale=False, **common))
    layout(fig, title, axis_title(x), axis_title(y), note=origin_of(df), height=height)
    fig.update_xaxes(type="category", showgrid=False)
    fig.update_yaxes(type="category", showgrid=False)
    return fig


def _value_and_text(cell: Mapping | None, z: str, z_format: str) -> tuple[float | None, str]:
    """Returns the value (or None) and the text of a heat map cell; the text is "" if it has no row."""
    if cell is None:
        return None, ""
    if cell.get("verdict", "ok") != "ok":
        return None, str(cell["verdict"])
    if cell[z] is None or math.isnan(cell[z]):
        return None, "no value"
    return cell[z], format(cell[z], z_format)


def roofline(
    df: pd.DataFrame,
    bandwidths: Mapping[str, float],
    peaks: Mapping[str, float] | None = None,
    *,
    x: str = "flop_per_byte",
    y: str = "gflop_per_s",
    label: str = "name",
    title: str = "",
    height: int = 500,
) -> go.Figure:
    """Draws kernels as points below the ceilings of memory bandwidth and arithmetic, on logarithmic axes.

    With a memory bandwidth of B GB/s, a kernel that performs I operations per byte reaches at most B · I
    GFLOP/s (Williams, Waterman, Patterson, "Roofline", CACM 2009).

    Args:
        df: a table with one row per kernel.
        bandwidths: the sloped ceilings: label to GB/s, such as `{"DRAM peak": 3350, "copy": 2957}`.
        peaks: the flat ceilings: label to GFLOP/s, such as `{"fp32": 66_900}`.
        x: the column of operations per byte of memory traffic.
        y: the column of GFLOP/s.
        label: the column with the kernels' names.
        title: the figure's title.
        height: the figure's height in pixels.

    Raises:
        ValueError: the table lacks a column, a value is not above 0, or there is no memory ceiling.
    """
    import plotly.graph_objects as go

    require_columns(df, [x, y, label], "roofline")
    bandwidths = {k: v for k, v in bandwidths.items() if v is not None}
    peaks = {k: v for k, v in (peaks or {}).items() if v is not None}
    if not bandwidths:
        raise ValueError("roofline: pass at least one memory ceiling in GB/s, such as {'DRAM peak': 3350}.")
    if not (df[[x, y]] > 0).all().all():
        raise ValueError(f"roofline: every {x} and {y} must be above 0, because both axes are logarithmic.")
    fig = go.Figure(_roofs(df[x], bandwidths, peaks))
    for i, row in enumerate(df.to_dict("records")):
        fig.add_trace(
            go.Scatter(
                x=[row[x]],
                y=[row[y]],
                mode="markers",
                name=str(row[label]),
                marker={
                    "color": PALETTE[i % 7],
                    "symbol": MARKERS[i % len(MARKERS)],
                    "size": 12,
                    "line": {"color": TEXT_COLOUR, "width": 1},
                },
            )
        )
    layout(fig, title, axis_title(x), axis_title(y), note=origin_of(df), height=height)
    fig.update_xaxes(type="log", dtick=1)
    fig.update_yaxes(type="log", dtick=1)
    return fig


def _roofs(intensities: pd.Series, bandwidths: Mapping[str, float], peaks: Mapping[str, float]) -> list:
    """Returns a roofline's ceilings as lines that extend beyond the kernels and the ridge on both sides."""
    import plotly.graph_objects as go

    max_bandwidth = max(bandwidths.values())
    ridge = max(peaks.values()) / max_bandwidth if peaks else intensities.max() * 10
    left, right = min(intensities.min(), ridge) / 4, max(intensities.max(), ridge) * 4
    top = max(peaks.values(), default=math.inf)

    def roof(i: int, xs: list[float], ys: list[float], name: str, color: str) -> go.Scatter:
        line = {"dash": DASHES[i % len(DASHES)], "color": color, "width": 1.8}
        return go.Scatter(x=xs, y=ys, mode="lines", line=line, name=name, hoverinfo="name")

    roofs = []
    for i, (name, value) in enumerate(bandwidths.items()):
        end = min(right, top / value)
        roofs.append(
            roof(i, [left, end], [left * value, end * value], f"{name}: {value:,.0f} GB/s", TEXT_COLOUR)
        )
    # A peak starts where the highest memory ceiling reaches it.
    for i, (name, value) in enumerate(peaks.items()):
        roofs.append(
            roof(
                i, [value / max_bandwidth, right], [value, value], f"{name}: {value:,.0f} GFLOP/s", PALETTE[4]
            )
        )
    return roofs

"""Curves, heat maps, rooflines, bars and dots from tables, and a table made to be read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from helpers.plots.style import (
    DASHES,
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
    from pandas.io.formats.style import Styler


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
    """One line for each series, over a size.

    Args:
        df: a long table (one row a point) or a wide one (a column for each series).
        x: the column of sizes.
        series: the column that names each row's series, or the list of columns that are the series of a wide table.
        y: the column drawn, of a long table. Error bars come from `<y>_low` and `<y>_high`, or, for "median_us" and
            "gb_per_s", from `ci_low_us` and `ci_high_us`. Rows whose `verdict` is not "ok", and rows without a value,
            are not drawn, and the figure says how many.
        ceilings: label to value in the unit of `y`: dashed lines, such as `{"copy, GB/s": 2957}`.
        title: the figure's title.
        x_title: instead of the column's name in words.
        y_title: the same for y.
        log_x: a logarithmic x axis.
        log_y: a logarithmic y axis; otherwise y starts at 0.
        height: pixels.

    Raises:
        ValueError: a column that the table does not have, or a table without a row that could be drawn.
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
        raise ValueError(f"throughput: no row of the table has a value in {y!r} that could be drawn.")
    fig = go.Figure()
    for i, (name, rows) in enumerate(usable.groupby(series, sort=False)):
        rows = rows.sort_values(x)
        colour = PALETTE[i % len(PALETTE)]
        fig.add_trace(
            go.Scatter(
                x=list(rows[x]),
                y=list(rows[y]),
                error_y=error_bar(rows, y, colour),
                mode="lines+markers" if len(rows) > 1 else "markers",
                name=str(name),
                line={"color": colour, "width": 2},
                marker={"color": colour, "symbol": MARKERS[i % len(MARKERS)], "size": 7},
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
    """A grid of values, each printed in its cell; a cell that is wrong or refused says so and has no colour.

    Args:
        df: one row for each cell, such as a `sweep` over two axes.
        x: the column along the x axis.
        y: the column along the y axis.
        z: the value's column.
        title: the figure's title.
        z_format: the format of the values in the cells.
        from_zero: start the colours at 0, so that a small difference looks small.
        height: pixels.

    Raises:
        ValueError: a column that the table does not have, or two rows for one cell.
    """
    import plotly.graph_objects as go

    require_columns(df, [x, y, z], "heatmap")
    if df.duplicated([x, y]).any():
        raise ValueError(f"heatmap: several rows have the same {x} and {y}; keep one row for each pair.")
    columns, rows = sorted(df[x].unique()), sorted(df[y].unique())
    cells = {(r[x], r[y]): r for r in df.to_dict("records")}

    def value_and_text(column, row) -> tuple[float | None, str]:
        cell = cells.get((column, row))
        if cell is None:
            return None, ""
        if cell.get("verdict", "ok") != "ok":
            return None, str(cell["verdict"])
        if cell[z] is None or math.isnan(cell[z]):
            return None, "no value"
        return cell[z], format(cell[z], z_format)

    grid = [[value_and_text(c, r) for c in columns] for r in rows]
    names = {
        "x": [str(c) for c in columns],
        "y": [str(r) for r in rows],
        "texttemplate": "%{text}",
        "xgap": 2,
        "ygap": 2,
    }
    hover = f"{axis_title(x)}: %{{x}}<br>{axis_title(y)}: %{{y}}<br>%{{text}}<extra></extra>"
    text = [[text for _, text in line] for line in grid]
    values = [[value for value, _ in line] for line in grid]
    bar = {"title": {"text": axis_title(z), "side": "right"}}
    fig = go.Figure(
        go.Heatmap(z=values, text=text, colorscale="Cividis", colorbar=bar, hovertemplate=hover, **names)
    )
    if from_zero:
        fig.update_traces(zmin=0, zmax=max((v for line in values for v in line if v is not None), default=1))
    # Cells without a value are grey: on a transparent page their text would have no background to stand on.
    grey = [[1 if value is None and word else None for value, word in line] for line in grid]
    words = [[word if value is None else "" for value, word in line] for line in grid]
    if any(cell for line in grey for cell in line):
        flat = [[0, "#C8C8C8"], [1, "#C8C8C8"]]
        fig.add_trace(
            go.Heatmap(z=grey, text=words, colorscale=flat, showscale=False, hovertemplate=hover, **names)
        )
    layout(fig, title, axis_title(x), axis_title(y), note=origin_of(df), height=height)
    fig.update_xaxes(type="category", showgrid=False)
    fig.update_yaxes(type="category", showgrid=False)
    return fig


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
    """Kernels as points under the ceilings that memory and arithmetic set, on logarithmic axes.

    Under a memory ceiling of B GB/s a kernel that does I operations a byte reaches at most B · I GFLOP/s
    (Williams, Waterman, Patterson, "Roofline", CACM 2009).

    Args:
        df: one row for each kernel.
        bandwidths: label to GB/s: the sloping ceilings, such as `{"DRAM peak": 3350, "copy": 2957}`.
        peaks: label to GFLOP/s: the level ceilings, such as `{"fp32": 66_900}`.
        x: the column of operations a byte of memory traffic.
        y: the column of GFLOP/s.
        label: the column that names each kernel.
        title: the figure's title.
        height: pixels.

    Raises:
        ValueError: a column that the table does not have, a point that is not above 0, or no ceiling at all.
    """
    import plotly.graph_objects as go

    require_columns(df, [x, y, label], "roofline")
    bandwidths = {k: v for k, v in bandwidths.items() if v is not None}
    peaks = {k: v for k, v in (peaks or {}).items() if v is not None}
    if not bandwidths:
        raise ValueError("roofline: give at least one memory ceiling in GB/s, such as {'DRAM peak': 3350}.")
    if not (df[[x, y]] > 0).all().all():
        raise ValueError(f"roofline: every {x} and {y} must be above 0, since both axes are logarithmic.")
    slope = max(bandwidths.values())
    ridge = max(peaks.values()) / slope if peaks else df[x].max() * 10
    left, right = min(df[x].min(), ridge) / 4, max(df[x].max(), ridge) * 4
    top = max(peaks.values(), default=math.inf)
    fig = go.Figure()

    def ceiling(i: int, xs: list[float], ys: list[float], name: str, colour: str) -> None:
        line = {"dash": DASHES[i % len(DASHES)], "color": colour, "width": 1.8}
        fig.add_trace(go.Scatter(x=xs, y=ys, mode="lines", line=line, name=name, hoverinfo="name"))

    for i, (name, value) in enumerate(bandwidths.items()):
        end = min(right, top / value)
        ceiling(i, [left, end], [left * value, end * value], f"{name}: {value:,.0f} GB/s", TEXT_COLOUR)
    for i, (name, value) in enumerate(peaks.items()):
        ceiling(i, [value / slope, right], [value, value], f"{name}: {value:,.0f} GFLOP/s", PALETTE[4])
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


def bars(
    df: pd.DataFrame,
    x: str,
    y: str = "median_us",
    series: str | None = None,
    ceilings: Mapping[str, float] | None = None,
    *,
    title: str = "",
    x_title: str | None = None,
    y_title: str | None = None,
    value_format: str = ",.0f",
    log_y: bool = False,
    horizontal: bool = False,
    height: int = 430,
) -> go.Figure:
    """One bar for each row with its value beside it, or groups of bars, one for each `series`.

    Args:
        df: one row for each bar; the order is kept.
        x: the column that names the bars.
        y: the column of values; error bars as in `throughput`.
        series: the column that splits each bar into a group of bars.
        ceilings: label to value in the unit of `y`: dashed lines.
        title: the figure's title.
        x_title: instead of the column's name in words.
        y_title: the same for y.
        value_format: the format of the printed values.
        log_y: a logarithmic axis of values.
        horizontal: bars that lie, for long names.
        height: pixels.

    Raises:
        ValueError: a column that the table does not have, or a table without a row that could be drawn.
    """
    import plotly.graph_objects as go

    require_columns(df, [x, y, *([series] if series else [])], "bars")
    usable, left_out = usable_rows(df, y)
    if usable.empty:
        raise ValueError(f"bars: no row of the table has a value in {y!r} that could be drawn.")
    fig = go.Figure()
    groups = usable.groupby(series, sort=False) if series else [(axis_title(y), usable)]
    for i, (name, rows) in enumerate(groups):
        labels, values = list(rows[x].astype(str)), list(rows[y])
        error = error_bar(rows, y, TEXT_COLOUR)
        fig.add_trace(
            go.Bar(
                x=values if horizontal else labels,
                y=labels if horizontal else values,
                error_x=error if horizontal else None,
                error_y=None if horizontal else error,
                orientation="h" if horizontal else "v",
                name=str(name),
                marker={"color": PALETTE[i % len(PALETTE)]},
                text=None if series else [f" {format(v, value_format)} " for v in values],
                textposition=None if series else "outside",
                cliponaxis=False,
            )
        )
    draw_ceilings(fig, ceilings, horizontal=horizontal)
    across, along = x_title or axis_title(x), y_title or axis_title(y)
    note = join_notes(origin_of(df), left_out)
    if horizontal:
        across, along = along, across
    layout(fig, title, across, along, note=note, height=height)
    fig.update_layout(barmode="group", showlegend=bool(series or ceilings))
    values_axis, names_axis = (
        (fig.update_xaxes, fig.update_yaxes) if horizontal else (fig.update_yaxes, fig.update_xaxes)
    )
    values_axis(**(log_axis(usable[y]) if log_y else {"rangemode": "tozero", "tickformat": ",~f"}))
    names_axis(type="category", showgrid=False)
    if horizontal:
        fig.update_yaxes(autorange="reversed")
    return fig


def dots(
    df: pd.DataFrame,
    x: str,
    y: str,
    low: str | None = None,
    high: str | None = None,
    *,
    title: str = "",
    x_title: str | None = None,
    value_format: str = ",.0f",
    log_x: bool = False,
    reference: float | None = None,
    at_least: float = 0.0,
    height: int | None = None,
) -> go.Figure:
    """One point for each row with its value beside it; every point and interval lies inside the axes.

    Args:
        df: one row for each point; the order is kept, from the top.
        x: the column of values.
        y: the column that names the points.
        low: the column of the intervals' lower ends; a row without one has no interval.
        high: the column of their upper ends.
        title: the figure's title.
        x_title: instead of the column's name in words.
        value_format: the format of the printed values.
        log_x: a logarithmic axis of values.
        reference: a dashed line at this value, in the middle of the axis; not with `log_x`.
        at_least: the axis goes at least so far to both sides of `reference`, so that a small difference looks small.
        height: pixels; by default what the rows need.

    Raises:
        ValueError: a column that the table does not have, or a value that a logarithmic axis cannot show.
    """
    import plotly.graph_objects as go

    ends = [c for c in (low, high) if c]
    require_columns(df, [x, y, *ends], "dots")
    if log_x and not (df[[x, *ends]].fillna(1) > 0).all().all():
        raise ValueError(f"dots: every {x} must be above 0, since its axis is logarithmic.")
    first, last = float(df[[x, *ends]].min().min()), float(df[[x, *ends]].max().max())
    if log_x:
        # in powers of ten; the right side has room for the last value's text
        limits = [math.log10(first) - 0.2, math.log10(last) + 0.2 + 0.1 * math.log10(10 * last / first)]
    elif reference is not None:
        half = max(1.6 * abs(first - reference), 1.6 * abs(last - reference), at_least)
        limits = [reference - half, reference + half]
    else:
        margin = 0.1 * (last - first or 1)
        limits = [first - margin, last + 2 * margin]
    error = None
    words = [format(v, value_format) for v in df[x]]
    if low and high:
        up, down = (df[high] - df[x]).fillna(0), (df[x] - df[low]).fillna(0)
        error = {"type": "data", "symmetric": False, "array": list(up), "arrayminus": list(down)}
    fig = go.Figure(
        go.Scatter(
            x=list(df[x]),
            y=list(df[y].astype(str)),
            error_x=error,
            mode="markers" if error else "markers+text",
            text=words,
            textposition="top center",
            marker={"size": 11, "color": PALETTE[0]},
            showlegend=False,
        )
    )
    if error:  # beside the marker the text would lie on the interval
        edge = 10 ** limits[1] if log_x else limits[1]
        ends = {"mode": "text", "textposition": "top left", "hoverinfo": "skip", "showlegend": False}
        fig.add_scatter(x=[edge] * len(df), y=list(df[y].astype(str)), text=words, **ends)
    if reference is not None:
        fig.add_vline(x=reference, line={"dash": "dash", "color": TEXT_COLOUR})
    layout(fig, title, x_title or axis_title(x), note=origin_of(df), height=height or 150 + 40 * len(df))
    fig.update_xaxes(range=limits, **(log_axis(df[x]) if log_x else {}))
    fig.update_yaxes(type="category", range=[len(df) - 0.5, -0.6])
    return fig


def table(df: pd.DataFrame, columns: Mapping[str, str], *, decimals: int | Mapping[str, int] = 1) -> Styler:
    """A table to be read: chosen columns under headings with units, rounded, a dash where there is no value.

    Args:
        df: any table.
        columns: column to heading, in the order shown; the others are left out.
        decimals: places after the point, of all numbers that are not whole, or a number for each column.

    Raises:
        ValueError: a column that the table does not have.
    """
    require_columns(df, list(columns), "table")
    shown = df[list(columns)].reset_index(drop=True)
    words = [columns[c] for c in columns if any(isinstance(v, str) for v in shown[c])]
    places = {} if isinstance(decimals, int) else {columns[c]: f"{{:,.{n}f}}" for c, n in decimals.items()}
    styler = shown.rename(columns=dict(columns)).style.hide(axis="index")
    styler.format(
        places or None,
        precision=decimals if isinstance(decimals, int) else 1,
        thousands=",",
        na_rep="–",
        escape="html",
    )
    left = [{"selector": "th, td", "props": "text-align: left"}]
    return styler.set_table_styles({word: left for word in words} if words else [])

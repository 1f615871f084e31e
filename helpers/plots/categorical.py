"""Figures with names on one axis: bars, and dots with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from helpers.plots.style import (
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
    text_on,
    usable_rows,
)

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


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
    """Draws one bar per row, labeled with its value, or groups of bars with one bar per `series`.

    Args:
        df: a table with one row per bar; the order is preserved.
        x: the column with the names of the bars.
        y: the column of values; error bars work as in `throughput`.
        series: the column that splits each bar into a group of bars.
        ceilings: dashed lines: label to value in the unit of `y`.
        title: the figure's title.
        x_title: the title of the x axis, instead of one derived from the column name.
        y_title: the same for y.
        value_format: the format of the printed values.
        log_y: whether the value axis is logarithmic.
        horizontal: whether the bars are horizontal, which suits long names.
        height: the figure's height in pixels.

    Raises:
        ValueError: the table lacks a column, or has no row that can be drawn.

    Example:
        >>> import pandas as pd
        >>> from helpers import plots
        >>> rows = pd.DataFrame({"kernel": ["mine", "torch"], "gb_per_s": [2000.0, 2900.0]})
        >>> plots.bars(rows, "kernel", "gb_per_s", ceilings={"copy": 3000.0}).layout.yaxis.title.text
        'effective bandwidth (GB/s)'
    """
    import plotly.graph_objects as go

    require_columns(df, [x, y, *([series] if series else [])], "bars")
    usable, left_out = usable_rows(df, y)
    if usable.empty:
        raise ValueError(f"bars: no row of the table has a value in {y!r} that can be drawn.")
    fig = go.Figure()
    named_ticks: list[str] = []
    groups = usable.groupby(series, sort=False) if series else [(axis_title(y), usable)]
    for i, (name, rows) in enumerate(groups):
        labels, values = list(rows[x].astype(str)), list(rows[y])
        error = error_bar(rows, y, TEXT_COLOUR)
        value_texts = [f" {format(v, value_format)} " for v in values]
        places = _places(values, ceilings, log_y)
        if not series and "none" in places:
            named_ticks = [
                f"{label}<br>{word.strip()}" if place == "none" else label
                for label, word, place in zip(labels, value_texts, places, strict=True)
            ]
        fig.add_trace(
            go.Bar(
                x=values if horizontal else labels,
                y=labels if horizontal else values,
                error_x=error if horizontal else None,
                error_y=None if horizontal else error,
                orientation="h" if horizontal else "v",
                name=str(name),
                marker={"color": PALETTE[i % len(PALETTE)]},
                text=None if series else value_texts,
                textposition=None if series else places if ceilings else "outside",
                insidetextfont={"color": text_on(PALETTE[i % len(PALETTE)])},
                insidetextanchor="start",
                textangle=0,
                cliponaxis=False,
            )
        )
    draw_ceilings(fig, ceilings, horizontal=horizontal)
    x_label, y_label = x_title or axis_title(x), y_title or axis_title(y)
    note = join_notes(origin_of(df), left_out)
    if horizontal:
        x_label, y_label = y_label, x_label
    layout(fig, title, x_label, y_label, note=note, height=height)
    fig.update_layout(barmode="group", showlegend=bool(series or ceilings))
    values_axis, names_axis = (
        (fig.update_xaxes, fig.update_yaxes) if horizontal else (fig.update_yaxes, fig.update_xaxes)
    )
    values_axis(**(log_axis(usable[y]) if log_y else {"rangemode": "tozero", "tickformat": ",~f"}))
    names_axis(type="category", showgrid=False)
    if named_ticks:
        names_axis(tickvals=list(range(len(named_ticks))), ticktext=named_ticks)
    if horizontal:
        fig.update_yaxes(autorange="reversed")
    return fig


def _places(values: Sequence[float], ceilings: Mapping[str, float] | None, log: bool) -> list[str]:
    """Returns where to print each bar's value ("outside", "inside" or "none"), away from the ceilings.

    "none" means next to the bar's name. If there are ceilings, the value is printed at the base of the bar if
    the bar is long enough, and otherwise above it unless a ceiling is close.
    """
    lines = [value for value in (ceilings or {}).values() if value is not None]
    if not lines or not values:
        return ["outside"] * len(values)
    top = max(*values, *lines)
    if log or len(values) > 10 or min(lines) < 0.25 * top:
        # A logarithmic bar starts below all values, and narrow bars or low ceilings leave no room for a
        # label at the base.
        return ["none"] * len(values)
    near_ceiling = [any(v - 0.05 * top <= line <= v + 0.3 * top for line in lines) for v in values]
    return [
        "inside" if v >= 0.25 * top else "none" if close else "outside"
        for v, close in zip(values, near_ceiling, strict=True)
    ]


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
    """Draws one labeled point per row. The axis range contains every point and interval.

    Args:
        df: a table with one row per point; the order from the top is preserved.
        x: the column of values.
        y: the column with the names of the points.
        low: the column with the lower ends of the intervals; a row without a value has no interval.
        high: the column with the upper ends.
        title: the figure's title.
        x_title: the title of the x axis, instead of one derived from the column name.
        value_format: the format of the printed values.
        log_x: whether the value axis is logarithmic.
        reference: draws a dashed line at this value, in the middle of the axis; not possible with `log_x`.
        at_least: the minimum extent of the axis on both sides of `reference`, so that a small difference
            looks small.
        height: the figure's height in pixels; chosen from the number of rows by default.

    Raises:
        ValueError: the table lacks a column, or has a value that a logarithmic axis cannot show.

    Example:
        >>> import pandas as pd
        >>> from helpers import plots
        >>> rows = pd.DataFrame({"kernel": ["mine", "torch"], "median_us": [1.2, 1.1]})
        >>> plots.dots(rows, "median_us", "kernel").layout.xaxis.title.text
        'time (µs)'
    """
    import plotly.graph_objects as go

    ends = [c for c in (low, high) if c]
    require_columns(df, [x, y, *ends], "dots")
    if log_x and not (df[[x, *ends]].fillna(1) > 0).all().all():
        raise ValueError(f"dots: every {x} must be above 0, because its axis is logarithmic.")
    first, last = float(df[[x, *ends]].min().min()), float(df[[x, *ends]].max().max())
    limits = _limits(first, last, log_x, reference, at_least)
    error = None
    value_texts = [format(v, value_format) for v in df[x]]
    if low and high:
        up, down = (df[high] - df[x]).fillna(0), (df[x] - df[low]).fillna(0)
        error = {"type": "data", "symmetric": False, "array": list(up), "arrayminus": list(down)}
    annotated = error is not None or reference is not None
    fig = go.Figure(
        go.Scatter(
            x=list(df[x]),
            y=list(df[y].astype(str)),
            error_x=error,
            mode="markers" if annotated else "markers+text",
            text=value_texts,
            textposition="top center",
            marker={"size": 11, "color": PALETTE[0]},
            showlegend=False,
        )
    )
    if annotated:
        # Text at the marker would overlap the interval or the reference line.
        edge = 10 ** limits[1] if log_x else limits[1]
        text_style = {"mode": "text", "textposition": "top left", "hoverinfo": "skip", "showlegend": False}
        fig.add_scatter(x=[edge] * len(df), y=list(df[y].astype(str)), text=value_texts, **text_style)
    if reference is not None:
        fig.add_vline(x=reference, line={"dash": "dash", "color": TEXT_COLOUR})
    layout(fig, title, x_title or axis_title(x), note=origin_of(df), height=height or 150 + 40 * len(df))
    fig.update_xaxes(range=limits, **(log_axis(df[x]) if log_x else {}))
    fig.update_yaxes(type="category", range=[len(df) - 0.5, -0.6])
    return fig


def _limits(first: float, last: float, log: bool, reference: float | None, at_least: float) -> list[float]:
    """Returns axis limits that contain `first` to `last`, as powers of ten on a logarithmic axis.

    The right end leaves room for the label of the last value.
    """
    if log:
        return [math.log10(first) - 0.2, math.log10(last) + 0.2 + 0.1 * math.log10(10 * last / first)]
    if reference is not None:
        half = max(1.6 * abs(first - reference), 1.6 * abs(last - reference), at_least)
        return [reference - half, reference + half]
    margin = 0.1 * (last - first or 1)
    return [first - margin, last + 2 * margin]

"""The figure of `widgets.explore`: a bar for each kernel at the current point, and the map of one kernel.

`build` makes it once; `change` says what differs at another point, so that a slider's move sends only that.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers import plots
from helpers.widgets.explain import RIGHT, brief, reason
from helpers.widgets.space import Space, axis_title
from helpers.widgets.space import label as written
from helpers.widgets.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

Row = Mapping[str, Any]
GREY = "#C8C8C8"
_BAR_WIDTH = 0.42  # of the distance from bar to bar; a label stands in what is left
FRAME = {
    "mode": "lines",
    "line": {"color": plots.PALETTE[3], "width": 4},
    "hoverinfo": "skip",
    "showlegend": False,
}


def colour(space: Space, kernel: str) -> str:
    """A kernel's colour in all figures of a space: its own, or one that neither another kernel nor the frame
    has.
    """
    if kernel in space.colours:
        return space.colours[kernel]
    taken = {FRAME["line"]["color"], *space.colours.values()}
    free = [shade for shade in plots.PALETTE if shade not in taken] or plots.PALETTE
    others = [k for k in (*space.mapped, *space.rivals) if k not in space.colours]
    return free[others.index(kernel) % len(free)]


def percent(table: Table, gb_per_s: float) -> str:
    """How much of this GPU's copy bandwidth that is."""
    copy = table.spec.copy_gb_per_s
    return f"{100 * gb_per_s / copy:.0f} % of copy" if copy else ""


def _timed(row: Row | None) -> bool:
    return row is not None and row["verdict"] == "ok"


def _right(row: Row | None) -> bool:
    return row is not None and row["verdict"] in RIGHT


def _bar_text(table: Table, row: Row | None) -> str:
    """What stands beside a kernel's bar."""
    if row is None:
        return "not measured yet"
    if not _right(row):
        if row["kernel"] in table.space.mapped:
            return str(row["verdict"])  # the sentence under the figure has the reason
        if row["verdict"] == "untimed":
            return "not timed here"
        return f"{row['verdict']}: {row['reason'][:46]}"
    if not table.timed:
        held = table.value(row)
        spills = f", {row['spill_bytes']:,} B spilled" if row["spill_bytes"] else ""
        return "right, not timed" if held is None else f"right, {held} % occupied{spills}"
    return f"{row['gb_per_s']:,.0f} GB/s, {percent(table, row['gb_per_s'])}"


def _bar_hover(label: str, row: Row | None) -> str:
    if row is None:
        return label
    if not _timed(row):
        return f"{label}<br>{row['reason']}"
    interval = f"95 % CI {row['ci_low_us']:,.2f} to {row['ci_high_us']:,.2f}"
    return f"{label}<br>{row['median_us']:,.2f} µs ({interval})"


def _interval(row: Row | None) -> tuple[float, float]:
    """How far up and down the 95 % interval of a row's GB/s goes; no way where it was not timed."""
    if not _timed(row):
        return 0, 0
    up = row["gb_per_s"] * (row["median_us"] / row["ci_low_us"] - 1)
    return up, row["gb_per_s"] * (1 - row["median_us"] / row["ci_high_us"])


@dataclass(frozen=True)
class _Bars:
    """The bars' data at a point, in the order of the kernels: values, words, how far intervals go, and who is
    wrong.
    """

    values: list[float]
    labels: list[str]
    hovers: list[str]
    up: list[float]
    down: list[float]
    places: list[int]
    label_places: list[float]
    wrong: list[bool]


def _bars(table: Table, kernels: Sequence[str], point: Mapping[str, Any]) -> _Bars:
    rows = [table.row(kernel, point) for kernel in kernels]
    labels = [f"<b>{kernel}</b>  {_bar_text(table, row)}" for kernel, row in zip(kernels, rows, strict=True)]
    intervals = [_interval(row) for row in rows]
    return _Bars(
        values=[table.value(row) or 0 for row in rows],
        labels=labels,
        hovers=[_bar_hover(label, row) for label, row in zip(labels, rows, strict=True)],
        up=[up for up, _ in intervals],
        down=[down for _, down in intervals],
        places=list(range(len(kernels))),
        label_places=[i - 0.36 for i in range(len(kernels))],
        wrong=[row is not None and row["verdict"] == "wrong" for row in rows],
    )


@dataclass(frozen=True)
class Cells:
    """One kernel's map in two layers, each a list of lines: cells with a value, and grey ones with words.

    A cell belongs to one layer and has its hover text there; None elsewhere, since a page holds hundreds of
    maps.

    Attributes:
        values: GB/s, or what `Table.value` gives.
        hovers: what was compiled.
        grey: 1 for a grey cell.
        words: the verdict in a grey cell, "" elsewhere.
        grey_hovers: the reason of a verdict.
    """

    values: list[list[float | None]]
    hovers: list[list[str | None]]
    grey: list[list[int | None]]
    words: list[list[str]]
    grey_hovers: list[list[str | None]]


def cells(table: Table, kernel: str, point: Mapping[str, Any]) -> Cells:
    """The map of one kernel at the point's size and dtype."""
    space = table.space
    rows = [
        [table.row(kernel, {**point, space.x: x, space.y: y}) for x in space.axes[space.x]]
        for y in space.axes[space.y]
    ]

    def refused(row: Row | None) -> bool:
        return row is not None and table.value(row) is None

    return Cells(
        values=[[table.value(row) for row in line] for line in rows],
        hovers=[[None if table.value(row) is None else brief(table, row) for row in line] for line in rows],
        grey=[[1 if refused(row) else None for row in line] for line in rows],
        words=[[row["verdict"] if refused(row) else "" for row in line] for line in rows],
        grey_hovers=[[brief(table, row) if refused(row) else None for row in line] for line in rows],
    )


def heading(table: Table, point: Mapping[str, Any]) -> str:
    """The title: what is computed, and where the figures come from."""
    space, n_cols = table.space, point["n_cols"]
    return (
        f"{html.escape(space.operation)} of {space.rows(n_cols):,} × {n_cols:,} {point['dtype']}<br>"
        f"<sub>{html.escape(table.note)}</sub>"
    )


def highest(table: Table) -> float:
    """The end of the axes: a little above the copy ceiling and everything measured; 100 % where nothing is
    timed.
    """
    if not table.timed:
        return 102
    known = [row["gb_per_s"] for row in table.rows.values() if row["verdict"] == "ok"]
    return 1.02 * max([table.spec.copy_gb_per_s or 0, *known, 1])


def build(table: Table, kernels: Sequence[str], mapped: str, point: Mapping[str, Any]) -> go.Figure:
    """The whole figure at a point: traces bars, their labels, map, grey cells, the point's frame, the wrong
    ones' bars.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    space, top = table.space, highest(table)
    fig = make_subplots(rows=1, cols=2, column_widths=[0.47, 0.53], horizontal_spacing=0.12)
    for trace in _bar_traces(table, kernels, point):
        fig.add_trace(trace, row=1, col=1)
    for trace in map_traces(table, mapped, point, top):
        fig.add_trace(trace, row=1, col=2)
    x, y = frame(table, point)
    fig.add_trace(go.Scatter(x=x, y=y, **FRAME), row=1, col=2)
    fig.add_trace(_hatched(_bars(table, kernels, point), top), row=1, col=1)
    plots.layout(fig, heading(table, point), height=460)
    fig.update_layout(margin={"l": 20, "r": 20, "t": 96, "b": 60}, autosize=True, barmode="overlay")
    fig.update_xaxes(title_text=value_title(table), range=[0, 1.04 * top], row=1, col=1)
    fig.update_yaxes(
        title_text="",
        range=_bar_range(kernels),
        showticklabels=False,
        showgrid=False,
        ticks="",
        zeroline=False,
        row=1,
        col=1,
    )
    fig.update_xaxes(**map_axis(table, space.x), row=1, col=2)
    fig.update_yaxes(**map_axis(table, space.y), row=1, col=2)
    about = {"showarrow": False, "yanchor": "bottom", "y": 1.005, "font": {"size": 13}}
    fig.add_annotation(text=map_title(table, mapped), x=0.5, xref="x2 domain", yref="y2 domain", **about)
    if copy := table.spec.copy_gb_per_s:
        fig.add_shape(_copy_line(copy, kernels))
        fig.add_annotation(
            text=f"copy: {copy:,.0f}", x=copy, xref="x", yref="y domain", xanchor="right", **about
        )
    return fig


def _bar_traces(table: Table, kernels: Sequence[str], point: Mapping[str, Any]) -> tuple:
    """The bars, and their labels above them."""
    import plotly.graph_objects as go

    data = _bars(table, kernels, point)
    bars = go.Bar(
        orientation="h", y=data.places, x=data.values, hovertext=data.hovers, width=_BAR_WIDTH,
        hovertemplate="%{hovertext}<extra></extra>", showlegend=False,
        marker={"color": [colour(table.space, k) for k in kernels]},
        error_x={"type": "data", "symmetric": False, "array": data.up, "arrayminus": data.down,
                 "color": plots.TEXT_COLOUR, "thickness": 1.5, "width": 4},
    )  # fmt: skip
    labels = go.Scatter(
        x=[0] * len(kernels), y=data.label_places, text=data.labels, mode="text",
        textposition="middle right", hoverinfo="skip", showlegend=False, cliponaxis=False,
    )  # fmt: skip
    return bars, labels


def _hatched(data: _Bars, top: float) -> go.Bar:
    """A bar from end to end for each wrong kernel: it has no value, and is not to be overlooked."""
    import plotly.graph_objects as go

    return go.Bar(
        orientation="h",
        y=data.places,
        x=_lengths(data, top),
        width=_BAR_WIDTH,
        showlegend=False,
        hovertext=data.hovers,
        hovertemplate="%{hovertext}<extra></extra>",
        marker={
            "color": "rgba(0,0,0,0)",
            "line": {"color": FRAME["line"]["color"], "width": 1},
            "pattern": {"shape": "/", "fgcolor": FRAME["line"]["color"], "fillmode": "overlay", "size": 9},
        },
    )


def _lengths(data: _Bars, top: float) -> list[float | None]:
    """Of the hatched bars. They keep their places: a figure whose module loads late loses places that did not
    change.
    """
    return [top if wrong else None for wrong in data.wrong]


def value_title(table: Table) -> str:
    """What bars and curves show, with its unit."""
    return "effective bandwidth (GB/s)" if table.timed else "occupancy (%), not a speed"


def _bar_range(kernels: Sequence[str]) -> list[float]:
    """The bars' vertical axis: the first on top, with room for its label."""
    return [len(kernels) - 0.6, -0.7]


def _copy_line(copy: float, kernels: Sequence[str]) -> dict[str, Any]:
    """The line of the copy ceiling, in pieces: it leaves out the labels above the bars, some of which are as
    long.
    """
    pieces = [f"M {copy},{place - _BAR_WIDTH / 2} L {copy},{place + 0.45}" for place in range(len(kernels))]
    look = {"dash": "dash", "color": plots.TEXT_COLOUR, "width": 1.6}
    return {"type": "path", "path": " ".join(pieces), "line": look, "xref": "x", "yref": "y"}


def frame(table: Table, point: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """The outline of the point's cell on the map, whose axes count positions."""
    space = table.space
    x, y = (list(space.axes[axis]).index(point[axis]) for axis in (space.x, space.y))
    return [x - 0.5, x + 0.5, x + 0.5, x - 0.5, x - 0.5], [y - 0.5, y - 0.5, y + 0.5, y + 0.5, y - 0.5]


def map_axis(table: Table, axis: str) -> dict[str, Any]:
    """An axis of the map: one position for each value of the slider."""
    values = table.space.axes[axis]
    return {
        "title": {"text": axis_title(axis)},
        "tickvals": list(range(len(values))),
        "ticktext": [written(v) for v in values],
        "range": [-0.5, len(values) - 0.5],
        "showgrid": False,
        "zeroline": False,
    }


def map_traces(table: Table, kernel: str, point: Mapping[str, Any], top: float, **look: Any) -> tuple:
    """The map's two layers: cells with a value, and grey cells that say why they have none."""
    import plotly.graph_objects as go

    at = cells(table, kernel, point)
    look = {"xgap": 2, "ygap": 2, "hovertemplate": "%{hovertext}<extra></extra>", **look}
    bar = {"title": {"text": table.unit, "side": "right"}, "thickness": 14}
    values = go.Heatmap(
        z=at.values, hovertext=at.hovers, colorscale=list(plots.HEAT_COLOURS), zmin=0, zmax=top,
        texttemplate="%{z:,.0f}", textfont={"size": 11, "color": "#000000"}, **{"colorbar": bar, **look},
    )  # fmt: skip
    grey = go.Heatmap(
        z=at.grey, text=at.words, hovertext=at.grey_hovers, colorscale=[[0, GREY], [1, GREY]],
        texttemplate="%{text}", textfont={"size": 11, "color": "#333333"}, **{**look, "showscale": False},
    )  # fmt: skip
    return values, grey


def map_title(table: Table, kernel: str) -> str:
    """Over the map."""
    return f"{kernel}: {table.unit}"


def change(
    fig: Any, table: Table, kernels: Sequence[str], mapped: str, point: Mapping[str, Any], *, redraw_map: bool
) -> None:
    """Move an existing figure (widget) to another point; the map only where it is another one."""
    with fig.batch_update():
        bar, label, heat, grey, mark, hatched = fig.data
        data = _bars(table, kernels, point)
        if len(bar.y) != len(kernels) or redraw_map:
            bar.y, label.y, label.x = data.places, data.label_places, [0] * len(kernels)
            hatched.y = data.places
            bar.marker.color = [colour(table.space, k) for k in kernels]
            fig.layout.yaxis.range = _bar_range(kernels)
            if copy := table.spec.copy_gb_per_s:
                fig.layout.shapes = [_copy_line(copy, kernels)]
        bar.x, bar.hovertext, label.text = data.values, data.hovers, data.labels
        bar.error_x.array, bar.error_x.arrayminus = data.up, data.down
        hatched.x, hatched.hovertext = _lengths(data, highest(table)), data.hovers
        mark.x, mark.y = frame(table, point)
        if redraw_map:
            at = cells(table, mapped, point)
            heat.z, heat.hovertext = at.values, at.hovers
            grey.z, grey.text, grey.hovertext = at.grey, at.words, at.grey_hovers
            fig.layout.title.text = heading(table, point)
            fig.layout.annotations[0].text = map_title(table, mapped)


def exchange(fig: Any, table: Table, kernels: Sequence[str], mapped: str, point: Mapping[str, Any]) -> None:
    """Show another GPU's table in an existing figure (widget): values, ceiling and axes, at the
    same point.
    """
    made = build(table, kernels, mapped, point)
    with fig.batch_update():
        fig.update(
            {"data": [trace.to_plotly_json() for trace in made.data], "layout": made.layout.to_plotly_json()}
        )


def reasons_html(table: Table, kernels: Sequence[str], point: Mapping[str, Any]) -> str:
    """The sentences under the figure, one for each kernel that depends on the sliders."""
    lines = []
    for kernel in kernels:
        if kernel in table.space.mapped:
            row = table.row(kernel, point)
            lines.append(f"<div><b>{html.escape(kernel)}</b>: {html.escape(reason(table, row))}</div>")
    return f'<div role="status" style="line-height:1.5">{"".join(lines)}</div>'

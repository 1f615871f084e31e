"""The figure of `widgets.explore`: a bar for each kernel at the current point, and the map of one kernel.

`build` makes it once; `change` says what differs at another point, so that a slider's move sends only that.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from helpers import plots
from helpers.widgets.table import UNITS, WORDS, Table, brief, reason

if TYPE_CHECKING:
    import plotly.graph_objects as go

GREY = "#C8C8C8"
KERNEL_COLOURS = {
    "Triton rows": plots.PALETTE[0],
    "Triton flat": plots.PALETTE[1],
    "CUDA C++": plots.PALETTE[2],
    "torch.square": plots.PALETTE[4],
    "torch.compile": plots.PALETTE[5],
    "one block": plots.PALETTE[0],
    "online": plots.PALETTE[1],
    "by plan": plots.PALETTE[2],
    "torch.softmax": plots.PALETTE[4],
}


def axis_name(axis: str) -> str:
    """A slider's axis in words, with its unit."""
    return f"{WORDS[axis]} ({UNITS[axis]})" if axis in UNITS else WORDS[axis]


def percent(table: Table, gb_per_s: float) -> str:
    """How much of this GPU's copy bandwidth that is."""
    copy = table.spec.copy_gb_per_s
    return f"{100 * gb_per_s / copy:.0f} % of copy" if copy else ""


def bar_text(table: Table, row: Mapping[str, Any] | None) -> str:
    """What stands beside a kernel's bar."""
    if row is None:
        return "not measured yet"
    if row["verdict"] != "ok":
        if row["kernel"] in table.space.mapped:
            return str(row["verdict"])  # the sentence under the figure has the reason
        return f"{row['verdict']}: {row['reason'][:46]}"
    return f"{row['gb_per_s']:,.0f} GB/s, {percent(table, row['gb_per_s'])}"


def interval(row: Mapping[str, Any]) -> tuple[float, float]:
    """How far up and down the 95 % interval of a row's GB/s goes."""
    up = row["gb_per_s"] * (row["median_us"] / row["ci_low_us"] - 1)
    return up, row["gb_per_s"] * (1 - row["median_us"] / row["ci_high_us"])


def bars(table: Table, kernels: Sequence[str], point: Mapping[str, Any]) -> dict[str, Any]:
    """The bars' data at a point: values, labels, intervals and hover texts, in the order of `kernels`."""
    data: dict[str, list] = {name: [] for name in ("x", "label", "hovertext", "up", "down")}
    for kernel in kernels:
        row = table.row(kernel, point)
        ok = row is not None and row["verdict"] == "ok"
        label = f"<b>{kernel}</b>  {bar_text(table, row)}"
        hover = label
        if ok:
            hover += f"<br>{row['median_us']:,.2f} µs (95 % CI {row['ci_low_us']:,.2f} to {row['ci_high_us']:,.2f})"
        elif row is not None:
            hover += f"<br>{row['reason']}"
        up, down = interval(row) if ok else (0, 0)
        found = (row["gb_per_s"] if ok else 0, label, hover, up, down)
        for name, value in zip(data, found, strict=True):
            data[name].append(value)
    return data


def cells(table: Table, kernel: str, point: Mapping[str, Any]) -> dict[str, list[list[Any]]]:
    """The map of one kernel at the point's size and dtype, for two layers: cells with a value, and grey ones with words.

    Each cell belongs to one layer and has its hover text there; None elsewhere, since a page holds hundreds of maps.
    """
    space = table.space
    grid: dict[str, list[list[Any]]] = {name: [] for name in ("z", "hovertext", "words", "hovertext_grey")}
    for y in space.axes[space.y]:
        for line in grid.values():
            line.append([])
        for x in space.axes[space.x]:
            row = table.row(kernel, {**point, space.x: x, space.y: y})
            ok = row is not None and row["verdict"] == "ok"
            grey = row is not None and not ok
            about = brief(table, row)
            found = (row["gb_per_s"] if ok else None, about if ok else None,
                     row["verdict"] if grey else "", about if grey else None)  # fmt: skip
            for line, value in zip(grid.values(), found, strict=True):
                line[-1].append(value)
    return grid


def heading(table: Table, point: Mapping[str, Any]) -> str:
    """The title: what is squared, and where the figures come from."""
    return (
        f"{table.space.operation} of {table.space.rows(point['n_cols']):,} × {point['n_cols']:,} {point['dtype']}<br><sub>{html.escape(table.origin)}"
        " · every kernel was checked before it was timed</sub>"
    )


def highest(table: Table) -> float:
    """The end of the axes: a little above the copy ceiling and everything measured."""
    known = [row["gb_per_s"] for row in table.rows.values() if row["verdict"] == "ok"]
    return 1.02 * max([table.spec.copy_gb_per_s or 0, *known, 1])


def build(table: Table, kernels: Sequence[str], mapped: str, point: Mapping[str, Any]) -> go.Figure:
    """The whole figure at a point: traces bars, their labels, map, grey cells, the point's frame."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    space, top = table.space, highest(table)
    fig = make_subplots(rows=1, cols=2, column_widths=[0.47, 0.53], horizontal_spacing=0.12)
    data, places = bars(table, kernels, point), list(range(len(kernels)))
    fig.add_trace(
        go.Bar(
            orientation="h", y=places, x=data["x"], hovertext=data["hovertext"], width=0.42,
            hovertemplate="%{hovertext}<extra></extra>", showlegend=False,
            marker={"color": [KERNEL_COLOURS[k] for k in kernels]},
            error_x={"type": "data", "symmetric": False, "array": data["up"], "arrayminus": data["down"],
                     "color": plots.TEXT_COLOUR, "thickness": 1.5, "width": 4},
        ),
        row=1, col=1,
    )  # fmt: skip
    fig.add_trace(
        go.Scatter(
            x=[0] * len(places), y=[i - 0.36 for i in places], text=data["label"], mode="text",
            textposition="middle right", hoverinfo="skip", showlegend=False, cliponaxis=False,
        ),
        row=1, col=1,
    )  # fmt: skip
    for trace in map_traces(table, mapped, point, top):
        fig.add_trace(trace, row=1, col=2)
    x, y = frame(table, point)
    fig.add_trace(go.Scatter(x=x, y=y, **FRAME), row=1, col=2)
    plots.layout(fig, heading(table, point), height=460)
    fig.update_layout(margin={"l": 20, "r": 20, "t": 96, "b": 60}, autosize=True)
    fig.update_xaxes(title_text="effective bandwidth (GB/s)", range=[0, 1.04 * top], row=1, col=1)
    fig.update_yaxes(
        title_text="", range=[len(kernels) - 0.6, -0.7], showticklabels=False, showgrid=False, ticks="", zeroline=False,
        row=1, col=1,
    )  # fmt: skip
    fig.update_xaxes(**map_axis(table, space.x), row=1, col=2)
    fig.update_yaxes(**map_axis(table, space.y), row=1, col=2)
    about = {"showarrow": False, "yanchor": "bottom", "y": 1.005, "font": {"size": 13}}
    fig.add_annotation(text=map_title(mapped), x=0.5, xref="x2 domain", yref="y2 domain", **about)
    if copy := table.spec.copy_gb_per_s:
        fig.add_vline(x=copy, line={"dash": "dash", "color": plots.TEXT_COLOUR, "width": 1.6}, row=1, col=1)
        fig.add_annotation(
            text=f"copy: {copy:,.0f}", x=copy, xref="x", yref="y domain", xanchor="right", **about
        )
    return fig


FRAME = {
    "mode": "lines",
    "line": {"color": plots.PALETTE[3], "width": 4},
    "hoverinfo": "skip",
    "showlegend": False,
}


def frame(table: Table, point: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """The outline of the point's cell on the map, whose axes count positions."""
    space = table.space
    x, y = (list(space.axes[axis]).index(point[axis]) for axis in (space.x, space.y))
    return [x - 0.5, x + 0.5, x + 0.5, x - 0.5, x - 0.5], [y - 0.5, y - 0.5, y + 0.5, y + 0.5, y - 0.5]


def map_axis(table: Table, axis: str) -> dict[str, Any]:
    """An axis of the map: one position for each value of the slider."""
    values = table.space.axes[axis]
    return {
        "title": {"text": axis_name(axis)}, "tickvals": list(range(len(values))), "ticktext": [f"{v:,}" for v in values],
        "range": [-0.5, len(values) - 0.5], "showgrid": False, "zeroline": False,
    }  # fmt: skip


def map_traces(table: Table, kernel: str, point: Mapping[str, Any], top: float, **look: Any) -> tuple:
    """The map's two layers: cells with a value, and grey cells that say why they have none."""
    import plotly.graph_objects as go

    grid = cells(table, kernel, point)
    look = {"xgap": 2, "ygap": 2, "hovertemplate": "%{hovertext}<extra></extra>", **look}
    bar = {"title": {"text": "GB/s", "side": "right"}, "thickness": 14}
    values = go.Heatmap(
        z=grid["z"], hovertext=grid["hovertext"], colorscale="Cividis", zmin=0, zmax=top,
        texttemplate="%{z:,.0f}", textfont={"size": 11}, **{"colorbar": bar, **look},
    )  # fmt: skip
    grey = go.Heatmap(
        z=grey_cells(grid), text=grid["words"], hovertext=grid["hovertext_grey"], colorscale=[[0, GREY], [1, GREY]],
        texttemplate="%{text}", textfont={"size": 11, "color": "#333333"}, **{**look, "showscale": False},
    )  # fmt: skip
    return values, grey


def map_title(kernel: str) -> str:
    """Over the map."""
    return f"{kernel}: GB/s"


def grey_cells(grid: Mapping[str, list]) -> list[list[int | None]]:
    """1 where a cell is grey, None elsewhere."""
    return [[1 if word else None for word in line] for line in grid["words"]]


def change(
    fig: Any, table: Table, kernels: Sequence[str], mapped: str, point: Mapping[str, Any], *, redraw_map: bool
) -> None:
    """Move an existing figure (widget) to another point; the map only where it is another one."""
    with fig.batch_update():
        bar, label, heat, grey, mark = fig.data
        data, places = bars(table, kernels, point), list(range(len(kernels)))
        if len(bar.y) != len(places) or redraw_map:
            bar.y, label.y, label.x = places, [i - 0.36 for i in places], [0] * len(places)
            bar.marker.color = [KERNEL_COLOURS[k] for k in kernels]
            fig.layout.yaxis.range = [len(kernels) - 0.6, -0.7]
        bar.x, bar.hovertext, label.text = data["x"], data["hovertext"], data["label"]
        bar.error_x.array, bar.error_x.arrayminus = data["up"], data["down"]
        mark.x, mark.y = frame(table, point)
        if redraw_map:
            grid = cells(table, mapped, point)
            heat.z, heat.hovertext = grid["z"], grid["hovertext"]
            grey.z, grey.text, grey.hovertext = grey_cells(grid), grid["words"], grid["hovertext_grey"]
            fig.layout.title.text = heading(table, point)
            fig.layout.annotations[0].text = map_title(mapped)


def reasons_html(table: Table, kernels: Sequence[str], point: Mapping[str, Any]) -> str:
    """The sentences under the figure, one for each kernel that depends on the sliders."""
    lines = []
    for kernel in kernels:
        if kernel in table.space.mapped:
            row = table.row(kernel, point)
            lines.append(f"<div><b>{html.escape(kernel)}</b>: {html.escape(reason(table, row))}</div>")
    return f'<div role="status" style="line-height:1.5">{"".join(lines)}</div>'

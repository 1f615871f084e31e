"""The figure of `widgets.explore`: a bar for each kernel at the current point, and the map of one kernel.

`build` makes it once; `change` says what differs at another point, so that a slider's move sends only that.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from helpers import plots
from helpers.widgets_data import N_ROWS, UNITS, WORDS, Table, reason

if TYPE_CHECKING:
    import plotly.graph_objects as go

GREY = "#C8C8C8"
KERNEL_COLOURS = {
    "Triton rows": plots.PALETTE[0],
    "Triton flat": plots.PALETTE[1],
    "CUDA C++": plots.PALETTE[2],
    "torch.square": plots.PALETTE[4],
    "torch.compile": plots.PALETTE[5],
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
        return " not measured yet"
    if row["verdict"] != "ok":
        return f" {row['verdict']}"
    return f" {row['gb_per_s']:,.0f} GB/s, {percent(table, row['gb_per_s'])}"


def interval(row: Mapping[str, Any]) -> tuple[float, float]:
    """How far up and down the 95 % interval of a row's GB/s goes."""
    up = row["gb_per_s"] * (row["median_us"] / row["ci_low_us"] - 1)
    return up, row["gb_per_s"] * (1 - row["median_us"] / row["ci_high_us"])


def bars(table: Table, kernels: Sequence[str], point: Mapping[str, Any]) -> dict[str, Any]:
    """The bars' data at a point: values, texts, intervals and hover texts, in the order of `kernels`."""
    found = [table.row(kernel, point) for kernel in kernels]
    good = [row is not None and row["verdict"] == "ok" for row in found]
    spread = [interval(row) if ok else (0, 0) for row, ok in zip(found, good, strict=True)]
    hover = []
    for kernel, row, ok in zip(kernels, found, good, strict=True):
        text = f"{kernel}: {bar_text(table, row).strip()}"
        if ok:
            text += f"<br>{row['median_us']:,.2f} µs (95 % CI {row['ci_low_us']:,.2f} to {row['ci_high_us']:,.2f})"
        elif row is not None:
            text += f"<br>{row['reason']}"
        hover.append(text)
    return {
        "y": list(kernels),
        "x": [row["gb_per_s"] if ok else 0 for row, ok in zip(found, good, strict=True)],
        "text": [bar_text(table, row) for row in found],
        "hovertext": hover,
        "up": [up for up, _ in spread],
        "down": [down for _, down in spread],
    }


def cells(table: Table, kernel: str, point: Mapping[str, Any]) -> dict[str, list[list[Any]]]:
    """The map of one kernel at the point's size and dtype, for two layers: cells with a value, and grey ones with words.

    Each cell belongs to one layer and has its hover text there.
    """
    space = table.space
    values, texts, words, hovers, hovers_grey = [], [], [], [], []
    for y in space.axes[space.y]:
        line: tuple[list, ...] = ([], [], [], [], [])
        for x in space.axes[space.x]:
            row = table.row(kernel, {**point, space.x: x, space.y: y})
            ok = row is not None and row["verdict"] == "ok"
            line[0].append(row["gb_per_s"] if ok else None)
            line[1].append(f"{row['gb_per_s']:,.0f}" if ok else "")
            line[2].append("" if ok or row is None else row["verdict"])
            about = f"{row['gb_per_s']:,.0f} GB/s<br>" if ok else ""
            hover = f"{WORDS[space.y]} {y}, {WORDS[space.x]} {x}<br>{about}{reason(table, row)}"
            hover = hover.replace(" · ", "<br>")
            line[3].append(hover if ok else "")
            line[4].append(hover if row is not None and not ok else "")
        for target, part in zip((values, texts, words, hovers, hovers_grey), line, strict=True):
            target.append(part)
    return {"z": values, "text": texts, "words": words, "hovertext": hovers, "hovertext_grey": hovers_grey}


def heading(table: Table, point: Mapping[str, Any]) -> str:
    """The title: what is squared, and where the figures come from."""
    return (
        f"square of {N_ROWS:,} × {point['n_cols']:,} {point['dtype']}<br><sub>{html.escape(table.origin)}"
        " · every kernel was checked before it was timed</sub>"
    )


def highest(table: Table) -> float:
    """The end of the axes: a little above the copy ceiling and everything measured."""
    known = [row["gb_per_s"] for row in table.rows.values() if row["verdict"] == "ok"]
    return 1.02 * max([table.spec.copy_gb_per_s or 0, *known, 1])


def build(table: Table, kernels: Sequence[str], mapped: str, point: Mapping[str, Any]) -> go.Figure:
    """The whole figure at a point: traces bars, map, grey cells, the point's mark."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    space, top = table.space, highest(table)
    fig = make_subplots(
        rows=1, cols=2, column_widths=[0.5, 0.5], horizontal_spacing=0.13,
        subplot_titles=("at this point", map_title(mapped)),
    )  # fmt: skip
    data = bars(table, kernels, point)
    fig.add_trace(
        go.Bar(
            orientation="h", y=data["y"], x=data["x"], text=data["text"], hovertext=data["hovertext"],
            hovertemplate="%{hovertext}<extra></extra>", textposition="auto", insidetextanchor="start",
            textangle=0, cliponaxis=False, showlegend=False,
            marker={"color": [KERNEL_COLOURS[k] for k in kernels]},
            textfont={"size": 13}, insidetextfont={"color": [_ink(k) for k in kernels]},
            error_x={"type": "data", "symmetric": False, "array": data["up"], "arrayminus": data["down"],
                     "color": plots.TEXT_COLOUR, "thickness": 1.5, "width": 4},
        ),
        row=1, col=1,
    )  # fmt: skip
    grid = cells(table, mapped, point)
    names = {"x": [str(v) for v in space.axes[space.x]], "y": [str(v) for v in space.axes[space.y]]}
    look = {**names, "texttemplate": "%{text}", "xgap": 2, "ygap": 2, "textfont": {"size": 11}}
    fig.add_trace(
        go.Heatmap(
            z=grid["z"], text=grid["text"], hovertext=grid["hovertext"],
            hovertemplate="%{hovertext}<extra></extra>", colorscale="Cividis", zmin=0, zmax=top,
            colorbar={"title": {"text": "GB/s", "side": "right"}, "thickness": 14}, **look,
        ),
        row=1, col=2,
    )  # fmt: skip
    fig.add_trace(
        go.Heatmap(
            z=_grey(grid), text=grid["words"], hovertext=grid["hovertext_grey"],
            hovertemplate="%{hovertext}<extra></extra>", colorscale=[[0, GREY], [1, GREY]], showscale=False,
            **{**look, "textfont": {"size": 11, "color": "#333333"}},
        ),
        row=1, col=2,
    )  # fmt: skip
    fig.add_trace(
        go.Scatter(
            x=[str(point[space.x])], y=[str(point[space.y])], mode="markers", hoverinfo="skip", showlegend=False,
            marker={"symbol": "square-open", "size": 26, "color": plots.PALETTE[3], "line": {"width": 4}},
        ),
        row=1, col=2,
    )  # fmt: skip
    plots.layout(fig, heading(table, point), height=470)
    fig.update_layout(margin={"l": 110, "r": 20, "t": 100, "b": 60}, bargap=0.35)
    fig.update_xaxes(title_text="effective bandwidth (GB/s)", range=[0, 1.04 * top], row=1, col=1)
    fig.update_yaxes(title_text="", autorange="reversed", row=1, col=1)
    fig.update_xaxes(title_text=axis_name(space.x), type="category", showgrid=False, row=1, col=2)
    fig.update_yaxes(title_text=axis_name(space.y), type="category", showgrid=False, row=1, col=2)
    if copy := table.spec.copy_gb_per_s:
        fig.add_vline(x=copy, line={"dash": "dash", "color": plots.TEXT_COLOUR, "width": 1.6}, row=1, col=1)
        fig.add_annotation(
            x=copy, y=1, xref="x", yref="y domain", text=f"copy {copy:,.0f}", showarrow=False, yanchor="bottom",
            xanchor="right", font={"size": 12},
        )  # fmt: skip
    return fig


def _ink(kernel: str) -> str:
    """Text on a bar: white on the dark colours, near-black on the light ones."""
    return "#ffffff" if kernel in ("Triton rows", "CUDA C++") else "#1a1a1a"


def map_title(kernel: str) -> str:
    """Over the map."""
    return f"{kernel}: GB/s"


def _grey(grid: Mapping[str, list]) -> list[list[int | None]]:
    return [[1 if word else None for word in line] for line in grid["words"]]


def change(
    fig: Any, table: Table, kernels: Sequence[str], mapped: str, point: Mapping[str, Any], *, redraw_map: bool
) -> None:
    """Move an existing figure (widget) to another point; the map only where it is another one."""
    with fig.batch_update():
        bar, heat, grey, mark = fig.data
        data = bars(table, kernels, point)
        if list(bar.y) != data["y"]:
            bar.y = data["y"]
            bar.marker.color = [KERNEL_COLOURS[k] for k in kernels]
            bar.insidetextfont.color = [_ink(k) for k in kernels]
        bar.x, bar.text, bar.hovertext = data["x"], data["text"], data["hovertext"]
        bar.error_x.array, bar.error_x.arrayminus = data["up"], data["down"]
        mark.x, mark.y = [str(point[table.space.x])], [str(point[table.space.y])]
        if redraw_map:
            grid = cells(table, mapped, point)
            heat.z, heat.text, heat.hovertext = grid["z"], grid["text"], grid["hovertext"]
            grey.z, grey.text, grey.hovertext = _grey(grid), grid["words"], grid["hovertext_grey"]
            fig.layout.title.text = heading(table, point)
            fig.layout.annotations[1].text = map_title(mapped)


def reasons_html(table: Table, kernels: Sequence[str], point: Mapping[str, Any]) -> str:
    """The sentences under the figure, one for each kernel that depends on the sliders."""
    lines = []
    for kernel in kernels:
        if kernel in table.space.mapped:
            row = table.row(kernel, point)
            lines.append(f"<div><b>{html.escape(kernel)}</b>: {html.escape(reason(table, row))}</div>")
    return f'<div role="status" style="line-height:1.5">{"".join(lines)}</div>'

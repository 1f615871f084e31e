"""The same tables as a plain Plotly figure with its own sliders: for Colab, for saved pages, for anywhere without widgets.

Plotly's sliders know nothing of one another, so each one changes what no other touches: one the size (the maps), one the
map's vertical parameter (the curves), and a menu shows the traces of one dtype and one value of the horizontal parameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from helpers import plots
from helpers.widgets.figure import (
    FRAME,
    KERNEL_COLOURS,
    axis_name,
    cells,
    frame,
    grey_cells,
    highest,
    map_axis,
    map_traces,
)
from helpers.widgets.table import WORDS, Table

if TYPE_CHECKING:
    import plotly.graph_objects as go


def figure(
    table: Table, kernels: tuple[str, ...], start: Mapping[str, Any], *, hover: bool = True
) -> go.Figure:
    """Curves over the size, a map for each kernel that depends on the sliders, two sliders and a menu.

    Without `hover` the cells do not say what was compiled: half the size, for the copy that lies behind widgets.
    """
    import plotly.graph_objects as go

    space, top = table.space, highest(table)
    mapped = [k for k in kernels if k in space.mapped]
    rivals = [k for k in kernels if k not in space.mapped]
    sizes, dtypes = space.axes["n_cols"], space.axes["dtype"]
    xs, ys = space.axes[space.x], space.axes[space.y]
    traces: list[Any] = []
    shown: list[tuple[str | None, Any]] = []  # (dtype, x) each trace belongs to; None: to all of them
    curves, maps, marks = [], [], []  # indices and what they are of

    def add(trace: Any, dtype: str | None = None, x: Any = None) -> int:
        traces.append(trace)
        shown.append((dtype, x))
        return len(traces) - 1

    def curve(kernel: str, point: Mapping[str, Any]) -> list[float | None]:
        rows = [table.row(kernel, {**point, "n_cols": n}) for n in sizes]
        return [row["gb_per_s"] if row and row["verdict"] == "ok" else None for row in rows]

    for i, kernel in enumerate((*mapped, *rivals)):
        for dtype in dtypes:
            for x in xs if kernel in mapped else (None,):
                point = {"dtype": dtype, space.x: x, space.y: start[space.y]}
                line = {"color": KERNEL_COLOURS[kernel], "width": 2}
                index = add(
                    go.Scatter(
                        x=list(sizes), y=curve(kernel, point), name=kernel, mode="lines+markers", line=line,
                        marker={"symbol": plots.MARKERS[i], "size": 8},
                        hovertemplate="%{fullData.name}: %{y:,.0f} GB/s<extra></extra>",
                    ),
                    dtype, x,
                )  # fmt: skip
                if kernel in mapped:
                    curves.append((index, kernel, point))
    if copy := table.spec.copy_gb_per_s:
        add(
            go.Scatter(
                x=[sizes[0], sizes[-1]], y=[copy, copy], mode="lines", name=f"copy: {copy:,.0f}",
                line={"dash": "dash", "color": plots.TEXT_COLOUR, "width": 1.6}, hoverinfo="name",
            )
        )  # fmt: skip
    for i, kernel in enumerate(mapped):
        where = {"xaxis": f"x{i + 2}", "yaxis": f"y{i + 2}"}
        bar = {
            "title": {"text": "GB/s", "side": "right"},
            "len": 0.4,
            "y": 0.0,
            "yanchor": "bottom",
            "thickness": 14,
        }
        for dtype in dtypes:
            layers = map_traces(
                table, kernel, {**start, "dtype": dtype}, top, colorbar=bar, showscale=i == 0, **where
            )
            if not hover:
                for layer in layers:
                    layer.update(hovertext=None, hovertemplate="%{z:,.0f} GB/s<extra></extra>")
                layers[1].hoverinfo = "skip"
                layers[1].hovertemplate = None
            heat, grey = (add(layer, dtype) for layer in layers)
            maps.append((heat, grey, kernel, dtype))
        for x in xs:
            path = frame(table, {**start, space.x: x})
            marks.append(add(go.Scatter(x=path[0], y=path[1], **FRAME, **where), None, x))
    views = [(dtype, x) for dtype in dtypes for x in xs]
    chosen = (start["dtype"], start[space.x])
    for trace, visible in zip(traces, _visible(shown, chosen), strict=True):
        trace.visible = visible
    fig = go.Figure(traces)
    _dress(fig, table, len(mapped), top)
    for i, kernel in enumerate(mapped):
        fig.add_annotation(
            text=f"{kernel}: GB/s", x=0.5, xref=f"x{i + 2} domain", y=1.02, yref=f"y{i + 2} domain", yanchor="bottom",
            showarrow=False,
        )  # fmt: skip
    size_steps = []
    for n in sizes:
        data: dict[str, list] = {"z": [], "text": [], **({"hovertext": []} if hover else {})}
        for _, _, kernel, dtype in maps:
            grid = cells(table, kernel, {**start, "dtype": dtype, "n_cols": n})
            data["z"] += [grid["z"], grey_cells(grid)]
            data["text"] += [None, grid["words"]]
            if hover:
                data["hovertext"] += [grid["hovertext"], grid["hovertext_grey"]]
        targets = [index for heat, grey, _, _ in maps for index in (heat, grey)]
        size_steps.append((f"{n:,}", [data, {"shapes": [_at(n)]}, targets]))
    y_steps = []
    for y in ys:
        lines = [curve(kernel, {**point, space.y: y}) for _, kernel, point in curves]
        targets = [index for index, _, _ in curves] + marks
        path = frame(table, {**start, space.y: y})[1]
        at = {"shapes": [_at(y)]} if space.y == "n_cols" else {}
        y_steps.append((f"{y:,}", [{"y": lines + [path] * len(marks)}, at, targets]))
    sliders = [_slider(f"{axis_name(space.y)}: ", y_steps, list(ys).index(start[space.y]), 0.0, 0.46)]
    if space.y != "n_cols":  # maps over the size show all sizes at once
        at = list(sizes).index(start["n_cols"])
        sliders.append(_slider("N of the maps (columns): ", size_steps, at, 0.54, 0.46))
    menu_steps = [
        (f"{dtype}, {WORDS[space.x]} {x}", [{"visible": _visible(shown, (dtype, x))}, {}])
        for dtype, x in views
    ]
    fig.update_layout(
        shapes=[_at(start["n_cols"])],
        sliders=sliders,
        updatemenus=[
            {
                "type": "dropdown", "x": 1, "xanchor": "right", "y": 1.10, "yanchor": "bottom", "showactive": True,
                "active": views.index(chosen), "bgcolor": "#ffffff", "font": {"color": "#333333"},
                "bordercolor": plots.TEXT_COLOUR,
                "buttons": [{"label": label, "method": "update", "args": args} for label, args in menu_steps],
            }
        ],
    )  # fmt: skip
    return fig


def _visible(shown: list, view: tuple) -> list[bool]:
    return [(d is None or d == view[0]) and (x is None or x == view[1]) for d, x in shown]


def _at(n: int) -> dict:
    """A line at the size that the maps are of."""
    return {
        "type": "line", "x0": n, "x1": n, "xref": "x", "y0": 0, "y1": 1, "yref": "y domain",
        "line": {"color": plots.PALETTE[3], "width": 1.5, "dash": "dot"},
    }  # fmt: skip


def _slider(prefix: str, steps: list, active: int, x: float, length: float) -> dict:
    return {
        "active": active, "x": x, "len": length, "y": -0.13, "yanchor": "top", "pad": {"t": 20},
        "currentvalue": {"prefix": prefix, "font": {"size": 13}}, "bgcolor": "#E6E6E6",
        "activebgcolor": plots.PALETTE[3], "bordercolor": plots.TEXT_COLOUR,
        "steps": [{"label": label, "method": "update", "args": args} for label, args in steps],
    }  # fmt: skip


def _size_labels(sizes: tuple[int, ...]) -> list[str]:
    """A label for each size, without those that would lie on the one before."""
    before = (0, *sizes)
    return [f"{n:,}" if n > 1.1 * last else "" for n, last in zip(sizes, before, strict=False)]


def _dress(fig: go.Figure, table: Table, n_maps: int, top: float) -> None:
    space = table.space
    note = f"{table.origin} · every kernel was checked before it was timed"
    size = (
        f"{space.rows(1):,} × N"
        if space.n_elements is None
        else f"{space.n_elements / 1e6:,.0f} million elements"
    )
    plots.layout(fig, f"{space.operation} of {size}", note=note, height=860)
    width = 0.44 if n_maps > 1 else 1.0
    for i in range(n_maps):
        left, n = i * 0.56, i + 2
        across = {**map_axis(table, space.x), "domain": [left, left + width], "anchor": f"y{n}"}
        up = {**map_axis(table, space.y), "domain": [0, 0.38], "anchor": f"x{n}"}
        fig.update_layout({f"xaxis{n}": across, f"yaxis{n}": up})
    fig.update_layout(
        xaxis={
            "domain": [0, 1], "anchor": "y", "type": "log", "title": {"text": "columns, N"},
            "tickvals": list(space.axes["n_cols"]), "ticktext": _size_labels(space.axes["n_cols"]),
        },
        yaxis={"domain": [0.58, 1], "anchor": "x", "range": [0, 1.04 * top],
               "title": {"text": "effective bandwidth (GB/s)"}},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        margin={"l": 70, "r": 20, "t": 130, "b": 150},
    )  # fmt: skip

"""The same tables as a plain Plotly figure with its own sliders: for Colab, for saved pages, for anywhere without widgets.

Plotly's sliders know nothing of one another, so each one changes what no other touches: one the size (the maps), one the
map's vertical parameter (the curves), and a menu shows the traces of one dtype and one value of the horizontal parameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers import plots
from helpers.widgets.figure import (
    FRAME,
    cells,
    colour,
    frame,
    highest,
    map_axis,
    map_title,
    map_traces,
    value_title,
)
from helpers.widgets.space import axis_title, label, word
from helpers.widgets.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Between two maps beside one another, as a part of the figure's width.
_GAP = 0.12


def plain_figure(
    table: Table, kernels: tuple[str, ...], start: Mapping[str, Any], *, hover: bool = True
) -> go.Figure:
    """Curves over the size, a map for each kernel that depends on the sliders, two sliders and a menu.

    Without `hover` the cells do not say what was compiled: half the size, for the copy that lies behind widgets.
    """
    return _PlainFigure(table, kernels, start, hover).build()


@dataclass(frozen=True)
class _Trace:
    """A trace and the view that it belongs to: a dtype and a value of the horizontal parameter; None: to all of them."""

    trace: Any
    dtype: str | None
    x: Any

    def visible(self, dtype: str, x: Any) -> bool:
        return self.dtype in (None, dtype) and self.x in (None, x)


@dataclass(frozen=True)
class _Curve:
    """A curve that the vertical parameter's slider changes: its trace's index, and what it is of."""

    index: int
    kernel: str
    point: Mapping[str, Any]


@dataclass(frozen=True)
class _Map:
    """A map that the size's slider changes: the indices of its two layers, and what it is of."""

    values: int
    grey: int
    kernel: str
    dtype: str


class _PlainFigure:
    """The figure while it is being put together; its sliders speak of traces by their index."""

    def __init__(self, table: Table, kernels: tuple[str, ...], start: Mapping[str, Any], hover: bool) -> None:
        self.table, self.space, self.start, self.hover = table, table.space, start, hover
        self.mapped = [k for k in kernels if k in self.space.mapped]
        self.rivals = [k for k in kernels if k not in self.space.mapped]
        self.sizes, self.dtypes = self.space.axes["n_cols"], self.space.axes["dtype"]
        self.xs, self.ys = self.space.axes[self.space.x], self.space.axes[self.space.y]
        self.top = highest(table)
        self.traces: list[_Trace] = []
        self.curves: list[_Curve] = []
        self.maps: list[_Map] = []
        self.frames: list[int] = []

    def build(self) -> go.Figure:
        import plotly.graph_objects as go

        for i, kernel in enumerate((*self.mapped, *self.rivals)):
            self._add_curves(kernel, plots.MARKERS[i % len(plots.MARKERS)])
        self._add_copy()
        for i, kernel in enumerate(self.mapped):
            self._add_maps(i, kernel)
        for made, visible in zip(self.traces, self._visible(*self._view()), strict=True):
            made.trace.visible = visible
        fig = go.Figure([made.trace for made in self.traces])
        _dress(fig, self.table, self.mapped, self.top)
        fig.update_layout(
            shapes=[_at(self.start["n_cols"])], sliders=self._sliders(), updatemenus=[self._menu()]
        )
        return fig

    # ---------------------------------------------------------------------------------------- traces

    def _add(self, trace: Any, dtype: str | None = None, x: Any = None) -> int:
        """Add a trace; its index."""
        self.traces.append(_Trace(trace, dtype, x))
        return len(self.traces) - 1

    def _speeds(self, kernel: str, point: Mapping[str, Any]) -> list[float | None]:
        """GB/s, or what else the table's values are, at each size."""
        rows = [self.table.row(kernel, {**point, "n_cols": n}) for n in self.sizes]
        return [self.table.value(row) for row in rows]

    def _add_curves(self, kernel: str, marker: str) -> None:
        import plotly.graph_objects as go

        mapped = kernel in self.mapped
        for dtype in self.dtypes:
            for x in self.xs if mapped else (None,):
                point = {**self.start, "dtype": dtype, self.space.x: x}
                curve = go.Scatter(
                    x=list(self.sizes), y=self._speeds(kernel, point), name=kernel, mode="lines+markers",
                    line={"color": colour(self.space, kernel), "width": 2}, marker={"symbol": marker, "size": 8},
                    hovertemplate=f"%{{fullData.name}}: %{{y:,.0f}} {self.table.unit}<extra></extra>",
                )  # fmt: skip
                index = self._add(curve, dtype, x)
                if mapped:
                    self.curves.append(_Curve(index, kernel, point))

    def _add_copy(self) -> None:
        """The line of the copy ceiling, where that is known."""
        import plotly.graph_objects as go

        if copy := self.table.spec.copy_gb_per_s:
            line = go.Scatter(
                x=[self.sizes[0], self.sizes[-1]], y=[copy, copy], mode="lines", name=f"copy: {copy:,.0f}",
                line={"dash": "dash", "color": plots.TEXT_COLOUR, "width": 1.6}, hoverinfo="name",
            )  # fmt: skip
            self._add(line)

    def _add_maps(self, i: int, kernel: str) -> None:
        """The map of the i-th kernel for each dtype, and the frame of each cell in the start's line."""
        import plotly.graph_objects as go

        axes = {"xaxis": f"x{i + 2}", "yaxis": f"y{i + 2}"}
        bar = {
            "title": {"text": self.table.unit, "side": "right"},
            "len": 0.4,
            "y": 0.0,
            "yanchor": "bottom",
            "thickness": 14,
        }
        look = {"colorbar": bar, "showscale": i == 0, **axes}
        for dtype in self.dtypes:
            values, grey = map_traces(self.table, kernel, {**self.start, "dtype": dtype}, self.top, **look)
            if not self.hover:
                values.update(hovertext=None, hovertemplate=f"%{{z:,.0f}} {self.table.unit}<extra></extra>")
                grey.update(hovertext=None, hovertemplate=None, hoverinfo="skip")
            self.maps.append(_Map(self._add(values, dtype), self._add(grey, dtype), kernel, dtype))
        for x in self.xs:
            across, up = frame(self.table, {**self.start, self.space.x: x})
            self.frames.append(self._add(go.Scatter(x=across, y=up, **FRAME, **axes), None, x))

    # ---------------------------------------------------------------------------------------- controls

    def _view(self) -> tuple[str, Any]:
        """The dtype and the horizontal parameter's value that the figure begins with."""
        return self.start["dtype"], self.start[self.space.x]

    def _visible(self, dtype: str, x: Any) -> list[bool]:
        return [made.visible(dtype, x) for made in self.traces]

    def _sliders(self) -> list[dict]:
        y = self.space.y
        active = list(self.ys).index(self.start[y])
        sliders = [_slider(f"{axis_title(y)}: ", self._y_steps(), active, 0.0)]
        if y != "n_cols":  # maps over the size show all sizes at once
            active = list(self.sizes).index(self.start["n_cols"])
            sliders.append(_slider("N of the maps (columns): ", self._size_steps(), active, 0.54))
        return sliders

    def _size_steps(self) -> list[dict]:
        """For each size: the maps, and the line at that size over the curves."""
        targets = [index for made in self.maps for index in (made.values, made.grey)]
        steps = []
        for n in self.sizes:
            data: dict[str, list] = {"z": [], "text": []}
            if self.hover:
                data["hovertext"] = []
            for made in self.maps:
                at = cells(self.table, made.kernel, {**self.start, "dtype": made.dtype, "n_cols": n})
                data["z"] += [at.values, at.grey]
                data["text"] += [None, at.words]  # None leaves an attribute of a trace alone
                if self.hover:
                    data["hovertext"] += [at.hovers, at.grey_hovers]
            steps.append(_step(f"{n:,}", data, {"shapes": [_at(n)]}, targets))
        return steps

    def _y_steps(self) -> list[dict]:
        """For each value of the vertical parameter: the curves, and the frames on the maps."""
        y, targets = self.space.y, [curve.index for curve in self.curves] + self.frames
        steps = []
        for value in self.ys:
            lines = [self._speeds(curve.kernel, {**curve.point, y: value}) for curve in self.curves]
            up = frame(self.table, {**self.start, y: value})[1]
            layout = {"shapes": [_at(value)]} if y == "n_cols" else {}
            steps.append(_step(label(value), {"y": lines + [up] * len(self.frames)}, layout, targets))
        return steps

    def _menu(self) -> dict:
        """A menu of the views: every dtype with every value of the horizontal parameter."""
        views = [(dtype, x) for dtype in self.dtypes for x in self.xs]
        name = word(self.space.x)
        buttons = [
            _step(f"{dtype}, {name} {x}", {"visible": self._visible(dtype, x)}, {}) for dtype, x in views
        ]
        return {
            "type": "dropdown", "x": 1, "xanchor": "right", "y": 1.10, "yanchor": "bottom", "showactive": True,
            "active": views.index(self._view()), "bgcolor": "#ffffff", "font": {"color": "#333333"},
            "bordercolor": plots.TEXT_COLOUR, "buttons": buttons,
        }  # fmt: skip


def _step(label: str, data: dict, layout: dict, targets: list[int] | None = None) -> dict:
    """A position of a slider or menu: what it changes of the traces (all of them without `targets`) and the layout."""
    args = [data, layout] if targets is None else [data, layout, targets]
    return {"label": label, "method": "update", "args": args}


def _at(n: int) -> dict:
    """A line at the size that the maps are of."""
    return {
        "type": "line", "x0": n, "x1": n, "xref": "x", "y0": 0, "y1": 1, "yref": "y domain",
        "line": {"color": plots.PALETTE[3], "width": 1.5, "dash": "dot"},
    }  # fmt: skip


def _slider(prefix: str, steps: list[dict], active: int, x: float) -> dict:
    return {
        "active": active, "x": x, "len": 0.46, "y": -0.13, "yanchor": "top", "pad": {"t": 20},
        "currentvalue": {"prefix": prefix, "font": {"size": 13}}, "bgcolor": "#E6E6E6",
        "activebgcolor": plots.PALETTE[3], "bordercolor": plots.TEXT_COLOUR, "steps": steps,
    }  # fmt: skip


def _size_labels(sizes: tuple[int, ...]) -> list[str]:
    """A label for each size, without those that would lie on the one before."""
    before = (0, *sizes)
    return [f"{n:,}" if n > 1.1 * last else "" for n, last in zip(sizes, before, strict=False)]


def _dress(fig: go.Figure, table: Table, mapped: list[str], top: float) -> None:
    """Title, axes and legend: the curves above, a map for each of the kernels `mapped` below."""
    space = table.space
    size = f"{space.rows(1):,} × N"
    if space.n_elements is not None:
        size = f"{space.n_elements / 1e6:,.0f} million elements"
    plots.layout(fig, f"{space.operation} of {size}", note=table.note, height=860)
    width = (1 - _GAP * (len(mapped) - 1)) / len(mapped)
    for i, kernel in enumerate(mapped):
        left, n = i * (width + _GAP), i + 2
        across = {**map_axis(table, space.x), "domain": [left, left + width], "anchor": f"y{n}"}
        up = {**map_axis(table, space.y), "domain": [0, 0.38], "anchor": f"x{n}"}
        fig.update_layout({f"xaxis{n}": across, f"yaxis{n}": up})
        fig.add_annotation(
            text=map_title(table, kernel), x=0.5, xref=f"x{n} domain", y=1.02, yref=f"y{n} domain", yanchor="bottom",
            showarrow=False,
        )  # fmt: skip
    fig.update_layout(
        xaxis={
            "domain": [0, 1], "anchor": "y", "type": "log", "title": {"text": "columns, N"},
            "tickvals": list(space.axes["n_cols"]), "ticktext": _size_labels(space.axes["n_cols"]),
        },
        yaxis={"domain": [0.58, 1], "anchor": "x", "range": [0, 1.04 * top],
               "title": {"text": value_title(table)}},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        margin={"l": 70, "r": 20, "t": 130, "b": 150},
    )  # fmt: skip

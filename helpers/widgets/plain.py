"""The same tables as a plain Plotly figure with its own sliders: for Colab, for saved pages, for anywhere
without widgets.

Plotly's sliders know nothing of one another, so each one changes what no other touches: one the size (the
maps), one the map's vertical parameter (the curves), and a menu shows the traces of one GPU, one dtype and
one value of the horizontal parameter. The sentences under the figure are traces of text: the menu chooses
among them, and the vertical parameter's slider writes them. They are of the size that the figure began with,
and say so: of every size they would be a megabyte.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers import plots
from helpers.widgets.explain import reason
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
    tables: Mapping[str, Table],
    kernels: tuple[str, ...],
    start: Mapping[str, Any],
    *,
    hover: bool = True,
    sentences: bool = True,
) -> go.Figure:
    """Curves over the size, a map for each kernel that depends on the sliders, two sliders, a menu, and
    sentences.

    Args:
        tables: one for each GPU, by short names; the menu changes between them, and the first is shown.
        kernels: which ones.
        start: where the sliders begin.
        hover: cells of the first GPU say what was compiled when they are pointed at, which doubles the size.
        sentences: under the figure stands what was compiled at the sliders' position.
    """
    return _PlainFigure(tables, kernels, start, hover, sentences).build()


@dataclass(frozen=True)
class _Trace:
    """A trace and the view that it belongs to: a GPU, a dtype and a value of the horizontal parameter; None:
    to all.
    """

    trace: Any
    view: tuple[str | None, str | None, Any]

    def visible(self, view: tuple) -> bool:
        return all(own in (None, shown) for own, shown in zip(self.view, view, strict=True))


@dataclass(frozen=True)
class _Curve:
    """A curve that the vertical parameter's slider changes: its trace's index, and what it is of."""

    index: int
    table: Table
    kernel: str
    point: Mapping[str, Any]


@dataclass(frozen=True)
class _Map:
    """A map that the size's slider changes: the indices of its two layers, and what it is of."""

    values: int
    grey: int
    table: Table
    kernel: str
    dtype: str


@dataclass(frozen=True)
class _Sentence:
    """What was compiled at a point, for each value of the vertical parameter: its trace's index,
    and of what.
    """

    index: int
    table: Table
    point: Mapping[str, Any]


class _PlainFigure:
    """The figure while it is being put together; its sliders speak of traces by their index."""

    def __init__(
        self,
        tables: Mapping[str, Table],
        kernels: tuple[str, ...],
        start: Mapping[str, Any],
        hover: bool,
        sentences: bool,
    ) -> None:
        self.tables, self.start, self.hover = tables, start, hover
        self.space = next(iter(tables.values())).space
        self.mapped = [k for k in kernels if k in self.space.mapped]
        self.rivals = [k for k in kernels if k not in self.space.mapped]
        self.sizes, self.dtypes = self.space.axes["n_cols"], self.space.axes["dtype"]
        self.xs, self.ys = self.space.axes[self.space.x], self.space.axes[self.space.y]
        self.top = max(highest(table) for table in tables.values())
        self.with_sentences = sentences
        self.traces: list[_Trace] = []
        self.curves: list[_Curve] = []
        self.maps: list[_Map] = []
        self.frames: list[int] = []
        self.sentences: list[_Sentence] = []

    def build(self) -> go.Figure:
        import plotly.graph_objects as go

        for gpu, table in self.tables.items():
            for i, kernel in enumerate((*self.mapped, *self.rivals)):
                self._add_curves(gpu, table, kernel, plots.MARKERS[i % len(plots.MARKERS)])
            self._add_copy(gpu, table)
        for i, kernel in enumerate(self.mapped):
            for gpu, table in self.tables.items():
                self._add_maps(i, gpu, table, kernel)
            self._add_frames(i)
        if self.with_sentences:
            for gpu, table in self.tables.items():
                self._add_sentences(gpu, table)
        view = (next(iter(self.tables)), self.start["dtype"], self.start[self.space.x])
        for made, visible in zip(self.traces, self._visible(view), strict=True):
            made.trace.visible = visible
        fig = go.Figure([made.trace for made in self.traces])
        _dress(fig, next(iter(self.tables.values())), self.mapped, self.top, self.bottom)
        if self.with_sentences:
            hidden = {"visible": False, "fixedrange": True}
            fig.update_layout(
                xaxis9={"domain": [0, 1], "anchor": "y9", "range": [0, 1], **hidden},
                yaxis9={"domain": [0, 0.05], "anchor": "x9", "range": [-1, 0], **hidden},
                height=990,
            )
        fig.update_layout(
            shapes=[_at(self.start["n_cols"])], sliders=self._sliders(), updatemenus=[self._menu(view)]
        )
        return fig

    @property
    def bottom(self) -> float:
        """Where the maps begin, as a part of the figure's height."""
        return 0.19 if self.with_sentences else 0.0

    def _hovers(self, table: Table) -> bool:
        return self.hover and table is next(iter(self.tables.values()))

    # ---------------------------------------------------------------------------------------- traces

    def _add(self, trace: Any, gpu: str | None = None, dtype: str | None = None, x: Any = None) -> int:
        """Add a trace; its index."""
        self.traces.append(_Trace(trace, (gpu, dtype, x)))
        return len(self.traces) - 1

    def _speeds(self, table: Table, kernel: str, point: Mapping[str, Any]) -> list[float | None]:
        """GB/s, or what else the table's values are, at each size."""
        rows = [table.row(kernel, {**point, "n_cols": n}) for n in self.sizes]
        return [table.value(row) for row in rows]

    def _add_curves(self, gpu: str, table: Table, kernel: str, marker: str) -> None:
        import plotly.graph_objects as go

        mapped = kernel in self.mapped
        for dtype in self.dtypes:
            for x in self.xs if mapped else (None,):
                point = {**self.start, "dtype": dtype, self.space.x: x}
                curve = go.Scatter(
                    x=list(self.sizes),
                    y=self._speeds(table, kernel, point),
                    name=kernel,
                    mode="lines+markers",
                    line={"color": colour(self.space, kernel), "width": 2},
                    marker={"symbol": marker, "size": 8},
                    hovertemplate=f"%{{fullData.name}}: %{{y:,.0f}} {table.unit}<extra></extra>",
                )
                index = self._add(curve, gpu, dtype, x)
                if mapped:
                    self.curves.append(_Curve(index, table, kernel, point))

    def _add_copy(self, gpu: str, table: Table) -> None:
        """The line of the copy ceiling, where that is known."""
        import plotly.graph_objects as go

        if copy := table.spec.copy_gb_per_s:
            line = go.Scatter(
                x=[self.sizes[0], self.sizes[-1]], y=[copy, copy], mode="lines", name=f"copy: {copy:,.0f}",
                line={"dash": "dash", "color": plots.TEXT_COLOUR, "width": 1.6}, hoverinfo="name",
            )  # fmt: skip
            self._add(line, gpu)

    def _add_maps(self, i: int, gpu: str, table: Table, kernel: str) -> None:
        """The map of the i-th kernel for each dtype."""
        bar = {
            "title": {"text": table.unit, "side": "right"},
            "len": 0.4 - self.bottom / 2,
            "y": self.bottom,
            "yanchor": "bottom",
            "thickness": 14,
        }
        look = {"colorbar": bar, "showscale": i == 0, "xaxis": f"x{i + 2}", "yaxis": f"y{i + 2}"}
        for dtype in self.dtypes:
            values, grey = map_traces(table, kernel, {**self.start, "dtype": dtype}, self.top, **look)
            if not self._hovers(table):
                values.update(hovertext=None, hovertemplate=f"%{{z:,.0f}} {table.unit}<extra></extra>")
                grey.update(hovertext=None, hovertemplate=None, hoverinfo="skip")
            made = self._add(values, gpu, dtype), self._add(grey, gpu, dtype)
            self.maps.append(_Map(*made, table, kernel, dtype))

    def _add_frames(self, i: int) -> None:
        """The frame of each cell in the start's line, on the i-th map."""
        import plotly.graph_objects as go

        table = next(iter(self.tables.values()))
        for x in self.xs:
            across, up = frame(table, {**self.start, self.space.x: x})
            axes = {"xaxis": f"x{i + 2}", "yaxis": f"y{i + 2}"}
            self.frames.append(self._add(go.Scatter(x=across, y=up, **FRAME, **axes), None, None, x))

    def _add_sentences(self, gpu: str, table: Table) -> None:
        """What was compiled at the start's value of the vertical parameter, for all the others."""
        import plotly.graph_objects as go

        for dtype in self.dtypes:
            for x in self.xs:
                point = {**self.start, "dtype": dtype, self.space.x: x}
                text = go.Scatter(
                    x=[0],
                    y=[0],
                    mode="text",
                    text=[self._said(table, point)],
                    textposition="bottom right",
                    textfont={"size": 12},
                    cliponaxis=False,
                    hoverinfo="skip",
                    showlegend=False,
                    xaxis="x9",
                    yaxis="y9",
                )
                self.sentences.append(_Sentence(self._add(text, gpu, dtype, x), table, point))

    def _said(self, table: Table, point: Mapping[str, Any]) -> str:
        """A line or two for each kernel that depends on the sliders."""
        lines = [f"At {word(self.space.y)} {label(point[self.space.y])} and {point['n_cols']:,} columns:"]
        if self.space.y == "n_cols":
            lines = [f"At {point['n_cols']:,} columns:"]
        for kernel in self.mapped:
            said = textwrap.wrap(f"{kernel}: {reason(table, table.row(kernel, point))}", 118)
            lines.append("<br>".join(html.escape(part) for part in said))
        return "<br>".join(lines)

    # ---------------------------------------------------------------------------------------- controls

    def _visible(self, view: tuple) -> list[bool]:
        return [made.visible(view) for made in self.traces]

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
                at = cells(made.table, made.kernel, {**self.start, "dtype": made.dtype, "n_cols": n})
                # None takes an attribute away: words are not needed where no cell is grey.
                grey = any(cell for line in at.grey for cell in line)
                data["z"] += [at.values, at.grey]
                data["text"] += [None, at.words if grey else None]
                if self.hover:
                    known = self._hovers(made.table)
                    data["hovertext"] += [
                        at.hovers if known else None,
                        at.grey_hovers if known and grey else None,
                    ]
            steps.append(_step(f"{n:,}", data, {"shapes": [_at(n)]}, targets))
        return steps

    def _y_steps(self) -> list[dict]:
        """For each value of the vertical parameter: the curves, the frames on the maps, and the sentences."""
        y = self.space.y
        targets = [curve.index for curve in self.curves] + self.frames
        untold = [None] * len(targets)  # curves and frames have no text
        steps = []
        for value in self.ys:
            lines = [self._speeds(c.table, c.kernel, {**c.point, y: value}) for c in self.curves]
            up = frame(next(iter(self.tables.values())), {**self.start, y: value})[1]
            layout = {"shapes": [_at(value)]} if y == "n_cols" else {}
            data = {"y": lines + [up] * len(self.frames) + [[0]] * len(self.sentences)}
            if self.sentences:
                data["text"] = untold + [[self._said(s.table, {**s.point, y: value})] for s in self.sentences]
            steps.append(_step(label(value), data, layout, targets + [s.index for s in self.sentences]))
        return steps

    def _menu(self, shown: tuple) -> dict:
        """A menu of the views: every GPU and dtype with every value of the horizontal parameter."""
        views = [(gpu, dtype, x) for gpu in self.tables for dtype in self.dtypes for x in self.xs]
        name = word(self.space.x)
        buttons = []
        for gpu, dtype, x in views:
            # One GPU needs no name: the title has it.
            of = f"{gpu}: " if len(self.tables) > 1 else ""
            layout = {"title.text": _title(self.tables[gpu])} if len(self.tables) > 1 else {}
            buttons.append(
                _step(f"{of}{dtype}, {name} {x}", {"visible": self._visible((gpu, dtype, x))}, layout)
            )
        return {
            "type": "dropdown",
            "x": 1,
            "xanchor": "right",
            "y": 1.10,
            "yanchor": "bottom",
            "showactive": True,
            "active": views.index(shown),
            "bgcolor": "#ffffff",
            "font": {"color": "#333333"},
            "bordercolor": plots.TEXT_COLOUR,
            "buttons": buttons,
        }


def _step(label: str, data: dict, layout: dict, targets: list[int] | None = None) -> dict:
    """A position of a slider or menu: what it changes of the traces (all of them without `targets`) and the
    layout.
    """
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


def _title(table: Table) -> str:
    """What is computed, and where the figures come from, as `plots.layout` writes it."""
    import plotly.graph_objects as go

    fig = go.Figure()
    plots.layout(fig, _heading(table), note=table.note)
    return fig.layout.title.text


def _heading(table: Table) -> str:
    space = table.space
    size = f"{space.rows(1):,} × N"
    if space.n_elements is not None:
        size = f"{space.n_elements / 1e6:,.0f} million elements"
    return f"{space.operation} of {size}"


def _dress(fig: go.Figure, table: Table, mapped: list[str], top: float, bottom: float) -> None:
    """Title, axes and legend: the curves above, a map for each of the kernels `mapped` below, from `bottom`
    up.
    """
    space = table.space
    plots.layout(fig, _heading(table), note=table.note, height=860)
    width = (1 - _GAP * (len(mapped) - 1)) / len(mapped)
    for i, kernel in enumerate(mapped):
        left, n = i * (width + _GAP), i + 2
        across = {**map_axis(table, space.x), "domain": [left, left + width], "anchor": f"y{n}"}
        up = {**map_axis(table, space.y), "domain": [bottom, 0.38 + bottom / 2], "anchor": f"x{n}"}
        fig.update_layout({f"xaxis{n}": across, f"yaxis{n}": up})
        fig.add_annotation(
            text=map_title(table, kernel),
            x=0.5,
            xref=f"x{n} domain",
            y=1.02,
            yref=f"y{n} domain",
            yanchor="bottom",
            showarrow=False,
        )
    fig.update_layout(
        xaxis={
            "domain": [0, 1], "anchor": "y", "type": "log", "title": {"text": "columns, N"},
            "tickvals": list(space.axes["n_cols"]), "ticktext": _size_labels(space.axes["n_cols"]),
        },
        yaxis={"domain": [0.58 + bottom / 3, 1], "anchor": "x", "range": [0, 1.04 * top],
               "title": {"text": value_title(table)}},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        margin={"l": 70, "r": 20, "t": 130, "b": 150},
    )  # fmt: skip

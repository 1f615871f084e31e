"""Sliders that compare kernels, show what a compiler makes of them, and lay blocks over a matrix.

Each function returns something to show. Where widgets work (JupyterLab, VS Code) that is sliders over a FigureWidget;
elsewhere (Colab, pages, an old plotly or ipywidgets) it is a plain Plotly figure with its own sliders over the same
data. Both are put out together, so that a saved page keeps the plain one.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from helpers import device
from helpers.widgets import table as widgets_data
from helpers.widgets.controls import grid_of, labelled_slider, live_figure
from helpers.widgets.table import SPACES, WORDS, Space, Table

if TYPE_CHECKING:
    import ipywidgets

WIDGET = "application/vnd.jupyter.widget-view+json"
PLOTLY = "application/vnd.plotly.v1+json"


def frontend() -> str:
    """ "widgets" where a FigureWidget can be expected to work, else "plain".

    Colab shows FigureWidgets unreliably, and plotly before 6 or ipywidgets before 8 need extensions of their own.
    WORKBOOK_WIDGETS=plain or =widgets decides instead; batch runs set plain, since nobody can move a widget there.
    """
    wanted = os.environ.get("WORKBOOK_WIDGETS")
    if wanted in ("plain", "widgets"):
        return wanted
    if "google.colab" in sys.modules:
        return "plain"
    versions = [device.package_version(package) for package in ("plotly", "ipywidgets", "anywidget")]
    if None in versions or int(versions[0].split(".")[0]) < 6 or int(versions[1].split(".")[0]) < 8:
        return "plain"
    try:
        import plotly.graph_objects as go

        go.FigureWidget()
    except Exception:  # of whatever kind: then it does not work here
        return "plain"
    return "widgets"


class Shown:
    """What a notebook shows: widgets for a live kernel, and a plain figure or HTML for everything else.

    Attributes:
        widget: the ipywidgets box, or None.
        plain: a Plotly figure, or HTML text.
    """

    def __init__(self, text: str, plain: Any, widget: ipywidgets.Widget | None = None, **parts: Any) -> None:
        self.text, self.plain, self.widget = text, plain, widget
        self.__dict__.update(parts)

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": self.text}
        if isinstance(self.plain, str):
            bundle["text/html"] = self.plain
        elif self.plain is not None:
            if "google.colab" in sys.modules:  # Colab knows Plotly only as HTML
                bundle["text/html"] = self.plain.to_html(include_plotlyjs="cdn", full_html=False)
            else:
                bundle[PLOTLY] = _json(self.plain)
        if self.widget is not None:
            bundle[WIDGET] = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        return bundle


def _json(fig: Any) -> dict[str, Any]:
    import json

    return json.loads(fig.to_json())


# ------------------------------------------------------------------------------------------- explore


def explore(
    over: str | Space = "launch",
    *,
    kernels: Sequence[str] | None = None,
    table: Table | None = None,
    **start: Any,
) -> Shown:
    """Sliders over launch parameters, size and dtype: what each kernel reaches, and the map of one of them.

    On a GPU each point is checked and timed when you come to it, and a button measures all of them. Without one the
    sliders move through the recorded sweep.

    Args:
        over: "launch" (BLOCK_SIZE and num_warps of the Triton kernels), "shape" (the CUDA kernel's block), or
            "alignment" (where rows begin in memory); or a `Space` of one's own.
        kernels: which kernels to lay side by side; all of them where None.
        table: rows to move over instead of those of this GPU or of the record.
        **start: the sliders' first positions, such as `block_size=1024, dtype="bfloat16"`.

    Raises:
        ValueError: an unknown space, kernel or slider, or a position that a slider does not have.
        helpers.records.NoRecord: no GPU here and nothing recorded.
    """
    from helpers.widgets import plain as widgets_plain

    if not isinstance(over, Space):
        if over not in SPACES:
            raise ValueError(f"There is nothing to explore over {over!r}; choose from {', '.join(SPACES)}.")
        over = SPACES[over]
    space, over = over, over.name
    known = (*space.mapped, *space.rivals)
    chosen = tuple(known if kernels is None else kernels)
    for kernel in chosen:
        if kernel not in known:
            raise ValueError(f"There is no kernel {kernel!r} over {over}; choose from {', '.join(known)}.")
    if not any(kernel in space.mapped for kernel in chosen):
        raise ValueError(f"Take at least one kernel that the sliders change: {' or '.join(space.mapped)}.")
    for axis, value in start.items():
        if axis not in space.axes:
            raise ValueError(f"There is no slider {axis!r} over {over}; there are {', '.join(space.axes)}.")
        if value not in space.axes[axis]:
            values = ", ".join(map(str, space.axes[axis]))
            raise ValueError(f"{axis}={value!r} is no position of its slider; choose from {values}.")
    point = {**space.start, **start}
    alone = frontend() == "plain"
    table = table or widgets_data.load(space, replay=alone)
    text = f"Sliders over {', '.join(WORDS[a] for a in space.axes)} of {', '.join(chosen)}; {table.origin}."
    if table.live:
        for kernel in chosen:
            table.measured(kernel, point)
    plain = widgets_plain.figure(table, chosen, point, hover=alone)
    if alone:
        return Shown(text, plain)
    explorer = _Explorer(table, chosen, point)
    return Shown(text, plain, explorer.box, explorer=explorer)


class _Explorer:
    """The live form of `explore`: sliders, boxes and a button around a FigureWidget."""

    def __init__(self, table: Table, kernels: tuple[str, ...], point: dict[str, Any]) -> None:
        import ipywidgets as w

        from helpers.widgets import figure as widgets_figure

        self.table, self.point, self.known = table, dict(point), kernels
        self.parts = widgets_figure
        space = table.space
        self.mapped = next(k for k in kernels if k in space.mapped)
        self.figure = live_figure(widgets_figure.build(table, kernels, self.mapped, point))
        self.sliders = {}
        for axis, values in space.axes.items():
            if len(values) == 1:
                continue
            slider = labelled_slider(axis, values, point[axis], continuous=not table.live)
            slider.observe(self._moved, "value")
            self.sliders[axis] = slider
        self.boxes = {
            kernel: w.Checkbox(value=True, description=kernel, indent=False, layout={"width": "auto"})
            for kernel in kernels
        }
        for box in self.boxes.values():
            box.observe(self._moved, "value")
        choices = [k for k in kernels if k in space.mapped]
        # Buttons, not a menu: JupyterLab takes a menu's arrow keys for moves between cells.
        self.map_of = w.ToggleButtons(
            options=choices, value=self.mapped, disabled=len(choices) == 1, style={"button_width": "auto"},
            layout={"width": "auto"},
        )  # fmt: skip
        self.map_of.observe(self._moved, "value")
        self.sentence = w.HTML(widgets_figure.reasons_html(table, kernels, point))
        controls: list[Any] = [grid_of(list(self.sliders.values()))]
        row = {"flex_flow": "row wrap", "grid_gap": "0 1.2em", "align_items": "center"}
        controls.append(w.HBox([*self.boxes.values(), w.HBox([w.Label("Map of"), self.map_of])], layout=row))
        self.button = w.Button(description="Measure all of this map", layout={"width": "14em"})
        self.bar = w.IntProgress(description="", min=0, max=1)
        self.bar.layout.visibility = "hidden"
        self.task: asyncio.Task | None = None
        self.stopped = False
        self.button.on_click(self._measure_or_stop)
        if table.live:
            controls.append(w.HBox([self.button, self.bar]))
        self.box = w.VBox([*controls, self.figure, self.sentence])

    @property
    def shown(self) -> tuple[str, ...]:
        """The kernels whose boxes are ticked."""
        return tuple(kernel for kernel, box in self.boxes.items() if box.value)

    def _moved(self, change: dict) -> None:
        before = dict(self.point)
        for axis, slider in self.sliders.items():
            self.point[axis] = slider.value
        if self.table.live:
            for kernel in self.shown:
                self.table.measured(kernel, self.point)
        size = any(before[a] != self.point[a] for a in ("n_cols", "dtype"))
        another = size or self.mapped != self.map_of.value or self.table.live
        self.mapped = self.map_of.value
        self.show(redraw_map=another)

    def show(self, *, redraw_map: bool) -> None:
        """Bring figure and sentence to the current point."""
        kernels = self.shown
        self.parts.change(self.figure, self.table, kernels, self.mapped, self.point, redraw_map=redraw_map)
        self.sentence.value = self.parts.reasons_html(self.table, kernels, self.point)

    def _measure_or_stop(self, button: Any) -> None:
        if self.task is not None and not self.task.done():
            self.stopped = True
            return
        self.stopped = False
        self.task = asyncio.ensure_future(self.measure_all())

    async def measure_all(self) -> None:
        """Measure what is missing of the current map, giving way to clicks and moves after every point."""
        space, mapped, at = self.table.space, self.mapped, dict(self.point)
        todo = [{**at, space.x: x, space.y: y} for y in space.axes[space.y] for x in space.axes[space.x]]
        self.button.description = "Stop"
        self.bar.max, self.bar.value, self.bar.layout.visibility = len(todo), 0, "visible"
        try:
            for i, point in enumerate(todo):
                if self.stopped:
                    break
                new = self.table.row(mapped, point) is None
                self.table.measured(mapped, point)
                self.bar.value = i + 1
                if new and (i % 4 == 3 or i + 1 == len(todo)):
                    self.show(redraw_map=True)
                await asyncio.sleep(0.005)
        finally:
            self.button.description = "Measure all of this map"
            self.bar.layout.visibility = "hidden"
            self.show(redraw_map=True)


# ------------------------------------------------------------------------------------------- explore_grid


def explore_grid(
    block_x: int = 16, block_y: int = 16, n_cols: int = 4096, *, table: Table | None = None
) -> Shown:
    """Lesson 02's picture of blocks and warps over a matrix, with sliders for the block's shape.

    Under the title stand the sectors and lines that a warp's request asks for, and the speed of the CUDA kernel with
    that block on 4,096 rows: measured here on a GPU, recorded elsewhere.

    Args:
        block_x: threads along a row.
        block_y: threads along a column.
        n_cols: the matrix's columns.
        table: rows to show instead of those of this GPU or of the record.

    Raises:
        ValueError: a number that its slider does not have.
        helpers.records.NoRecord: no GPU here and nothing recorded.
    """
    from helpers.widgets import grid

    space = SPACES["shape"]
    point = {"block_x": block_x, "block_y": block_y, "n_cols": n_cols}
    for axis, value in point.items():
        if value not in space.axes[axis]:
            values = ", ".join(map(str, space.axes[axis]))
            raise ValueError(f"{axis}={value!r} is no position of its slider; choose from {values}.")
    alone = frontend() == "plain"
    table = table or widgets_data.load(space, replay=alone)
    text = f"Sliders over the block's shape, on a matrix of 4,096 rows; {table.origin}."
    # The plain form has a dozen shapes: on a GPU they would all be measured now, so it goes without their speed.
    plain = grid.plain(None if table.live and not alone else table, *point.values())
    if alone:
        return Shown(text, plain)
    import ipywidgets as w

    figure = live_figure(grid.build(block_x, block_y, grid.LEGEND))
    sliders = {a: labelled_slider(a, space.axes[a], v, continuous=not table.live) for a, v in point.items()}
    line = w.HTML(_grid_line(grid.summary(table, *point.values())))

    def moved(change: dict) -> None:
        at = [slider.value for slider in sliders.values()]
        grid.change(figure, *at[:2])
        line.value = _grid_line(grid.summary(table, *at))

    for slider in sliders.values():
        slider.observe(moved, "value")
    box = w.VBox([grid_of(list(sliders.values())), line, figure])
    return Shown(text, plain, box, sliders=sliders, figure=figure, line=line)


def _grid_line(text: str) -> str:
    import html

    return f'<div role="status">{html.escape(text)}</div>'


# ------------------------------------------------------------------------------------------- explore_ptx


_SQUARE = {
    "output_ptr": "*fp32",
    "input_ptr": "*fp32",
    "input_row_stride": "i32",
    "output_row_stride": "i32",
    "n_cols": "i32",
}


def explore_ptx(
    kernel: Any = None,
    *,
    signature: dict[str, str] | None = None,
    constexpr: str = "BLOCK_SIZE",
    block_size: int = 1024,
    num_warps: int = 4,
    target: str = "sm_90",
    aligned: bool = False,
) -> Shown:
    """PTX and SASS of a Triton kernel, compiled anew for every position of the sliders; no GPU is needed.

    Lines are tinted by the source line that they came from; pointing at a source line, or picking it, lights them.
    What is new since the last position is marked with a +, and facts that changed say what they were.

    Args:
        kernel: a `@triton.jit` function; `square_rows_kernel` where None.
        signature: the types of its run-time arguments, as for `ptx.stages`.
        constexpr: the name of its `tl.constexpr` argument that the first slider sets.
        block_size, num_warps, target: the first position.
        aligned: whether the compiler may take the integer arguments for multiples of 16.

    Raises:
        ValueError: a position that a slider does not have, or a kernel without its signature.
        helpers.ptx.CompileError: the kernel does not compile at the first position.
    """
    from helpers import ptx
    from helpers.widgets import panes as widgets_ptx

    blocks, warps = tuple(2**i for i in range(6, 14)), (1, 2, 4, 8, 16, 32)
    for name, value, values in (
        ("block_size", block_size, blocks), ("num_warps", num_warps, warps), ("target", target, widgets_ptx.TARGETS)
    ):  # fmt: skip
        if value not in values:
            known = ", ".join(map(str, values))
            raise ValueError(f"{name}={value!r} is no position of its slider; choose from {known}.")
    if kernel is None:
        from helpers.kernels.square import square_rows_kernel as kernel

        signature = signature or _SQUARE
    if signature is None:
        raise ValueError(
            "explore_ptx needs the signature of your kernel, such as {'x_ptr': '*fp32', 'n': 'i32'}."
        )

    def compiled(block: int, warps: int, target: str, aligned: bool) -> ptx.Stages:
        return ptx.stages(
            kernel, signature=signature, constexprs={constexpr: block}, target=target, num_warps=warps,
            divisible_by_16=tuple(signature) if aligned else None,
        )  # fmt: skip

    first = compiled(block_size, num_warps, target, aligned)
    _explorers.append(1)
    name = f"kw-ptx{len(_explorers)}"
    nearby = [b for b in blocks if b <= max(2048, block_size)]
    positions = [(f"{b:,}", compiled(b, num_warps, target, aligned)) for b in nearby]
    what = f"BLOCK_SIZE ({num_warps} warps, {target}):"
    plain = widgets_ptx.plain_html(positions, nearby.index(block_size), f"{name}p", what)
    text = f"PTX and SASS of {first.name}, with sliders over {constexpr}, num_warps and target."
    if os.environ.get("WORKBOOK_WIDGETS") == "plain" or device.package_version("ipywidgets") is None:
        return Shown(text, plain)
    explorer = widgets_ptx.Explorer(
        compiled, first, name, blocks, warps, (block_size, num_warps, target, aligned)
    )
    return Shown(text, plain, explorer.box, explorer=explorer)


_explorers: list[int] = []  # so that two explorers of one notebook have different CSS classes

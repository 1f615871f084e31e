"""`explore`: kernels side by side, with sliders over launch parameters, size and dtype."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Sequence
from typing import Any

from helpers.widgets import figure
from helpers.widgets.controls import grid_of, labelled_slider, live_figure
from helpers.widgets.plain import plain_figure
from helpers.widgets.shown import Shown, frontend
from helpers.widgets.space import Space, word
from helpers.widgets.square import SPACES
from helpers.widgets.table import Table, load


def explore(
    over: str | Space = "launch",
    *,
    kernels: Sequence[str] | None = None,
    table: Table | None = None,
    **start: Any,
) -> Shown:
    """Sliders over launch parameters, size and dtype: what each kernel reaches, and the map of one of them.

    On a GPU each point is checked and timed when you come to it, and a button measures all of them. Without one the
    sliders move through the recorded sweep; where a kernel has changed since then, a sentence says so instead.

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
    space = _space(over)
    chosen = _kernels(space, kernels)
    space.require(start)
    point = {**space.start, **start}
    alone = frontend() == "plain"
    table = table or load(space, replay=alone)
    if table.refusal:
        return Shown(table.refusal, f'<div role="status">{html.escape(table.refusal)}</div>')
    text = f"Sliders over {', '.join(word(a) for a in space.axes)} of {', '.join(chosen)}; {table.origin}."
    if table.live:
        for kernel in chosen:
            table.measured(kernel, point)
    plain = plain_figure(table, chosen, point, hover=alone)
    return Shown(text, plain, None if alone else _Explorer(table, chosen, point))


def _space(over: str | Space) -> Space:
    if isinstance(over, Space):
        return over
    if over not in SPACES:
        raise ValueError(f"There is nothing to explore over {over!r}; choose from {', '.join(SPACES)}.")
    return SPACES[over]


def _kernels(space: Space, wanted: Sequence[str] | None) -> tuple[str, ...]:
    """The kernels of a space that are to be shown."""
    known = (*space.mapped, *space.rivals)
    chosen = tuple(known if wanted is None else wanted)
    for kernel in chosen:
        if kernel not in known:
            raise ValueError(
                f"There is no kernel {kernel!r} over {space.name}; choose from {', '.join(known)}."
            )
    if not any(kernel in space.mapped for kernel in chosen):
        raise ValueError(f"Take at least one kernel that the sliders change: {' or '.join(space.mapped)}.")
    return chosen


class _Explorer:
    """The live form of `explore`: sliders, boxes and a button around a FigureWidget."""

    def __init__(self, table: Table, kernels: tuple[str, ...], point: dict[str, Any]) -> None:
        import ipywidgets as w

        self.table, self.point = table, dict(point)
        choices = [k for k in kernels if k in table.space.mapped]
        self.mapped = choices[0]
        self.figure = live_figure(figure.build(table, kernels, self.mapped, point))
        self.sliders = {}
        for axis, values in table.space.axes.items():
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
        # Buttons, not a menu: JupyterLab takes a menu's arrow keys for moves between cells.
        self.map_of = w.ToggleButtons(
            options=choices, value=self.mapped, disabled=len(choices) == 1, style={"button_width": "auto"},
            layout={"width": "auto"},
        )  # fmt: skip
        self.map_of.observe(self._moved, "value")
        self.sentence = w.HTML(figure.reasons_html(table, kernels, point))
        self.button = w.Button(description="Measure all of this map", layout={"width": "14em"})
        self.button.on_click(self._measure_or_stop)
        self.bar = w.IntProgress(description="", min=0, max=1)
        self.bar.layout.visibility = "hidden"
        self.task: asyncio.Task | None = None
        self.stopped = False
        row = {"flex_flow": "row wrap", "grid_gap": "0 1.2em", "align_items": "center"}
        controls = [
            grid_of(list(self.sliders.values())),
            w.HBox([*self.boxes.values(), w.HBox([w.Label("Map of"), self.map_of])], layout=row),
            *([w.HBox([self.button, self.bar])] if table.live else []),
        ]
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
        # Along its own axes the map stays as it is; but the title above it has the size and the dtype.
        own = {self.table.space.x, self.table.space.y} - {"n_cols", "dtype"}
        moved = any(before[axis] != at for axis, at in self.point.items() if axis not in own)
        another = moved or self.mapped != self.map_of.value or self.table.live
        self.mapped = self.map_of.value
        self.show(redraw_map=another)

    def show(self, *, redraw_map: bool) -> None:
        """Bring figure and sentence to the current point."""
        kernels = self.shown
        figure.change(self.figure, self.table, kernels, self.mapped, self.point, redraw_map=redraw_map)
        self.sentence.value = figure.reasons_html(self.table, kernels, self.point)

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

"""`explore`: kernels side by side, with sliders over launch parameters, size and dtype."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from helpers import device
from helpers.widgets import explain, figure
from helpers.widgets.controls import grid_of, labelled_slider, live_figure
from helpers.widgets.explored import Explored, free_name
from helpers.widgets.own import Asked, own_space
from helpers.widgets.plain import plain_figure
from helpers.widgets.residence import spec_for
from helpers.widgets.shown import frontend
from helpers.widgets.space import Space, word
from helpers.widgets.square import SPACES
from helpers.widgets.table import Table, by_gpu, load


def explore(
    over: str | Space | Callable = "launch",
    *,
    kernels: Sequence[str] | None = None,
    table: Table | None = None,
    against: Callable | Sequence[Callable] | Mapping[str, Callable] | None = None,
    reference: Callable | None = None,
    make_inputs: Callable | None = None,
    n_rows: int | None = None,
    n_elements: int | None = None,
    n_bytes: float | Callable = 2,
    tolerance: tuple[float, float] | None = None,
    target: str | int | None = None,
    **sliders: Any,
) -> Explored:
    """Sliders over launch parameters, size and dtype: what each kernel reaches, and the map of one of them.

    `explore(square_mine, against=[torch.square], BLOCK_SIZE=[256, 1024, 4096], num_warps=[1, 4, 8])` lays a
    function of your own under them: `square_mine(x, BLOCK_SIZE, num_warps)` returns a new tensor. Each point
    is checked against the reference, then timed. Without a GPU it is compiled for `target`, and checked on a
    few rows in Triton's interpreter or on the host; bars and map then show the occupancy that follows, and no
    speed.

    `explore()` and `explore("shape")` show the course's kernels. On a GPU each point is measured when you
    come to it, and a button measures all of them. Without one the sliders move through the recorded sweep;
    where a kernel has changed since then, a sentence says so instead. A switch shows the same point on each
    GPU of which the sweep is recorded.

    Args:
        over: a function with launch parameters; or "launch" (BLOCK_SIZE and num_warps of the Triton kernels),
            "shape" (the CUDA kernel's block), "alignment" (where rows begin in memory), or a `Space`.
        kernels: which kernels of a space to lay side by side; all of them where None.
        table: rows to move over instead of those of this GPU or of the record.
        against: functions of x to lay beside yours, a dict where they need names. Those of torch.compile as
            they are.
        reference: what is right: a function that is given x in float64. Needed unless `against` is one
            function.
        make_inputs: `make_inputs(shape, generator, device, dtype)` gives `(x,)` or several tensors, which all
            functions then take; by default x has normally distributed numbers.
        n_rows: of x; 4,096 by default.
        n_elements: of x, instead of `n_rows`: rows grow fewer as they grow wide.
        n_bytes: what must be moved, in sizes of x (2: it is read, as much is written), or a function of the
            inputs that gives bytes.
        tolerance: (relative, absolute) of the check, instead of the dtype's own.
        target: the GPU to compile for where none is here, such as "sm_80"; that of the records by default.
        **sliders: for a function a list for each launch parameter, and for `n_cols` and `dtype` where others
            than 256 … 8,192, float32 and bfloat16 are wanted. What is no list is a slider's first position,
            such as `block_size=1024, dtype="bfloat16"`.

    Returns:
        What a notebook shows, with `.best()` and `.save("name")`.

    Raises:
        ValueError: an unknown space, kernel or slider, a position that a slider does not have, or a function
            that cannot be explored; the message says what to give instead.
        helpers.records.NoRecord: no GPU here and nothing recorded.
    """
    asked = Asked(against, reference, make_inputs, n_rows, n_elements, n_bytes, tolerance)
    alone = frontend() == "plain"
    own, given = None, table is not None
    if isinstance(over, (str, Space)):
        if asked != Asked() or target is not None:
            raise ValueError(
                "against, reference and the like go with a function of yours: explore(square_mine, …)."
            )
        space, start = _space(over), sliders
        space.require(start)
    else:
        own = own_space(over, asked, sliders)
        space, start = own.space, own.start
        table = table or _own_table(space, target)
    chosen = _kernels(space, kernels)
    point = {**space.start, **start}
    table = table or load(space, replay=alone)
    if table.refusal:
        refused = f'<div role="status">{html.escape(table.refusal)}</div>'
        return Explored(table.refusal, refused, table=table, kernels=chosen, start=point)
    if table.live:
        for kernel in chosen:
            table.measured(kernel, point)
    if own is not None:
        own.require_result()
        if alone:
            _measure_all(table, chosen, point)
    text = f"Sliders over {', '.join(word(a) for a in space.axes)} of {', '.join(chosen)}; {table.origin}."
    # Another table than the records' has no other GPUs beside it.
    tables = {"this machine": table} if given or own is not None else by_gpu(table)
    # Behind widgets stands what a page needs at least; a saved notebook is to stay below 1 MB.
    shown_plain = tables if alone else {"": table}
    plain = plain_figure(shown_plain, chosen, point, hover=alone, sentences=alone)
    shown = Explored(
        text,
        plain,
        None if alone else _Explorer(tables, chosen, point),
        table=table,
        kernels=chosen,
        start=point,
    )
    if shown.explorer is not None:
        shown.explorer.save_with(shown)
    return shown


def _own_table(space: Space, target: str | int | None) -> Table:
    """An empty table: to be timed on this GPU, or, without one, to be compiled for another."""
    if not device.has_gpu():
        # No speed of that GPU stands beside what was never timed, its copy's neither.
        return Table(space, replace(spec_for(target), copy_gb_per_s=None), live=True, timed=False)
    here = device.gpu_spec()
    if target is not None and spec_for(target).target != here.target:
        raise ValueError(
            f"target={target!r} is for machines without a GPU; here points are timed on {here.name}."
        )
    return Table(space, here, live=True)


def _measure_all(table: Table, kernels: Sequence[str], start: Mapping[str, Any]) -> None:
    """Look at every point that the plain form's sliders can reach: nothing can be looked at later."""
    from tqdm.auto import tqdm

    space = table.space
    moved = {space.x, space.y, "n_cols", "dtype"}
    plan = [
        (kernel, point)
        for kernel, point in space.points()
        if kernel in kernels
        and all(value == start[axis] for axis, value in point.items() if axis not in moved)
    ]
    for kernel, point in tqdm(plan, desc=space.name, unit="point", leave=False):
        table.measured(kernel, point, budget_s=0.02)


def _space(over: str | Space) -> Space:
    if isinstance(over, Space):
        return over
    if over not in SPACES:
        raise ValueError(
            f"There is nothing to explore over {over!r}; choose from {', '.join(SPACES)}, or give a function."
        )
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

    def __init__(self, tables: Mapping[str, Table], kernels: tuple[str, ...], point: dict[str, Any]) -> None:
        import ipywidgets as w

        self.tables = tables
        self.table = table = next(iter(tables.values()))
        self.point = dict(point)
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
        self.gpu = w.ToggleButtons(
            options=list(tables), style={"button_width": "auto"}, layout={"width": "auto"}
        )
        self.gpu.observe(self._another_gpu, "value")
        self.sentence = w.HTML(figure.reasons_html(table, kernels, point))
        self.why = w.HTML()
        self.button = w.Button(description=self._all_of_it(), layout={"width": "auto"})
        self.button.on_click(self._measure_or_stop)
        self.save_button = w.Button(description="Save page and table", layout={"width": "auto"})
        self.saved = w.HTML()
        self.bar = w.IntProgress(description="", min=0, max=1)
        self.bar.layout.visibility = "hidden"
        self.task: asyncio.Task | None = None
        self.stopped = False
        row = {"flex_flow": "row wrap", "grid_gap": "0 1.2em", "align_items": "center"}
        controls = [
            grid_of(list(self.sliders.values())),
            w.HBox([*self.boxes.values(), w.HBox([w.Label("Map of"), self.map_of])], layout=row),
            w.HBox(
                [
                    *([w.HBox([w.Label("GPU"), self.gpu])] if len(tables) > 1 else []),
                    *([self.button, self.bar] if table.live else []),
                    self.save_button,
                    self.saved,
                ],
                layout=row,
            ),
        ]
        self.box = w.VBox([*controls, self.figure, self.sentence, self.why])
        self._say()

    def _another_gpu(self, change: dict) -> None:
        """The same point on another GPU: bars, map and ceiling change."""
        self.table = self.tables[self.gpu.value]
        self.stopped = True
        self.button.disabled = not self.table.live
        figure.exchange(self.figure, self.table, self.shown, self.mapped, self.point)
        self._say()

    def _all_of_it(self) -> str:
        return "Measure all of this map" if self.table.timed else "Compile and check all of this map"

    def save_with(self, shown: Explored) -> None:
        """Let the button save what the sliders know into the notebook's folder, under a name that is still
        free.
        """

        def save(button: Any) -> None:
            try:
                page, rows = shown.save(free_name(self.table.space.name))
            except OSError as error:
                self.saved.value = f'<span role="alert">not saved: {html.escape(str(error))}</span>'
            else:
                names = f"{page.name} and {rows.name}"
                self.saved.value = f'<span role="status">saved: {html.escape(names)}</span>'

        self.save_button.on_click(save)

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
        self._say()

    def _say(self) -> None:
        """What is written under the figure."""
        self.sentence.value = figure.reasons_html(self.table, self.shown, self.point)
        rival = explain.rival_of(self.table, self.mapped, self.shown, self.point)
        if rival is not None and self.table.counted:
            sides = [explain.side(self.table, kernel, self.point) for kernel in (self.mapped, rival)]
            self.why.value = f'<div role="status">{html.escape(explain.sentence(*sides))}</div>'

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
            self.button.description = self._all_of_it()
            self.bar.layout.visibility = "hidden"
            self.show(redraw_map=True)

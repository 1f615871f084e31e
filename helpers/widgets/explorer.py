"""`explore`: kernels side by side, with sliders over launch parameters, size and dtype."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from helpers.ncu import NcuError
from helpers.widgets import explain, view
from helpers.widgets.explored import Explored, free_name
from helpers.widgets.own import Asked, own_space
from helpers.widgets.shown import frontend, page_html
from helpers.widgets.space import Space
from helpers.widgets.square import SPACES
from helpers.widgets.table import Table, by_gpu, load, own_table


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
    n_flops: Callable | None = None,
    tolerance: tuple[float, float] | None = None,
    target: str | int | None = None,
    **sliders: Any,
) -> Explored:
    """Shows sliders over launch parameters, size and dtype: the speed of each kernel, and a map of one of
    them.

    `explore(square_mine, against=[torch.square], BLOCK_SIZE=[256, 1024, 4096], num_warps=[1, 4, 8])` explores
    your own function: `square_mine(x, BLOCK_SIZE, num_warps)` returns a new tensor. Each position is checked
    against the reference, then timed. Without a GPU, it is compiled for `target` and checked on a few rows,
    in Triton's interpreter or on the host; bars and map then show the occupancy that follows, and no speed.

    `explore()` and `explore("shape")` show the course's kernels. With a GPU, each position is measured when
    you reach it, and a button measures all of them. Without one, the sliders move through the recorded sweep;
    if a kernel has changed since then, a sentence says so instead. A switch shows the same position on each
    recorded GPU, or on all of them.

    Args:
        over: a function with launch parameters; or "launch" (BLOCK_SIZE and num_warps of the Triton kernels),
            "shape" (the CUDA kernel's block), "alignment" (where rows begin in memory), or a `Space`.
        kernels: which kernels of a space to compare; None for all of them.
        table: rows to show instead of those of this GPU or of the record.
        against: functions of x to compare yours with, as a dict if they need names. Pass compiled functions
            as torch.compile returns them.
        reference: the right result: a function that receives x in float64. Needed unless `against` is one
            function.
        make_inputs: `make_inputs(shape, generator, device, dtype)` returns `(x,)` or several tensors, which
            all functions then receive; by default x has normally distributed numbers.
        n_rows: of x; 4,096 by default.
        n_elements: of x, instead of `n_rows`: wider rows are fewer.
        n_bytes: what must be moved, in sizes of x (2: x is read and as much is written), or a function of the
            inputs that returns bytes.
        n_flops: for a kernel that arithmetic limits: a function of the inputs that returns the operations to
            be computed. Bars then show TFLOP/s, and the dashed line is the fastest torch.matmul of the dtype
            on this GPU. x is square unless `n_rows` or `n_elements` is given.
        tolerance: (relative, absolute) of the check, instead of the dtype's own.
        target: the GPU to compile for if none is available, such as "sm_80"; by default that of the records.
        **sliders: for a function, a list for each launch parameter, and for `n_cols` and `dtype` if you want
            others than 256 … 8,192, float32 and bfloat16. A value that is not a list is a slider's first
            position, such as `block_size=1024, dtype="bfloat16"`.

    Returns:
        What a notebook displays, with `.best()` and `.save("name")`.

    Raises:
        ValueError: an unknown space, kernel or slider, a position that a slider does not have, or a function
            that cannot be explored; the message says what to pass instead.
    """
    asked = Asked(against, reference, make_inputs, n_rows, n_elements, n_bytes, n_flops, tolerance)
    live = frontend() == "widgets"
    own = None
    if isinstance(over, (str, Space)):
        if asked != Asked() or target is not None:
            raise ValueError("against, reference and the like belong to a function: explore(square_mine, …).")
        space = _space(over)
        space.require(sliders)
        start = {**space.start, **sliders}
    else:
        own = own_space(over, asked, sliders)
        space, start = own.space, {**own.space.start, **own.start}
    chosen = _kernels(space, kernels)
    if table is not None:
        tables = {"this table": table}
    elif own is not None:
        tables = {"this machine": own_table(space, target)}
    else:
        tables = by_gpu(load(space, replay=not live))
    table = next(iter(tables.values()))
    if table.refusal:
        refused = f'<div role="status">{html.escape(table.refusal)}</div>'
        return Explored(table.refusal, refused, table=table, kernels=chosen, start=start)
    if table.live:
        _measure(table, chosen, start, everything=own is not None and not live)
    if own is not None:
        own.require_result()
    text = (
        f"Sliders over {', '.join(space.word(a) for a in space.axes)} of {', '.join(chosen)}; {table.origin}."
    )
    data = view.kernels_data(tables, chosen, start)
    still = view.still_html(table, chosen, start)
    if not live and not table.timed and own is None:
        data["absent"] = "not compiled for this page"
    if not live:
        return Explored(text, page_html(data, still), table=table, kernels=chosen, start=start)
    session = Session(tables, chosen, data)
    shown = Explored(text, still, session.widget, table=table, kernels=chosen, start=start, tables=tables)
    session.explored = shown
    return shown


def _measure(table: Table, kernels: Sequence[str], start: Mapping[str, Any], *, everything: bool) -> None:
    """Measures the first position; or, for a page that can measure nothing later, all of them."""
    if not everything:
        for kernel in kernels:
            table.measured(kernel, start)
        return
    from tqdm.auto import tqdm

    plan = [(kernel, point) for kernel, point in table.space.points() if kernel in kernels]
    for kernel, point in tqdm(plan, desc=table.space.name, unit="point", leave=False):
        table.measured(kernel, point, budget_s=0.02)


def _space(over: str | Space) -> Space:
    if isinstance(over, Space):
        return over
    if over not in SPACES:
        raise ValueError(
            f"There is nothing to explore over {over!r}; choose from {', '.join(SPACES)}, or pass a function."
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
        raise ValueError(f"Include at least one kernel that the sliders change: {' or '.join(space.mapped)}.")
    return chosen


class Session:
    """Answers the browser: measures and compiles positions, counts, and saves.

    Attributes:
        widget: the sliders.
        explored: what `explore` returned, whose page and table the browser may ask to save.
    """

    def __init__(self, tables: Mapping[str, Table], kernels: tuple[str, ...], data: dict[str, Any]) -> None:
        from helpers.widgets.live import LiveExplorer

        self.tables = tables
        self.table = next(iter(tables.values()))
        self.kernels = kernels
        self.data = data
        self.explored: Explored | None = None
        self.task: asyncio.Task | None = None
        if self.table.live:
            data["all"] = "Measure the whole map" if self.table.timed else "Compile and check the whole map"
        if self.table.live and self.table.timed:
            data["counts"] = "Count both with Nsight Compute (takes some seconds)"
        self.widget = LiveExplorer(data, self.answer)

    def answer(self, message: Mapping[str, Any]) -> None:
        """Handle a message from `explorer.js`, which has its kind and the sliders' state."""
        point = view.point_at(self.table.space, message["at"])
        if message["kind"] == "rows":
            wanted = [self.kernels[i] for i in message["kernels"]]
            for kernel in wanted:
                self.table.measured(kernel, point)
            self.send(wanted, [point], answer=True)
        elif message["kind"] == "why":
            self._say_why(message, point)
        elif message["kind"] == "count":
            self._count(message, point)
        elif message["kind"] == "all":
            self.task = self.widget.in_background(self.measure_all(self.kernels[message["mapped"]], point))
        elif message["kind"] == "stop" and self.task is not None:
            self.task.cancel()
        elif message["kind"] == "save":
            self._save()

    def send(self, kernels: Sequence[str], points: Sequence[Mapping[str, Any]], **more: Any) -> None:
        """Send rows that are known now to the browser."""
        gpu = self.data["gpus"][0]
        rows: dict[str, Any] = {}
        for kernel in kernels:
            for point in points:
                if self.table.row(kernel, point) is not None:
                    rows |= view.row_data(self.table, self.kernels, kernel, point)
        gpu["rows"] |= rows
        gpu["top"] = view.highest(self.table)
        gpu["ceilings"] = view.ceilings(self.table)
        gpu["counted"] = bool(self.table.counted)
        news = {name: gpu[name] for name in ("top", "ceilings")}
        self.widget.send({"rows": rows, **news, "has_counters": gpu["counted"], **more})

    async def measure_all(self, mapped: str, at: Mapping[str, Any]) -> None:
        """Measure what is missing of the map, and let other messages through after every position."""
        space = self.table.space
        points = [{**at, space.x: x, space.y: y} for y in space.axes[space.y] for x in space.axes[space.x]]
        new: list[dict[str, Any]] = []
        try:
            for i, point in enumerate(points):
                if self.table.row(mapped, point) is None:
                    self.table.measured(mapped, point)
                    new.append(point)
                if len(new) == 4 or i + 1 == len(points):
                    self.send([mapped], new, status=f"{i + 1} of {len(points)}", going=True)
                    new = []
                await asyncio.sleep(0.005)
        finally:
            self.send([mapped], new, status="", going=False)

    def _say_why(self, message: Mapping[str, Any], point: Mapping[str, Any]) -> None:
        mine, rival = (self.kernels[message[name]] for name in ("mapped", "rival"))
        sides = (explain.side(self.table, kernel, point) for kernel in (mine, rival))
        (key,) = view.row_data(self.table, self.kernels, mine, point)
        self.widget.send({"answer": True, "why": [key, message["rival"], explain.sentence(*sides)]})

    def _count(self, message: Mapping[str, Any], point: Mapping[str, Any]) -> None:
        """Have Nsight Compute count two kernels; Python waits, so that nothing is timed meanwhile."""
        wanted = [self.kernels[message[name]] for name in ("mapped", "rival")]
        try:
            self.table.count(wanted, point)
        except (NcuError, ValueError) as error:
            self.widget.send({"status": "", "error": f"Not counted: {error}"})
        else:
            self.send(wanted, [point], status="", counted=True)

    def _save(self) -> None:
        try:
            page, rows = self.explored.save(free_name(self.table.space.name))
        except OSError as error:
            self.widget.send({"status": "", "error": f"Not saved: {error}"})
        else:
            self.widget.send({"status": f"saved: {page.name} and {rows.name}"})

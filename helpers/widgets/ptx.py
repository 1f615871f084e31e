"""`explore_ptx`: PTX and SASS of a kernel, compiled again for every position of the sliders."""

from __future__ import annotations

import asyncio
import html
import itertools
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers import plots
from helpers.ptx.sass import memory_bytes
from helpers.ptx.view import TITLES, line_colours, pane
from helpers.widgets.constants import require_constants, with_constants
from helpers.widgets.shown import Shown, frontend, page_html, table_html
from helpers.widgets.space import label, require_position, word
from helpers.widgets.view import axis_data

if TYPE_CHECKING:
    from helpers.ptx import Stages

BLOCK_SIZES = tuple(2**i for i in range(6, 14))
NUM_WARPS = (1, 2, 4, 8, 16, 32)
TARGETS = ("sm_75", "sm_80", "sm_90", "sm_100")
# The positions on a page, which are compiled beforehand: as far as registers spill.
_PAGE = {"block_size": (256, 1024, 2048, 8192), "num_warps": (1, 2, 4, 8)}
_MOST_ON_A_PAGE = 24
_SQUARE = {
    "output_ptr": "*fp32",
    "input_ptr": "*fp32",
    "input_row_stride": "i32",
    "output_row_stride": "i32",
    "n_cols": "i32",
}
_FACTS = {
    "loads": "loads per thread",
    "load_bytes": "widest load (bytes)",
    "stores": "stores per thread",
    "registers": "registers per thread",
    "spill_bytes": "spilled (bytes per thread)",
    "shared_bytes": "shared memory (bytes per block)",
    "ptx_instructions": "PTX instructions",
    "sass_instructions": "SASS instructions",
}
_BYTE_COLORS = {width: plots.PALETTE[i] for i, width in enumerate((1, 2, 4, 8, 16, 32))}

Position = Mapping[str, Any]


@dataclass(frozen=True)
class _Subject:
    """What is compiled, and what the sliders move over.

    Attributes:
        axes: the positions of each slider.
        start: the first position.
        compiled: returns the stages at a position.
        one_source: whether all positions have the same source.
    """

    axes: Mapping[str, tuple]
    start: Position
    compiled: Callable[[Position], Stages]
    one_source: bool


def explore_ptx(
    kernel: Any = None,
    *,
    signature: dict[str, str] | None = None,
    constexpr: str = "BLOCK_SIZE",
    block_size: int = 1024,
    num_warps: int = 4,
    target: str = "sm_90",
    aligned: bool = False,
    name: str | None = None,
    **constants: Sequence[int | float],
) -> Shown:
    """Shows PTX and SASS of a kernel, compiled again for each position of the sliders. No GPU is needed.

    Lines have the color of the source line that they came from; pointing at a source line, or selecting it,
    highlights them. A + marks lines that are new since the last position, and facts that changed show their
    old value. Each load and store shows how many bytes it moves per thread. Two positions can be compared
    side by side.

    `explore_ptx(cuda_text, BLOCK=[128, 256, 512])` does the same for CUDA C++, compiled by NVRTC, with one
    slider per constant. The text can define the constant (`#define BLOCK 256`, `constexpr int BLOCK = 256;`)
    or only use it.

    Args:
        kernel: a `@triton.jit` function, or CUDA text; None for `square_rows_kernel`.
        signature: the types of a Triton kernel's run-time arguments, as for `ptx.stages`.
        constexpr: the name of its `tl.constexpr` argument that the first slider sets.
        block_size, num_warps: the first position, for a Triton kernel.
        target: the first position of the slider over GPUs.
        aligned: whether the compiler may assume that a Triton kernel's integer arguments are multiples of 16.
        name: which kernel of a CUDA text, if it has several.
        **constants: for a CUDA text, the list of each constant's positions; its slider begins at the first.

    Raises:
        ValueError: a position that a slider does not have, a kernel without its signature, a constant that
            the text does not use, or an argument that belongs to the other kind of kernel.
        helpers.ptx.CompileError, helpers.cuda.BuildError: the kernel does not compile at the first position.
    """
    require_position("target", target, TARGETS)
    if isinstance(kernel, str):
        if signature is not None or aligned or (constexpr, block_size, num_warps) != ("BLOCK_SIZE", 1024, 4):
            raise ValueError(
                "signature, constexpr, block_size, num_warps and aligned belong to a Triton kernel; a CUDA "
                "text takes its constants, such as BLOCK=[128, 256]."
            )
        subject = _cuda(kernel, constants, target, name)
    else:
        if constants or name is not None:
            given = ", ".join([*constants, *(["name"] if name else [])])
            raise ValueError(
                f"{given}: this belongs to a CUDA text; a Triton kernel has constexpr=… and block_size=…."
            )
        subject = _triton(kernel, signature, constexpr, block_size, num_warps, target, aligned)
    first = subject.compiled(subject.start)
    text = f"PTX and SASS of {first.name}, with sliders over {', '.join(map(word, subject.axes))}."
    if frontend() == "plain":
        return Shown(text, page_html(_page_data(subject, first), _still(first)))
    return Shown(text, _still(first), _Session(subject, first).widget)


class _Session:
    """Answers the browser: compiles a position at once, and disassembles it in the background.

    The disassembler takes several times as long as the compiler, and has a low priority so that it doesn't
    slow down the compilation of the next position. A position that the reader has left before its turn came
    is not disassembled; the browser asks again if they return.
    """

    def __init__(self, subject: _Subject, first: Stages) -> None:
        from helpers.widgets.live import LiveExplorer

        self.subject = subject
        self.data = _data(subject, first, subject.axes)
        self.newest: Position | None = None
        self.task: asyncio.Task | None = None
        self.thread = ThreadPoolExecutor(1, initializer=_low_priority)
        self.widget = LiveExplorer(self.data, self.answer)

    def answer(self, message: Mapping[str, Any]) -> None:
        """Send the PTX of a position, and its SASS later."""
        axes = self.subject.axes
        at = {axis: values[i] for (axis, values), i in zip(axes.items(), message["at"], strict=True)}
        found = _position(self.subject, at, with_sass=False)
        self.send(at, found, answer=True)
        self.newest = None if "refused" in found else at
        if self.newest and (self.task is None or self.task.done()):
            self.task = self.widget.in_background(self.disassemble())

    async def disassemble(self) -> None:
        """Send the SASS of the newest position until there is no newer one."""
        while (at := self.newest) is not None:
            self.newest = None
            work = asyncio.get_running_loop().run_in_executor(self.thread, _position, self.subject, at)
            self.send(at, await work)

    def send(self, at: Position, found: dict[str, Any], **more: Any) -> None:
        """Send what is known about a position to the browser."""
        new = {_key(self.subject.axes, at): found}
        self.data["positions"] |= new
        self.widget.send({"positions": new, **more})


def _low_priority() -> None:
    """Lower the priority of this thread and of the processes that it starts."""
    if sys.platform == "linux":  # elsewhere, threads have no priority of their own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def _triton(
    kernel: Any,
    signature: dict[str, str] | None,
    constexpr: str,
    block_size: int,
    num_warps: int,
    target: str,
    aligned: bool,
) -> _Subject:
    from helpers import ptx

    require_position("block_size", block_size, BLOCK_SIZES)
    require_position("num_warps", num_warps, NUM_WARPS)
    if kernel is None:
        from helpers.kernels.square import square_rows_kernel as kernel

        signature = signature or _SQUARE
    if signature is None:
        raise ValueError(
            "explore_ptx needs the signature of your kernel, such as {'x_ptr': '*fp32', 'n': 'i32'}."
        )

    def compiled(at: Position) -> Stages:
        return ptx.stages(
            kernel, signature=signature, constexprs={constexpr: at["block_size"]}, target=at["target"],
            num_warps=at["num_warps"], divisible_by_16=tuple(signature) if at["aligned"] else None,
        )  # fmt: skip

    axes = {"block_size": BLOCK_SIZES, "num_warps": NUM_WARPS, "target": TARGETS, "aligned": (False, True)}
    start = {"block_size": block_size, "num_warps": num_warps, "target": target, "aligned": aligned}
    return _Subject(axes, start, compiled, True)


def _cuda(
    text: str,
    constants: Mapping[str, Sequence[Any]],
    target: str,
    name: str | None,
) -> _Subject:
    from helpers import ptx

    require_constants(text, constants)

    def compiled(at: Position) -> Stages:
        made, flags = with_constants(text, {constant: at[constant] for constant in constants})
        return ptx.cuda_stages(made, target=at["target"], flags=flags, kernel=name)

    axes = {**{constant: tuple(values) for constant, values in constants.items()}, "target": TARGETS}
    start = {**{constant: values[0] for constant, values in axes.items()}, "target": target}
    return _Subject(axes, start, compiled, False)


def _data(subject: _Subject, first: Stages, axes: Mapping[str, tuple]) -> dict[str, Any]:
    """What `explorer.js` draws, with the first position only."""
    start = {axis: subject.start[axis] for axis in axes}
    return {
        "kind": "ptx",
        "axes": [_axis(axis, values) for axis, values in axes.items()],
        "start": [axes[axis].index(value) for axis, value in start.items()],
        "titles": {kind: TITLES[kind] for kind in ("ptx", "sass")},
        "facts": list(_FACTS.values()),
        "bytes_note": "In front of a load or store: the bytes that it moves per thread.",
        "byte_colors": _BYTE_COLORS,
        "source": _lines(first, "source"),
        "source_colors": _colors(first),
        "positions": {_key(axes, start): _position(subject, subject.start)},
    }


def _axis(axis: str, values: Sequence[Any]) -> dict[str, Any]:
    if axis == "aligned":
        return {"label": "strides and sizes are multiples of 16", "values": ["no", "yes"], "control": "box"}
    return axis_data(axis, values)


def _key(axes: Mapping[str, tuple], at: Position) -> str:
    return ",".join(str(values.index(at[axis])) for axis, values in axes.items())


def _page_data(subject: _Subject, first: Stages) -> dict[str, Any]:
    """The data of a page, which cannot compile: as many positions as `_MOST_ON_A_PAGE` allows."""
    axes = {
        axis: tuple(sorted({*_PAGE.get(axis, values), subject.start[axis]}))
        for axis, values in subject.axes.items()
        if axis not in ("target", "aligned")
    }
    while len(list(itertools.product(*axes.values()))) > _MOST_ON_A_PAGE:
        axes.popitem()
    fixed = [axis for axis in subject.start if axis not in axes]
    points = [
        {**subject.start, **dict(zip(axes, at, strict=True))} for at in itertools.product(*axes.values())
    ]
    data = _data(subject, first, axes)
    words = [f"{word(axis)} {label(subject.start[axis])}" for axis in fixed if axis != "aligned"]
    if subject.start.get("aligned"):
        words.append("strides and sizes that are multiples of 16")
    data["note"] = f"On this page: {', '.join(words)}."
    with ThreadPoolExecutor(2) as pool:  # the disassembler is a process of its own
        found = list(pool.map(lambda at: _position(subject, at), points))
    data["positions"] = {_key(axes, at): one for at, one in zip(points, found, strict=True)}
    return data


def _position(subject: _Subject, at: Position, with_sass: bool = True) -> dict[str, Any]:
    """One position: its facts and the lines of its PTX and SASS; or why it does not compile."""
    from helpers.cuda import BuildError
    from helpers.ptx import CompileError

    try:
        stages = subject.compiled(at)
        made = {"facts": list(facts(stages).values()), "ptx": _lines(stages, "ptx")}
        if not subject.one_source:
            made |= {"source": _lines(stages, "source"), "colors": _colors(stages)}
        if with_sass:
            made["facts"].append(len(stages.sass_reading.instructions))
            made["sass"] = _lines(stages, "sass")
    except (CompileError, BuildError) as error:
        return {"refused": str(error)}
    return made


def facts(stages: Stages) -> dict[str, int]:
    """The numbers above the panes, except the last, which needs the disassembler."""
    from helpers.ptx.artifacts import facts as from_ptx

    row = from_ptx(stages)
    return {
        **{name: row[name] for name in ("loads", "load_bytes", "stores")},
        "registers": stages.n_registers,
        "spill_bytes": stages.spill_bytes,
        "shared_bytes": stages.shared_bytes,
        "ptx_instructions": row["ptx_instructions"],
    }


def _colors(stages: Stages) -> dict[int, str]:
    """Source lines that became instructions, with their colors."""
    return {number: ",".join(map(str, rgb)) for number, rgb in line_colours(stages).items()}


def _lines(stages: Stages, kind: str) -> list[list[Any]]:
    """A pane's lines: number, source line, text, and the bytes that a load or store moves per thread."""
    if kind == "source":
        return [[line.number, 0, line.text] for line in pane(stages, kind)]
    if kind == "sass":
        widths = {one.line: memory_bytes(one) for one in stages.sass_reading.instructions}
    else:
        spaces = ("global", "shared", "local", "generic")
        widths = {one.line: one.n_bytes for one in stages.reading.instructions if one.space in spaces}
    return [
        [line.number, line.source_line or 0, line.text, widths.get(line.number) or 0]
        for line in pane(stages, kind)
    ]


def _still(stages: Stages) -> str:
    """The first position without a script: its facts and its PTX."""
    found = [[_FACTS[name], f"{value:,}"] for name, value in facts(stages).items()]
    text = "\n".join(line.text for line in pane(stages, "ptx"))
    made = table_html(["", ""], found, f"{stages.name} for {stages.target}")
    return f"{made}<details><summary>Its PTX</summary><pre>{html.escape(text)}</pre></details>"

"""A `Space` is the grid of points that sliders move over, with the kernels to run at each point.

The lessons' spaces are in `square`, `softmax`, `product` and `attention`; `own` makes one of any function
with launch parameters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

N_ROWS = 4096
COMPILED = "torch.compile"
FACTS = ("threads", "registers", "spill_bytes", "shared_bytes", "loads", "load_bytes")
# Facts that are added for kernels whose speed is counted in operations.
LOOP_FACTS = ("loop_instructions", "loop_products", "loop_opcode")
RESULTS = ("median_us", "ci_low_us", "ci_high_us", "gb_per_s", "verdict", "reason")
_WORDS = {
    "block_size": "BLOCK_SIZE",
    "num_warps": "num_warps",
    "n_cols": "columns, N",
    "dtype": "dtype",
    "block_x": "block, x",
    "block_y": "block, y",
    "padding": "row padding",
    "offset": "first element",
    "block_m": "BLOCK_M",
    "block_n": "BLOCK_N",
    "num_stages": "num_stages",
    "group_m": "GROUP_M",
    "head_size": "head size",
    "causal": "causal mask",
}
_UNITS = {
    "block_size": "elements",
    "block_x": "threads",
    "block_y": "threads",
    "padding": "elements",
    "offset": "elements",
    "num_warps": "warps per program",
    "block_m": "rows",
    "block_n": "columns",
    "num_stages": "steps in flight",
    "group_m": "rows of tiles",
}


def word(axis: str) -> str:
    """The label of an axis; an unknown axis keeps its own name."""
    return _WORDS.get(axis, axis)


def axis_title(axis: str) -> str:
    """The label of an axis with its unit."""
    return f"{word(axis)} ({_UNITS[axis]})" if axis in _UNITS else word(axis)


def label(value: Any) -> str:
    """A slider's value as text; integers have commas, as in 4,096."""
    return f"{value:,}" if type(value) is int else str(value)


def require_position(axis: str, value: Any, values: Sequence[Any]) -> None:
    """Raise ValueError unless `value` is one of the slider's values."""
    if value not in values:
        known = ", ".join(map(str, values))
        raise ValueError(f"{axis}={value!r} is no position of its slider; choose from {known}.")


class Refused(Exception):
    """A kernel can't run at a point; the message says why."""


@dataclass(frozen=True)
class Speed:
    """What bars and maps show of a kernel that was timed.

    Attributes:
        column: the column of a row.
        unit: its unit.
        title: the title of the bars.
        ceiling: what the dashed line is, as in "87 % of copy".
        decimals: of values below 100.
    """

    column: str
    unit: str
    title: str
    ceiling: str
    decimals: int = 0

    def text(self, value: float) -> str:
        """A value with its unit, such as "668 TFLOP/s"."""
        return f"{value:,.{0 if value >= 100 else self.decimals}f} {self.unit}"


BANDWIDTH = Speed("gb_per_s", "GB/s", "effective bandwidth (GB/s)", "copy")
ARITHMETIC = Speed("tflop_per_s", "TFLOP/s", "speed (TFLOP/s)", "torch.matmul's best", decimals=1)


@dataclass(frozen=True)
class Candidate:
    """One kernel at one point, ready to be checked and timed.

    Attributes:
        run: `run(x)` returns the kernel's result, a new tensor.
        reference: the correct result; it receives x in float64.
        facts: `facts(x)` returns facts about the compiled code, with the names in `FACTS` and optionally the
            launch's `blocks`; empty for a library's kernel.
        make_inputs: `make_inputs(shape, generator, device, dtype)` returns `(x,)`, or several tensors that
            all three functions take, if the input is not one matrix of normally distributed numbers.
        tolerance: (relative, absolute), if the dtype's default would hide a wrong result.
    """

    run: Callable[..., torch.Tensor]
    reference: Callable[..., torch.Tensor]
    facts: Callable[..., dict[str, int]] = lambda *inputs: {}
    make_inputs: Callable[..., tuple[torch.Tensor, ...]] | None = None
    tolerance: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Space:
    """A grid of points, and the kernels that are compared on it.

    Attributes:
        name: its name in `explore(over=...)` and in messages.
        record: the record with its table, such as "lesson/what"; "" if there is none.
        x, y: the two axes of the heat map.
        axes: every slider with its values; `n_cols` and `dtype` are always among them.
        mapped: the kernels that depend on all axes.
        rivals: the kernels that depend on `problem` only, and not on the launch.
        problem: the axes that say what is computed; `n_cols` and `dtype` come first.
        start: the sliders' first positions.
        candidates: `candidates(kernel, point)` returns the `Candidate`, or raises `Refused`.
        sources: returns the kernels' sources, whose hashes are stored in the record.
        blocks: `blocks(row)` returns the blocks (programs) of the launch behind a table's row; None means one
            per row of the matrix.
        operation: what the kernels compute, in a word or two for titles.
        size: the words for a matrix's size, of its rows and columns.
        words: (label, unit) of axes whose usual ones don't fit.
        n_elements: the elements of every matrix, so that wider matrices have fewer rows; None if `n_rows` is
            fixed.
        n_rows: the rows of every matrix, if `n_elements` is None; None for square matrices.
        n_bytes: the bytes that must be moved, from which GB/s are computed: in matrices (2: one is read, one
            written), or a function of the inputs that returns bytes.
        n_flops: a function of the inputs that returns the operations to be computed, if arithmetic limits
            the kernels and not memory: their speed is then shown in TFLOP/s. None otherwise.
        skipped: `skipped(kernel, point)` returns why a point that would run isn't worth timing; "" if it is.
        colours: the colors of kernels that appear in several spaces; the others get one by their position.
        launching: returns Python code that creates `candidates` in another process, and the files (name to
            text) that it needs; None if `candidates` can be imported.
    """

    name: str
    record: str = ""
    x: str
    y: str
    axes: Mapping[str, tuple]
    mapped: tuple[str, ...]
    rivals: tuple[str, ...] = ()
    problem: tuple[str, ...] = ("n_cols", "dtype")
    start: Mapping[str, Any]
    candidates: Callable[[str, Mapping[str, Any]], Candidate]
    sources: Callable[[], list] = list
    blocks: Callable[[Mapping[str, Any]], int] | None = None
    operation: str
    size: Callable[[int, int], str] = lambda n_rows, n_cols: f"{n_rows:,} × {n_cols:,}"
    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    n_elements: int | None = None
    n_rows: int | None = N_ROWS
    n_bytes: float | Callable[..., int] = 2
    n_flops: Callable[..., int] | None = None
    skipped: Callable[[str, Mapping[str, Any]], str] = lambda kernel, point: ""
    colours: Mapping[str, str] = field(default_factory=dict)
    launching: Callable[[], tuple[str, dict[str, str]]] | None = None

    def rows(self, n_cols: int) -> int:
        """The rows of a matrix with this many columns."""
        if self.n_elements is not None:
            return max(1, self.n_elements // n_cols)
        return n_cols if self.n_rows is None else self.n_rows

    @property
    def speed(self) -> Speed:
        """What is shown of a kernel that was timed: TFLOP/s if `n_flops` is set, otherwise GB/s."""
        return BANDWIDTH if self.n_flops is None else ARITHMETIC

    def n_blocks(self, row: Mapping[str, Any]) -> int:
        """The blocks (programs) of the launch behind a row."""
        if row.get("blocks"):
            return row["blocks"]
        return self.rows(row["n_cols"]) if self.blocks is None else self.blocks(row)

    def key(self, kernel: str, point: Mapping[str, Any]) -> tuple:
        """The key of a kernel's row at a point."""
        return kernel, *(point[a] for a in self.axes_of(kernel))

    def axes_of(self, kernel: str) -> tuple[str, ...]:
        """The axes that a kernel depends on."""
        return tuple(self.axes) if kernel in self.mapped else self.problem

    def word(self, axis: str) -> str:
        """The label of an axis."""
        return self.words[axis][0] if axis in self.words else word(axis)

    def axis_title(self, axis: str) -> str:
        """The label of an axis with its unit."""
        return "{} ({})".format(*self.words[axis]) if axis in self.words else axis_title(axis)

    def title(self, point: Mapping[str, Any]) -> str:
        """What is computed at a point, such as "softmax of 4,096 × 1,024 float32"."""
        return f"{self.operation} of {self.at(point)}"

    def at(self, point: Mapping[str, Any]) -> str:
        """The size, the dtype, and whatever else the problem has at a point."""
        size = self.size(self.rows(point["n_cols"]), point["n_cols"])
        more = (f"{self.word(axis)} {label(point[axis])}" for axis in self.problem[2:])
        return ", ".join([f"{size} {point['dtype']}", *more])

    def points(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every kernel with each of its points, ordered so that neighbors share a compiled kernel."""
        small = {name: self.axes[name] for name in ("dtype", "n_cols", *self.problem[2:])}
        for kernel in (*self.mapped, *self.rivals):
            axes = {n: v for n, v in self.axes.items() if n not in small} if kernel in self.mapped else {}
            for values in itertools.product(*axes.values(), *small.values()):
                yield kernel, dict(zip((*axes, *small), values, strict=True))

    def require(self, point: Mapping[str, Any]) -> None:
        """Raise ValueError unless every value of `point` is a position of the slider that it names."""
        for axis, value in point.items():
            if axis not in self.axes:
                raise ValueError(
                    f"There is no slider {axis!r} over {self.name}; there are {', '.join(self.axes)}."
                )
            require_position(axis, value, self.axes[axis])

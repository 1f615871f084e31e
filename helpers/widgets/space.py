"""What sliders move over: a `Space` is a grid of points for some kernels, and says how each of them is run at
a point.

There are no kernels here: the square's spaces are in `square`, lesson 06's in `softmax`; `own` makes one of
any function with launch parameters.
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
}
_UNITS = {
    "block_size": "elements",
    "block_x": "threads",
    "block_y": "threads",
    "padding": "elements",
    "offset": "elements",
    "num_warps": "warps per program",
}


def word(axis: str) -> str:
    """What an axis is called beside its slider; an unknown axis keeps its own name."""
    return _WORDS.get(axis, axis)


def axis_title(axis: str) -> str:
    """What an axis is called, with its unit."""
    return f"{word(axis)} ({_UNITS[axis]})" if axis in _UNITS else word(axis)


def label(value: Any) -> str:
    """A slider's value as it is written: 4,096, and every other kind as it is."""
    return f"{value:,}" if type(value) is int else str(value)


def require_position(axis: str, value: Any, values: Sequence[Any]) -> None:
    """Raise ValueError unless `value` is one of the slider's values."""
    if value not in values:
        known = ", ".join(map(str, values))
        raise ValueError(f"{axis}={value!r} is no position of its slider; choose from {known}.")


class Refused(Exception):
    """A kernel cannot run at a point; the message says why."""


@dataclass(frozen=True)
class Candidate:
    """One kernel at one point, ready to be checked and timed.

    Attributes:
        run: `run(x)` returns the kernel's result, a new tensor.
        reference: what it must compute; it is given x in float64.
        facts: `facts(x)` says what was compiled, by the names in `FACTS`, and may add the launch's `blocks`;
            nothing for a library's kernel.
        make_inputs: `make_inputs(shape, generator, device, dtype)` gives `(x,)`, or several tensors that all
            three functions take, where the input is not one matrix of normally distributed numbers.
        tolerance: (relative, absolute), where the dtype's own would hide a wrong result.
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
        name: how `explore(over=...)` and its messages call it.
        record: the record that holds its table, "lesson/what"; "" where there is none.
        x, y: the two axes of the heat map.
        axes: every slider with its values; `n_cols` and `dtype` are always among them.
        mapped: the kernels that depend on all axes.
        rivals: the kernels that depend on size and dtype only.
        start: the sliders' first positions.
        candidates: `candidates(kernel, point)` gives the `Candidate`, or raises `Refused`.
        sources: gives the kernels' sources, whose hashes go into the record.
        blocks: `blocks(row)` is how many blocks (programs) the launch behind a table's row has; one for each
            row of the matrix where None.
        operation: what the kernels compute, in a word or two for titles.
        n_elements: of every matrix, so that rows grow fewer as they grow wide; None where there are `n_rows`.
        n_rows: of every matrix, without `n_elements`.
        n_bytes: what must be moved, which the GB/s are of: in matrices (2: one is read, one written), or a
            function of the inputs that gives bytes.
        colours: of kernels that have the same one in several spaces; the others get theirs by their place.
        launching: gives Python code that makes `candidates` in a process of its own, and the files (name to
            text) that it needs beside it; None where `candidates` can be imported.
    """

    name: str
    record: str = ""
    x: str
    y: str
    axes: Mapping[str, tuple]
    mapped: tuple[str, ...]
    rivals: tuple[str, ...] = ()
    start: Mapping[str, Any]
    candidates: Callable[[str, Mapping[str, Any]], Candidate]
    sources: Callable[[], list] = list
    blocks: Callable[[Mapping[str, Any]], int] | None = None
    operation: str
    n_elements: int | None = None
    n_rows: int = N_ROWS
    n_bytes: float | Callable[..., int] = 2
    colours: Mapping[str, str] = field(default_factory=dict)
    launching: Callable[[], tuple[str, dict[str, str]]] | None = None

    def rows(self, n_cols: int) -> int:
        """The rows of a matrix of so many columns."""
        return self.n_rows if self.n_elements is None else max(1, self.n_elements // n_cols)

    def n_blocks(self, row: Mapping[str, Any]) -> int:
        """Blocks (programs) that the launch behind a row has."""
        if row.get("blocks"):
            return row["blocks"]
        return self.rows(row["n_cols"]) if self.blocks is None else self.blocks(row)

    def key(self, kernel: str, point: Mapping[str, Any]) -> tuple:
        """What tells this kernel's row at a point from all others."""
        axes = self.axes if kernel in self.mapped else ("n_cols", "dtype")
        return kernel, *(point[a] for a in axes)

    def points(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every kernel with each of its points, grouped so that neighbours share a compiled kernel."""
        small = {name: self.axes[name] for name in ("dtype", "n_cols")}
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

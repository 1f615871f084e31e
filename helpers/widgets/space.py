"""What sliders move over: a `Space` is a grid of points for some kernels, and says how each of them is run at a point.

There are no kernels here: the square's spaces are in `square`, lesson 06's in `softmax`, and a learner's own may stand
in a notebook.
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
    "num_warps": "warps a program",
}


def word(axis: str) -> str:
    """What an axis is called beside its slider; an unknown axis keeps its own name."""
    return _WORDS.get(axis, axis)


def axis_title(axis: str) -> str:
    """What an axis is called, with its unit."""
    return f"{word(axis)} ({_UNITS[axis]})" if axis in _UNITS else word(axis)


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
        facts: `facts(x)` says what was compiled, by the names in `FACTS`; nothing for a library's kernel.
        make_inputs: `make_inputs(shape, generator, device, dtype)` gives `(x,)`, where x is not a matrix of normally
            distributed numbers.
        tolerance: (relative, absolute), where the dtype's own would hide a wrong result.
    """

    run: Callable[[torch.Tensor], torch.Tensor]
    reference: Callable[[torch.Tensor], torch.Tensor]
    facts: Callable[[torch.Tensor], dict[str, int]] = lambda x: {}
    make_inputs: Callable[..., tuple[torch.Tensor]] | None = None
    tolerance: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Space:
    """A grid of points, and the kernels that are compared on it.

    Each kernel reads a matrix once and writes one of the same size: its GB/s are of 2 × rows × columns elements.

    Attributes:
        name: how `explore(over=...)` and its messages call it.
        record: the record that holds its table, "lesson/what".
        x, y: the two axes of the heat map.
        axes: every slider with its values; `n_cols` and `dtype` are always among them.
        mapped: the kernels that depend on all axes.
        rivals: the kernels that depend on size and dtype only.
        start: the sliders' first positions.
        candidates: `candidates(kernel, point)` gives the `Candidate`, or raises `Refused`.
        sources: gives the kernels' sources, whose hashes go into the record.
        blocks: `blocks(row)` is how many blocks (programs) the launch behind a table's row has; one for each row of the
            matrix where None.
        operation: what the kernels compute, in a word or two for titles.
        n_elements: of every matrix, so that rows grow fewer as they grow wide; None where there are 4,096 rows.
        colours: of kernels that have the same one in several spaces; the others get theirs by their place.
    """

    name: str
    record: str
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
    colours: Mapping[str, str] = field(default_factory=dict)

    def rows(self, n_cols: int) -> int:
        """The rows of a matrix of so many columns."""
        return N_ROWS if self.n_elements is None else max(1, self.n_elements // n_cols)

    def n_blocks(self, row: Mapping[str, Any]) -> int:
        """Blocks (programs) that the launch behind a row has."""
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

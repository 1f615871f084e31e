"""What a kernel's hidden cases are made from, how it is timed, and how much it may move."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CasePlan:
    """Which inputs a kernel is called with; `inputs.kernel_cases` makes the cases.

    Attributes:
        dtypes: names. Nearly all cases use the first; the others get an odd size and a view each.
        ndim: how many dimensions the input has, "any" or 2.
        strides: False if the inputs are always contiguous. Then there are no views.
        empty: whether there are inputs without elements.
        shapes: instead of the built-in sizes, or `(rng) -> shapes`; the first of them should be the simplest.
        more_args: `(input, rng) -> tuple` of arguments after it: `lambda x, rng: (rng.uniform(-2, 2),)`.
        extra: `(rng, device) -> iterator of Case`, after the built-in ones. `Case.expected` is None (the
            reference computes it) or a tensor.
    """

    dtypes: tuple[str, ...] = ("float32",)
    ndim: str | int = "any"
    strides: bool = True
    empty: bool = True
    shapes: Sequence[tuple[int, ...]] | Callable[[random.Random], Sequence[tuple[int, ...]]] | None = None
    more_args: Callable | None = None
    extra: Callable | None = None


@dataclass(frozen=True, kw_only=True)
class SpeedPlan:
    """How a kernel is timed on a GPU; `speed.measure` does it.

    Attributes:
        cases: what the inputs are; the first of the dtypes is timed.
        reference: the same in plain torch, in the inputs' own precision.
        shape: of the first input; None takes 256 MiB, or less on a small GPU.
        bytes_per_element: bytes that must move for one element of the first input; None counts that each
            input is read once and the result written once.
        at_least: the share of the copy's speed below which the exercise is not passed; 0 only reports
            the speed.
    """

    cases: CasePlan
    reference: Callable
    shape: tuple[int, ...] | None = None
    bytes_per_element: float | None = None
    at_least: float = 0


@dataclass(frozen=True, kw_only=True)
class TrafficPlan:
    """How much a kernel may move, counted if it is interpreted; `traffic.judge_traffic` does it.

    Attributes:
        reads: how often the input may be read, in multiples of its bytes. The result may be written once.
        program: elements of the input that one program may read in a launch.
        once_more: `(case) -> bool`, in which cases the input may be read once more; None for none.
    """

    reads: int
    program: int
    once_more: Callable[..., bool] | None = None

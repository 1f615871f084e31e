"""Runs next to the learner's functions of lab 09, and contains no answers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from helpers.exercises import triton_text
from helpers.kernels import cooperative_simulator as chips

_WARPS = 4  # the warps per program that `places` assumes


class PlainWait(RuntimeError):
    """A program waits by ordinary loads, which a GPU may answer from its L1 cache forever."""


def in_groups(merge_parts: Callable, groups: list[list[tuple[float, float]]]) -> Any:
    """Merge each group of parts with a learner's function, and then the results."""
    return merge_parts([_numbers(merge_parts(group)) for group in groups])


def _numbers(pair: Any) -> tuple[float, ...]:
    return tuple(one.item() if hasattr(one, "item") else one for one in pair)


def on_chip(softmax: Callable) -> Callable:
    """Run a learner's function `(x, places)` on a chip that has exactly that many places for programs.

    With Triton's interpreter, the chip is simulated. On a GPU, a launch that could hang is refused before it
    starts: the kernel's source says whether its programs wait, and the grid how many of them each row has.
    """

    def run(x: Any, places: int) -> Any:
        if x.is_cuda:
            with _bounded(x.shape[0], places):
                return softmax(x, places)
        with chips.chip(places) as chip:
            y = softmax(x, places)
        if chip.plain_waits:
            raise PlainWait("a program waits for another's word with ordinary loads")
        return y

    return run


@contextmanager
def _bounded(n_rows: int, places: int) -> Iterator[None]:
    """Refuse compiled launches whose programs wait for more programs of a row than are guaranteed to run."""
    from triton.runtime.jit import JITFunction

    before = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        if not warmup and not callable(grid) and _waits(self):
            a_row = math.ceil(math.prod(grid) / max(n_rows, 1))
            if a_row > places:
                raise chips.Deadlock(
                    f"{a_row} programs of a row may wait for each other, but only {places} "
                    "are guaranteed to run at once"
                )
            if kwargs.get("num_warps", _WARPS) > _WARPS:
                raise chips.Deadlock(
                    f"places counts programs of {_WARPS} warps, and these have {kwargs['num_warps']}"
                )
        return before(self, *args, grid=grid, warmup=warmup, **kwargs)

    JITFunction.run = run
    try:
        yield
    finally:
        JITFunction.run = before


@functools.cache
def _waits(kernel: Any) -> bool:
    """Whether a kernel, or one that it calls, has a loop that may never end."""
    try:
        return "while " in triton_text.text_of(kernel)
    except (triton_text.NotAlone, OSError):
        return True

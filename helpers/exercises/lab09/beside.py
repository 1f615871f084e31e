"""What runs beside the learner's functions of lab 09, and knows no answer."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from helpers.exercises import triton_text
from helpers.kernels import places as chips

_WARPS = 4  # of the programs that `places` counts


class PlainWait(RuntimeError):
    """A program waited by ordinary loads; on a GPU its own L1 may answer them for ever."""


def in_groups(merge_parts: Callable, groups: list[list[tuple[float, float]]]) -> Any:
    """Merge each group of parts with a learner's function, then what came of the groups."""
    return merge_parts([_numbers(merge_parts(group)) for group in groups])


def _numbers(pair: Any) -> tuple[float, ...]:
    return tuple(one.item() if hasattr(one, "item") else one for one in pair)


def on_chip(softmax: Callable) -> Callable:
    """A learner's function `(x, places)`, run on a chip that has exactly so many places for programs.

    In the interpreter the chip is one in miniature. On a GPU a launch that could hang is refused before it begins: there the
    text says whether programs wait, and the grid how many a row has.
    """

    def run(x: Any, places: int) -> Any:
        if x.is_cuda:
            with _bounded(x.shape[0], places):
                return softmax(x, places)
        with chips.chip(places) as chip:
            y = softmax(x, places)
        if chip.plain_waits:
            raise PlainWait("a program waited for another's word by ordinary loads")
        return y

    return run


@contextmanager
def _bounded(n_rows: int, places: int) -> Iterator[None]:
    """Refuse compiled launches whose programs wait for more of a row than surely run at once."""
    from triton.runtime.jit import JITFunction

    before = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        if not warmup and not callable(grid) and _waits(self):
            a_row = math.ceil(math.prod(grid) / max(n_rows, 1))
            if a_row > places:
                raise chips.Deadlock(f"{a_row} programs of a row may wait for each other, and only {places} surely run at once")  # fmt: skip
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
    """Whether a kernel, or one that it calls, has a loop that may go on for ever."""
    try:
        return "while " in triton_text.text_of(kernel)
    except (triton_text.NotAlone, OSError):
        return True

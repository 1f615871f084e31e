"""What watching costs: CUPTI, the clock of `timing`, can slow the kernel that it times.

On an H100 it slows some kernels of many short blocks by up to 5 % (PyTorch's softmax of 32,768 rows of 4,096: 4 %) and
most not at all; the record timer/watching has figures. CUDA events need no profiler. A pair of them around a call also
counts its own marks, but the difference between watched and unwatched pairs does not: it is what CUPTI adds.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from helpers.timing_stats import median_interval

Fn = Callable[[], Any]
_LEAD_CYCLES = (
    700_000  # 0.4 ms in which the host queues a flush, both marks and the call: no gap of its own is timed
)
_MARKS_US = 2.0  # a pair of events adds more than this to a kernel's own time: 2.0 to 4.5 µs on an H100
_DROPPED = 2  # calls at the start of each turn: CUPTI's first, and clocks that come up again
_TURNS = 4


@dataclass(frozen=True)
class Watching:
    """One call between a pair of CUDA events, without a profiler and under CUPTI, in µs.

    Attributes:
        alone_us: median without a profiler, the marks' own time included.
        watched_us: median under CUPTI, the marks' own time included.
        half_us: half the width of the 95 % interval of their difference.
    """

    alone_us: float
    watched_us: float
    half_us: float

    @property
    def added_us(self) -> float:
        """What CUPTI adds to a call."""
        return self.watched_us - self.alone_us

    @property
    def slows(self) -> bool:
        """True where CUPTI adds more than 0.3 µs, 0.3 % and what the data leave open."""
        return self.added_us > max(0.3, 0.003 * self.alone_us, self.half_us)

    def __repr__(self) -> str:
        percent = 100 * self.added_us / self.alone_us
        verdict = "slows it" if self.slows else "does not slow it visibly"
        return (
            f"{self.alone_us:,.2f} µs alone, {self.watched_us:,.2f} µs watched, by CUDA events: the profiler {verdict} "
            f"({self.added_us:+,.2f} ± {self.half_us:.2f} µs, {percent:+.1f} %)"
        )


NO_COST = Watching(0.0, 0.0, 0.0)


def event_times(functions: Sequence[Fn], flush: Callable[[], None], rounds: int) -> list[list[float]]:
    """µs between a pair of CUDA events around each call, `rounds` calls each, in turns, each behind a flush."""
    import torch

    pairs: list[list[tuple]] = [[] for _ in functions]
    for r in range(rounds):
        for i in range(len(functions)) if r % 2 == 0 else reversed(range(len(functions))):
            # torch.Event and not torch.cuda.Event, which a script may have replaced
            start, end = (torch.Event(device="cuda", enable_timing=True) for _ in range(2))
            torch.cuda._sleep(_LEAD_CYCLES)
            flush()
            start.record()
            functions[i]()
            end.record()
            pairs[i].append((start, end))
    torch.accelerator.synchronize()
    return [[1e3 * start.elapsed_time(end) for start, end in own] for own in pairs]


@contextlib.contextmanager
def under_cupti() -> Iterator[None]:
    """A profiler whose findings nobody reads."""
    import torch
    from torch.profiler import ProfilerActivity

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True):
        yield


def watching(functions: Sequence[Fn], flush: Callable[[], None], about_us: float) -> list[Watching]:
    """Time each function by events, alone and under CUPTI in turns.

    Args:
        functions: functions without arguments that launch on the current stream; called at least once before.
        flush: puts the L2 into the same state before each call.
        about_us: about how long all of them take together; the longer, the fewer calls.
    """
    rounds = _DROPPED + max(4, min(10, int(25_000 / about_us)))
    alone: list[list[float]] = [[] for _ in functions]
    watched: list[list[float]] = [[] for _ in functions]
    for _ in range(_TURNS):
        for context, into in ((contextlib.nullcontext(), alone), (under_cupti(), watched)):
            with context:
                found = event_times(functions, flush, rounds)
            for mine, new in zip(into, found, strict=True):
                mine += new[_DROPPED:]
    return [_difference(a, w) for a, w in zip(alone, watched, strict=True)]


def _difference(alone: list[float], watched: list[float]) -> Watching:
    halves = [(high - low) / 2 for low, high in (median_interval(alone), median_interval(watched))]
    return Watching(statistics.median(alone), statistics.median(watched), math.hypot(*halves))


def cost(
    functions: Sequence[Fn], flush: Callable[[], None], cupti_us: Sequence[float]
) -> list[Watching] | None:
    """What CUPTI added to each function's time; None where it slowed none of them.

    A few pairs of events without a profiler tell whether to look closer: between them lie the kernels and the marks, so
    they cannot be as short as the kernels alone, unless CUPTI lengthened those. Then all are timed, alone and watched.

    Args:
        functions: as for `watching`.
        flush: the same as before CUPTI's calls.
        cupti_us: each function's median by CUPTI.
    """
    total = sum(cupti_us)
    few = event_times(functions, flush, _DROPPED + max(4, min(8, int(10_000 / total))))
    least = [statistics.median(times[_DROPPED:]) - _MARKS_US for times in few]
    if all(alone >= watched for alone, watched in zip(least, cupti_us, strict=True)):
        return None
    found = watching(functions, flush, total)
    return found if any(one.slows for one in found) else None

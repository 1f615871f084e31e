"""What the profiler costs: CUPTI, the clock of `timing`, can slow the kernel that it watches.

On an H100 it slows some softmaxes by up to 7 % and most kernels not at all (the record timer/watching). CUDA events need no
profiler. A pair of them around a call also counts its own marks, by an amount that differs from kernel to kernel; in the
difference between watched and unwatched pairs the marks cancel, and what CUPTI adds is left.

That holds for one kernel a call. Between several lie gaps, which a profiler lengthens too and which are in no kernel's
time, and where the host is late the call has a gap of its own: in those cases nothing is taken off.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from helpers.timing.clock import now_s, wait_for_gpu

Fn = Callable[[], Any]
_LEAD_CYCLES = 700_000  # at least 0.35 ms in which the host queues a flush, both marks and the call
_HOST_LATE_US = 250  # a host that takes longer than this for them may not be ahead of the GPU
_QUICK, _FULL = 2, 8  # turns, each without CUPTI and under it
_STUDENT = {2: 12.71, 8: 2.365}  # the 97.5 % point of Student's t for so many turns


@dataclass(frozen=True)
class Overhead:
    """What CUPTI adds to one call, by a pair of CUDA events around it without a profiler and under CUPTI, in µs.

    Attributes:
        unwatched_us: median without a profiler, the marks' own time included.
        watched_us: median under CUPTI, the marks' own time included.
        added_us: what CUPTI adds: the mean over turns of the difference of their medians.
        half_us: half the width of its 95 % interval, by Student's t over the turns.
        host_late: the host was not ahead of the GPU, so the figures hold a gap of the host's.
    """

    unwatched_us: float
    watched_us: float
    added_us: float
    half_us: float
    host_late: bool = False

    @property
    def slows(self) -> bool:
        """True where CUPTI adds more than 0.5 µs (what CUDA promises of events), 0.3 % and what the data leave open."""
        return not self.host_late and self.added_us > max(0.5, 0.003 * self.unwatched_us, self.half_us)

    def __repr__(self) -> str:
        figures = f"{self.unwatched_us:,.2f} µs alone, {self.watched_us:,.2f} µs watched, by CUDA events"
        if self.host_late:
            return f"{figures}: the host was late, so this tells nothing about the kernel"
        percent = 100 * self.added_us / self.unwatched_us if self.unwatched_us else 0.0
        verdict = "slows it" if self.slows else "does not slow it visibly"
        return f"{figures}: the profiler {verdict} ({self.added_us:+,.2f} ± {self.half_us:.2f} µs, {percent:+.1f} %)"


def event_times(
    functions: Sequence[Fn], flush: Callable[[], None], rounds: int
) -> tuple[list[list[float]], list[float]]:
    """Call the functions in turns, each behind a flush and between a pair of CUDA events.

    Returns:
        For each function the µs between its marks, a value a round; and its median of the host's µs.
    """
    import torch

    pairs: list[list[tuple]] = [[] for _ in functions]
    host: list[list[float]] = [[] for _ in functions]
    for r in range(rounds):
        for i in range(len(functions)) if r % 2 == 0 else reversed(range(len(functions))):
            # torch.Event and not torch.cuda.Event, which a script may have replaced
            start, end = (torch.Event(device="cuda", enable_timing=True) for _ in range(2))
            torch.cuda._sleep(_LEAD_CYCLES)
            began = now_s()
            flush()
            start.record()
            functions[i]()
            end.record()
            host[i].append(1e6 * (now_s() - began))
            pairs[i].append((start, end))
    wait_for_gpu()
    times = [[1e3 * start.elapsed_time(end) for start, end in own] for own in pairs]
    return times, [statistics.median(own) for own in host]


@contextlib.contextmanager
def under_cupti() -> Iterator[Any]:
    """The one way in which the timer starts torch.profiler."""
    import torch
    from torch.profiler import ProfilerActivity

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as session:
        yield session


def measure_overhead(
    functions: Sequence[Fn], flush: Callable[[], None], about_us: float, turns: int = _FULL
) -> list[Overhead]:
    """Time each function by events, without CUPTI and under it, in turns whose order alternates so that drift cancels.

    Args:
        functions: functions without arguments that launch on the current stream; called at least once before.
        flush: puts the L2 into the same state before each call.
        about_us: about how long all of them take together. Each is called 2 × `turns` × 8 times up to 0.5 ms, down to
            2 × `turns` × 3 times above 3 ms.
        turns: 2 or 8.
    """
    kept = max(2, min(6, int(3000 / about_us)))
    dropped = 2 if about_us < 3000 else 1  # CUPTI's first calls of a session are not kept
    unwatched: list[list[float]] = [[] for _ in functions]
    watched: list[list[float]] = [[] for _ in functions]
    late = [False] * len(functions)
    for turn in range(turns):
        for under in (False, True) if turn % 2 == 0 else (True, False):
            with under_cupti() if under else contextlib.nullcontext():
                found, host_us = event_times(functions, flush, dropped + kept)
            late = [was or us > _HOST_LATE_US for was, us in zip(late, host_us, strict=True)]
            for medians, times in zip(watched if under else unwatched, found, strict=True):
                medians.append(statistics.median(times[dropped:]))
    return [_overhead(*own) for own in zip(unwatched, watched, late, strict=True)]


def _overhead(unwatched: list[float], watched: list[float], host_late: bool) -> Overhead:
    """From a function's median in µs of each turn."""
    added = [w - u for u, w in zip(unwatched, watched, strict=True)]
    return Overhead(
        unwatched_us=statistics.median(unwatched),
        watched_us=statistics.median(watched),
        added_us=statistics.fmean(added),
        half_us=_STUDENT[len(added)] * statistics.stdev(added) / math.sqrt(len(added)),
        host_late=host_late,
    )


def suspected_overhead(
    functions: Sequence[Fn], flush: Callable[[], None], cupti_us: Sequence[float]
) -> list[Overhead | None]:
    """What CUPTI adds to each function's time; None for all where a quick measurement gave no reason to suspect it.

    Args:
        functions: as for `measure_overhead`. Where one is suspected all are measured: what is compared is treated alike.
        flush: the same as before CUPTI's calls.
        cupti_us: each function's median by CUPTI.
    """
    about_us = sum(cupti_us)
    quick = measure_overhead(functions, flush, about_us, _QUICK)
    if any(not one.host_late and abs(one.added_us) > max(0.3, 0.002 * one.unwatched_us) for one in quick):
        return list(measure_overhead(functions, flush, about_us))
    return [None] * len(functions)

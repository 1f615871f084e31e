"""The cost of profiling: CUPTI, which provides `timing`'s clock, can slow the kernel that it observes.

On an H100 it slows some softmaxes by up to 7 % and most kernels not at all (the record timer/watching).
CUDA events need no profiler. The time between a pair of events around a call also includes the events
themselves, by an amount that differs from kernel to kernel. In the difference between pairs with and
without CUPTI this amount cancels, and what CUPTI adds remains.

That only works for one kernel per call. Between several kernels there are gaps, which a profiler lengthens
too but which are not part of any kernel's time, and if the host is late, the call has another gap. In these
cases nothing is subtracted.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from helpers.timing.clock import now_s, wait_for_gpu

Fn = Callable[[], Any]
_LEAD_CYCLES = 700_000  # at least 0.35 ms, in which the host submits a flush, both events and the call
_HOST_LATE_US = 250  # if submitting them takes longer, the host may not be ahead of the GPU
_QUICK, _FULL = 2, 8  # repetitions, each without and with CUPTI
_STUDENT = {2: 12.71, 8: 2.365}  # the 97.5 % point of Student's t for that many repetitions


@dataclass(frozen=True)
class Overhead:
    """What CUPTI adds to one call, measured with a pair of CUDA events around the call.

    Attributes:
        unwatched_us: the median in µs without a profiler, including the events' own time.
        watched_us: the median in µs under CUPTI, including the events' own time.
        added_us: what CUPTI adds: the mean over repetitions of the difference of the medians.
        half_us: half the width of its 95 % interval, from Student's t over the repetitions.
        host_late: the host was not ahead of the GPU, so the times include a gap.
    """

    unwatched_us: float
    watched_us: float
    added_us: float
    half_us: float
    host_late: bool = False

    @property
    def slows(self) -> bool:
        """Whether CUPTI adds more than 0.5 µs (the resolution of CUDA events), 0.3 %, and the uncertainty."""
        return not self.host_late and self.added_us > max(0.5, 0.003 * self.unwatched_us, self.half_us)

    def __repr__(self) -> str:
        figures = f"{self.unwatched_us:,.2f} µs alone, {self.watched_us:,.2f} µs watched, by CUDA events"
        if self.host_late:
            return f"{figures}: the host was late, so this says nothing about the kernel"
        percent = 100 * self.added_us / self.unwatched_us if self.unwatched_us else 0.0
        verdict = "slows it" if self.slows else "does not slow it visibly"
        return (
            f"{figures}: the profiler {verdict} ({self.added_us:+,.2f} ± {self.half_us:.2f} µs, "
            f"{percent:+.1f} %)"
        )


def event_times(
    functions: Sequence[Fn], flush: Callable[[], None], rounds: int
) -> tuple[list[list[float]], list[float]]:
    """Call the functions in turn, each after a flush and between a pair of CUDA events.

    Returns:
        For each function the µs between its events, one value per round; and the median of the host's time
        in µs.
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
    times = [[1e3 * start.elapsed_time(end) for start, end in function_events] for function_events in pairs]
    return times, [statistics.median(host_us) for host_us in host]


@contextlib.contextmanager
def under_cupti() -> Iterator[Any]:
    """Run torch.profiler; the only place in which the timer starts it.

    Without `acc_events=True`, it doesn't make a Python object of each event, which took 4 s for 79,360 events
    (torch 2.13); those in `kineto_results` take 0.2 s.
    """
    import torch
    from torch.profiler import ProfilerActivity

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*Profiler clears events")  # older versions say so of one cycle
        session = torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        session.start()
    try:
        yield session
    finally:
        session.stop()


def measure_overhead(
    functions: Sequence[Fn], flush: Callable[[], None], about_us: float, repetitions: int = _FULL
) -> list[Overhead]:
    """Time each function with events, without and with CUPTI, in an alternating order so that drift
    cancels.

    Args:
        functions: functions without arguments that launch on the current stream and have been called
            before.
        flush: brings the L2 cache into the same state before each call.
        about_us: about how long all functions take together. Each is called 2 × `repetitions` × 8 times if
            that is up to 0.5 ms, and down to 2 × `repetitions` × 3 times above 3 ms.
        repetitions: how often to measure without and with CUPTI, 2 or 8.
    """
    n_measured = max(2, min(6, int(3000 / about_us)))
    n_dropped = 2 if about_us < 3000 else 1  # CUPTI's first calls of a session are discarded
    unwatched: list[list[float]] = [[] for _ in functions]
    watched: list[list[float]] = [[] for _ in functions]
    late = [False] * len(functions)
    for repetition in range(repetitions):
        for with_cupti in (False, True) if repetition % 2 == 0 else (True, False):
            with under_cupti() if with_cupti else contextlib.nullcontext():
                found, host_us = event_times(functions, flush, n_dropped + n_measured)
            late = [was_late or us > _HOST_LATE_US for was_late, us in zip(late, host_us, strict=True)]
            for medians, times in zip(watched if with_cupti else unwatched, found, strict=True):
                medians.append(statistics.median(times[n_dropped:]))
    return [_overhead(*own) for own in zip(unwatched, watched, late, strict=True)]


def _overhead(unwatched: list[float], watched: list[float], host_late: bool) -> Overhead:
    """The overhead from a function's median in µs in each repetition."""
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
    """Measure what CUPTI adds to each function's time, unless a quick measurement gives no reason to
    suspect any.

    Args:
        functions: as for `measure_overhead`. If one overhead is suspected, all are measured, because
            functions that are compared must be treated alike.
        flush: the same as before CUPTI's calls.
        cupti_us: each function's median by CUPTI.

    Returns:
        An `Overhead` for each function, or None for all of them.
    """
    about_us = sum(cupti_us)
    quick = measure_overhead(functions, flush, about_us, _QUICK)
    if any(not one.host_late and abs(one.added_us) > max(0.3, 0.002 * one.unwatched_us) for one in quick):
        return list(measure_overhead(functions, flush, about_us))
    return [None] * len(functions)

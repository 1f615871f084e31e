"""The device's own start and end times of every kernel, read from CUPTI through torch.profiler."""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from helpers import device
from helpers.timing.clock import wait_for_gpu
from helpers.timing.overhead import under_cupti
from helpers.timing.samples import Run, Samples
from helpers.trace.names import short_name

_MARK, _FLUSH = "workbook::call", "workbook::flush"
_LONG = 2_000_000  # clock cycles: longer than the host needs to launch a call and the next flush


class TimingError(RuntimeError):
    """The function cannot be timed: it fails, launches nothing, or doesn't wait for another stream."""


class ProfilerBusy(TimingError):
    """The timer cannot use CUPTI; the function itself may be fine."""


class Flush:
    """Calls `before`, then brings the L2 cache into a known state, on the current stream."""

    _TEXTS: ClassVar[dict[str, str]] = {
        "cold": "before each call {:.0f} MiB are written: the L2 holds another kernel's output and none of "
        "the inputs",
        "clean": "before each call {:.0f} MiB are written, then as much is read: no inputs in the L2, its "
        "lines are clean",
        "warm": "none: the inputs stay in the L2 where they fit",
    }

    def __init__(self, l2: str, before: Callable[[], Any] | None = None):
        import torch

        if l2 not in self._TEXTS:
            raise ValueError(f'l2 must be "cold", "clean" or "warm", not {l2!r}.')
        # "warm" still launches a tiny fill, which identifies the current stream
        size = 4 if l2 == "warm" else max(2 * device.gpu_spec().l2_bytes, 32 << 20)
        self._written = torch.ones(size // 4, dtype=torch.float32, device="cuda")
        self._read = torch.ones_like(self._written) if l2 == "clean" else None
        self.text = self._TEXTS[l2].format(size / 2**20)
        self._before = before

    def __call__(self) -> None:
        if self._before is not None:
            self._before()
        self._written.zero_()
        if self._read is not None:
            self._read.amax()

    def and_delay(self) -> None:
        """Flushes and keeps the stream busy for a millisecond.

        A call's work on another stream that doesn't wait for this one starts meanwhile. If this stream
        doesn't wait for that work, the next flush starts before it ends.
        """
        import torch

        self()
        torch.cuda._sleep(_LONG)


def clock_step_us(durations_ns: Sequence[int]) -> float:
    """Estimate the step of the device's clock in µs, such as 0.032 on an H100.

    The result is 0.0 if there are too few distinct durations. CUPTI's conversion to nanoseconds shifts
    single values by 1 or 2 ns, so values that close count as one.
    """
    centers = clusters(durations_ns)
    gaps = [b - a for (a, _), (b, _) in itertools.pairwise(centers)]
    if len(gaps) <= 3:
        return 0.0
    return statistics.median(gap for gap in gaps if gap < 1.5 * min(gaps)) / 1e3


def clusters(durations_ns: Sequence[int]) -> list[tuple[float, int]]:
    """Group values that are at most 3 ns apart; returns the mean and the size of each group."""
    groups: list[list[int]] = []
    for value in sorted(durations_ns):
        if groups and value - groups[-1][-1] <= 3:
            groups[-1].append(value)
        else:
            groups.append([value])
    return [(statistics.fmean(group), len(group)) for group in groups]


def measure(functions: Sequence[Callable[[], Any]], flush: Callable[[], None], rounds: int) -> Run:
    """Call each function `rounds` times in turn (a b, b a, …) under CUPTI, with a flush before each call.

    Raises:
        ProfilerBusy: CUPTI did not see all calls.
        TimingError: a function launches nothing, or works on a stream that the current one doesn't wait for.
    """
    from torch.profiler import record_function

    n = len(functions)
    order = [i for r in range(rounds) for i in (range(n) if r % 2 == 0 else reversed(range(n)))]
    wait_for_gpu()
    with under_cupti() as session:
        for i in order:
            with record_function(_FLUSH):
                flush()
            with record_function(_MARK):
                functions[i]()
        wait_for_gpu()
    return _sort(session.profiler.kineto_results.events(), order, n)


def _sort(events, order: list[int], n_functions: int) -> Run:
    """Assign every device activity to the call that launched it."""
    calls, flushes, activities = _split(events)
    if not len(calls) == len(flushes) == len(order):
        raise ProfilerBusy(
            f"CUPTI recorded only {len(calls)} of {len(order)} calls. Is another profiler running?"
        )
    per_call, per_flush = _launched_in(calls, activities), _launched_in(flushes, activities)
    times: list[list[float]] = [[] for _ in range(n_functions)]
    kernels: list[dict[str, list[float]]] = [{} for _ in range(n_functions)]
    last_launched: list[tuple[str, ...]] = [()] * n_functions
    for i, (index, found) in enumerate(zip(order, per_call, strict=True)):
        if not found:
            raise TimingError(
                "The function launched nothing on the GPU. Does it really run the kernel, or is its result "
                "lazy or cached?"
            )
        times[index].append(_busy_ns(found, per_flush[i], *per_flush[i + 1 : i + 2]) / 1e3)
        sums: dict[str, float] = {}
        for e in found:
            sums[e.name()] = sums.get(e.name(), 0.0) + e.duration_ns() / 1e3
        for name, us in sums.items():
            kernels[index].setdefault(name, []).append(us)
        last_launched[index] = tuple(e.name() for e in found)
    samples = (
        Samples(tuple(durations), {name: tuple(values) for name, values in by_name.items()}, launched)
        for durations, by_name, launched in zip(times, kernels, last_launched, strict=True)
    )
    return Run(tuple(samples), clock_step_us([event.duration_ns() for event, _ in activities]))


def _split(events) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[Any, int]]]:
    """The host's spans of calls and of flushes, and the device's activities with their launches' times."""
    from torch.autograd import DeviceType

    calls, flushes, launches, activities = [], [], {}, []
    for event in events:
        name, start = event.name(), event.start_ns()
        if event.device_type() == DeviceType.CPU:
            if name == _MARK:
                calls.append((start, start + event.duration_ns()))
            elif name == _FLUSH:
                flushes.append((start, start + event.duration_ns()))
            elif name.startswith("cu"):
                launches[event.correlation_id()] = start
        elif not name.startswith(("workbook::", "Context Sync", "Stream Sync", "Event Sync")):
            activities.append(event)
    timed = [(event, launches[event.correlation_id()]) for event in activities
             if event.correlation_id() in launches]  # fmt: skip
    return sorted(calls), sorted(flushes), timed


def _launched_in(spans: Sequence[tuple[int, int]], activities: Sequence[tuple[Any, int]]) -> list[list[Any]]:
    """For each of the host's spans, the activities that were launched during it."""
    found: list[list[Any]] = [[] for _ in spans]
    starts = [start for start, _ in spans]
    for event, launched in activities:
        k = bisect.bisect_right(starts, launched) - 1
        if k >= 0 and launched <= spans[k][1]:
            found[k].append(event)
    return found


def _busy_ns(call: Sequence[Any], flush: Sequence[Any], next_flush: Sequence[Any] = ()) -> int:
    """How long a call keeps the device busy.

    If it uses other streams as well, what runs at the same time counts once.

    Args:
        call: the call's activities.
        flush: those before it on the current stream; next_flush: those after it.

    Raises:
        TimingError: the call's work on another stream doesn't wait for the current one, or isn't waited for.
    """
    streams = {event.device_resource_id() for event in flush}
    elsewhere = [event for event in call if event.device_resource_id() not in streams]
    if not elsewhere:
        return sum(event.duration_ns() for event in call)
    begin = max((_end_ns(event) for event in flush), default=0)
    end = min((event.start_ns() for event in next_flush), default=math.inf)
    for event in elsewhere:
        if event.start_ns() < begin or _end_ns(event) > end:
            raise TimingError(
                f"The function launched {short_name(event.name())} on another stream, and one of the two "
                "doesn't wait for the other. Let both streams wait (`wait_stream`), use "
                "torch.cuda.current_stream(), or time it inside `with torch.cuda.stream(that_stream)`."
            )
    busy = until = 0
    for event in sorted(call, key=lambda event: event.start_ns()):
        busy += max(0, _end_ns(event) - max(until, event.start_ns()))
        until = max(until, _end_ns(event))
    return busy


def _end_ns(event: Any) -> int:
    return event.start_ns() + event.duration_ns()

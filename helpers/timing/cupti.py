"""The device's own start and end times of every kernel, read from CUPTI through torch.profiler."""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from helpers import device
from helpers.timing.clock import wait_for_gpu
from helpers.timing.overhead import under_cupti
from helpers.timing.samples import Run, Samples
from helpers.trace.names import short_name

_MARK = "workbook::call"


class TimingError(RuntimeError):
    """The function cannot be timed: it fails, launches nothing, or launches on another stream."""


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


def measure(functions: Sequence[Callable[[], Any]], flush: Flush, rounds: int) -> Run:
    """Call each function `rounds` times in turn (a b, b a, …) under CUPTI, with a flush before each call.

    Raises:
        ProfilerBusy: CUPTI did not see all calls.
        TimingError: a function launches nothing, or launches on another stream than the current one.
    """
    from torch.profiler import record_function

    n = len(functions)
    order = [i for r in range(rounds) for i in (range(n) if r % 2 == 0 else reversed(range(n)))]
    wait_for_gpu()
    with under_cupti() as session:
        for i in order:
            with record_function("workbook::flush"):
                flush()
            with record_function(_MARK):
                functions[i]()
        wait_for_gpu()
    return _sort(session.profiler.kineto_results.events(), order, n)


def _sort(events, order: list[int], n_functions: int) -> Run:
    """Assign every device activity to the call that launched it."""
    from torch.autograd import DeviceType

    calls, flushes, launches, activities = [], [], {}, []
    for event in events:
        name = event.name()
        if event.device_type() == DeviceType.CPU:
            if name == _MARK:
                calls.append((event.start_ns(), event.start_ns() + event.duration_ns()))
            elif name == "workbook::flush":
                flushes.append((event.start_ns(), event.start_ns() + event.duration_ns()))
            elif name.startswith("cu"):
                launches[event.correlation_id()] = event.start_ns()
        elif not name.startswith("workbook::") and not name.startswith(
            ("Context Sync", "Stream Sync", "Event Sync")
        ):
            activities.append(event)
    calls.sort()
    flushes.sort()
    if len(calls) != len(order):
        raise ProfilerBusy(
            f"CUPTI recorded only {len(calls)} of {len(order)} calls. Is another profiler running?"
        )
    per_call: list[list] = [[] for _ in calls]
    flush_streams = set()
    starts = [c[0] for c in calls]
    flush_starts = [f[0] for f in flushes]
    for event in activities:
        launched = launches.get(event.correlation_id())
        if launched is None:
            continue
        k = bisect.bisect_right(starts, launched) - 1
        if k >= 0 and launched <= calls[k][1]:
            per_call[k].append(event)
            continue
        f = bisect.bisect_right(flush_starts, launched) - 1
        if f >= 0 and launched <= flushes[f][1]:
            flush_streams.add(event.device_resource_id())
    times: list[list[float]] = [[] for _ in range(n_functions)]
    kernels: list[dict[str, list[float]]] = [{} for _ in range(n_functions)]
    last_launched: list[tuple[str, ...]] = [()] * n_functions
    for index, found in zip(order, per_call, strict=True):
        if not found:
            raise TimingError(
                "The function launched nothing on the GPU. Does it really run the kernel, or is its result "
                "lazy or cached?"
            )
        other_streams = {e.device_resource_id() for e in found} - flush_streams
        if other_streams:
            raise TimingError(
                f"The function launched {short_name(found[0].name())} on another stream than the current "
                "one. "
                "Time it inside `with torch.cuda.stream(that_stream)`, or let it use "
                "torch.cuda.current_stream()."
            )
        times[index].append(sum(e.duration_ns() for e in found) / 1e3)
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
    return Run(tuple(samples), clock_step_us([event.duration_ns() for event in activities]))

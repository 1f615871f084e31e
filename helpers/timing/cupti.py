"""The device's own start and end of every kernel, read from CUPTI through torch.profiler, call by call."""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from helpers import device
from helpers.timing.clock import wait_for_gpu
from helpers.timing.overhead import Overhead, under_cupti

_MARK = "workbook::call"
_MOST_ADDED = 0.25  # of a function's time, by watching it: 7 % is the most seen


class TimingError(RuntimeError):
    """The function cannot be timed: it failed, launched nothing, or launched where the timer was not looking."""


def short_name(kernel: str) -> str:
    """A kernel's name without return type, arguments and most of its template arguments."""
    name = kernel.removeprefix("void ")
    head, bracket, rest = name.partition("<")
    head = head.split("(")[0].rsplit("::", 1)[-1]
    return f"{head}<{rest.split(',')[0].split('>')[0]}, …>" if bracket and head else head or name


class ProfilerBusy(TimingError):
    """CUPTI is not free for the timer: nothing is wrong with the function."""


class Flush:
    """Puts the L2 cache into a known state before a call, on the current stream."""

    _TEXTS: ClassVar[dict[str, str]] = {
        "cold": "before each call {:.0f} MiB are written: the L2 holds another kernel's output and none of the inputs",
        "clean": "before each call {:.0f} MiB are written, then as much is read: no inputs in the L2, its lines are clean",
        "warm": "none: the inputs stay in the L2 where they fit",
    }

    def __init__(self, l2: str):
        import torch

        if l2 not in self._TEXTS:
            raise ValueError(f'l2 is "cold", "clean" or "warm"; it was given {l2!r}.')
        # "warm" still launches one tiny fill: the timer knows its own stream by it
        size = 4 if l2 == "warm" else max(2 * device.gpu_spec().l2_bytes, 32 << 20)
        self._written = torch.ones(size // 4, dtype=torch.float32, device="cuda")
        self._read = torch.ones_like(self._written) if l2 == "clean" else None
        self.text = self._TEXTS[l2].format(size / 2**20)

    def __call__(self) -> None:
        self._written.zero_()
        if self._read is not None:
            self._read.amax()


@dataclass
class Samples:
    """Device times in µs, a list a function, and the kernels seen in its last call.

    Attributes:
        step_us: the step of the device's clock.
        looks: for each function what CUPTI adds to it, where that was looked at closely.
        added_us: what has been taken off each function's times, because CUPTI had added it.
    """

    times: list[list[float]]
    kernels: list[dict[str, list[float]]]
    per_call: list[tuple[str, ...]]
    step_us: float = 0.0
    looks: list[Overhead | None] = field(init=False)
    added_us: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.looks, self.added_us = [None] * len(self.times), [0.0] * len(self.times)

    def unsure_us(self, i: int) -> float:
        """By how much all of a function's times may be off together, at 95 %: what was taken off is not known better."""
        return self.looks[i].half_us if self.added_us[i] else 0.0

    def take_off(self, looks: Sequence[Overhead | None], labels: Sequence[str]) -> None:
        """Take from each function's times what CUPTI adds to them, where it slows it and it launches one kernel a call.

        Where it slows any of them, also what it adds to the others by a smaller but certain amount: functions that are
        compared are treated alike.

        Raises:
            TimingError: a function takes so much more or less when watched that it cannot have done the same.
        """
        one_kernel = [
            look if look and len(calls) == 1 else None
            for look, calls in zip(looks, self.per_call, strict=True)
        ]
        for label, look, own in zip(labels, one_kernel, self.times, strict=True):
            usual = statistics.median(own)
            if look and not look.host_late and abs(look.added_us) > max(_MOST_ADDED * usual, 5, look.half_us):
                raise TimingError(
                    f"{label} takes {look.unwatched_us:,.1f} µs by CUDA events and {look.watched_us:,.1f} µs while a profiler "
                    "runs, more than watching explains. Does it do something else then?"
                )
        self.looks = list(looks)
        if not any(look and look.slows for look in one_kernel):
            return
        for i, look in enumerate(one_kernel):
            if look and not look.host_late and look.added_us > max(0.2, look.half_us):
                self.added_us[i] = look.added_us
                self.times[i] = [t - look.added_us for t in self.times[i]]

    def add(self, other: Samples) -> None:
        """Append what another batch measured."""
        for mine, new in zip(self.times, other.times, strict=True):
            mine.extend(new)
        for mine_k, new_k in zip(self.kernels, other.kernels, strict=True):
            for name, values in new_k.items():
                mine_k.setdefault(name, []).extend(values)
        self.step_us = min(self.step_us, other.step_us) or other.step_us


def clock_step_us(durations_ns: Sequence[int]) -> float:
    """The step of the device's clock in µs: 32 ns on an H100; 0.0 where too few durations differ to tell.

    CUPTI's conversion to nanoseconds moves single values by 1 or 2, so neighbours that close count as one value.
    """
    centres = clusters(durations_ns)
    gaps = [b - a for (a, _), (b, _) in itertools.pairwise(centres)]
    if len(gaps) <= 3:
        return 0.0
    return statistics.median(gap for gap in gaps if gap < 1.5 * min(gaps)) / 1e3


def clusters(durations_ns: Sequence[int]) -> list[tuple[float, int]]:
    """The distinct values, those at most 3 ns apart taken together: their mean, and how many they are."""
    groups: list[list[int]] = []
    for value in sorted(durations_ns):
        if groups and value - groups[-1][-1] <= 3:
            groups[-1].append(value)
        else:
            groups.append([value])
    return [(statistics.fmean(group), len(group)) for group in groups]


def measure(functions: Sequence[Callable[[], Any]], flush: Flush, rounds: int) -> Samples:
    """Call each function `rounds` times in turns (a b, b a, …), each behind a flush, under CUPTI."""
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


def _sort(events, order: list[int], n_functions: int) -> Samples:
    """Give every device activity to the call whose launch it came from."""
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
        raise ProfilerBusy(f"CUPTI recorded {len(calls)} of {len(order)} calls: is another profiler running?")
    samples = Samples([[] for _ in range(n_functions)], [{} for _ in range(n_functions)], [()] * n_functions)
    samples.step_us = clock_step_us([event.duration_ns() for event in activities])
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
    for which, found in zip(order, per_call, strict=True):
        if not found:
            raise TimingError(
                "The function launched nothing on the GPU. Does it really run the kernel, or is its result lazy or cached?"
            )
        strays = {e.device_resource_id() for e in found} - flush_streams
        if strays:
            raise TimingError(
                f"The function launched {short_name(found[0].name())} on another stream than the current one. "
                "Time it inside `with torch.cuda.stream(that_stream)`, or let it use torch.cuda.current_stream()."
            )
        samples.times[which].append(sum(e.duration_ns() for e in found) / 1e3)
        sums: dict[str, float] = {}
        for e in found:
            sums[e.name()] = sums.get(e.name(), 0.0) + e.duration_ns() / 1e3
        for name, us in sums.items():
            samples.kernels[which].setdefault(name, []).append(us)
        samples.per_call[which] = tuple(e.name() for e in found)
    return samples

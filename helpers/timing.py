"""How long one kernel takes on the device, and how sure that is.

The clock is CUPTI's, read through torch.profiler: the device's own start and end of every kernel, copy and fill, so
the launch gap is not in it. What a call finds in the L2 cache is arranged before each (`l2=`), so that the question
that is answered is said. Samples are taken until the 95 % interval of the median is narrow.
"""

from __future__ import annotations

import bisect
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from helpers import device

_MARK = "workbook::call"


class TimingError(RuntimeError):
    """The function cannot be timed: it failed, launched nothing, or launched where the timer was not looking."""


@dataclass(frozen=True)
class Kernel:
    """One kernel (or copy, or fill) that the timed function launched, `calls` times a call, `median_us` µs together."""

    name: str
    calls: int
    median_us: float


@dataclass(frozen=True)
class Timing:
    """The device time of one call, in µs: the sum of its kernels' own durations, without gaps between them."""

    median_us: float
    ci95_us: tuple[float, float]
    n_samples: int
    kernels: tuple[Kernel, ...]
    l2: str
    flush: str
    sm_clock_mhz: tuple[int | None, int | None]
    seconds: float
    notes: tuple[str, ...] = ()

    def gb_per_s(self, n_bytes: int) -> float:
        """Effective bandwidth: the bytes the operation must move over the median time, in decimal GB/s."""
        return n_bytes / self.median_us / 1e3

    def __repr__(self) -> str:
        low, high = self.ci95_us
        launched = " + ".join(f"{k.calls}× {short_name(k.name)}" for k in self.kernels)
        text = (
            f"{self.median_us:,.2f} µs (95 % CI {low:,.2f} to {high:,.2f}, {self.n_samples} samples, "
            f"L2 {self.l2}; {launched})"
        )
        return "\n".join([text, *(f"note: {note}" for note in self.notes)])


@dataclass(frozen=True)
class Comparison:
    """Two functions timed in turns. `ratio` is a's time over b's, with its 95 % interval."""

    labels: tuple[str, str]
    a: Timing
    b: Timing
    ratio: float
    ci95: tuple[float, float]

    @property
    def difference(self) -> bool:
        """True where the interval leaves out 1: the data show a difference."""
        return not self.ci95[0] <= 1 <= self.ci95[1]

    @property
    def verdict(self) -> str:
        """One sentence: which is faster and by how much, or that no difference was seen."""
        low, high = self.ci95
        interval = (
            f"{self.labels[0]} takes {self.ratio:.4f} × {self.labels[1]}, 95 % CI {low:.4f} to {high:.4f}"
        )
        if not self.difference:
            return f"No difference seen ({interval})."
        faster = self.labels[0] if self.ratio < 1 else self.labels[1]
        return f"{faster} is faster ({interval})."

    def __repr__(self) -> str:
        return self.verdict


def short_name(kernel: str) -> str:
    """A kernel's name without return type, arguments and most of its template arguments."""
    name = kernel.removeprefix("void ")
    head, bracket, rest = name.partition("<")
    head = head.split("(")[0].rsplit("::", 1)[-1]
    return f"{head}<{rest.split(',')[0].split('>')[0]}, …>" if bracket and head else head or name


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """The 95 % confidence interval of the median, from order statistics: it assumes no distribution.

    Source: Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2 (binomial, normal approximation to ranks).
    """
    ordered = sorted(samples)
    n = len(ordered)
    half = 1.96 * math.sqrt(n) / 2
    low, high = math.floor(n / 2 - half), math.ceil(n / 2 + half)
    return ordered[max(low - 1, 0)], ordered[min(high, n - 1)]


class _Flush:
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


def _profiler_running() -> bool:
    import torch

    return bool(getattr(torch.autograd, "_profiler_enabled", lambda: False)())


@dataclass
class _Samples:
    """Device times in µs, a list a function, and the kernels seen in its last call."""

    times: list[list[float]]
    kernels: list[dict[str, list[float]]]
    per_call: list[tuple[str, ...]]


def _measure(functions: Sequence[Callable[[], Any]], flush: _Flush, rounds: int) -> _Samples:
    """Call each function `rounds` times in turns (a b, b a, …), each behind a flush, under CUPTI."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    n = len(functions)
    order = [i for r in range(rounds) for i in (range(n) if r % 2 == 0 else reversed(range(n)))]
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as session:
        for i in order:
            with record_function("workbook::flush"):
                flush()
            with record_function(_MARK):
                functions[i]()
        torch.cuda.synchronize()
    return _sort(session.profiler.kineto_results.events(), order, n)


def _sort(events, order: list[int], n_functions: int) -> _Samples:
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
        raise TimingError(f"CUPTI recorded {len(calls)} of {len(order)} calls: is another profiler running?")
    samples = _Samples([[] for _ in range(n_functions)], [{} for _ in range(n_functions)], [()] * n_functions)
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


def _clock() -> tuple[int | None, tuple[str, ...]]:
    """The SM clock in MHz now, and what the driver says holds it down."""
    nvml = device.nvml_handle()
    if nvml is None:
        return None, ()
    pynvml, handle = nvml
    reasons = {
        pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "thermal slowdown",
        pynvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
        pynvml.nvmlClocksThrottleReasonSwPowerCap: "power cap",
    }
    try:
        now = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return (
            pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            tuple(text for bit, text in reasons.items() if now & bit),
        )
    except pynvml.NVMLError:
        return None, ()


def _warm_up(functions: Sequence[Callable[[], Any]]) -> None:
    """Run until two successive blocks of calls take the same time within 2 %, or for half a second.

    It also finds out whether a function fails, before anything is measured.
    """
    import torch

    before = math.inf
    stop = time.perf_counter() + 0.5
    calls = 1
    while True:
        start = time.perf_counter()
        try:
            for _ in range(calls):
                for function in functions:
                    function()
            torch.cuda.synchronize()
        except Exception as error:
            raise TimingError(
                f"The function failed: {type(error).__name__}: {str(error).splitlines()[0]}"
            ) from error
        now = time.perf_counter()
        block = (now - start) / calls
        if now > stop or (now - start > 0.005 and abs(block - before) < 0.02 * block):
            return
        if now - start < 0.005:
            calls *= 2
        before = block


def _collect(
    functions, l2: str, budget_s: float, narrow: Callable[[_Samples], bool]
) -> tuple[_Samples, _Flush, tuple]:
    import torch

    device.require("gpu")
    if _profiler_running():
        raise TimingError("A profiler is already running: time outside `with torch.profiler.profile(...)`.")
    if torch.cuda.is_current_stream_capturing():
        raise TimingError("A CUDA graph is being captured: time outside the capture.")
    flush = _Flush(l2)
    _warm_up(functions)
    _measure(functions, flush, 2)  # CUPTI's own first use takes seconds, and its first durations are not kept
    began = time.perf_counter()
    clock_before, held_before = _clock()
    all_samples: _Samples | None = None
    rounds = 10
    while True:
        start = time.perf_counter()
        batch = _measure(functions, flush, rounds)
        took = time.perf_counter() - start
        if all_samples is None:
            all_samples = batch
        else:
            for mine, new in zip(all_samples.times, batch.times, strict=True):
                mine.extend(new)
            for mine_k, new_k in zip(all_samples.kernels, batch.kernels, strict=True):
                for name, values in new_k.items():
                    mine_k.setdefault(name, []).extend(values)
        left = budget_s - (time.perf_counter() - began)
        if narrow(all_samples) or left <= 0:
            break
        # as many rounds as have been, while the budget lasts
        rounds = max(4, min(len(all_samples.times[0]), 400, int(rounds * left / took)))
    clock_after, held_after = _clock()
    seconds = time.perf_counter() - began
    notes = []
    held = sorted(set(held_before) | set(held_after))
    if held:
        notes.append(f"the driver held the clocks down: {', '.join(held)}")
    if (
        clock_before
        and clock_after
        and abs(clock_after - clock_before) > 0.05 * max(clock_before, clock_after)
    ):
        notes.append(f"the SM clock went from {clock_before} to {clock_after} MHz while measuring")
    return all_samples, flush, (seconds, (clock_before, clock_after), notes)


def _timing(samples: _Samples, i: int, flush: _Flush, l2: str, facts: tuple, goal: float) -> Timing:
    seconds, clocks, notes = facts
    times = samples.times[i]
    median = statistics.median(times)
    low, high = median_interval(times)
    if high - low > 2 * max(goal * median, 0.05):
        notes = [
            *notes,
            f"the interval is still {100 * (high - low) / median:.1f} % wide: the time budget ended",
        ]
    per_call = samples.per_call[i]
    kernels = tuple(
        Kernel(name, per_call.count(name) or 1, statistics.median(values))
        for name, values in samples.kernels[i].items()
    )
    return Timing(median, (low, high), len(times), kernels, l2, flush.text, clocks, seconds, tuple(notes))


def time_gpu(fn: Callable[[], Any], *, l2: str = "cold", budget_s: float = 0.5) -> Timing:
    """Time what `fn` launches on the GPU, by the device's own clock.

    Args:
        fn: a function without arguments that launches kernels on the current stream.
        l2: what the call finds in the L2 cache. "cold": another kernel's output, as in a running program, so that the
            inputs come from memory and each line written must push one out. "clean": nothing useful and nothing to
            write back, as Nsight Compute arranges it. "warm": the inputs, where they fit.
        budget_s: seconds to measure for at most, beyond warm-up. It ends sooner, when the 95 % interval of the median is
            narrower than ±0.5 % or ±0.05 µs.

    Returns:
        A `Timing`: median and interval in µs, the kernels by name and count, clocks, notes.

    Raises:
        helpers.device.Missing: no GPU.
        TimingError: `fn` fails, launches nothing, or launches on another stream.
    """
    goal = 0.005

    def narrow(samples: _Samples) -> bool:
        low, high = median_interval(samples.times[0])
        return len(samples.times[0]) >= 20 and high - low <= max(
            goal * statistics.median(samples.times[0]), 0.05
        )

    samples, flush, facts = _collect([fn], l2, budget_s, narrow)
    return _timing(samples, 0, flush, l2, facts, goal)


def compare(
    a: Callable[[], Any],
    b: Callable[[], Any],
    *,
    labels: tuple[str, str] = ("a", "b"),
    l2: str = "cold",
    budget_s: float = 1.0,
) -> Comparison:
    """Time two functions in turns (a b b a …) and give the ratio of their times with its 95 % interval.

    Taking turns lets drift (clocks, temperature, neighbours) fall on both. The ratio is the median over neighbouring
    pairs, so a drift between pairs cancels as well.

    Args:
        a: a function without arguments that launches kernels on the current stream.
        b: the other.
        labels: what the verdict calls them.
        l2: as in `time_gpu`.
        budget_s: seconds to measure for at most; it ends sooner when the ratio's interval is narrower than ±0.2 %.

    Returns:
        A `Comparison`, whose `verdict` says "No difference seen" where the interval holds 1.

    Raises:
        helpers.device.Missing, TimingError: as in `time_gpu`.
    """

    def ratios(samples: _Samples) -> list[float]:
        return [x / y for x, y in zip(*samples.times, strict=True)]

    def narrow(samples: _Samples) -> bool:
        low, high = median_interval(ratios(samples))
        return len(samples.times[0]) >= 50 and high - low <= 0.004

    samples, flush, facts = _collect([a, b], l2, budget_s, narrow)
    pairs = ratios(samples)
    timings = [_timing(samples, i, flush, l2, facts, 0.01) for i in (0, 1)]
    return Comparison(labels, timings[0], timings[1], statistics.median(pairs), median_interval(pairs))

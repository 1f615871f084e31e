"""How long a kernel takes on the device, and how certain that is.

The clock is CUPTI's, read through torch.profiler: the device's own start and end of every kernel, copy and
fill, so the time doesn't include the launch gap. You choose the state of the L2 cache (`l2=`), which is set
up before each call. Samples are taken until the 95 % interval of the median is narrow.

CUPTI slows some of the kernels that it observes. CUDA events around the same calls, without and with CUPTI,
measure by how much (`helpers.timing.overhead`). If a call is one kernel and the overhead is more than 0.5
µs and 0.3 %, it is subtracted, and a note reports that.

The timer protects you from mistakes, not from deception. A function that launches nothing, works on a
stream that the current one doesn't wait for, or sets part of the L2 aside is an error; constant inputs, a
result that is not a tensor, throttled clocks, replaced clock functions and threads that every call leaves
running are reported as notes. Code that wants to deceive can replace this module as well, so evaluate such
code in a separate process.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from helpers.timing.collect import collect, require_gpu_alone, warm_up
from helpers.timing.cupti import Flush, measure
from helpers.timing.overhead import Overhead, measure_overhead
from helpers.timing.samples import Conditions, Run, Samples
from helpers.timing.stats import median_interval, ratio_interval
from helpers.trace.names import short_name


@dataclass(frozen=True)
class TimedKernel:
    """One kernel (or copy, or fill) that the timed function launched.

    Attributes:
        name: the kernel's full name.
        calls: how many times one call launches it.
        median_us: its total time per call in µs. CUPTI's overhead is only known for the whole call, so it
            has not been subtracted here.
    """

    name: str
    calls: int
    median_us: float


@dataclass(frozen=True)
class Timing:
    """The device time of one call in µs: the sum of its kernels' durations, without the gaps between them.
    What runs at the same time on several streams counts once.

    `added_us` is what CUPTI had added, which has been subtracted; 0.0 if nothing was detected.
    """

    median_us: float
    ci95_us: tuple[float, float]
    n_samples: int
    kernels: tuple[TimedKernel, ...]
    l2: str
    flush: str
    sm_clock_mhz: tuple[int | None, int | None]
    seconds: float
    notes: tuple[str, ...] = ()
    added_us: float = 0.0

    def gb_per_s(self, n_bytes: int) -> float:
        """The effective bandwidth in decimal GB/s: the bytes that must be moved per median time."""
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
    """Two functions timed in turn. `ratio` is a's time divided by b's, with its 95 % interval."""

    labels: tuple[str, str]
    a: Timing
    b: Timing
    ratio: float
    ci95: tuple[float, float]

    @property
    def difference(self) -> bool:
        """Whether the interval excludes 1, which means that the data show a difference."""
        return not self.ci95[0] <= 1 <= self.ci95[1]

    @property
    def verdict(self) -> str:
        """One sentence: which function is faster and by how much, or that no difference was seen."""
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


def _timing(samples: Samples, step_us: float, conditions: Conditions, goal: float) -> Timing:
    """One function's result, with a note if its interval is wider than ± `goal` of the median."""
    notes = list(conditions.notes)
    median, (low, high) = samples.median_us, median_interval(samples.times, resolution=step_us)
    if high - low > 2 * max(goal * median, 0.05) + step_us:
        notes.append(
            f"the interval is still {100 * (high - low) / median:.1f} % wide because the time budget ran out"
        )
    overhead, added = samples.overhead, samples.added_us
    if added > max(0.5, 0.003 * median):
        notes.append(
            f"CUPTI, the clock used here, slows the function by {added:,.1f} µs "
            f"({100 * added / median:.1f} %) according to CUDA events; this has been subtracted"
        )
    elif (
        overhead
        and not overhead.host_late
        and len(samples.launched) == 1
        and overhead.half_us > max(1, 0.01 * median)
    ):
        notes.append(
            f"it is unclear whether CUPTI slows the function: {overhead.added_us:+,.1f} ± "
            f"{overhead.half_us:.1f} µs according to CUDA events"
        )
    return Timing(
        median_us=median,
        ci95_us=(low - samples.uncertainty_us, high + samples.uncertainty_us),
        n_samples=len(samples.times),
        kernels=tuple(
            TimedKernel(name, samples.launched.count(name) or 1, statistics.median(values))
            for name, values in samples.kernels.items()
        ),
        l2=conditions.l2,
        flush=conditions.flush,
        sm_clock_mhz=conditions.sm_clock_mhz,
        seconds=conditions.seconds,
        notes=tuple(notes),
        added_us=added,
    )


def time_gpu(
    fn: Callable[[], Any],
    *,
    l2: str = "cold",
    budget_s: float = 0.5,
    before: Callable[[], Any] | None = None,
) -> Timing:
    """Time what `fn` launches on the GPU, by the device's own clock.

    Args:
        fn: a function without arguments that launches kernels on the current stream.
        l2: what the call finds in the L2 cache. "cold": another kernel's output, as in a running program,
            so the inputs come from memory and each written line must evict another. "clean": nothing useful
            and nothing to write back, as in Nsight Compute. "warm": the inputs, if they fit.
        budget_s: how many seconds to measure at most, not counting the warm-up and the measurement of
            CUPTI's overhead, which is left out if a call launches several kernels (32 calls up to 0.5 ms, 12
            above 3 ms, and four times as many if there is an overhead). The measurement ends earlier once the
            95 % interval of the median is narrower than ±0.5 % or ±0.05 µs. If an overhead is subtracted, its
            uncertainty widens the interval.
        before: called before each measured call on the current stream, for example to change the inputs;
            its time doesn't count.

    Returns:
        A `Timing`: median and interval in µs, the kernels by name and count, clocks, notes.

    Raises:
        helpers.device.Missing: there is no GPU.
        TimingError: `fn` fails, launches nothing, works on a stream that the current one doesn't wait for,
            sets part of the L2 cache aside, or does something else under a profiler. `ProfilerBusy` if a
            profiler is already running.
        ValueError: `l2` is unknown.
    """
    goal = 0.005

    def is_precise(run: Run) -> bool:
        (samples,) = run.functions
        low, high = median_interval(samples.times)
        return run.n_rounds >= 40 and high - low <= max(goal * samples.median_us, 0.05)

    run, conditions = collect(
        [fn], ["The function"], l2=l2, budget_s=budget_s, is_precise=is_precise, before=before
    )
    return _timing(run.functions[0], run.step_us, conditions, goal)


def compare(
    a: Callable[[], Any],
    b: Callable[[], Any],
    *,
    labels: tuple[str, str] = ("a", "b"),
    l2: str = "cold",
    budget_s: float = 1.0,
) -> Comparison:
    """Time two functions in turn (a b b a …) and compute the ratio of their times with its 95 % interval.

    Because the functions alternate, drift (clocks, temperature, other processes) affects both. The ratio is
    the median over neighboring pairs, so drift between pairs cancels as well.

    Args:
        a: a function without arguments that launches kernels on the current stream.
        b: the other function.
        labels: what the verdict calls them.
        l2: as in `time_gpu`.
        budget_s: how many seconds to measure at most, as in `time_gpu`. The measurement ends earlier once
            the ratio's interval is narrower than ±0.2 %.

    Returns:
        A `Comparison`, whose `verdict` is "No difference seen" if the interval contains 1.

    Raises:
        helpers.device.Missing, TimingError: as in `time_gpu`.
    """

    def is_precise(run: Run) -> bool:
        first, second = run.functions
        low, high = ratio_interval(first.times, second.times)[1]
        return run.n_rounds >= 50 and high - low <= 0.004

    run, conditions = collect([a, b], labels, l2=l2, budget_s=budget_s, is_precise=is_precise)
    first, second = run.functions
    ratio, interval = ratio_interval(
        first.times,
        second.times,
        resolution=run.step_us,
        offsets=(first.uncertainty_us, second.uncertainty_us),
    )
    return Comparison(
        labels=labels,
        a=_timing(first, run.step_us, conditions, 0.01),
        b=_timing(second, run.step_us, conditions, 0.01),
        ratio=ratio,
        ci95=interval,
    )


def profiler_overhead(fn: Callable[[], Any], *, l2: str = "cold") -> Overhead:
    """Measure what the profiler adds to what `fn` launches, with CUDA events, alternately without and with
    CUPTI.

    `time_gpu` does this automatically if a quick measurement suggests an overhead, and subtracts what it
    finds.

    Args:
        fn: as for `time_gpu`.
        l2: as for `time_gpu`.

    Returns:
        An `Overhead`: both medians in µs, and what CUPTI adds.

    Raises:
        helpers.device.Missing, TimingError, ValueError: as in `time_gpu`.
    """
    require_gpu_alone()
    flush = Flush(l2)
    warm_up([fn])
    estimate_us = measure([fn], flush, 4).functions[0].median_us  # it also refuses what launches nothing
    return measure_overhead([fn], flush, estimate_us)[0]

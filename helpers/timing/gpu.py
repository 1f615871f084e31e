"""How long one kernel takes on the device, and how sure that is.

The clock is CUPTI's, read through torch.profiler: the device's own start and end of every kernel, copy and fill, so
the launch gap is not in it. What each call finds in the L2 cache is chosen (`l2=`) and arranged before the call. Samples
are taken until the 95 % interval of the median is narrow.

CUPTI slows some kernels that it watches. CUDA events around the same calls, without it and with it, tell by how much
(`helpers.timing.overhead`). Where a call is one kernel and that is more than 0.5 µs and 0.3 %, it is taken off, and a note
says so.

The timer guards against mistakes, not against deceit. A function that launches nothing, or on another stream, is an
error; inputs of a single value, a result that is no tensor, throttled clocks and replaced clock functions are notes.
Code that wants to deceive can replace this module too: judge such code in a process of its own.
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
    """One kernel (or copy, or fill) that the timed function launched, `calls` times a call, `median_us` µs together.

    What CUPTI adds is known for the whole call only: it is still in these µs.
    """

    name: str
    calls: int
    median_us: float


@dataclass(frozen=True)
class Timing:
    """The device time of one call, in µs: the sum of its kernels' own durations, without gaps between them.

    `added_us` is what CUPTI had added to them, which has been taken off; 0.0 where nothing was seen.
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


def _timing(samples: Samples, step_us: float, conditions: Conditions, goal: float) -> Timing:
    """One function's result, with a note where its interval is wider than ± `goal` of the median."""
    notes = list(conditions.notes)
    median, (low, high) = samples.median_us, median_interval(samples.times, resolution=step_us)
    if high - low > 2 * max(goal * median, 0.05) + step_us:
        notes.append(f"the interval is still {100 * (high - low) / median:.1f} % wide: the time budget ended")
    overhead, added = samples.overhead, samples.added_us
    if added > max(0.5, 0.003 * median):
        notes.append(
            f"CUPTI, the clock used here, slows what it times by {added:,.1f} µs "
            f"({100 * added / median:.1f} %), as CUDA events tell: that is taken off"
        )
    elif (
        overhead
        and not overhead.host_late
        and len(samples.launched) == 1
        and overhead.half_us > max(1, 0.01 * median)
    ):
        notes.append(
            f"whether CUPTI slows it is open: {overhead.added_us:+,.1f} ± {overhead.half_us:.1f} µs by CUDA events"
        )
    return Timing(
        median_us=median,
        ci95_us=(low - samples.unsure_us, high + samples.unsure_us),
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
        l2: what the call finds in the L2 cache. "cold": another kernel's output, as in a running program, so that the
            inputs come from memory and each line written must push one out. "clean": nothing useful and nothing to
            write back, as Nsight Compute arranges it. "warm": the inputs, where they fit.
        budget_s: seconds to measure for at most, beyond warm-up and finding out what CUPTI adds (32 calls up to
            0.5 ms, 12 above 3 ms, and four times as many where it adds). It ends sooner, when the 95 % interval of the median
            is narrower than ±0.5 % or ±0.05 µs; where something is taken off, the interval gets wider by what is not
            known of that.
        before: called before each measured call and outside of its time, on the current stream: to give the inputs other
            contents.

    Returns:
        A `Timing`: median and interval in µs, the kernels by name and count, clocks, notes.

    Raises:
        helpers.device.Missing: no GPU.
        TimingError: `fn` fails, launches nothing, launches on another stream, or does something else when a profiler
            runs. `ProfilerBusy` where one runs already.
        ValueError: no such `l2`.
    """
    goal = 0.005

    def narrow(run: Run) -> bool:
        (samples,) = run.functions
        low, high = median_interval(samples.times)
        return run.n_rounds >= 40 and high - low <= max(goal * samples.median_us, 0.05)

    run, conditions = collect([fn], ["The function"], l2=l2, budget_s=budget_s, narrow=narrow, before=before)
    return _timing(run.functions[0], run.step_us, conditions, goal)


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
        budget_s: seconds to measure for at most, as in `time_gpu`; it ends sooner when the ratio's interval is narrower
            than ±0.2 %.

    Returns:
        A `Comparison`, whose `verdict` says "No difference seen" where the interval holds 1.

    Raises:
        helpers.device.Missing, TimingError: as in `time_gpu`.
    """

    def narrow(run: Run) -> bool:
        first, second = run.functions
        low, high = ratio_interval(first.times, second.times)[1]
        return run.n_rounds >= 50 and high - low <= 0.004

    run, conditions = collect([a, b], labels, l2=l2, budget_s=budget_s, narrow=narrow)
    first, second = run.functions
    ratio, interval = ratio_interval(
        first.times, second.times, resolution=run.step_us, offsets=(first.unsure_us, second.unsure_us)
    )
    return Comparison(
        labels=labels,
        a=_timing(first, run.step_us, conditions, 0.01),
        b=_timing(second, run.step_us, conditions, 0.01),
        ratio=ratio,
        ci95=interval,
    )


def profiler_overhead(fn: Callable[[], Any], *, l2: str = "cold") -> Overhead:
    """Measure what the profiler adds to what `fn` launches: events around it, without CUPTI and with it, in turns.

    `time_gpu` does this by itself where a quick measurement makes it suspect an overhead, and takes off what it finds.

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
    about = measure([fn], flush, 4).functions[0].median_us  # it also refuses what launches nothing
    return measure_overhead([fn], flush, about)[0]

"""Timing several functions in one interleaved run.

Every round calls each function once, with a flushed L2 cache before each call, and the order alternates (a
b c, then c b a), so that drift affects all functions alike. A ratio of two functions is the median over
rounds of one function's time divided by the other's in the same round, with a 95 % interval. What the
profiler adds to a function's time is subtracted (see `helpers.timing.overhead`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helpers.timing.collect import collect
from helpers.timing.samples import Run
from helpers.timing.stats import median_interval, ratio_interval


@dataclass(frozen=True)
class RelativeTiming:
    """One function's time in an interleaved run, absolute and relative to a reference function.

    Attributes:
        label: the function's name.
        median_us, ci95_us: its median time in µs and the 95 % interval of the median.
        ratio, ratio_ci95: its time divided by the reference's. Above 1, the reference is faster.
        n_samples: the number of rounds.
        added_us: what CUPTI added to its time in µs; already subtracted from `median_us`.
    """

    label: str
    median_us: float
    ci95_us: tuple[float, float]
    ratio: float
    ratio_ci95: tuple[float, float]
    n_samples: int
    added_us: float = 0.0


def compare_many(
    functions: Mapping[str, Callable[[], Any]],
    *,
    against: str,
    l2: str = "cold",
    budget_s: float = 0.6,
    min_rounds: int = 20,
) -> dict[str, RelativeTiming]:
    """Time several functions in one interleaved run.

    Args:
        functions: label to a function without arguments that launches kernels on the current stream. Call
            each function once beforehand, so that everything it compiles is compiled.
        against: the label of the reference function for the ratios.
        l2: the state of the L2 cache before each call, as in `timing.time_gpu`.
        budget_s: seconds to measure. The run ends earlier once every ratio's interval is narrower than
            ±0.2 %.
        min_rounds: the minimum number of rounds, whatever the budget.

    Returns:
        A `RelativeTiming` for each label, in the order given.

    Raises:
        KeyError: `against` is not one of the labels.
        helpers.device.Missing: there is no GPU.
        helpers.timing.TimingError: a function cannot be timed, as in `time_gpu`.
    """
    labels = list(functions)
    if against not in functions:
        raise KeyError(f"compare_many: {against!r} is not one of the functions {', '.join(labels)}.")
    reference = labels.index(against)

    def is_precise(run: Run) -> bool:
        timings = relative_timings(labels, run, reference)
        widths = (timing.ratio_ci95[1] - timing.ratio_ci95[0] for timing in timings)
        return run.n_rounds >= 50 and all(width <= 0.004 for width in widths)

    run, _ = collect(
        list(functions.values()),
        labels,
        l2=l2,
        budget_s=budget_s,
        is_precise=is_precise,
        min_rounds=min_rounds,
        max_rounds=200,
    )
    return {timing.label: timing for timing in relative_timings(labels, run, reference)}


def relative_timings(labels: Sequence[str], run: Run, reference: int) -> list[RelativeTiming]:
    """Summarize a run: one `RelativeTiming` per function, relative to the function at index `reference`."""
    found, base = [], run.functions[reference]
    for i, (label, samples) in enumerate(zip(labels, run.functions, strict=True)):
        ratio, interval = 1.0, (1.0, 1.0)
        if i != reference:
            ratio, interval = ratio_interval(
                samples.times,
                base.times,
                resolution=run.step_us,
                offsets=(samples.uncertainty_us, base.uncertainty_us),
            )
        found.append(
            RelativeTiming(
                label=label,
                median_us=samples.median_us,
                ci95_us=median_interval(samples.times, resolution=run.step_us + samples.uncertainty_us),
                ratio=ratio,
                ratio_ci95=interval,
                n_samples=len(samples.times),
                added_us=samples.added_us,
            )
        )
    return found

"""Medians, with intervals that stay correct if samples are correlated and the clock has a coarse step."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

_BLOCKS = 8
_STUDENT = 2.365  # the 97.5 % point of Student's t with 7 degrees of freedom


def _variance_inflation(samples: Sequence[float]) -> float:
    """By which factor the variance of the median exceeds that of independent samples; at least 1.

    Successive samples are correlated when clocks or the temperature drift. We compare the fraction of
    samples below the median between successive blocks (batch means): for independent samples it varies like
    a coin toss.
    """
    n = len(samples)
    if n < 5 * _BLOCKS:
        return 1.0
    median = statistics.median(samples)
    below = [(x < median) + 0.5 * (x == median) for x in samples]
    edges = [round(i * n / _BLOCKS) for i in range(_BLOCKS + 1)]
    shares = [statistics.fmean(below[i:j]) for i, j in itertools.pairwise(edges)]
    return max(1.0, statistics.variance(shares) * (n / _BLOCKS) / 0.25)


def median_interval(samples: Sequence[float], *, resolution: float = 0.0) -> tuple[float, float]:
    """The 95 % confidence interval of the median, from order statistics, so it assumes no distribution.

    If successive samples are correlated (drift, changing clocks), the interval is wider, by as much as the
    medians of successive blocks vary.

    Args:
        samples: in the order in which they were measured, in any unit.
        resolution: the step of the clock; it is added on both sides. A duration is the difference of two
            readings, so it can be off by a whole step, and if the start times are in phase with the clock,
            no number of samples averages this out.

    Sources: Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2 (binomial, normal
    approximation to ranks); Alexopoulos and Seila, Output data analysis, Handbook of Simulation (1998),
    section 7.3 (batch means).

    Example:
        >>> from helpers import timing
        >>> timing.median_interval([10.0, 10.2, 10.1, 10.4, 10.1, 10.3, 10.2, 10.1, 10.2])
        (10.0, 10.4)
    """
    ordered = sorted(samples)
    n = len(ordered)
    inflation = _variance_inflation(samples)
    half = (_STUDENT if inflation > 1 else 1.96) * math.sqrt(n * inflation) / 2
    low, high = math.floor(n / 2 - half), math.ceil(n / 2 + half)
    return ordered[max(low - 1, 0)] - resolution, ordered[min(high, n - 1)] + resolution


def ratio_interval(
    a: Sequence[float],
    b: Sequence[float],
    *,
    resolution: float = 0.0,
    offsets: tuple[float, float] = (0.0, 0.0),
) -> tuple[float, tuple[float, float]]:
    """The median of the ratios a/b of neighboring times and its 95 % interval; what affects both cancels.

    Args:
        a: times of one function, in the order in which they were measured.
        b: times of the other function, each measured next to the one at the same position in `a`.
        resolution: the step of the clock, in the unit of the times. Half of it counts for each of the two:
            neighbors start at the same phase of the clock, so most of the error is common to both.
        offsets: how far all of a's times, and all of b's times, may be off together, each at 95 %.

    Example:
        >>> from helpers import timing
        >>> timing.ratio_interval([10.0, 10.2, 10.1, 10.3] * 5, [5.0, 5.1, 5.05, 5.15] * 5)
        (2.0, (2.0, 2.0))
    """
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    ratio = statistics.median(ratios)
    scale_a, scale_b = ratio / statistics.median(a), ratio / statistics.median(b)
    step = resolution * (scale_a + scale_b) / 2
    return ratio, median_interval(
        ratios, resolution=step + math.hypot(offsets[0] * scale_a, offsets[1] * scale_b)
    )

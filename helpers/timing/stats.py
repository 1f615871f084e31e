"""Medians with intervals that stay true where samples resemble their neighbours and the clock has steps."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

_BLOCKS = 8
_STUDENT = 2.365  # the 97.5 % point of Student's t with 7 degrees of freedom


def _repetition(samples: Sequence[float]) -> float:
    """How many times larger the variance of the median is than for independent samples; at least 1.

    Successive samples resemble each other where clocks or temperature wander. The share of samples below the median
    is compared between successive blocks (batch means): independent samples make it vary as a coin does.
    """
    n = len(samples)
    if n < 5 * _BLOCKS:
        return 1.0
    median = statistics.median(samples)
    below = [(x < median) + 0.5 * (x == median) for x in samples]
    cuts = [round(i * n / _BLOCKS) for i in range(_BLOCKS + 1)]
    shares = [statistics.fmean(below[i:j]) for i, j in itertools.pairwise(cuts)]
    return max(1.0, statistics.variance(shares) * (n / _BLOCKS) / 0.25)


def median_interval(samples: Sequence[float], *, resolution: float = 0.0) -> tuple[float, float]:
    """The 95 % confidence interval of the median, from order statistics: it assumes no distribution.

    Where successive samples resemble each other (drift, clocks that wander) it is wider, by what the medians of
    successive blocks show.

    Args:
        samples: in the order in which they were taken; any unit.
        resolution: the step of the clock that took them; it is added to both sides. A duration is the difference of two
            readings, so it can be off by a whole step, and where the starts fall in step with the clock no number of
            samples averages that out.

    Sources: Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2 (binomial, normal approximation to
    ranks); Alexopoulos and Seila, Output data analysis, Handbook of Simulation (1998), section 7.3 (batch means).

    Example:
        >>> from helpers import timing
        >>> timing.median_interval([10.0, 10.2, 10.1, 10.4, 10.1, 10.3, 10.2, 10.1, 10.2])
        (10.0, 10.4)
    """
    ordered = sorted(samples)
    n = len(ordered)
    repeated = _repetition(samples)
    half = (_STUDENT if repeated > 1 else 1.96) * math.sqrt(n * repeated) / 2
    low, high = math.floor(n / 2 - half), math.ceil(n / 2 + half)
    return ordered[max(low - 1, 0)] - resolution, ordered[min(high, n - 1)] + resolution


def ratio_interval(
    a: Sequence[float],
    b: Sequence[float],
    *,
    resolution: float = 0.0,
    offsets: tuple[float, float] = (0.0, 0.0),
) -> tuple[float, tuple[float, float]]:
    """The median of the ratios of neighbours, a's over b's, and its 95 % interval: what moves both cancels.

    Args:
        a: times of one function, in the order in which they were taken.
        b: times of the other, each taken beside the one of the same place in `a`.
        resolution: the step of the clock, in the unit of the times. Half of it counts for each of the two: neighbours
            start at the same places of the clock, so most of what a place does to one it does to the other.
        offsets: by how much all of a's times may be off together, and all of b's, each at 95 %.

    Example:
        >>> from helpers import timing
        >>> timing.ratio_interval([10.0, 10.2, 10.1, 10.3] * 5, [5.0, 5.1, 5.05, 5.15] * 5)
        (2.0, (2.0, 2.0))
    """
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    ratio = statistics.median(ratios)
    of_a, of_b = ratio / statistics.median(a), ratio / statistics.median(b)
    step = resolution * (of_a + of_b) / 2
    return ratio, median_interval(ratios, resolution=step + math.hypot(offsets[0] * of_a, offsets[1] * of_b))

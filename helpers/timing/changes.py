"""Decide whether a time changed between two runs by more than the noise between two identical runs.

Within one run, functions are called in turn, so the ratio of their times does not depend on drift
(`stats.ratio_interval`). Two runs on two days are not paired: the clocks, the temperature and the location
of the tensors in memory differ. So each run also times a reference, such as PyTorch's copy of the same
bytes, and we compare the time relative to this reference. That cancels everything that slows both down by
the same factor. It does not cancel what affects them differently, for example a lower SM clock, which slows
a compute-bound kernel but not a copy that waits for memory.

The remaining noise comes from two runs of one league on an H100 (fusion/league, 2026-11-21, 102 points, the
same kernels and versions). Between them the ratio to the copy moved by less than 0.7 % at 95 % of the
points above 10 µs, and by less than 6.1 % at 95 % of the points below, where one clock step is 2 % of the
time. `LEAST`, and `LEAST_US` for short kernels, are the smallest changes that we report for this reason. At
two points of 16 MB, which fit into one half of the L2 cache, the copy itself was 2 % faster in the second
run, so both our kernels and eager looked 3 % slower. If eager has not changed, a change must therefore show
relative to both references (`Estimate.spanning`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

LEAST = 0.01  # as a fraction of the time
LEAST_US = 0.1


@dataclass(frozen=True)
class Estimate:
    """A positive number with its 95 % interval: a time in µs, or a ratio of two times."""

    value: float
    low: float
    high: float

    def over(self, other: Estimate) -> Estimate:
        """Divide by another estimate that was measured independently.

        The interval is that of the difference of the logarithms, computed from the distances between each
        value and the ends of its interval (MOVER: Zou and Donner, Statistics in Medicine 27 (2008),
        1693-1702). If the two were measured in turn and drift together, the interval is wider than necessary.
        """
        value = self.value / other.value
        down = math.hypot(math.log(self.value / self.low), math.log(other.high / other.value))
        up = math.hypot(math.log(self.high / self.value), math.log(other.value / other.low))
        return Estimate(value, value * math.exp(-down), value * math.exp(up))

    def inverse(self) -> Estimate:
        """The reciprocal."""
        return Estimate(1 / self.value, 1 / self.high, 1 / self.low)

    def spanning(self, other: Estimate) -> Estimate:
        """An interval that covers both, with the value that is closer to 1.

        The result excludes 1 only if both estimates do, on the same side.
        """
        nearer = min(self, other, key=lambda e: abs(math.log(e.value)))
        return Estimate(nearer.value, min(self.low, other.low), max(self.high, other.high))

    def for_one_of(self, n: int) -> Estimate:
        """Widen the interval so that all of `n` such intervals hold together at 95 % (Bonferroni).

        Otherwise one of twenty unchanged points would be reported as changed. The interval is stretched on
        the logarithms by as much as a normal distribution's interval would be.
        """
        stretch = NormalDist().inv_cdf(1 - 0.025 / max(n, 1)) / NormalDist().inv_cdf(0.975)
        return Estimate(
            self.value,
            self.value * (self.low / self.value) ** stretch,
            self.value * (self.high / self.value) ** stretch,
        )

    def __str__(self) -> str:
        return f"{self.value:.3f} × ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True)
class Change:
    """A time relative to an earlier time.

    Attributes:
        ratio: the new time divided by the earlier one; above 1 is slower.
        least: the smallest change that counts, as a fraction.
    """

    ratio: Estimate
    least: float = LEAST

    @property
    def slower(self) -> bool:
        """The whole interval lies above 1, and the value exceeds 1 by more than `least`."""
        return self.ratio.low > 1 and self.ratio.value > 1 + self.least

    @property
    def faster(self) -> bool:
        """The whole interval lies below 1, and the value is below 1 by more than `least`."""
        return self.ratio.high < 1 and self.ratio.value < 1 / (1 + self.least)


def change_since(
    then: Estimate, now: Estimate, us: float, *, n_points: int = 1, least: float = LEAST
) -> Change:
    """Compare a ratio to a reference between two independent runs.

    Args:
        then, now: the time relative to the reference's time in the same run.
        us: the earlier time in µs. Below 10 µs, `LEAST_US` is the smallest change that counts.
        n_points: how many points are compared altogether, see `Estimate.for_one_of`.
        least: the smallest change that counts, as a fraction.
    """
    ratio = now.over(then).for_one_of(n_points)
    return Change(ratio, least=max(least, LEAST_US / us))

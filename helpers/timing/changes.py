"""Whether a time changed between two measurements, beyond what two measurements of the same thing differ by.

In one run, functions are called in turns, and a ratio of their times is free of drift (`stats.ratio_interval`). Two runs on
two days are not paired: the clocks, the temperature and the place of the tensors in memory differ. So each run also times a
reference, such as PyTorch's copy of the same bytes, and what is compared is the time over the reference's, then and now. That
takes out what slows both alike. It does not take out what slows them differently: a kernel that waits for the SM's clock,
beside a copy that waits for memory. What is left of it is told from two runs of one league on an H100 (fusion/league,
2026-11-21, 102 points, the same kernels and versions): the ratio to the copy moved by less than 0.7 % at 95 % of the points
above 10 µs, and by less than 6.1 % at 95 % of those below, where a step of the clock is 2 % of the time. Hence the smallest
change that is called one: `LEAST`, and `LEAST_US` for short kernels. At two points of 16 MB, which an L2 half holds, the copy itself was
2 % faster the second time, and eager looked 3 % slower over it as our kernels did. So where eager surely is the same, a change
must show over both (`Estimate.spanning`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

LEAST = 0.01  # of the time
LEAST_US = 0.1


@dataclass(frozen=True)
class Estimate:
    """A positive number with its 95 % interval: a time in µs, or a ratio of times."""

    value: float
    low: float
    high: float

    def over(self, other: Estimate) -> Estimate:
        """This over another that was measured independently of it.

        The interval is of the logarithms' difference, by the distances of both intervals' ends from their values (MOVER:
        Zou and Donner, Statistics in Medicine 27 (2008), 1693-1702). Where the two were measured in turns and drift
        together, the interval is wider than it need be.
        """
        value = self.value / other.value
        down = math.hypot(math.log(self.value / self.low), math.log(other.high / other.value))
        up = math.hypot(math.log(self.high / self.value), math.log(other.value / other.low))
        return Estimate(value, value * math.exp(-down), value * math.exp(up))

    def inverse(self) -> Estimate:
        """One over it."""
        return Estimate(1 / self.value, 1 / self.high, 1 / self.low)

    def spanning(self, other: Estimate) -> Estimate:
        """Both intervals, and of the two values the one nearer to 1: it leaves 1 out only where both do, on one side."""
        nearer = min(self, other, key=lambda e: abs(math.log(e.value)))
        return Estimate(nearer.value, min(self.low, other.low), max(self.high, other.high))

    def for_one_of(self, n: int) -> Estimate:
        """With an interval that, of `n` such intervals, all hold their truth at 95 % (Bonferroni).

        Without it, one of twenty points that did not change would be called changed. The interval is stretched as a normal
        distribution's would be, on the logarithms.
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
    """A time now over the time then, or a kernel's time over another text's.

    Attributes:
        ratio: with its interval; above 1 is slower.
        paired: both were timed in turns in one run.
        least: the smallest change, as a share, that is called one.
    """

    ratio: Estimate
    paired: bool
    least: float = LEAST

    @property
    def slower(self) -> bool:
        """The interval lies above 1, and the ratio by more than `least`."""
        return self.ratio.low > 1 and self.ratio.value > 1 + self.least

    @property
    def faster(self) -> bool:
        """The interval lies below 1, and the ratio by more than `least`."""
        return self.ratio.high < 1 and self.ratio.value < 1 / (1 + self.least)


def change_since(
    then: Estimate, now: Estimate, us: float, *, n_points: int = 1, least: float = LEAST
) -> Change:
    """The change of a ratio to a reference between two runs: unpaired.

    Args:
        then, now: the time over the reference's, each within its own run.
        us: the time then; below 10 µs the smallest change that counts is `LEAST_US`.
        n_points: how many points are compared, see `Estimate.for_one_of`.
        least: the smallest change that counts, as a share.
    """
    ratio = now.over(then).for_one_of(n_points)
    return Change(ratio, paired=False, least=max(least, LEAST_US / us))

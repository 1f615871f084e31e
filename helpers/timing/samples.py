"""The data that a run of the timer collects: device times of each function, and the conditions."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from helpers.timing.overhead import Overhead


@dataclass(frozen=True)
class Samples:
    """The device times of one function in µs, in the order in which they were measured.

    Attributes:
        times: for each call the sum over everything that it launched.
        kernels: for each kernel (or copy, or fill) by name, its total time in each call that launched it.
        launched: the names of what one call launched, in order.
        overhead: what CUPTI adds to a call, if that was measured closely.
        added_us: what was subtracted from `times`, because CUPTI had added it.
    """

    times: tuple[float, ...]
    kernels: Mapping[str, tuple[float, ...]]
    launched: tuple[str, ...]
    overhead: Overhead | None = None
    added_us: float = 0.0

    @property
    def median_us(self) -> float:
        """The median of `times`."""
        return statistics.median(self.times)

    @property
    def uncertainty_us(self) -> float:
        """The uncertainty at 95 % of what was subtracted: all times may be off by this much together."""
        return self.overhead.half_us if self.added_us else 0.0

    def followed_by(self, later: Samples) -> Samples:
        """These samples, followed by those of a later batch."""
        names = dict.fromkeys([*self.kernels, *later.kernels])
        return dataclasses.replace(
            self,
            times=self.times + later.times,
            kernels={name: self.kernels.get(name, ()) + later.kernels.get(name, ()) for name in names},
        )


@dataclass(frozen=True)
class Run:
    """Samples of functions that were called in turn.

    Attributes:
        functions: the samples of each function, in the order given; all have the same number of times.
        step_us: the step of the device's clock; 0.0 if there are too few distinct durations to estimate it.
    """

    functions: tuple[Samples, ...]
    step_us: float = 0.0

    @property
    def n_rounds(self) -> int:
        """How often each function was called."""
        return len(self.functions[0].times)

    def followed_by(self, later: Run) -> Run:
        """This run, followed by a later batch of the same functions."""
        pairs = zip(self.functions, later.functions, strict=True)
        step_us = min((step for step in (self.step_us, later.step_us) if step), default=0.0)
        return Run(tuple(old.followed_by(new) for old, new in pairs), step_us)


@dataclass(frozen=True)
class Conditions:
    """The conditions of a run.

    Attributes:
        l2: the state of the L2 cache before each call, as in `time_gpu`.
        flush: how that was achieved, in words.
        sm_clock_mhz: the SM clock before and after; None if it cannot be read.
        seconds: how long the run took, without the warm-up.
        notes: what is suspicious about the functions, the clocks or the machine.
    """

    l2: str
    flush: str
    sm_clock_mhz: tuple[int | None, int | None]
    seconds: float
    notes: tuple[str, ...] = ()

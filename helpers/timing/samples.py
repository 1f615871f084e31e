"""What a run of the timer measured: the device times of each function, and under what conditions they were taken."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from helpers.timing.overhead import Overhead


@dataclass(frozen=True)
class Samples:
    """Device times of one function in µs, in the order in which they were taken.

    Attributes:
        times: of each call the sum over what it launched.
        kernels: of each kernel (or copy, or fill) by name, its µs together in each call that launched it.
        launched: the names of what one call launched, in its order.
        overhead: what CUPTI adds to a call, where that was measured closely.
        added_us: what has been taken off `times`, because CUPTI had added it.
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
    def unsure_us(self) -> float:
        """By how much all times may be off together, at 95 %: what was taken off is not known better."""
        return self.overhead.half_us if self.added_us else 0.0

    def followed_by(self, later: Samples) -> Samples:
        """These samples and then those of a later batch."""
        names = dict.fromkeys([*self.kernels, *later.kernels])
        return dataclasses.replace(
            self,
            times=self.times + later.times,
            kernels={name: self.kernels.get(name, ()) + later.kernels.get(name, ()) for name in names},
        )


@dataclass(frozen=True)
class Run:
    """Samples of functions that were called in turns.

    Attributes:
        functions: the samples of each, in the order given; all have as many times.
        step_us: the step of the device's clock; 0.0 where too few durations differ to tell.
    """

    functions: tuple[Samples, ...]
    step_us: float = 0.0

    @property
    def n_rounds(self) -> int:
        """How often each function was called."""
        return len(self.functions[0].times)

    def followed_by(self, later: Run) -> Run:
        """This run and then a later batch of the same functions."""
        pairs = zip(self.functions, later.functions, strict=True)
        step_us = min((step for step in (self.step_us, later.step_us) if step), default=0.0)
        return Run(tuple(mine.followed_by(new) for mine, new in pairs), step_us)


@dataclass(frozen=True)
class Conditions:
    """Under what conditions a run was measured.

    Attributes:
        l2: what each call found in the L2 cache, as in `time_gpu`.
        flush: how that was arranged, in words.
        sm_clock_mhz: the SM clock before and after; None where it cannot be read.
        seconds: how long it took, without the warm-up.
        notes: what is suspicious about the functions, the clocks or the machine.
    """

    l2: str
    flush: str
    sm_clock_mhz: tuple[int | None, int | None]
    seconds: float
    notes: tuple[str, ...] = ()

"""The simulated kernels of "repair-a-benchmark", and what is wrong with a benchmark's answer."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers.exercises.lab13 import sums
from helpers.exercises.lab13.machines import BenchGpu, BenchKernel, Times, shown
from helpers.exercises.mistakes import Condition, Conditions, Seen, under
from helpers.exercises.model import Case, Outcome
from helpers.exercises.proxies import KernelProxy
from helpers.exercises.verdicts import is_number

if TYPE_CHECKING:
    import torch


def allowed_us(true_us: float) -> float:
    """How far a time may be from the truth: 3 µs, about what a pair of marks adds to the kernel, or 3 %."""
    return max(3.0, 0.03 * true_us)


def _of(add: Callable) -> Callable[[torch.Tensor], torch.Tensor]:
    def compute(x: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.from_numpy(add(x.numpy()).copy())

    return compute


def _zeros(x: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(len(x))


def _half_of_the_columns(x: torch.Tensor) -> torch.Tensor:
    return 2 * x[:, ::2].sum(1)


@dataclass(frozen=True)
class Candidate:
    """A kernel that somebody hands in: "a kernel that …".

    Attributes:
        does: The end of that sentence.
        compute: What it returns.
        right: Whether that is right in all calls.
        replays: Whether it remembers results.
        n_right: After so many calls, it returns zeros; None if it doesn't.
    """

    does: str
    compute: Callable[[torch.Tensor], torch.Tensor]
    right: bool = True
    replays: bool = False
    n_right: int | None = None

    def made(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """A kernel that hasn't been called yet."""
        calls = itertools.count()

        def kernel(x: torch.Tensor) -> torch.Tensor:
            is_over = self.n_right is not None and next(calls) >= self.n_right
            return _zeros(x) if is_over else self.compute(x)

        return kernel


CANDIDATES = (
    Candidate("adds from left to right", _of(sums.sequential)),
    Candidate("adds in a random order", _of(sums.shuffled)),
    Candidate("returns zeros", _zeros, right=False),
    Candidate("adds every second column and doubles the result", _half_of_the_columns, right=False),
    Candidate("adds in a float16 accumulator", _of(sums.in_half), right=False),
    Candidate("remembers every input, and its sum", _of(sums.pairwise), replays=True),
    Candidate("adds from right to left", _of(sums.backwards)),
    Candidate("returns zeros after its tenth call", _of(sums.pairwise), right=False, n_right=10),
)


def _times(rng: random.Random, low: float, high: float, replays: bool = False) -> Times:
    cold = rng.uniform(low, high)
    return Times(
        round(cold, 2),
        round(cold * rng.uniform(0.35, 0.42), 2),
        rng.uniform(1e4, 3e4),
        rng.uniform(1.5, 3) if replays else None,
    )


def cases(rng: random.Random) -> Iterator[Case]:
    """One case for each candidate. No two of its four times are similar, and none is as short as a launch."""
    for place, candidate in enumerate(CANDIDATES):
        ranges = rng.sample([(40, 55), (200, 260)], 2)
        mine, theirs = _times(rng, *ranges[0], candidate.replays), _times(rng, *ranges[1])
        queue = {
            "launch_us": rng.uniform(4, 7),
            "mark_us": rng.uniform(0.3, 0.8),
            "wake_us": rng.uniform(6, 12),
            "gap_us": rng.uniform(0.4, 1.0),
            "flush_us": rng.uniform(90, 150),
            "left_us": 0.0,
            "seed": rng.randrange(2**31),
        }
        label = f"a kernel that {candidate.does}"
        expected = (candidate.right, mine.cold_us, theirs.cold_us)
        yield Case(label, (place, vars(mine), vars(theirs), queue), expected=expected, call="simulate")


def simulate(ask: Callable[..., Outcome], place: int, mine: dict, theirs: dict, queue: dict) -> Outcome:
    """Let a benchmark judge a candidate against the baseline."""
    gpu = BenchGpu(**queue)
    candidate = BenchKernel(gpu, CANDIDATES[place].made(), Times(**mine))
    baseline = BenchKernel(gpu, _of(sums.pairwise), Times(**theirs))
    return ask(shown(gpu), KernelProxy(candidate), KernelProxy(baseline))


# ----------------------------------------------------------------------------------------------- the answers
def parts(seen: Seen) -> Iterable[Seen]:
    """Both times, and whether the candidate was accepted."""
    if _not_an_answer(seen):
        yield seen
        return
    both = (("candidate", seen.mine, seen.theirs), ("baseline", seen.theirs, seen.mine))
    for i, (name, own, other) in enumerate(both, start=1):
        yield seen.also(part=name, us=seen.got[i], true_us=seen.want[i], own=own, other=other)
    yield seen.also(part="")


def _not_an_answer(s: Seen) -> bool:
    got = s.got
    if not isinstance(got, list | tuple) or len(got) != 3:
        return True
    right = got[0].item() if hasattr(got[0], "item") else got[0]
    return not isinstance(right, bool) or not all(is_number(us) and us == us for us in got[1:])


def _near(us: float, true_us: float) -> bool:
    return abs(us - true_us) <= allowed_us(true_us)


def _sentence(s: Seen, why: str) -> str:
    what = f"the {s.part}'s time is {s.us:,.1f} µs instead of {s.true_us:,.1f}"
    return f"{what}: {why}" if why else what


def _wrong_time(applies: Condition, why: str) -> Condition:
    def condition(s: Seen) -> str:
        return _sentence(s, why) if not _near(s.us, s.true_us) and applies(s) else ""

    return condition


def _at_most_launches(s: Seen) -> bool:
    return 0 < s.us < 1.5 * (s.queue["launch_us"] + s.queue["mark_us"])


TIMES: Conditions = {
    "unit": _wrong_time(
        lambda s: any(_near(s.us * factor, s.true_us) for factor in (1e-3, 1e3, 1e6)), "that isn't in µs"
    ),
    "sign": _wrong_time(lambda s: s.us < 0, "it is negative"),
    "other-kernel": _wrong_time(
        lambda s: any(_near(s.us, s.other[key]) for key in ("cold_us", "warm_us")),
        "that is the time of the other kernel",
    ),
    "replayed": _wrong_time(
        lambda s: s.own["replay_us"] is not None and 0 < s.us < 0.8 * s.own["warm_us"],
        "it returned results that it had remembered",
    ),
    "not-waited": _wrong_time(lambda s: _at_most_launches(s), "that is about what a launch takes the host"),
    "flush-timed": _wrong_time(
        lambda s: s.queue["flush_us"] * 0.9 < s.us - s.true_us < s.queue["flush_us"] + 25,
        "it includes the flush",
    ),
    "first-call": _wrong_time(
        lambda s: s.us > s.true_us + s.own["first_us"] / 300, "it includes a first call, which compiles"
    ),
    "warm": _wrong_time(
        lambda s: s.own["warm_us"] * 0.9 < s.us < s.true_us, "most calls found their input in the L2"
    ),
    "host-clock": _wrong_time(
        lambda s: 0 < s.us - s.true_us < 40, "it includes what the host does between calls"
    ),
    "time": _wrong_time(lambda s: True, ""),
}


def _accepted(s: Seen) -> bool:
    return bool(s.got[0])


VERDICT: Conditions = {
    "gives-up": lambda s: _accepted(s) and s.n_right is not None,
    "accepts-wrong": lambda s: _accepted(s) and not s.want[0],
    "rejects-right": lambda s: not _accepted(s) and s.want[0],
}

MISTAKES: Conditions = {
    "not-an-answer": _not_an_answer,
    **under(lambda s: s.part, TIMES),
    **under(lambda s: not s.part, VERDICT),
}
RAISES: Conditions = {"not-reached": lambda s: s.got.error_type == "NotReached"}


def about(place: int, mine: dict, theirs: dict, queue: dict) -> dict[str, str | int | None]:
    """Facts about a case for the table of mistakes, next to its arguments."""
    return {"does": CANDIDATES[place].does, "n_right": CANDIDATES[place].n_right}

"""Hidden data for lab 01: samples whose true difference is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

LABELS = {
    "tails": "two equal kernels, now and then a slow reading",
    "first": "two equal kernels, the very first reading 20 to 90 times too long",
    "drift": "two equal kernels while the clock drifts",
    "wide": "two equal kernels, much noise",
    "real": "a real difference of 3 %, now and then a slow reading",
    "real-first": "a real difference of 3 %, the very first reading of the faster one 20 to 90 times too "
    "long",
    "real-drift": "a real difference of 3 % while the clock drifts by 2 %",
    "real-small": "a real difference of 0.7 %, little noise",
}


@dataclass(frozen=True)
class Draw:
    """Interleaved times of two functions in µs, and which of the two is faster."""

    a: list[float]
    b: list[float]
    faster: str
    kind: str


def _draw(
    rng: random.Random, kind: str, *, difference: float, noise: float, drift: float = 0.0, first: bool = False
) -> Draw:
    n, base = rng.randrange(80, 121), rng.uniform(8, 900)
    slower = rng.choice("ab")
    faster = {"a": "b", "b": "a"}[slower] if difference else "no difference"
    scale = {"a": base, "b": base}
    scale[slower] *= 1 + difference
    times: dict[str, list[float]] = {"a": [], "b": []}
    for i in range(n):
        now = 1 + drift * i / n
        for name in "ab":
            us = scale[name] * now * (1 + noise * (rng.gauss(0, 0.5) + rng.expovariate(1)))
            if rng.random() < 0.03:
                us *= rng.uniform(1.2, 4)
            times[name].append(round(us, 3))
    if first:
        hit = faster if difference else "a"
        times[hit][0] *= rng.uniform(20, 90)
    return Draw(times["a"], times["b"], faster, kind)


def draws(rng: random.Random) -> list[Draw]:
    """160 draws without a difference and 96 with one, in any order; how many are of a kind is drawn, too."""
    kinds = {
        "tails": {"difference": 0.0, "noise": 0.01},
        "first": {"difference": 0.0, "noise": 0.01, "first": True},
        "drift": {"difference": 0.0, "noise": 0.01, "drift": 0.04},
        "wide": {"difference": 0.0, "noise": 0.12},
        "real": {"difference": 0.03, "noise": 0.01},
        "real-first": {"difference": 0.03, "noise": 0.01, "first": True},
        "real-drift": {"difference": 0.03, "noise": 0.01, "drift": 0.02},
        "real-small": {"difference": 0.007, "noise": 0.003},
    }
    drawn = []
    for real, usual in ((False, 40), (True, 24)):
        more, less = rng.randrange(4), rng.randrange(4)
        counts = [usual + more, usual - more, usual + less, usual - less]
        rng.shuffle(counts)
        of_group = [kind for kind, how in kinds.items() if bool(how["difference"]) is real]
        for kind, n in zip(of_group, counts, strict=True):
            drawn += [_draw(rng, kind, **kinds[kind]) for _ in range(n)]
    rng.shuffle(drawn)
    return drawn


@dataclass(frozen=True)
class Count:
    """How often a method reported a difference, in one of the five cases of `real-or-noise`.

    Attributes:
        label: the case.
        kinds: keys of `LABELS`.
        real: whether there is a difference.
        n: how many pairs.
        n_seen: in how many it reported a difference; if there is one, in how many it named the faster
            function.
    """

    label: str
    kinds: tuple[str, ...]
    real: bool
    n: int
    n_seen: int

    @property
    def words(self) -> str:
        """ "found in 20 of 24", or "a false alarm in 12 of 160"."""
        return f"{'found' if self.real else 'a false alarm'} in {self.n_seen} of {self.n}"


def counts(answers: Sequence[str], truth: Sequence[tuple[str, str]]) -> list[Count]:
    """Count a method's answers in each of the five cases: equal kernels, and four kinds of a real difference.

    Args:
        answers: "a", "b" or "no difference" for each pair.
        truth: (kind, faster) of each pair.
    """
    equal = tuple(kind for kind in LABELS if not kind.startswith("real"))
    found = []
    for kinds in (equal, *((kind,) for kind in LABELS if kind not in equal)):
        mine = [(got, faster) for got, (kind, faster) in zip(answers, truth, strict=True) if kind in kinds]
        real = kinds is not equal
        n_seen = sum(got == faster if real else got != faster for got, faster in mine)
        found.append(Count(LABELS[kinds[0]] if real else "two equal kernels", kinds, real, len(mine), n_seen))
    return found


def try_methods(
    methods: Mapping[str, Callable[[list[float], list[float]], str]], seed: int = 0
) -> list[dict]:
    """Count how often methods report a difference in the same pairs of samples: one row per case, one column
    per
    method.
    """
    drawn = draws(random.Random(seed))
    truth = [(d.kind, d.faster) for d in drawn]
    rows: dict[str, dict] = {}
    for name, decide in methods.items():
        for one in counts([decide(list(d.a), list(d.b)) for d in drawn], truth):
            rows.setdefault(one.label, {"pairs of": one.label})[name] = one.words
    return list(rows.values())

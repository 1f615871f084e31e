"""Hidden data for lab 01: samples whose true difference is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# What is special about each kind of draw, and how it is made (`_draw`).
KINDS: dict[str, tuple[str, dict[str, float]]] = {
    "tails": ("two equal kernels, with occasional slow readings", {}),
    "first": ("two equal kernels, with a first reading that is 20 to 90 times too long", {"first": True}),
    "drift": ("two equal kernels while the clock drifts", {"drift": 0.04}),
    "wide": ("two equal kernels, with much noise", {"noise": 0.12}),
    "real": ("a real difference of 3 %, with occasional slow readings", {"difference": 0.03}),
    "real-first": (
        "a real difference of 3 %, with a first reading of the faster one that is 20 to 90 times too long",
        {"difference": 0.03, "first": True},
    ),
    "real-drift": (
        "a real difference of 3 % while the clock drifts by 2 %",
        {"difference": 0.03, "drift": 0.02},
    ),
    "real-small": ("a real difference of 0.7 %, with little noise", {"difference": 0.007, "noise": 0.003}),
}
EQUAL, REAL = (tuple(kind for kind in KINDS if kind.startswith("real") is real) for real in (False, True))


@dataclass(frozen=True)
class Draw:
    """Interleaved times of two functions in µs, and which of the two is faster."""

    a: list[float]
    b: list[float]
    faster: str
    kind: str


def _draw(rng: random.Random, kind: str) -> Draw:
    how = {"difference": 0.0, "noise": 0.01, "drift": 0.0, "first": False} | KINDS[kind][1]
    difference, noise = how["difference"], how["noise"]
    n, base = rng.randrange(80, 121), rng.uniform(8, 900)
    slower = rng.choice("ab")
    faster = {"a": "b", "b": "a"}[slower] if difference else "no difference"
    scale = {"a": base, "b": base}
    scale[slower] *= 1 + difference
    times: dict[str, list[float]] = {"a": [], "b": []}
    for i in range(n):
        now = 1 + how["drift"] * i / n
        for name in "ab":
            us = scale[name] * now * (1 + noise * (rng.gauss(0, 0.5) + rng.expovariate(1)))
            if rng.random() < 0.03:
                us *= rng.uniform(1.2, 4)
            times[name].append(round(us, 3))
    if how["first"]:
        hit = faster if difference else "a"
        times[hit][0] *= rng.uniform(20, 90)
    return Draw(times["a"], times["b"], faster, kind)


def draws(rng: random.Random) -> list[Draw]:
    """160 draws without a difference and 96 with one, in any order; how many are of a kind is drawn, too."""
    drawn = []
    for kinds, usual in ((EQUAL, 40), (REAL, 24)):
        more, less = rng.randrange(4), rng.randrange(4)
        counts = [usual + more, usual - more, usual + less, usual - less]
        rng.shuffle(counts)
        for kind, n in zip(kinds, counts, strict=True):
            drawn += [_draw(rng, kind) for _ in range(n)]
    rng.shuffle(drawn)
    return drawn


@dataclass(frozen=True)
class Count:
    """How often a method reported a difference in the pairs of some kinds.

    Attributes:
        label: what is special about the pairs.
        kinds: keys of `KINDS`.
        real: whether there is a difference.
        n: how many pairs.
        n_seen: in how many it reported a difference; if there is one, in how many it named the faster
            function.
        n_swapped: in how many it named the slower one.
    """

    label: str
    kinds: tuple[str, ...]
    real: bool
    n: int
    n_seen: int
    n_swapped: int

    @property
    def words(self) -> str:
        """ "found in 20 of 24", or "a false alarm in 12 of 160"."""
        return f"{'found' if self.real else 'a false alarm'} in {self.n_seen} of {self.n}"


def count(kinds: tuple[str, ...], answers: Sequence[str], truth: Sequence[tuple[str, str]]) -> Count:
    """Count a method's answers for the pairs of some kinds.

    Args:
        kinds: keys of `KINDS`, all with a difference or all without.
        answers: "a", "b" or "no difference" for each pair.
        truth: (kind, faster) of each pair.
    """
    mine = [(got, faster) for got, (kind, faster) in zip(answers, truth, strict=True) if kind in kinds]
    real = kinds[0] in REAL
    n_named = sum(got != "no difference" for got, _ in mine)
    n_seen = sum(got == faster for got, faster in mine) if real else n_named
    label = KINDS[kinds[0]][0] if len(kinds) == 1 else "two equal kernels"
    return Count(label, kinds, real, len(mine), n_seen, n_named - n_seen)


def counts(answers: Sequence[str], truth: Sequence[tuple[str, str]]) -> list[Count]:
    """`count` in each of the five cases: equal kernels, and four kinds of a real difference."""
    return [count(kinds, answers, truth) for kinds in (EQUAL, *((kind,) for kind in REAL))]


def try_methods(
    methods: Mapping[str, Callable[[list[float], list[float]], str]], seed: int = 0
) -> list[dict]:
    """Count how often methods report a difference in the same pairs of samples: one row per case, one column
    per method.
    """
    drawn = draws(random.Random(seed))
    truth = [(d.kind, d.faster) for d in drawn]
    rows: dict[str, dict] = {}
    for name, decide in methods.items():
        for one in counts([decide(list(d.a), list(d.b)) for d in drawn], truth):
            rows.setdefault(one.label, {"pairs of": one.label})[name] = one.words
    return list(rows.values())

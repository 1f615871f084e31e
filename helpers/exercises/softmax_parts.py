"""The parts of a row's softmax, which learners merge in labs 06 and 09, and the mistakes that both labs
recognize.

A part is (m, s): its maximum, and the sum of exp(value - m) over its values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from helpers.exercises.mistakes import Seen, always, close, under

Part = tuple[float, float]


def part(values: Iterable[float]) -> Part:
    """Return the part of these values. Without finite values it is (-inf, 0)."""
    values = list(values)
    m = max(values, default=-math.inf)
    return (m, 0.0) if m == -math.inf else (m, math.fsum(math.exp(v - m) for v in values))


def exp(v: float) -> float:
    """`math.exp`, with infinity instead of an error."""
    return math.inf if v > 700 else math.exp(v)


def numbers(s: Seen) -> tuple[Any, Any]:
    """The two parts of the answer, as numbers if they are tensors or NumPy scalars."""
    m, total = (v.item() if hasattr(v, "item") else v for v in s.got)
    return m, total


def _has_nan(s: Seen) -> bool:
    return any(map(math.isnan, numbers(s)))


def _overflows(s: Seen) -> bool:
    """Whether exp overflows if nothing is subtracted from the values first."""
    return s.want[0] > 700 or all(math.isfinite(m) for m, _ in s.parts)


def sum_is(s: Seen, *candidates: float) -> bool:
    """Whether the answer's sum is one of these numbers."""
    return close(numbers(s)[1], *candidates)


FORM = {
    "not-a-pair": lambda s: not isinstance(s.got, tuple | list) or len(s.got) != 2,
    "not-numbers": lambda s: not all(isinstance(v, int | float) for v in numbers(s)),
}
NAN = under(_has_nan, {"exp-overflows": _overflows, "minus-infinity": always})
MAXIMUM = {"maximum": lambda s: numbers(s)[0] != s.want[0]}
SUM = {
    "empty-sum": lambda s: s.want[0] == -math.inf,
    "sums-as-they-are": lambda s: sum_is(s, sum(one for _, one in s.parts)),
    "sign": lambda s: sum_is(s, sum(one * exp(s.want[0] - m) for m, one in s.parts)),
    "absolute-sums": lambda s: sum_is(s, sum(one * exp(m) for m, one in s.parts)),
}

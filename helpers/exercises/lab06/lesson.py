"""The exercises inside lesson 06: the traffic of five operations, a row kernel, a GELU in one kernel, and the
speed that a number of passes over the matrix allows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from helpers.exercises.factories import answer_exercise, kernel_exercise
from helpers.exercises.mistakes import Condition, Seen, always, at, not_numbers
from helpers.exercises.model import Case
from helpers.exercises.plans import CasePlan
from helpers.exercises.verdicts import is_number

if TYPE_CHECKING:
    import torch

    from helpers.exercises.evidence import Evidence

LAB = "06_fusion"
_INDEX = 8  # bytes of an index that max(dim) writes


# ----------------------------------------------------------------------------------- a softmax's traffic
def _traffic_cases(rng: random.Random) -> Iterator[Case]:
    def case(m: int, n: int, size: int) -> Case:
        expected = ((5 * m * n + 2 * m) * size, (3 * m * n + 2 * m) * size + _INDEX * m)
        return Case(f"a {m} × {n} matrix of {size}-byte elements", (m, n, size), expected=expected)

    yield case(4096, 1024, 4)
    yield case(4096, 1024, 2)
    yield case(1, 1, 4)
    yield case(7, 1, 2)
    for _ in range(12):
        n = rng.choice((1, 2, rng.randrange(3, 300), rng.randrange(300, 262_145)))
        yield case(rng.randrange(1, 40_000), n, rng.choice((2, 4, 8)))


def _about_traffic(m: int, n: int, size: int) -> dict[str, int]:
    return {"matrix": m * n * size, "column": m * size, "indices": _INDEX * m}


def _are_elements(s: Seen) -> bool:
    read, written = s.want
    return s.size > 1 and (s.got[0] * s.size == read or s.got[1] * s.size == written - s.indices)


_TRAFFIC_MISTAKES = {
    "not-two-numbers": not_numbers(2),
    "elements-for-bytes": _are_elements,
    "swapped": lambda s: tuple(s.got) == s.want[::-1],
    **at(
        0,
        {
            "a-column-forgotten": lambda s: s.value == 5 * s.matrix + s.column,
            "results-only": lambda s: s.value == 3 * s.matrix + 2 * s.column,
            "columns-not-read": lambda s: s.value == 5 * s.matrix,
            "fused-for-separate/reads": lambda s: s.value == s.matrix,
            "bytes-read": always,
        },
    ),
    "indices-forgotten": lambda s: s.value == 3 * s.matrix + 2 * s.column,
    "index-size/as-x": lambda s: s.value == 3 * s.matrix + 3 * s.column,
    "index-size/int32": lambda s: s.value == 3 * s.matrix + 2 * s.column + 4 * s.m,
    "columns-as-matrices": lambda s: s.value in (5 * s.matrix, 5 * s.matrix + s.indices),
    "fused-for-separate/writes": lambda s: s.value == s.matrix,
    "bytes-written": always,
}

TRAFFIC = answer_exercise(
    "softmax-traffic",
    LAB,
    "The traffic of five operations",
    "softmax_traffic",
    _traffic_cases,
    mistakes=_TRAFFIC_MISTAKES,
    facts=_about_traffic,
    minutes=5,
)


# ------------------------------------------------------------------------------------------ rows, centered
def _formula(of: Callable[[torch.Tensor], torch.Tensor]) -> Condition:
    """Whether a wrong result has the values of this formula."""
    return lambda s: s.like(of(s.x.double()), 1e-4, 1e-5)


def _padded_mean(x: torch.Tensor) -> torch.Tensor:
    """The rows minus their sums over the width of the block."""
    width = 1 << max(x.shape[1] - 1, 0).bit_length()
    return x - x.sum(dim=1, keepdim=True) / width


def _not_finite(s: Evidence) -> bool:
    return bool((~s.got.isfinite() & s.expected.isfinite()).any())


CENTER = kernel_exercise(
    "center-rows",
    LAB,
    "Subtract each row's mean",
    "center_rows",
    lambda x: x - x.mean(dim=1, keepdim=True),
    cases=CasePlan(ndim=2, strides=False),
    must_launch="triton",
    tolerance=(1e-5, 1e-4),
    mistakes={
        "divided-by-the-block": _formula(_padded_mean),
        "mean-only": _formula(lambda x: x.mean(dim=1, keepdim=True).expand_as(x)),
        "sum-subtracted": _formula(lambda x: x - x.sum(dim=1, keepdim=True)),
        "maximum-subtracted": _formula(lambda x: x - x.amax(dim=1, keepdim=True)),
        "padding-in-the-mean": _not_finite,
    },
    minutes=5,
)


# ------------------------------------------------------------------------------------------ share of a copy
def _share_cases(rng: random.Random) -> Iterator[Case]:
    pairs = [(1, 1), (2, 1), (5, 3), (3, 1), *((rng.randrange(1, 9), rng.randrange(1, 5)) for _ in range(8))]
    for loads, stores in pairs:
        yield Case(f"{loads} loads and {stores} stores", (loads, stores), expected=200 / (loads + stores))


SHARE = answer_exercise(
    "share-of-a-copy",
    LAB,
    "The speed that passes allow",
    "share_of_a_copy",
    _share_cases,
    tolerance=1e-6,
    facts=lambda loads, stores: {},
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "a-fraction": lambda s: s.near(s.want / 100),
        "upside-down": lambda s: s.near(100 * 100 / s.want),
        "stores-forgotten": lambda s: s.near(100 / s.loads, 200 / s.loads),
        "one-pass-copy": lambda s: s.near(s.want / 2),
        "share": always,
    },
    minutes=5,
)


# ----------------------------------------------------------------------------------------------------- GELU
_ROOT = math.sqrt(2 / math.pi)


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + (_ROOT * (x + 0.044715 * x**3)).tanh())


GELU = kernel_exercise(
    "fuse-a-gelu",
    LAB,
    "GELU in one kernel",
    "my_gelu",
    _gelu,
    cases=CasePlan(strides=False),
    must_launch="triton",
    tolerance=(1e-5, 1e-6),
    mistakes={
        "half-forgotten": _formula(lambda x: 2 * _gelu(x)),
        "square-for-cube": _formula(lambda x: 0.5 * x * (1 + (_ROOT * (x + 0.044715 * x**2)).tanh())),
        "x-forgotten": _formula(lambda x: 0.5 * (1 + (_ROOT * (x + 0.044715 * x**3)).tanh())),
        "one-forgotten": _formula(lambda x: 0.5 * x * (_ROOT * (x + 0.044715 * x**3)).tanh()),
        "two-forgotten": _formula(
            lambda x: 0.5 * x * (1 + 2 * (_ROOT * (x + 0.044715 * x**3)).sigmoid() - 1)
        ),
        "sign": _formula(lambda x: x - _gelu(x)),
        "exact-form": lambda s: s.like(0.5 * s.x.double() * (1 + (s.x.double() / 2**0.5).erf()), 1e-5, 1e-6),
    },
    minutes=5,
)

EXERCISES = (TRAFFIC, CENTER, SHARE, GELU)

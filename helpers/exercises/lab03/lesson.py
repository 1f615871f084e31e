"""The exercises inside lesson 03, Triton."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from helpers.exercises.factories import answer_exercise, kernel_exercise
from helpers.exercises.mistakes import always, at, not_numbers
from helpers.exercises.model import Case
from helpers.exercises.plans import CasePlan

if TYPE_CHECKING:
    import torch

    from helpers.exercises.evidence import Evidence

LAB = "03_triton"
_SHAPES = ((4, 1000), (3, 5), (1, 1), (5, 128), (2, 1025), (37, 781))


# ------------------------------------------------------------ a row kernel
def _is_square(s: Evidence) -> bool:
    x = s.x.double()
    return s.n_wrong > 0 and s.like(x * x, 1e-5, 1e-6)


CUBE = kernel_exercise(
    "cube-rows",
    LAB,
    "Write a Triton kernel",
    "cube_rows",
    lambda x: x * x * x,
    cases=CasePlan(ndim=2, strides=False, empty=False, shapes=_SHAPES),
    must_launch="triton",
    mistakes={"squared": _is_square},
    minutes=5,
)


# ------------------------------------------------------------ a claimed bandwidth
def _claims(rng: random.Random) -> Iterator[Case]:
    def case(n_rows: int, n_cols: int, block_size: int, time_us: float) -> Case:
        gb_per_s = 8 * n_rows * n_cols / time_us / 1e3
        real = gb_per_s * min(n_cols, block_size) / n_cols
        label = f"claimed_and_real({n_rows}, {n_cols}, {block_size}, {time_us})"
        return Case(label, (n_rows, n_cols, block_size, time_us), expected=(gb_per_s, real))

    yield case(4096, 12672, 1024, 10.75)
    yield case(4096, 781, 1024, 9.0)
    yield case(1, 1024, 1024, 2.0)
    for _ in range(12):
        n_cols = rng.randrange(1, 20_000)
        yield case(rng.randrange(1, 9000), n_cols, 2 ** rng.randrange(6, 15), rng.randrange(20, 900) / 8)


CLAIM = answer_exercise(
    "claimed-and-real",
    LAB,
    "What the benchmark claims",
    "claimed_and_real",
    _claims,
    tolerance=1e-6,
    facts=lambda n_rows, n_cols, block_size, time_us: {
        "per_us": n_rows * n_cols / time_us,
        "block_per_us": n_rows * block_size / time_us,
    },
    mistakes={
        "not-two-numbers": not_numbers(2),
        "half": lambda s: s.near(s.right / 2),
        "unit": lambda s: s.near(*(s.right * 10.0**k for k in range(-12, 13, 3) if k)),
        **at(0, {"claimed": always}),
        "whole-rows": lambda s: s.near(8 * s.per_us / 1e3),
        "whole-block": lambda s: s.near(8 * s.block_per_us / 1e3),
        "real": always,
    },
    minutes=5,
)


# ------------------------------------------------------------ torch.compile's draft
def _constant_size(s: Evidence) -> bool:
    rest = s.unwritten.reshape(-1)
    return rest.numel() > _DRAFT and bool(rest[_DRAFT:].all()) and not bool(rest[:_DRAFT].any())


_DRAFT = 1823 * 781  # the number of elements that the generated code contains

DRAFT = kernel_exercise(
    "fix-the-draft",
    LAB,
    "Make torch.compile's kernel general",
    "square_by_draft",
    lambda x: x * x,
    cases=CasePlan(
        ndim=2, strides=False, empty=False, shapes=((1824, 781), (3, 5), (1, 1), (64, 64), (2, 4097))
    ),
    must_launch="triton",
    mistakes={"constant-size": _constant_size},
    minutes=5,
)


# ------------------------------------------------------------ a row's sum
def _includes_masked(s: Evidence) -> bool:
    """Whether the sums are NaN where a block has masked-off elements."""
    n = s.x.shape[1]
    return n & (n - 1) != 0 and bool(s.got.isnan().all()) and not bool(s.expected.isnan().any())


def _is_mean(s: Evidence) -> bool:
    return s.n_wrong > 0 and s.like(s.x.double().mean(dim=1), 1e-4, 1e-4)


def _row_sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(dim=1)


SUM = kernel_exercise(
    "sum-rows",
    LAB,
    "Sum each row",
    "sum_rows",
    _row_sums,
    cases=CasePlan(ndim=2, strides=False, empty=False, shapes=_SHAPES),
    must_launch="triton",
    tolerance={"float32": (1e-4, 1e-2)},
    mistakes={"masked-off": _includes_masked, "mean": _is_mean},
    raises={"python-sum": lambda s: "not iterable" in s.got.error},
    minutes=5,
)
SUM = replace(SUM, poison_masked=True)

EXERCISES = (CUBE, CLAIM, DRAFT, SUM)

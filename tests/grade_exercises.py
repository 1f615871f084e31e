"""Two cheap exercises for test_grade.py: a number and a tensor, judged by the workbook's own factories."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch

from helpers.exercises.factories import answer_exercise
from helpers.exercises.model import Case


def _blocks(rng: random.Random) -> Iterator[Case]:
    for n in (0, 1, 256, *(rng.randrange(1, 10**6) for _ in range(4))):
        yield Case(f"n = {n}", (n,), expected=-(-n // 256))


def _twice(rng: random.Random) -> Iterator[Case]:
    generator = torch.Generator().manual_seed(rng.randrange(1 << 31))
    for n in (1, 7, 300):
        values = torch.rand(n, generator=generator).double()
        yield Case(f"{n} numbers", (values,), expected=(values * 2).tolist(), call="as list")


def _as_list(obj, values: torch.Tensor) -> list[float]:
    return obj(values).tolist()


EXERCISES = (
    answer_exercise("count-blocks", "90_mini", "Count the blocks", "n_blocks", _blocks),
    answer_exercise("twice", "90_mini", "Twice <each>", "twice", _twice, adapters={"as list": _as_list}),
)

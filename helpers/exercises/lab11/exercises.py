"""The exercises of lab 11, matrix multiplication: count loads, write products, and choose tiles."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from helpers.exercises.factories import answer_exercise, kernel_exercise
from helpers.exercises.lab11 import adapters, products, tiles
from helpers.exercises.mistakes import Table, TableJudge, always
from helpers.exercises.model import Case, Exercise
from helpers.exercises.verdicts import is_number

LAB = products.LAB


# -------------------------------------------------------------------------------------- a tiling's loads
def _count_cases(rng: random.Random) -> Iterator[Case]:
    sizes = [(96, 160, 32, 16, 32, 4), (64, 64, 64, 16, 16, 4), (64, 128, 32, 16, 16, 2)]
    sizes += [(100, 70, 50, 32, 64, 2), (1, 1, 1, 128, 256, 4), (1, 4096, 4096, 16, 64, 2)]
    for _ in range(14):
        block_m, block_n = (rng.choice((8, 16, 32, 64, 128, 256)) for _ in range(2))
        m, n, k = (rng.randrange(1, 5000) for _ in range(3))
        sizes.append((m, n, k, block_m, block_n, rng.choice((1, 2, 4))))
    for m, n, k, block_m, block_n, itemsize in sizes:
        label = f"({m:,}, {k:,}) times ({k:,}, {n:,}), tiles of {block_m} × {block_n}, {itemsize} bytes each"
        expected = tiles.loaded(m, n, k, block_m, block_n, itemsize)
        yield Case(label, (m, n, k, block_m, block_n, itemsize), expected=expected)


def _about_count(m: int, n: int, k: int, block_m: int, block_n: int, itemsize: int) -> dict[str, float]:
    down, across, unit = -(-m // block_m), -(-n // block_n), k * itemsize
    return {
        "full_tiles": down * across * (block_m + block_n) * unit,
        "exchanged": (m * down + n * across) * unit,
        "other_sides": (m * -(-n // block_m) + n * -(-m // block_n)) * unit,
        "a_fraction": (m * n / block_n + n * m / block_m) * unit,
        "whole_only": (m * (n // block_n) + n * (m // block_m)) * unit,
        "one_matrix": [m * across * unit, n * down * unit],
        "once": (m + n) * unit,
        "no_reuse": 2 * m * n * unit,
        "stores": m * n * itemsize,
    }


COUNT = answer_exercise(
    "count-a-tiling",
    LAB,
    "Count the loads of a tiling",
    "bytes_loaded",
    _count_cases,
    facts=_about_count,
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "numbers": lambda s: s.itemsize > 1 and s.got * s.itemsize == s.want,
        "exchanged": lambda s: s.got == s.exchanged,
        "other-sides": lambda s: s.got == s.other_sides,
        "masked-loads": lambda s: s.got == s.full_tiles,
        "whole-tiles-only": lambda s: s.got == s.whole_only,
        "a-fraction": lambda s: s.near(s.a_fraction),
        "one-matrix": lambda s: s.got in s.one_matrix,
        "each-once": lambda s: s.got == s.once,
        "no-reuse": lambda s: s.got == s.no_reuse,
        "stores": lambda s: s.got == s.want + s.stores,
        "count": always,
    },
    minutes=10,
)


# ----------------------------------------------------------------------------------------- Triton products
ANY = replace(
    kernel_exercise(
        "any-product",
        LAB,
        "A product of any shape and strides",
        "matmul_any",
        lambda a, b: a @ b,
        must_launch="triton",
        prepare=adapters.with_gpu_precision,
        tolerance=products.TOLERANCE,
        mistakes=products.MISTAKES,
        minutes=30,
    ),
    cases=products.cases,
    speed=None,
    poison_masked=True,
)


# ---------------------------------------------------------------------------------------- tiles for a GPU
CHOOSE = Exercise(
    id="tiles-for-a-gpu",
    lab=LAB,
    title="Choose tiles for a GPU",
    name="choose_tile",
    minutes=20,
    cases=lambda rng, device: tiles.cases(rng),
    judge=TableJudge(Table("tiles-for-a-gpu", LAB, tiles.MISTAKES), "choose_tile", tiles.facts),
)

EXERCISES = (COUNT, ANY, CHOOSE)

"""The exercises of lab 11, matrix multiplication: count loads, write products, and choose tiles."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from helpers.exercises import guarded_run
from helpers.exercises.factories import answer_exercise, kernel_exercise
from helpers.exercises.lab11 import adapters, products, tiled, tiles
from helpers.exercises.lab11.claim import CLAIM
from helpers.exercises.mistakes import Table, TableJudge, always, sentences
from helpers.exercises.model import AGAIN, Case, Exercise, Outcome, Verdict
from helpers.exercises.verdicts import is_number

if TYPE_CHECKING:
    import torch

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


# ---------------------------------------------------------------------------------------- the CUDA kernel
TILED = Exercise(
    id="tiled-product",
    lab=LAB,
    title="The tiled CUDA kernel",
    name="TILED_CUDA",
    minutes=25,
    cases=tiled.cases,
    judge=TableJudge(
        Table("tiled-product", LAB, tiled.MISTAKES, raises=guarded_run.DOES_NOT_BUILD),
        "TILED_CUDA",
        tiled.facts,
        tiled.parts,
    ),
    adapters={"run": adapters.run_tiled, "count": adapters.count_loads},
    text=adapters.as_text,
    prepare=adapters.build_tiled,
)


# ----------------------------------------------------------------------------------------- Triton products
_MISTAKES = Table("products", LAB, {**products.EPILOGUE, **products.MISTAKES})

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
        mistakes=_MISTAKES,
        minutes=30,
    ),
    cases=products.cases,
    speed=None,
    poison_masked=True,
)


def _gelu(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.nn.functional.gelu(a @ b + bias, approximate="tanh")


@dataclass(frozen=True)
class _OneKernel:
    """Judges a product with an epilogue, which must be one kernel that stores the result once."""

    judge: Callable[[Case, Outcome], Verdict | None]

    def __call__(self, case: Case, outcome: Outcome) -> Verdict | None:
        verdict = self.judge(case, outcome)
        if verdict is not None or not outcome.value.numel():
            return verdict
        launched = outcome.facts.get("launched") or []
        written = outcome.facts.get("written_bytes", 0)
        calls = 2 if case.call == AGAIN else 1
        result = calls * outcome.value.numel() * outcome.value.element_size()
        if len(launched) > 1:
            mistake, what = "several-kernels", f"it launched {len(launched)} kernels: {', '.join(launched)}"
        elif written > result:
            mistake, what = "stored-twice", f"it stored {written / result:.2f} times the bytes of the result"
        else:
            return None
        sentence = f"bias-gelu, {case.label}: the values are right, but {what}."
        return Verdict(
            "bias-gelu", False, sentence, case.label, mistake, sentences(LAB, "one-kernel")[mistake]
        )


_GELU = kernel_exercise(
    "bias-gelu",
    LAB,
    "A fused bias and GELU",
    "linear_gelu",
    _gelu,
    must_launch="triton",
    prepare=adapters.with_gpu_precision,
    tolerance=products.TOLERANCE,
    mistakes=_MISTAKES,
    minutes=15,
)
GELU = replace(
    _GELU,
    cases=lambda rng, device: products.cases(rng, device, products.bias_for(rng)),
    judge=_OneKernel(_GELU.judge),
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

EXERCISES = (COUNT, TILED, ANY, GELU, CHOOSE, CLAIM)

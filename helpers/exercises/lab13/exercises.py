"""The exercises of lab 13: bound a sum, check kernels, repair a benchmark, and test claims."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from helpers.exercises.factories import answer_exercise
from helpers.exercises.hidden_kernels import MISJUDGED
from helpers.exercises.lab13 import adapters, benchmarks, roofline, sums
from helpers.exercises.lab13.claim import REVIEW
from helpers.exercises.mistakes import Table, TableJudge
from helpers.exercises.model import Case, Exercise, Outcome

LAB = "13_verify"

BOUND = Exercise(
    id="bound-a-sum",
    lab=LAB,
    title="Bound the error of a sum",
    name="sum_bound",
    minutes=20,
    cases=lambda rng, device: sums.cases(rng),
    judge=TableJudge(Table("bound-a-sum", LAB, sums.MISTAKES), "sum_bound", sums.about, sums.parts),
)


# ---------------------------------------------------------------------------------------- accept or reject
def _hidden_kernels(rng: random.Random) -> Iterator[Case]:
    from helpers.exercises.lab13.kernels import KERNELS

    for name, kernel in KERNELS.items():
        yield Case(f"a kernel that {kernel.does}", (name,), expected=kernel.right, call="ask")


def _about_kernel(name: str) -> dict[str, Any]:
    from helpers.exercises.lab13.kernels import KERNELS

    return {"right_kernel": KERNELS[name].right, "advice": KERNELS[name].hint}


def _ask(ask: Callable[..., Outcome], name: str) -> Outcome | bool | str | None:
    from helpers.exercises.lab13 import kernels

    return kernels.ask(ask, name)


ACCEPT = answer_exercise(
    "accept-or-reject",
    LAB,
    "Catch frauds, and accept honest kernels",
    "accepts",
    _hidden_kernels,
    facts=_about_kernel,
    mistakes=MISJUDGED,
    adapters={"ask": adapters.asked},
    served={"ask": _ask},
    minutes=30,
)

REPAIR = Exercise(
    id="repair-a-benchmark",
    lab=LAB,
    title="Repair a benchmark",
    name="benchmark",
    minutes=25,
    cases=lambda rng, device: benchmarks.cases(rng),
    judge=TableJudge(
        Table("repair-a-benchmark", LAB, benchmarks.MISTAKES, raises=benchmarks.RAISES),
        "benchmark",
        benchmarks.about,
        benchmarks.parts,
    ),
    served={"simulate": benchmarks.simulate},
)

IMPOSSIBLE = Exercise(
    id="impossible-claims",
    lab=LAB,
    title="Find claims that no kernel can keep",
    name="judge_claims",
    minutes=20,
    cases=lambda rng, device: roofline.cases(rng),
    judge=TableJudge(
        Table("impossible-claims", LAB, roofline.MISTAKES),
        "judge_claims",
        lambda work, gpu, claims: {},
        roofline.parts,
    ),
)

EXERCISES = (BOUND, ACCEPT, REPAIR, IMPOSSIBLE, REVIEW)

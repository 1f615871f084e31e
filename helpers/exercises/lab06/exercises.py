"""The exercises of lab 06, fusion: when fusing pays, and softmax in one block, in parts and for wide rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from helpers.exercises.factories import answer_exercise, kernel_exercise
from helpers.exercises.lab06 import adapters, softmax
from helpers.exercises.lab06.claim import CLAIM
from helpers.exercises.mistakes import always
from helpers.exercises.model import Case
from helpers.exercises.plans import CasePlan
from helpers.exercises.verdicts import is_number

LAB = "06_fusion"


# -------------------------------------------------------------------------------------- when fusing pays
Operations = list[tuple[float, float]]
PassedOn = list[tuple[float, bool]]


def _seconds(n_bytes: float, flops: float, gb_per_s: float, tflop_per_s: float) -> float:
    return max(n_bytes / (gb_per_s * 1e9), flops / (tflop_per_s * 1e12))


def _speedup(
    operations: Operations, passed_on: PassedOn, gb: float, tflop: float, saved: Callable | None = None
) -> float:
    saving = sum((saved or (lambda n, stored: n if stored else 2 * n))(n, stored) for n, stored in passed_on)
    fused = _seconds(sum(b for b, _ in operations) - saving, sum(f for _, f in operations), gb, tflop)
    return sum(_seconds(b, f, gb, tflop) for b, f in operations) / fused


def _fusing_cases(rng: random.Random) -> Iterator[Case]:
    def case(label: str, operations: Operations, passed_on: PassedOn, gb: float, tflop: float) -> Case:
        args = (operations, passed_on, gb, tflop)
        return Case(label, args, expected=_speedup(*args))

    def gpu() -> tuple[float, float]:
        return rng.choice(((300.0, 8.0), (900.0, 15.0), (2000.0, 19.5), (3000.0, 60.0)))

    for _ in range(4):
        n, (gb, tflop) = 4 * rng.randrange(10**5, 10**8), gpu()
        yield case("a + b and a GELU", [(3 * n, n / 4), (2 * n, 5 * n)], [(n, False)], gb, tflop)
        yield case(
            "a + b and a GELU, a + b is kept", [(3 * n, n / 4), (2 * n, 5 * n)], [(n, True)], gb, tflop
        )
        side = 2 ** rng.randrange(9, 14)
        matrix = 4 * side**2
        yield case(
            f"a {side} × {side} matrix product and a ReLU",
            [(3 * matrix, 2 * side**3), (2 * matrix, side**2)],
            [(matrix, False)],
            gb,
            tflop,
        )
        length = rng.randrange(3, 7)
        stored = [rng.random() < 0.4 for _ in range(length - 1)]
        yield case(
            f"{length} operations in a row, {sum(stored)} of the tensors in between are kept",
            [(2 * n, rng.choice((n / 4, 50 * n, 400 * n))) for _ in range(length)],
            [(n, one) for one in stored],
            gb,
            tflop,
        )
        yield case("a single operation", [(2 * n, n)], [], gb, tflop)


def _about_fusing(operations: Operations, passed_on: PassedOn, gb: float, tflop: float) -> dict[str, float]:
    n_bytes, flops = sum(b for b, _ in operations), sum(f for _, f in operations)
    left = n_bytes - sum(n if stored else 2 * n for n, stored in passed_on)
    added = sum(b / (gb * 1e9) + f / (tflop * 1e12) for b, f in operations)

    def saving(saved: Callable) -> float:
        return _speedup(operations, passed_on, gb, tflop, saved)

    return {
        "n_operations": len(operations),
        "ignoring_stored": saving(lambda n, stored: 2 * n),
        "one_way": saving(lambda n, stored: n),
        "stored_inverted": saving(lambda n, stored: 2 * n if stored else n),
        "of_bytes": n_bytes / left,
        "of_one_floor": _seconds(n_bytes, flops, gb, tflop) / _seconds(left, flops, gb, tflop),
        "of_sums": added / (left / (gb * 1e9) + flops / (tflop * 1e12)),
    }


_FUSING_MISTAKES = {
    "not-a-number": lambda s: not is_number(s.got),
    "operations-counted": lambda s: s.n_operations > 1 and s.got in (s.n_operations, 1 / s.n_operations),
    "upside-down": lambda s: s.near(1 / s.want),
    "kept-ignored": lambda s: s.near(s.ignoring_stored),
    "one-way": lambda s: s.near(s.one_way),
    "kept-upside-down": lambda s: s.near(s.stored_inverted),
    "bytes-only": lambda s: s.near(s.of_bytes),
    "one-floor": lambda s: s.near(s.of_one_floor),
    "added-for-larger": lambda s: s.near(s.of_sums),
    "nothing-saved": lambda s: s.near(1),
    "speedup": always,
}

FUSING = answer_exercise(
    "fusing-pays",
    LAB,
    "When does fusing pay?",
    "fusing_speedup",
    _fusing_cases,
    mistakes=_FUSING_MISTAKES,
    facts=_about_fusing,
    tolerance=1e-6,
    minutes=15,
)


# ------------------------------------------------------------------------------------------------- softmax
ONE_BLOCK = kernel_exercise(
    "softmax-one-block",
    LAB,
    "Softmax in one kernel",
    "softmax",
    lambda x: x.softmax(dim=1),
    cases=CasePlan(dtypes=("float32", "float16"), ndim=2, extra=softmax.softmax_cases((781, 8192, 5000))),
    must_launch="triton",
    tolerance=softmax.TOLERANCE,
    mistakes=softmax.MISTAKES,
    minutes=20,
)

MERGE = answer_exercise(
    "merge-softmax-parts",
    LAB,
    "Merge two parts of a row",
    "merge",
    softmax.merge_cases,
    mistakes=softmax.MERGE_MISTAKES,
    facts=lambda a, b: {"parts": (a, b)},
    tolerance=1e-9,
    adapters={"fold": adapters.fold},
    minutes=15,
)

WIDE_ROWS = kernel_exercise(
    "softmax-wide-rows",
    LAB,
    "Softmax of rows of any width",
    "softmax_wide",
    lambda x: x.softmax(dim=1),
    cases=CasePlan(dtypes=("float32", "float16"), ndim=2, extra=softmax.wide_cases),
    must_launch="triton",
    tolerance=softmax.TOLERANCE,
    speed_shape=(1024, 65536),
    mistakes=softmax.MISTAKES,
    minutes=30,
)

EXERCISES = (FUSING, ONE_BLOCK, MERGE, WIDE_ROWS, CLAIM)

"""The exercises of lab 06, fusion: a softmax's traffic, when fusing pays, softmax in one block, in parts, in wide rows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from helpers.exercises.factories import answer_exercise, kernel_exercise
from helpers.exercises.lab06 import beside, softmax
from helpers.exercises.lab06.claim import CLAIM
from helpers.exercises.model import Case
from helpers.exercises.plans import CasePlan

if TYPE_CHECKING:
    import torch

LAB = "06_fusion"
_INDEX = 8  # bytes of an index that max(dim) writes


# ------------------------------------------------------------------------------------------------ a softmax's traffic
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


def _explain_traffic(case: Case, got: Any) -> tuple[str, str] | None:
    m, n, size = case.args
    if not isinstance(got, (tuple, list)) or len(got) != 2 or not all(type(v) in (int, float) for v in got):
        return "not-two-numbers", "Return two numbers: (bytes read, bytes written)."
    read, written = case.expected
    matrix, column = m * n * size, m * size
    if size > 1 and (got[0] * size == read or got[1] * size == written - _INDEX * m):
        return "elements-for-bytes", "These are elements: how many bytes does one have?"
    if tuple(got) == (written, read):
        return "swapped", "Bytes read come first, bytes written second."
    if got[0] != read:
        reads = {
            5 * matrix + column: (
                "a-column-forgotten",
                "One column too few is read. Both operation 2 and operation 5 read a column beside their matrix.",
            ),
            5 * matrix: ("columns-not-read", "Operations 2 and 5 have two inputs: a matrix and a column."),
            matrix: (
                "fused-for-separate",
                "That is what a fused kernel reads. Here are five, one after another.",
            ),
            3 * matrix + 2 * column: ("results-only", "max and sum read a matrix too."),
        }
        return reads.get(
            got[0], ("bytes-read", "Go through the five lines: which tensors stand on the right of each?")
        )
    writes = {
        3 * matrix + 2 * column: (
            "indices-forgotten",
            "max(dim) writes more than the values: look at what torch.randn(4, 8).max(dim=1) returns.",
        ),
        3 * matrix + 3 * column: (
            "index-size",
            "The indices are int64, whatever the dtype of x.",
        ),
        3 * matrix + 2 * column + 4 * m: ("index-size", "The indices are int64: 8 bytes each."),
        5 * matrix: ("columns-as-matrices", "max and sum write one number a row."),
        5 * matrix + _INDEX * m: ("columns-as-matrices", "max and sum write one number a row."),
        matrix: (
            "fused-for-separate",
            "That is what a fused kernel writes. Here are five, one after another.",
        ),
    }
    return writes.get(
        got[1], ("bytes-written", "Go through the five lines: how large is the left side of each?")
    )


TRAFFIC = answer_exercise(
    "softmax-traffic",
    LAB,
    "The traffic of five operations",
    "softmax_traffic",
    _traffic_cases,
    explain=_explain_traffic,
    minutes=12,
)


# --------------------------------------------------------------------------------------------------- when fusing pays
Operations = list[tuple[float, float]]
PassedOn = list[tuple[float, bool]]


def _seconds(n_bytes: float, flops: float, gb_per_s: float, tflop_per_s: float) -> float:
    return max(n_bytes / (gb_per_s * 1e9), flops / (tflop_per_s * 1e12))


def _speedup(
    operations: Operations, passed_on: PassedOn, gb: float, tflop: float, saved: Callable | None = None
) -> float:
    saving = sum((saved or (lambda n, kept: n if kept else 2 * n))(n, kept) for n, kept in passed_on)
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
        kept = [rng.random() < 0.4 for _ in range(length - 1)]
        yield case(
            f"{length} operations in a row, {sum(kept)} of the tensors between are kept",
            [(2 * n, rng.choice((n / 4, 50 * n, 400 * n))) for _ in range(length)],
            [(n, one) for one in kept],
            gb,
            tflop,
        )
        yield case("a single operation", [(2 * n, n)], [], gb, tflop)


def _explain_fusing(case: Case, got: Any) -> tuple[str, str] | None:
    if type(got) not in (int, float):
        return "not-a-number", "Return one number: how many times faster."
    operations, passed_on, gb, tflop = case.args
    want = case.expected
    if got in (len(operations), 1 / len(operations)) and len(operations) > 1:
        return (
            "operations-counted",
            f"{len(operations)} kernels become one, but what counts is time: work out the floor of each from its bytes "
            "and its arithmetic, and the fused one's from what is left.",
        )

    def near(other: float) -> bool:
        return math.isclose(got, other, rel_tol=1e-6)

    all_bytes, flops = sum(b for b, _ in operations), sum(f for _, f in operations)
    saved = sum(n if kept else 2 * n for n, kept in passed_on)
    if near(1 / want):
        return (
            "upside-down",
            "Time of the separate kernels over time of the fused one, not the other way round.",
        )
    if near(_speedup(*case.args, saved=lambda n, kept: 2 * n)):
        return "kept-ignored", "A kept tensor is written all the same: fusing saves its read only."
    if near(_speedup(*case.args, saved=lambda n, kept: n)):
        return "one-way", "A tensor that nobody keeps saves two trips: it is neither written nor read."
    if near(_speedup(*case.args, saved=lambda n, kept: 2 * n if kept else n)):
        return "kept-upside-down", "Kept: only the read is saved. Not kept: the write and the read."
    if near(all_bytes / (all_bytes - saved)):
        return "bytes-only", "Where the arithmetic takes longer than the bytes, it is the floor."
    fused = _seconds(all_bytes - saved, flops, gb, tflop)
    if near(_seconds(all_bytes, flops, gb, tflop) / fused):
        return (
            "one-floor",
            "Separate kernels run one after another: each has a floor of its own, and they add up.",
        )
    added = [b / (gb * 1e9) + f / (tflop * 1e12) for b, f in operations]
    if near(sum(added) / ((all_bytes - saved) / (gb * 1e9) + flops / (tflop * 1e12))):
        return (
            "added-for-larger",
            "Bytes and arithmetic go on at the same time: the longer one counts, not the sum.",
        )
    if near(
        sum(_seconds(b, f, gb, tflop) for b, f in operations)
        / sum(_seconds(b, f, gb, tflop) for b, f in operations)
    ):
        return "nothing-saved", "The bytes of what is passed on are saved."
    return (
        "speedup",
        "A kernel's floor is the larger of its two times. Which bytes and which arithmetic has the fused kernel?",
    )


FUSING = answer_exercise(
    "fusing-pays",
    LAB,
    "When does fusing pay?",
    "fusing_speedup",
    _fusing_cases,
    explain=_explain_fusing,
    tolerance=1e-6,
    minutes=15,
)


# ------------------------------------------------------------------------------------------------------- softmax
def _softmax(x: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.softmax(x, dim=1)


ONE_BLOCK = kernel_exercise(
    "softmax-one-block",
    LAB,
    "Softmax in one kernel",
    "softmax",
    _softmax,
    cases=CasePlan(dtypes=("float32", "float16"), ndim=2, extra=softmax.softmax_cases((781, 8192, 5000))),
    must_launch="triton",
    tolerance=softmax.TOLERANCE,
    mistakes=(softmax.explain_softmax,),
    minutes=20,
)


# ------------------------------------------------------------------------------------------------- merge two parts
MERGE = answer_exercise(
    "merge-softmax-parts",
    LAB,
    "Merge two parts of a row",
    "merge",
    softmax.merge_cases,
    explain=softmax.explain_merge,
    tolerance=1e-9,
    adapters={"fold": beside.fold},
    minutes=15,
)

WIDE_ROWS = kernel_exercise(
    "softmax-wide-rows",
    LAB,
    "Softmax of rows of any width",
    "softmax_wide",
    _softmax,
    cases=CasePlan(dtypes=("float32", "float16"), ndim=2, extra=softmax.wide_cases),
    must_launch="triton",
    tolerance=softmax.TOLERANCE,
    speed_shape=(1024, 65536),
    mistakes=(softmax.explain_softmax,),
    minutes=30,
)

EXERCISES = (TRAFFIC, FUSING, ONE_BLOCK, MERGE, WIDE_ROWS, CLAIM)

"""The exercises of lab 03, Triton: what a program owns, a kernel to mend, any shape, a test for kernels, a normalisation."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from helpers.exercises.factories import answer_exercise, kernel_exercise
from helpers.exercises.lab03.sliders import SLIDERS
from helpers.exercises.model import Case, Hidden, Outcome, Verdict
from helpers.exercises.plans import CasePlan

if TYPE_CHECKING:
    import torch

LAB = "03_triton"


# --------------------------------------------------------------------------------------------- programs and elements
def _shares(rng: random.Random) -> Iterator[Case]:
    def case(n: int, block: int, program: int) -> Case:
        first = program * block
        expected = (-(-n // block), first, max(0, min(block, n - first)))
        return Case(f"share({n}, {block}, {program})", (n, block, program), expected=expected)

    yield case(10, 4, 0)
    yield case(10, 4, 2)
    yield case(1024, 1024, 0)
    yield case(1025, 1024, 1)
    yield case(10, 4, 5)
    yield case(0, 128, 0)
    yield case(1, 1024, 0)
    for _ in range(24):
        block = 2 ** rng.randrange(0, 15)
        programs = rng.choice((1, 2, rng.randrange(3, 100), rng.randrange(10**5, 2**30)))
        n = max(programs * block + rng.choice((-1, 0, 1, rng.randrange(-block, block + 1))), 1)
        needed = -(-n // block)
        yield case(
            n, block, rng.choice((0, needed - 1, needed, rng.randrange(needed), needed + rng.randrange(9)))
        )


def _explain_share(case: Case, got: Any) -> tuple[str, str] | None:
    n, block, _ = case.args
    want = case.expected
    if not isinstance(got, (tuple, list)) or len(got) != 3 or not all(type(v) in (int, float) for v in got):
        return "not-three-numbers", "Return three numbers: (programs, first, elements)."
    programs, first, elements = got
    if programs != want[0]:
        if programs == n // block:
            return "rounded-down", "The elements after the last whole block need a program too: round up."
        if programs == n // block + 1:
            return "one-too-many", "Where the blocks come out even, no further program is needed."
        return "programs", "Elements over elements a program, rounded up."
    if first != want[1]:
        return "first-element", "Each program before this one took a whole block."
    if elements < 0:
        return "less-than-none", "This program is past the end: its mask lets nothing through, which is 0."
    if elements == block:
        return (
            "no-mask",
            "The block reaches past the end of the array: count only what the mask lets through.",
        )
    if elements == n % block:
        return (
            "even-blocks",
            "n_elements % block_size is 0 where the blocks come out even, and right only in the last program.",
        )
    return "masked-elements", "n_elements - first are left for this program, and at most a block of them."


SHARE = answer_exercise(
    "programs-and-elements",
    LAB,
    "Which elements a program owns",
    "share",
    _shares,
    explain=_explain_share,
    minutes=8,
)


# --------------------------------------------------------------------------------------------------- mend a kernel
def _far_columns(
    rng: random.Random, device: str, more_args: Callable[[torch.Tensor, random.Random], tuple] = lambda *_: ()
) -> Iterator[Case]:
    """A view whose columns lie far apart: a 64-bit row number alone does not reach them."""
    from helpers.exercises import guard, inputs

    x = inputs.values(rng, (97, 3), "float16", device)
    recipe = guard.far_rows(x, (1 << 30) + rng.randrange(7, 60), turned=True)
    label = inputs.named(x, "view whose columns lie more than 2**30 elements apart")
    yield Case(label, (recipe, *more_args(x, rng)), expected=Hidden("far"))


def _flipped(x: torch.Tensor) -> torch.Tensor:
    return x.flip(1)


def _explain_flip(case: Case, got: torch.Tensor, expected: torch.Tensor) -> tuple[str, str] | None:
    import torch

    from helpers.exercises.judge import effective

    (x,), _ = effective(case)
    if torch.equal(got, x) and not torch.equal(got, expected.to(got)):
        return (
            "not-reversed",
            "The columns come out in their old order: the load has to begin at the row's end.",
        )
    return None


FLIP = kernel_exercise(
    "flip-rows",
    LAB,
    "Mend a kernel",
    "flip_rows",
    _flipped,
    cases=CasePlan(dtypes=("float32", "float16", "int32"), ndim=2, extra=_far_columns),
    must_launch="triton",
    mistakes=(_explain_flip,),
    minutes=15,
)


# ------------------------------------------------------------------------------------------------ square any tensor
def _squared(x: torch.Tensor) -> torch.Tensor:
    return x * x


SQUARE = kernel_exercise(
    "square-any-shape",
    LAB,
    "Square a tensor of any shape and strides",
    "square_any",
    _squared,
    cases=CasePlan(dtypes=("float32", "float16", "int32"), extra=_far_columns),
    must_launch="triton",
    minutes=30,
)


# --------------------------------------------------------------------------------------------- catch wrong kernels
def _hidden_kernels(rng: random.Random) -> Iterator[Case]:
    from helpers.exercises.lab03.kernels import KERNELS

    for name, kernel in KERNELS.items():
        yield Case(f"a kernel that {kernel.does}", (name,), expected=kernel.right, call="ask")


def _explain_answer(case: Case, got: Any) -> tuple[str, str] | None:
    from helpers.exercises.lab03.kernels import KERNELS

    (name,) = case.args
    kernel = KERNELS[name]
    if isinstance(got, bool):
        return f"{'refuses' if kernel.right else 'misses'}-{name}", kernel.hint
    if isinstance(got, str) and kernel.right and "Error: " in got:
        return (
            "raises-on-right",
            "For a right kernel your test has to run to its end. Run it on torch.square in a cell.",
        )
    return "no-answer", "Return True or False."


def _ask(ask: Callable[..., Outcome], name: str) -> Outcome | bool | str | None:
    from helpers.exercises.lab03 import kernels

    return kernels.ask(ask, name)


CATCH = answer_exercise(
    "catch-wrong-kernels",
    LAB,
    "Catch the kernel that is fast and wrong",
    "is_right",
    _hidden_kernels,
    explain=_explain_answer,
    served={"ask": _ask},
    minutes=25,
)


# ------------------------------------------------------------------------------------------------------- RMS norm
def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * (x.square().mean(dim=1, keepdim=True) + eps).rsqrt() * weight


def _weight_and_eps(x: torch.Tensor, rng: random.Random) -> tuple:
    from helpers.exercises import inputs

    return inputs.values(rng, (x.shape[1],), x.dtype, x.device.type), rng.choice((1e-6, 0.25))


def _explain_rms(case: Case, got: torch.Tensor, expected: torch.Tensor) -> tuple[str, str] | None:
    import torch

    from helpers.exercises.judge import effective

    (x, weight, eps), _ = effective(case)
    x, weight = x.double(), weight.double()
    n = x.shape[1]
    block = 1 << (n - 1).bit_length()

    def like(other: torch.Tensor) -> bool:
        loose = 4e-3 if got.dtype is torch.float16 else 1e-4
        return torch.allclose(got.double(), other.to(got).double(), rtol=loose, atol=1e-4, equal_nan=True)

    far = case.expected == Hidden("far")  # there wrong memory is read, whatever becomes of it
    if far or like(expected):
        return None
    if block != n and bool(got.isnan().all()) and not bool(expected.isnan().any()):
        return (
            "no-other",
            "NaN in all of it: is the masked-off part of the block in the sum? tl.load(…, other=0.0) says what it holds.",
        )
    squares = x.square().sum(dim=1, keepdim=True)
    mean = squares / n
    centred = x - x.mean(dim=1, keepdim=True)
    likely = [
        (
            "python-sqrt",
            (mean + eps).floor(),
            "Python's math.sqrt takes a block's number as an integer, without a word: use tl.sqrt or tl.rsqrt.",
        ),
        (
            "block-for-columns",
            squares / block + eps,
            "The mean is over n_cols elements, not over BLOCK_SIZE.",
        ),
        ("sum-for-mean", squares + eps, "Divide the sum of squares by n_cols: it is a mean."),
        ("no-epsilon", mean, "eps is missing: it is added to the mean, under the root."),
        (
            "epsilon-outside",
            (mean.sqrt() + eps).square(),
            "eps is added to the mean before the root, not after it.",
        ),
        ("no-root", (mean + eps).square(), "Divide by the root of the mean square."),
    ]
    for mistake, under_root, hint in likely:
        if like(x * under_root.rsqrt() * weight):
            return mistake, hint
    if got.dtype is torch.float16 and bool((got == 0).all()) and bool((x.abs().amax(dim=1) > 100).all()):
        return (
            "overflow",
            "The sum of squares does not fit into a float16: widen x to float32 before you square it.",
        )
    if like(x * (mean + eps).rsqrt()):
        return "no-weight", "Each column is multiplied by its weight."
    if like(centred * (centred.square().mean(dim=1, keepdim=True) + eps).rsqrt() * weight):
        return "centred", "RMS norm subtracts no mean."
    return None


RMS_NORM = kernel_exercise(
    "rms-norm-rows",
    LAB,
    "A normalisation in one kernel",
    "rms_norm",
    _rms_norm,
    cases=CasePlan(
        dtypes=("float32", "float16"),
        ndim=2,
        more_args=_weight_and_eps,
        extra=partial(_far_columns, more_args=_weight_and_eps),
    ),
    must_launch="triton",
    tolerance={"float32": (1e-5, 1e-6), "float16": (2e-3, 1e-4)},
    mistakes=(_explain_rms,),
    minutes=25,
)

_judge_values = RMS_NORM.judge


def _judge_norm(case: Case, outcome: Outcome) -> Verdict | None:
    """The kernel's judge, with hints where Python's functions met a block of values."""
    found = _judge_values(case, outcome)
    if found is None or not outcome.error or found.mistake == "to-do":
        return found
    if "not iterable" in outcome.error:
        return replace(found, hint="Python's sum does not take a block of values: tl.sum(…, axis=0) does.")
    if outcome.error_type == "ZeroDivisionError":
        hint = "Is it Python's math.sqrt? It takes a block's number as an integer, here 0: use tl.sqrt or tl.rsqrt."
        return replace(found, hint=hint)
    if "math.sqrt" in outcome.error:  # compiled for a GPU, the message holds the kernel's line
        return replace(found, hint="A kernel has roots of its own: tl.sqrt and tl.rsqrt.")
    return found


RMS_NORM = replace(RMS_NORM, judge=_judge_norm, poison_masked=True)

EXERCISES = (SHARE, FLIP, SQUARE, CATCH, RMS_NORM, SLIDERS)

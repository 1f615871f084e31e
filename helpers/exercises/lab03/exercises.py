"""The exercises of lab 03, Triton."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from helpers.exercises.factories import answer_exercise, kernel_exercise
from helpers.exercises.hidden_kernels import MISJUDGED
from helpers.exercises.lab03.sliders import SLIDERS
from helpers.exercises.mistakes import always, at, not_numbers, under
from helpers.exercises.model import Case, Hidden, Outcome
from helpers.exercises.plans import CasePlan

if TYPE_CHECKING:
    import torch

    from helpers.exercises.evidence import Evidence

LAB = "03_triton"


# ------------------------------------------------------------------------------------- programs and elements
def _shares(rng: random.Random) -> Iterator[Case]:
    def case(n: int, block: int, program: int) -> Case:
        first = program * block
        expected = (-(-n // block), first, max(0, min(block, n - first)))
        return Case(f"share({n}, {block}, {program})", (n, block, program), expected=expected)

    for share in (
        (10, 4, 0),
        (10, 4, 2),
        (1024, 1024, 0),
        (1025, 1024, 1),
        (10, 4, 5),
        (0, 128, 0),
        (1, 1024, 0),
    ):
        yield case(*share)
    for _ in range(24):
        block = 2 ** rng.randrange(0, 15)
        programs = rng.choice((1, 2, rng.randrange(3, 100), rng.randrange(10**5, 2**30)))
        n = max(programs * block + rng.choice((-1, 0, 1, rng.randrange(-block, block + 1))), 1)
        needed = -(-n // block)
        program = rng.choice((0, needed - 1, needed, rng.randrange(needed), needed + rng.randrange(9)))
        yield case(n, block, program)


def _about_share(n: int, block: int, program: int) -> dict[str, int]:
    return {"down": n // block}


SHARE = answer_exercise(
    "programs-and-elements",
    LAB,
    "Which elements a program processes",
    "share",
    _shares,
    minutes=8,
    facts=_about_share,
    mistakes={
        "not-three-numbers": not_numbers(3),
        **at(
            0,
            {
                "rounded-down": lambda s: s.value == s.down,
                "one-too-many": lambda s: s.value == s.down + 1,
                "programs": always,
            },
        ),
        **at(1, {"first-element": always}),
        "less-than-none": lambda s: s.value < 0,
        "no-mask": lambda s: s.value == s.block,
        "even-blocks": lambda s: s.value == s.n % s.block,
        "masked-elements": always,
    },
)


# --------------------------------------------------------------------------------------------- fix a kernel
def _far_columns(
    rng: random.Random, device: str, more_args: Callable[[torch.Tensor, random.Random], tuple] = lambda *_: ()
) -> Iterator[Case]:
    """A view whose columns are far apart, so that it isn't enough to make the row number 64 bits wide."""
    from helpers.exercises import guard, inputs

    x = inputs.values(rng, (97, 3), "float16", device)
    recipe = guard.far_rows(x, (1 << 30) + rng.randrange(7, 60), transposed=True)
    label = inputs.named(x, "view whose columns lie more than 2**30 elements apart")
    yield Case(label, (recipe, *more_args(x, rng)), expected=Hidden("far"))


def _is_input(s: Evidence) -> bool:
    import torch

    return s.n_wrong and torch.equal(s.got, s.x)


FLIP = kernel_exercise(
    "flip-rows",
    LAB,
    "Fix a kernel",
    "flip_rows",
    lambda x: x.flip(1),
    cases=CasePlan(dtypes=("float32", "float16", "int32"), ndim=2, extra=_far_columns),
    must_launch="triton",
    mistakes={"not-reversed": _is_input},
    minutes=15,
)
FLIP = replace(FLIP, rearranges=True)


# ----------------------------------------------------------------------------------------- square any tensor
SQUARE = kernel_exercise(
    "square-any-shape",
    LAB,
    "Square a tensor of any shape and strides",
    "square_any",
    lambda x: x * x,
    cases=CasePlan(dtypes=("float32", "float16", "int32"), extra=_far_columns),
    must_launch="triton",
    minutes=30,
)


# --------------------------------------------------------------------------------------- catch wrong kernels
def _hidden_kernels(rng: random.Random) -> Iterator[Case]:
    from helpers.exercises.lab03.kernels import KERNELS

    for name, kernel in KERNELS.items():
        yield Case(f"a kernel that {kernel.does}", (name,), expected=kernel.right, call="ask")


def _about_kernel(name: str) -> dict[str, Any]:
    from helpers.exercises.lab03.kernels import KERNELS

    return {"right_kernel": KERNELS[name].right, "advice": KERNELS[name].hint}


def _ask(ask: Callable[..., Outcome], name: str) -> Outcome | bool | str | None:
    from helpers.exercises.lab03 import kernels

    return kernels.ask(ask, name)


CATCH = answer_exercise(
    "catch-wrong-kernels",
    LAB,
    "Catch the kernel that is fast and wrong",
    "is_right",
    _hidden_kernels,
    facts=_about_kernel,
    mistakes=MISJUDGED,
    served={"ask": _ask},
    minutes=25,
)


# -------------------------------------------------------------------------------------------------- RMS norm
def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * (x.square().mean(dim=1, keepdim=True) + eps).rsqrt() * weight


def _weight_and_eps(x: torch.Tensor, rng: random.Random) -> tuple:
    from helpers.exercises import inputs

    return inputs.values(rng, (x.shape[1],), x.dtype, x.device.type), rng.choice((1e-6, 0.25))


def _like(s: Evidence, other: torch.Tensor) -> bool:
    return s.like(other, 4e-3 if str(s.got.dtype) == "torch.float16" else 1e-4, 1e-4)


def _mean_square(x: torch.Tensor) -> torch.Tensor:
    return x.double().square().mean(dim=1, keepdim=True)


def _divided_by(under_root: Callable) -> Callable[[Evidence], bool]:
    """The condition that the rows were divided by the root of this.

    Args:
        under_root: (mean square, eps, n_cols) -> what was under the root.
    """

    def condition(s: Evidence) -> bool:
        x, weight, eps = s.args
        return _like(s, x.double() * under_root(_mean_square(x), eps, x.shape[1]).rsqrt() * weight.double())

    return condition


def _block(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _all_nan(s: Evidence) -> bool:
    n = s.x.shape[1]
    return _block(n) != n and bool(s.got.isnan().all()) and not bool(s.expected.isnan().any())


def _overflows(s: Evidence) -> bool:
    large = bool((s.x.double().abs().amax(dim=1) > 100).all())
    return str(s.got.dtype) == "torch.float16" and bool((s.got == 0).all()) and large


def _centered(s: Evidence) -> bool:
    x, weight, eps = s.args
    return _like(s, _rms_norm(x.double() - x.double().mean(dim=1, keepdim=True), weight.double(), eps))


_RMS_MISTAKES = under(
    # Far offsets read wrong memory, whatever is then computed from it.
    lambda s: s.kind != "far" and not _like(s, s.expected),
    {
        "no-other": _all_nan,
        "python-sqrt": _divided_by(lambda mean, eps, n: (mean + eps).floor()),
        "block-for-columns": _divided_by(lambda mean, eps, n: mean * n / _block(n) + eps),
        "sum-for-mean": _divided_by(lambda mean, eps, n: mean * n + eps),
        "no-epsilon": _divided_by(lambda mean, eps, n: mean),
        "epsilon-outside": _divided_by(lambda mean, eps, n: (mean.sqrt() + eps).square()),
        "no-root": _divided_by(lambda mean, eps, n: (mean + eps).square()),
        "overflow/squares": _overflows,
        "no-weight": lambda s: _like(s, _rms_norm(s.x.double(), 1, s.args[2])),
        "centred": _centered,
    },
)
# Python's functions, called on a block of values.
_PYTHON = {
    "raises/sum": lambda s: "not iterable" in s.got.error,
    "raises/sqrt": lambda s: s.got.error_type == "ZeroDivisionError",
    "raises/compiled": lambda s: "math.sqrt" in s.got.error,  # on a GPU, where the message quotes the line
}

RMS_NORM = kernel_exercise(
    "rms-norm-rows",
    LAB,
    "A normalization in one kernel",
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
    mistakes=_RMS_MISTAKES,
    raises=_PYTHON,
    minutes=25,
)

RMS_NORM = replace(RMS_NORM, poison_masked=True)

EXERCISES = (SHARE, FLIP, SQUARE, CATCH, RMS_NORM, SLIDERS)

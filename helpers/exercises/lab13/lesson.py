"""The exercises inside lesson 13: how large an error is, whether a kernel follows its input, how large the
error of a sum may be, and the least time that a GPU needs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from helpers.exercises.factories import answer_exercise
from helpers.exercises.mistakes import always, close
from helpers.exercises.model import Case
from helpers.exercises.verdicts import is_number

if TYPE_CHECKING:
    import torch

LESSON = "13_verify"


# ------------------------------------------------------------------------------- how large an error is
def _share(got: torch.Tensor, expected: torch.Tensor) -> float:
    error = (got.double() - expected.double()).abs().max().item()
    return math.inf if math.isnan(error) else error / expected.double().square().mean().sqrt().item()


def _share_cases(rng: random.Random) -> Iterator[Case]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    normal = torch.randn(64, generator=generator) + 0.5
    softmax = torch.softmax(torch.rand(5000, generator=generator), dim=0)
    too_small = normal.clone()
    too_small[rng.randrange(64)] -= 3
    one_nan = normal.clone()
    one_nan[rng.randrange(64)] = math.nan
    exact = torch.rand(64, generator=generator, dtype=torch.float64) + 1
    pairs = {
        "an element that is too small": (too_small, normal),
        "a constant instead of a softmax": (torch.full_like(softmax, 1 / 5000), softmax),
        "small errors everywhere": (normal * 1.001, normal),
        "a NaN": (one_nan, normal),
        "a float32 result of a float64 reference": (exact.float(), exact),
        "no error": (normal, normal),
    }
    for label, (got, expected) in pairs.items():
        yield Case(label, (got, expected), expected=_share(got, expected))


def _about_share(got: torch.Tensor, expected: torch.Tensor) -> dict[str, Any]:
    e, error = expected.double(), got.double() - expected.double()
    rms = e.square().mean().sqrt()
    in_float32 = (got.float() - expected.float()).abs().max() / expected.float().square().mean().sqrt()
    found = {
        "largest": error.abs().max(),
        "average": error.abs().mean() / rms,
        "rms_error": error.square().mean().sqrt() / rms,
        "signed": error.max() / rms,
        "each": (error / e).abs().max(),
        "of_largest": error.abs().max() / e.abs().max(),
        "of_mean": error.abs().max() / e.mean(),
        "in_float32": in_float32,
    }
    return {name: value.item() for name, value in found.items()}


SHARE = answer_exercise(
    "share-of-an-error",
    LESSON,
    "How large an error is",
    "share_of_error",
    _share_cases,
    facts=_about_share,
    tolerance=1e-6,
    mistakes={
        "nan": lambda s: math.isinf(s.want),
        "absolute": lambda s: s.near(s.largest),
        "average": lambda s: s.near(s.average, s.rms_error),
        "signed": lambda s: s.near(s.signed),
        "each-element": lambda s: s.near(s.each),
        "of-the-largest": lambda s: s.near(s.of_largest),
        "of-the-mean": lambda s: s.near(s.of_mean),
        "precision": lambda s: close(s.got, s.in_float32, rel=1e-3, abs=1e-7),
        "not-a-number": lambda s: not is_number(s.got),
        "share": always,
    },
    minutes=5,
)


# --------------------------------------------------------------- whether a kernel follows its input
def _candidate(kind: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that doubles its input, or pretends to."""
    stored: dict[Any, Any] = {}

    def computed(x: torch.Tensor) -> torch.Tensor:
        if kind == "new":
            return 2 * x
        if kind == "buffer":
            return stored.setdefault("buffer", x.clone()).copy_(2 * x)
        key = {"shape": x.shape, "address": x.data_ptr(), "object": id(x)}[kind]
        stored.setdefault("inputs", []).append(x)  # so that no other tensor gets the same address
        return stored.setdefault(key, 2 * x)

    return computed


def follow(check: Callable[..., Any], kind: str) -> Any:
    """What the learner's check returns for one kind of candidate."""
    import torch

    generator = torch.Generator().manual_seed(1)
    x, other = (torch.rand(3, 5, generator=generator) for _ in range(2))
    return check(_candidate(kind), x, other)


def _follow_cases(rng: random.Random) -> Iterator[Case]:
    kinds = {
        "a candidate that computes anew": "new",
        "a candidate that writes into the same output again": "buffer",
        "a candidate that stores one result per shape": "shape",
        "a candidate that stores one result per address": "address",
        "a candidate that stores one result per tensor object": "object",
    }
    for label, kind in kinds.items():
        yield Case(label, (kind,), expected=kind in ("new", "buffer"), call="follow")


FOLLOWS = answer_exercise(
    "follows-its-input",
    LESSON,
    "Does it follow its input?",
    "follows_its_input",
    _follow_cases,
    facts=lambda kind: {"kind": kind},
    adapters={"follow": follow},
    mistakes={
        "not-a-bool": lambda s: not isinstance(s.got, bool),
        "shared-buffer": lambda s: s.kind == "buffer",
        "backwards": lambda s: s.kind == "new",
        "never-changed": lambda s: s.kind == "shape",
        "new-tensor": lambda s: s.kind in ("address", "object"),
        "follows": always,
    },
    minutes=5,
)


# ------------------------------------------------------------------------------ the error of a sum
def _sum_cases(rng: random.Random) -> Iterator[Case]:
    sizes = [(4096, 2.0**-10), (4096, 2.0**-23), (256, 2.0**-7)]
    sizes += [(rng.randrange(2, 10**6), 2.0 ** -rng.choice((7, 10, 23, 52))) for _ in range(6)]
    for n, eps in sizes:
        yield Case(f"{n:,} terms, eps = {eps:.3g}", (n, eps), expected=eps / 2 * math.sqrt(n))


SUM = answer_exercise(
    "error-of-a-sum",
    LESSON,
    "The error of a sum",
    "error_of_sum",
    _sum_cases,
    facts=lambda n, eps: {"n": n, "eps": eps},
    tolerance=1e-6,
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "worst-case": lambda s: s.near(s.eps / 2 * s.n, s.eps / 2 * (s.n - 1)),
        "whole-eps": lambda s: s.near(s.eps * math.sqrt(s.n)),
        "worst-case-eps": lambda s: s.near(s.eps * s.n),
        "one-rounding": lambda s: s.near(s.eps / 2, s.eps),
        "tree": lambda s: s.near(s.eps / 2 * math.log2(s.n), s.eps * math.log2(s.n)),
        "error": always,
    },
    minutes=5,
)


# ------------------------------------------------------------------------------------ the least time
def _times_us(
    n_bytes: float, n_operations: float, gb_per_s: float, tflop_per_s: float
) -> tuple[float, float]:
    """The times of the memory and of the arithmetic."""
    return n_bytes / gb_per_s / 1e3, n_operations / tflop_per_s / 1e6


def _time_cases(rng: random.Random) -> Iterator[Case]:
    loads = [(8 * 10**8, 10**8, 3000.0, 60.0), (2 * 10**8, 2 * 4096**3, 3000.0, 60.0)]
    for _ in range(8):
        loads.append(
            (rng.randrange(10**6, 10**9), rng.randrange(10**6, 10**11), rng.uniform(300, 8000),
             rng.uniform(8, 120))
        )  # fmt: skip
    for n_bytes, n_operations, gb_per_s, tflop_per_s in loads:
        label = (
            f"{n_bytes:,} bytes and {n_operations:,} operations, {gb_per_s:,.0f} GB/s and "
            f"{tflop_per_s:.0f} TFLOP/s"
        )
        args = (n_bytes, n_operations, gb_per_s, tflop_per_s)
        yield Case(label, args, expected=max(_times_us(*args)))


def _about_time(*args: float) -> dict[str, float]:
    memory, arithmetic = _times_us(*args)
    return {"memory": memory, "arithmetic": arithmetic}


TIME = answer_exercise(
    "time-bound",
    LESSON,
    "The least time that a GPU needs",
    "bound_us",
    _time_cases,
    facts=_about_time,
    tolerance=1e-6,
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "both-added": lambda s: s.near(s.memory + s.arithmetic),
        "memory-only": lambda s: s.arithmetic > s.memory and s.near(s.memory),
        "arithmetic-only": lambda s: s.memory > s.arithmetic and s.near(s.arithmetic),
        "units": lambda s: any(s.near(s.right * 10.0**power) for power in range(-12, 13, 3)),
        "time": always,
    },
    minutes=5,
)

EXERCISES = (SHARE, FOLLOWS, SUM, TIME)

"""The exercises inside lesson 02, load_inline."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from helpers.exercises.factories import answer_exercise, kernel_exercise
from helpers.exercises.mistakes import always
from helpers.exercises.model import Case
from helpers.exercises.plans import CasePlan

if TYPE_CHECKING:
    import torch

    from helpers.exercises.evidence import Evidence

LAB = "02_load_inline"


def _outside(s) -> bool:
    return "outside" in s.got.error or "element" in s.got.error


# ------------------------------------------------------------ a first kernel
def _is_square(s: Evidence) -> bool:
    x = s.x.double()
    return s.n_wrong > 0 and s.like(x * x, 1e-5, 1e-6)


def _rest_unwritten(s: Evidence) -> bool:
    rest = s.unwritten.reshape(-1)
    return bool(rest.any()) and not bool(rest[0])


CUBE = kernel_exercise(
    "cube-elements",
    LAB,
    "Write a CUDA kernel",
    "cube",
    lambda x: x * x * x,
    cases=CasePlan(strides=False, empty=False, shapes=((256,), (5,), (1000,), (1,), (257,), (37, 781))),
    must_launch="cuda",
    mistakes={"squared": _is_square, "rounded-down": _rest_unwritten},
    raises={"missing-guard": _outside},
    minutes=5,
)


# ------------------------------------------------------------ two dimensions
def _flipped_rows(s: Evidence) -> bool:
    return s.n_wrong > 0 and s.like(s.x.double().flip(0), 1e-6, 1e-6)


def _is_copy(s: Evidence) -> bool:
    return s.n_wrong > 0 and s.like(s.x.double(), 1e-6, 1e-6)


def _mirrored(x: torch.Tensor) -> torch.Tensor:
    return x.flip(1)


MIRROR = kernel_exercise(
    "mirror-columns",
    LAB,
    "Mirror a matrix",
    "mirror",
    _mirrored,
    cases=CasePlan(
        ndim=2, strides=False, empty=False, shapes=((16, 32), (3, 5), (1, 1), (17, 40), (40, 17), (5, 128))
    ),
    must_launch="cuda",
    mistakes={"rows": _flipped_rows, "copy": _is_copy, "uncovered": _rest_unwritten},
    raises={"missing-guard": _outside},
    minutes=5,
)


# ------------------------------------------------------------ bytes under way
def _loads(rng: random.Random) -> Iterator[Case]:
    def case(gb_per_s: int, latency_ns: int, n_threads: int) -> Case:
        label = f"loads_per_thread({gb_per_s}, {latency_ns}, {n_threads})"
        right = -(-gb_per_s * latency_ns // (4 * n_threads))
        return Case(label, (gb_per_s, latency_ns, n_threads), expected=right)

    yield case(1000, 400, 100_000)
    yield case(2100, 800, 270_336)
    yield case(320, 500, 40_960)
    for _ in range(12):
        yield case(rng.randrange(100, 5000), rng.randrange(300, 2000), 1024 * rng.randrange(10, 300))


LOADS = answer_exercise(
    "loads-per-thread",
    LAB,
    "Loads per thread",
    "loads_per_thread",
    _loads,
    facts=lambda gb_per_s, latency_ns, n_threads: {"bytes": gb_per_s * latency_ns, "threads": n_threads},
    mistakes={
        "rounded-down": lambda s: s.got == s.bytes // (4 * s.threads),
        "fraction": lambda s: abs(s.got - s.bytes / (4 * s.threads)) < 1e-6,
        "bytes": lambda s: s.got in (-(-s.bytes // s.threads), s.bytes // s.threads, s.bytes / s.threads),
        "total": lambda s: s.got in (s.bytes, s.bytes // 4, -(-s.bytes // 4), s.bytes / 4),
        "little": always,
    },
    minutes=5,
)


# ------------------------------------------------------------ shared memory
def _rotated(x: torch.Tensor, by: int = -1) -> torch.Tensor:
    from torch.nn import functional

    n = x.numel()
    padded = functional.pad(x.flatten(), (0, -n % 256))
    return padded.view(-1, 256).roll(by, 1).flatten()[:n].view_as(x)


def _other_way(s: Evidence) -> bool:
    return s.n_wrong > 0 and s.like(_rotated(s.x.double(), 1), 1e-6, 1e-6)


ROTATE = kernel_exercise(
    "rotate-blocks",
    LAB,
    "Rotate each block",
    "rotate",
    _rotated,
    cases=CasePlan(strides=False, empty=False, shapes=((512,), (256,), (1000,), (1,), (257,), (2560,))),
    must_launch="cuda",
    mistakes={"other-way": _other_way, "copy": _is_copy},
    raises={
        "missing-barrier": lambda s: "barrier" in s.got.error or "syncthreads" in s.got.error,
        "past-the-tile": lambda s: "tile" in s.got.error,
    },
    minutes=5,
)

EXERCISES = (CUBE, MIRROR, LOADS, ROTATE)

"""The exercises inside lesson 01, profiling."""

from __future__ import annotations

import random
from collections.abc import Iterator

from helpers.exercises.factories import answer_exercise
from helpers.exercises.mistakes import always
from helpers.exercises.model import Case

LESSON = "01_profiling"


def _grid_cases(rng: random.Random) -> Iterator[Case]:
    fixed = [(14, 4), (16, 4), (0, 256), (1, 256), (257, 256)]
    drawn = [(rng.randrange(1, 10**8), rng.choice((32, 128, 256, 1024))) for _ in range(10)]
    for n, threads in fixed + drawn:
        yield Case(f"{n:,} elements, {threads:,} threads per block", (n, threads), expected=-(-n // threads))


GRID = answer_exercise(
    "grid-for-n",
    LESSON,
    "The blocks of a launch",
    "blocks_needed",
    _grid_cases,
    minutes=5,
    facts=lambda n, threads: {"n": n, "threads": threads},
    mistakes={
        "rounded-down": lambda s: s.value == s.n // s.threads,
        "one-too-many": lambda s: s.value == s.n // s.threads + 1,
        "not-whole": lambda s: isinstance(s.value, float),
        "other": always,
    },
)


def _time_cases(rng: random.Random) -> Iterator[Case]:
    fixed = [(100_000_000, 4, 3000.0), (0, 4, 3000.0)]
    drawn = [(rng.randrange(1, 10**9), rng.choice((1, 2, 4, 8)), rng.uniform(200, 8000)) for _ in range(8)]
    for n, size, speed in fixed + drawn:
        label = f"{n:,} elements of {size} bytes at {speed:,.0f} GB/s"
        yield Case(label, (n, size, speed), expected=2 * n * size / (speed * 1000))


TIME = answer_exercise(
    "least-time",
    LESSON,
    "The least time of a square",
    "least_us",
    _time_cases,
    tolerance=1e-6,
    minutes=5,
    mistakes={
        "one-way": lambda s: s.right and s.near(s.right / 2),
        "unit": lambda s: s.right and s.near(*(s.right * 10.0**k for k in (-9, -6, -3, 3, 6, 9))),
        "other": always,
    },
)


def _interval_cases(rng: random.Random) -> Iterator[Case]:
    pairs = [(0.97, 0.98), (1.02, 1.05), (0.999, 1.001), (1.0, 1.02), (0.9, 1.0), (0.8, 1.01)]
    for _ in range(8):
        low = rng.uniform(0.9, 1.08)
        pairs.append((low, low + rng.uniform(0.001, 0.05)))
    for low, high in pairs:
        expected = "a is faster" if high < 1 else "b is faster" if low > 1 else "no difference"
        yield Case(f"an interval from {low:.4g} to {high:.4g}", (low, high), expected=expected)


INTERVAL = answer_exercise(
    "read-interval",
    LESSON,
    "Read an interval",
    "verdict",
    _interval_cases,
    minutes=5,
    facts=lambda low, high: {"low": low, "high": high},
    mistakes={
        "swapped": lambda s: {s.value, s.right} == {"a is faster", "b is faster"},
        "middle": lambda s: s.right == "no difference" and s.value in ("a is faster", "b is faster"),
        "missed": lambda s: s.value == "no difference",
        "answer": always,
    },
)


def _step_cases(rng: random.Random) -> Iterator[Case]:
    cases = [(1, 1, 2, 2, 10), (0, 0, 3, 1, 5), (2, 1, 1, 3, 9)]
    for _ in range(6):
        cases.append((rng.randrange(4), rng.randrange(4), rng.randrange(1, 4), rng.randrange(1, 4), 20))
    for wait, warmup, active, repeat, n in cases:
        length = wait + warmup + active
        steps = [s for s in range(min(n, repeat * length)) if s % length >= wait + warmup]
        label = f"wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, {n} steps"
        yield Case(label, (wait, warmup, active, repeat, n), expected=steps)


def _about_steps(wait: int, warmup: int, active: int, repeat: int, n_steps: int) -> dict[str, list[int]]:
    first = wait + warmup
    length = first + active
    return {
        "one_wait": [s for s in range(first, first + active * repeat) if s < n_steps],
        "warm_too": [s for s in range(min(n_steps, repeat * length)) if s % length >= wait],
        "from_one": [s + 1 for s in range(min(n_steps, repeat * length)) if s % length >= first],
        "forever": [s for s in range(n_steps) if s % length >= first],
    }


STEPS = answer_exercise(
    "kept-steps",
    LESSON,
    "The steps that a schedule keeps",
    "kept_steps",
    _step_cases,
    minutes=5,
    facts=_about_steps,
    mistakes={
        "one-wait": lambda s: list(s.got) == s.one_wait,
        "warm-too": lambda s: list(s.got) == s.warm_too,
        "from-one": lambda s: list(s.got) == s.from_one,
        "forever": lambda s: list(s.got) == s.forever,
        "other": always,
    },
)


def _block_cases(rng: random.Random) -> Iterator[Case]:
    for n in (100_000_000, 1024, 1025, 1, 0, *(rng.randrange(1, 10**9) for _ in range(6))):
        yield Case(f"{n:,} floats", (n,), expected=-(-n // 1024))


BLOCKS = answer_exercise(
    "count-torch-blocks",
    LESSON,
    "The blocks of PyTorch's kernel",
    "torch_blocks",
    _block_cases,
    minutes=5,
    facts=lambda n_elements: {"n": n_elements},
    mistakes={
        "width": lambda s: s.value == -(-s.n // (128 * 4)),
        "one-per-thread": lambda s: s.value == -(-s.n // 128),
        "rounded-down": lambda s: s.value == s.n // 1024,
        "other": always,
    },
)

EXERCISES = (GRID, TIME, INTERVAL, STEPS, BLOCKS)

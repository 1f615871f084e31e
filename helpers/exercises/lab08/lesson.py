"""The exercises inside lesson 08: read ninja's log of a build, and find the element of a reported access."""

from __future__ import annotations

import random
from collections.abc import Iterator

from helpers.exercises.factories import answer_exercise
from helpers.exercises.mistakes import always
from helpers.exercises.model import Case
from helpers.exercises.verdicts import is_number

LAB = "08_builds"


# --------------------------------------------------------------------------------------- the steps of a build
def _times(steps: list[tuple[str, int, int]]) -> tuple[float, float]:
    waited = max(end for _, _, end in steps) - min(start for _, start, _ in steps)
    return waited / 1000, sum(end - start for _, start, end in steps) / 1000


def _step_cases(rng: random.Random) -> Iterator[Case]:
    def case(label: str, *steps: tuple[str, int, int]) -> Case:
        return Case(label, (list(steps),), expected=_times(list(steps)))

    yield case("one step", ("main.o", 0, 9_000))
    yield case(
        "two compilers at once", ("main.o", 0, 9_000), ("cuda.o", 0, 12_000), ("square.so", 12_000, 12_250)
    )
    yield case("a late start", ("main.o", 500, 2_000), ("square.so", 2_000, 2_750))
    yield case("the longest step first", ("cuda.o", 0, 8_000), ("main.o", 0, 5_000), ("more.o", 5_000, 6_000))
    for _ in range(8):
        end = 0
        steps = []
        for i in range(rng.randrange(2, 6)):
            start = rng.randrange(100, 4_000)
            steps.append((f"part{i}.o", start, start + rng.randrange(500, 20_000)))
            end = max(end, steps[-1][2])
        yield case("a random build", *steps, ("square.so", end, end + 250))


BUILD_TIMES = answer_exercise(
    "build-times",
    LAB,
    "How long did a build take?",
    "build_times",
    _step_cases,
    minutes=5,
    tolerance=1e-6,
    facts=lambda steps: {
        "waited": _times(steps)[0],
        "worked": _times(steps)[1],
        "last_end": max(end for _, _, end in steps) / 1000,
    },
    mistakes={
        "not-two": lambda s: not (isinstance(s.got, (tuple, list)) and len(s.got) == 2),
        "not-a-number": lambda s: not all(map(is_number, s.got)),
        "milliseconds": lambda s: s.got[1] == 1000 * s.worked,
        "exchanged": lambda s: s.waited != s.worked and tuple(s.got) == (s.worked, s.waited),
        "sum-waited": lambda s: s.got[0] == s.worked != s.waited,
        "from-zero": lambda s: s.got[0] == s.last_end != s.waited,
        "times": always,
    },
)


# ----------------------------------------------------------------------------- the element of a thread
def _element(block: tuple, thread: tuple, block_shape: tuple, width: int) -> int:
    col = block[0] * block_shape[0] + thread[0]
    row = block[1] * block_shape[1] + thread[1]
    return row * width + col


def _element_cases(rng: random.Random) -> Iterator[Case]:
    def case(block: tuple, thread: tuple, shape: tuple, width: int) -> Case:
        label = f"thread {thread} in block {block} of {shape[0]} × {shape[1]} threads, {width} columns"
        args = (block, thread, shape, width)
        return Case(label, args, expected=_element(*args))

    yield case((0, 0, 0), (3, 0, 0), (16, 16), 50)
    yield case((3, 1, 0), (2, 13, 0), (16, 16), 50)
    yield case((0, 1, 0), (0, 14, 0), (16, 16), 50)
    yield case((1, 2, 0), (5, 3, 0), (32, 8), 100)
    for _ in range(10):
        shape = rng.choice(((16, 16), (32, 8), (64, 4), (8, 32)))
        thread = (rng.randrange(shape[0]), rng.randrange(shape[1]), 0)
        yield case((rng.randrange(4), rng.randrange(4), 0), thread, shape, rng.randrange(20, 200))


ELEMENT = answer_exercise(
    "element-of-an-access",
    LAB,
    "Which element does the report mean?",
    "element_of",
    _element_cases,
    minutes=5,
    facts=lambda block, thread, block_shape, width: {
        "swapped": _element(block[1::-1], thread[1::-1], block_shape[::-1], width),
        "no_block": thread[1] * width + thread[0],
        "exchanged_shape": _element(block, thread, block_shape[::-1], width),
    },
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "bytes": lambda s: s.want and s.got == 4 * s.want,
        "swapped": lambda s: s.got == s.swapped != s.want,
        "no-block": lambda s: s.got == s.no_block != s.want,
        "exchanged-shape": lambda s: s.got == s.exchanged_shape != s.want,
        "element": always,
    },
)

EXERCISES = (BUILD_TIMES, ELEMENT)

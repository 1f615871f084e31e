"""The exercises inside lesson 09: two numbers in one word, and the programs that an SM's registers allow."""

from __future__ import annotations

import random
from collections.abc import Iterator

from helpers.exercises.factories import answer_exercise
from helpers.exercises.lab09.rows import LAB
from helpers.exercises.mistakes import always
from helpers.exercises.model import Case
from helpers.exercises.verdicts import is_number

_REGISTERS = 65_536  # per SM


def _word_cases(rng: random.Random) -> Iterator[Case]:
    pairs = [(1, 2), (0x40A00000, 0x3FC06250), (0xFF800000, 0), (0xC0000000, 0x3F800000)]
    pairs += [(rng.randrange(1, 2**32), rng.randrange(2**31)) for _ in range(12)]
    for m, s in pairs:
        yield Case(f"m = {m:#010x} and s = {s:#010x}", (m, s), expected=m << 32 | s)


PACK = answer_exercise(
    "pack-a-word",
    LAB,
    "Two numbers in one word",
    "pack_a_word",
    _word_cases,
    facts=lambda m, s: {"m": m, "s": s},
    mistakes={
        "not-an-integer": lambda s: not isinstance(s.got, int),
        "swapped": lambda s: s.got == s.s << 32 | s.m,
        "no-shift": lambda s: s.got in (s.m | s.s, s.m + s.s),
        "shift": always,
    },
    minutes=5,
)


def _fit_cases(rng: random.Random) -> Iterator[Case]:
    pairs = [(99, 4), (96, 4), (56, 4), (32, 8), (255, 4), (128, 16)]
    pairs += [(rng.randrange(24, 129), rng.choice((4, 8, 16))) for _ in range(12)]
    for registers, warps in pairs:
        expected = _REGISTERS // (-(-registers // 8) * 8 * 32 * warps)
        yield Case(f"{registers} registers and {warps} warps", (registers, warps), expected=expected)


FIT = answer_exercise(
    "programs-that-fit",
    LAB,
    "Programs in an SM's registers",
    "programs_that_fit",
    _fit_cases,
    facts=lambda registers, warps: {"registers": registers, "warps": warps},
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "warps-for-threads": lambda s: s.got == _REGISTERS // (-(-s.registers // 8) * 8 * s.warps),
        "no-units": lambda s: s.got == _REGISTERS // (s.registers * 32 * s.warps),
        "rounded-down": lambda s: s.got == _REGISTERS // (s.registers // 8 * 8 * 32 * s.warps),
        "a-fraction": lambda s: s.got != int(s.got),
        "count": always,
    },
    minutes=5,
)

EXERCISES = (PACK, FIT)

"""The exercises inside lesson 09: launches that hang, and the programs that an SM's registers allow."""

from __future__ import annotations

import random
from collections.abc import Iterator

from helpers.exercises.factories import answer_exercise
from helpers.exercises.lab09.rows import LAB
from helpers.exercises.mistakes import always
from helpers.exercises.model import Case
from helpers.exercises.verdicts import is_number

_REGISTERS = 65_536  # per SM


def _needed(n_rows: int, parts: int, consecutive: bool) -> int:
    """How many programs start until the first row is complete; before that, no place becomes free."""
    return parts if consecutive else (parts - 1) * n_rows + 1


def _hang_cases(rng: random.Random) -> Iterator[Case]:
    launches = [(1, 6, 8, True), (2, 6, 8, True), (2, 6, 6, True), (2, 6, 5, True)]
    launches += [(2, 6, 8, False), (2, 6, 11, False), (2, 6, 10, False), (3, 4, 9, False), (5, 1, 1, False)]
    for _ in range(10):
        rows, parts, consecutive = rng.randrange(2, 6), rng.randrange(2, 9), rng.random() < 0.5
        places = max(1, _needed(rows, parts, consecutive) + rng.randrange(-2, 3))
        launches.append((rows, parts, places, consecutive))
    for rows, parts, places, consecutive in launches:
        how = "consecutive" if consecutive else "not consecutive"
        label = f"{rows} rows of {parts} parts, {places} places, {how}"
        hangs = _needed(rows, parts, consecutive) > places
        yield Case(label, (rows, parts, places, consecutive), expected=hangs)


HANG = answer_exercise(
    "can-hang",
    LAB,
    "Does this launch hang?",
    "can_hang",
    _hang_cases,
    facts=lambda rows, parts, places, consecutive: {
        "needed": _needed(rows, parts, consecutive),
        "rows": rows,
        "parts": parts,
        "places": places,
        "consecutive": consecutive,
    },
    mistakes={
        "not-a-bool": lambda s: not isinstance(s.got, bool),
        "one-place-too-many": lambda s: s.got and s.needed == s.places,
        "all-programs": lambda s: s.got and s.rows * s.parts > s.places > s.needed,
        "rule-ignored": lambda s: not s.got and not s.consecutive and s.parts <= s.places < s.needed,
        "exchanged": lambda s: s.got == (s.needed <= s.places),
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

EXERCISES = (HANG, FIT)

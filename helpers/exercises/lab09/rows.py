"""Hidden cases of rows that programs share, and the mistakes behind wrong results."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from helpers.exercises.mistakes import Seen, Table, always, close, under
from helpers.exercises.model import Case, Exercise, Outcome, Verdict
from helpers.exercises.softmax_parts import FORM, MAXIMUM, NAN, SUM, numbers, part
from helpers.exercises.verdicts import wrong

if TYPE_CHECKING:
    import torch

    from helpers.exercises.evidence import Evidence

LAB = "09_wide_rows"
PART = 16_384  # columns of a row that one program may take
SMALLEST = 2048  # the fewest, unless the row has fewer
TOLERANCE = {
    "float32": (1e-5, 1e-4),  # where x is several hundred, x - (m + log s) is rounded by up to 3e-5
    "float16": (2e-3, 2e-3),
}  # (relative, absolute), because logarithms aren't close to 0


# -------------------------------------------------------------------------------------------- merged parts
def _cut(rng: random.Random, row: list, n: int) -> list[list]:
    """Cut a list into n pieces, some of which may be empty."""
    cuts = sorted(rng.choices(range(len(row) + 1), k=n - 1))
    return [row[a:b] for a, b in zip([0, *cuts], [*cuts, len(row)], strict=True)]


def merge_cases(rng: random.Random) -> Iterator[Case]:
    """Rows in parts, in any order and grouping; some parts are empty, -inf or far from 0."""

    def case(label: str, *parts: list[float]) -> Case:
        return Case(label, ([part(one) for one in parts],), expected=part([v for one in parts for v in one]))

    yield case("parts [1, 3, 2] and [5, 0]", [1.0, 3.0, 2.0], [5.0, 0.0])
    yield case("three parts, the largest first", [9.0, 1.0], [2.0], [3.0, 3.0])
    yield case("one part", [2.0, 2.5, -1.0])
    yield case("negative parts", [-50.0, -51.0], [-53.0], [-49.0])
    yield case("a part near 1000 and one near 0", [1000.0, 999.0], [0.5, 1.0])
    yield case("a part near -1000 and one near 1000", [-1000.0], [1000.0, 1000.0])
    yield case("an empty part between two others", [1.0], [], [2.0])
    yield case("an empty part first", [], [2.0, 1.0])
    yield case("a part of -inf alone and another", [-math.inf, -math.inf], [1.0, 2.0])
    yield case("a row of -inf alone, in two parts", [-math.inf], [-math.inf, -math.inf])
    yield case("empty parts alone", [], [])
    yield Case("no part at all", ([],), expected=(-math.inf, 0.0))
    for _ in range(12):
        row = [rng.gauss(rng.choice((0, 0, 800, -800)), 5) for _ in range(rng.randrange(3, 80))]
        row = [-math.inf if rng.random() < 0.1 else v for v in row]
        parts = [part(one) for one in _cut(rng, row, rng.randrange(2, 9))]
        yield Case(f"a row of {len(row)} in {len(parts)} parts", (parts,), expected=part(row))
        groups = _cut(rng, parts, rng.randrange(2, 5))
        label = f"the same {len(parts)} parts in {len(groups)} groups, each merged, then the groups"
        yield Case(label, (groups,), expected=part(row), call="in_groups")


def _swapped(s: Seen) -> bool:
    m, total = numbers(s)
    return s.want[0] != s.want[1] and close(m, s.want[1], rel=1e-6) and close(total, s.want[0], rel=1e-6)


def _few_digits(s: Seen) -> bool:
    m, total = numbers(s)
    return close(m, s.want[0], rel=1e-6) and close(total, s.want[1], rel=1e-2)


MERGE_MISTAKES = {
    **FORM,
    "swapped": _swapped,
    "float32": _few_digits,
    **NAN,
    **MAXIMUM,
    "not-associative": lambda s: bool(s.case.call) and s.want[0] != -math.inf,
    **SUM,
}


# --------------------------------------------------------------------------------------------- shared rows
def places_for(x: torch.Tensor, rng: random.Random) -> tuple[int]:
    """How many programs of 4 warps are guaranteed to run at once. Without a GPU, draw a size of the chip."""
    if not x.is_cuda:
        return (rng.choice((40, 64, 264)),)
    from helpers.kernels.softmax import max_parts

    return (max_parts(x.device, num_warps=4),)


def shapes(rng: random.Random) -> list[tuple[int, int]]:
    """Few rows, because in the interpreter each program takes some hundredths of a second."""
    odd = rng.choice([n for n in range(1100, 2040) if n % 32])
    return [(2, 1024), (1, 1), (2, 33), (3, 781), (1, odd), (2, 4096), (2, rng.randrange(16_500, 24_000))]


def wide_cases(rng: random.Random, device: str) -> Iterator[Case]:
    """Wide rows, rows that log-softmaxes often get wrong, and chips that are too small for a row."""
    from helpers.exercises import inputs

    n = rng.randrange(20_000, 30_000)

    def case(label: str, x: torch.Tensor, places: int | None = None) -> Case:
        fit = places_for(x, rng)[0] if places is None else places
        return Case(label, (x, fit))

    yield case(f"a (1, {n}) tensor near 1000", inputs.values(rng, (1, n), device=device) + 1000)
    ramp = inputs.values(rng, (1, n), device=device).sort(dim=1).values * 20
    yield case(f"a (1, {n}) tensor whose row climbs", ramp)
    x = inputs.values(rng, (2, n), device=device)
    x[0, :PART] = -math.inf
    x[1, n - 200 :] = -math.inf
    yield case(f"a (2, {n}) tensor, the first row's first {PART:,} columns -inf", x)
    x = inputs.values(rng, (3, n), device=device)
    x[0] = -math.inf
    x[1, rng.randrange(n)] = math.nan
    x[2, rng.randrange(n)] = math.inf
    yield case(f"a (3, {n}) tensor with a row of -inf, a NaN and a +inf", x)
    wide = rng.randrange(66_000, 80_000)
    yield case(f"a (1, {wide}) tensor", inputs.values(rng, (1, wide), device=device) * 3)
    three = 3 * 8192  # three, six or twelve parts: the lanes beyond them must be masked
    yield case(f"a (1, {three}) tensor near -300", inputs.values(rng, (1, three), device=device) - 300)
    few = rng.randrange(17_000, 18_400)
    least = -(-few // SMALLEST)  # parts of a row, if each is as small as possible
    x = inputs.values(rng, (6, few), device=device)
    yield case(
        f"a (6, {few}) tensor on a chip of {least + 1} places: enough for a row, not for all", x, least + 1
    )
    x = inputs.values(rng, (1, wide), device=device)
    yield case(f"a (1, {wide}) tensor on a chip of 3 places, fewer than the row needs", x, 3)


def too_small(case: Case) -> bool:
    """Whether the chip can run fewer programs at once than a row needs. Then the parts of a row can't wait
    for each other, so two launches may read the input twice.
    """
    x, places = case.args[:2]
    return -(-x.shape[1] // PART) > places


# ------------------------------------------------------------------------------------ programs that wait
def _refuses_what_fits(s: Seen) -> bool:
    """Whether it refused to launch although the chip can run all programs of a row at once."""
    n_rows, n_cols = s.case.args[0].shape
    one_program = n_rows == 1 and n_cols <= SMALLEST
    return s.got.error_type == "ValueError" and s.parts <= s.case.args[1] and not one_program


WAITING = Table(
    "waiting",
    LAB,
    conditions={},
    raises={
        "plain-wait": lambda s: s.got.error_type == "PlainWait",
        **under(
            lambda s: s.got.error_type == "Deadlock",
            {
                "never-published": lambda s: "nobody will write" in s.got.error,
                "too-many-warps": lambda s: "counts programs of" in s.got.error,
                "no-bound": lambda s: too_small(s.case),
                "far-apart": always,
            },
        ),
        "bound-too-tight": _refuses_what_fits,
    },
)


def recognize_deadlocks(exercise: Exercise) -> Exercise:
    """Return the exercise with a judge that also recognizes deadlocks, unsafe waits and wrong refusals."""

    def judge(case: Case, outcome: Outcome) -> Verdict | None:
        if not outcome.error:
            return exercise.judge(case, outcome)
        if outcome.error_type == "ValueError" and too_small(case):
            return None  # there, refusing is right
        parts = -(-case.args[0].shape[1] // SMALLEST)
        found = WAITING.first_match(Seen(case=case, got=outcome, parts=parts, smallest=SMALLEST))
        if found is None:
            return exercise.judge(case, outcome)
        return wrong(exercise.id, case, f"on {case.label}: {outcome.error}", found.key, found.hint)

    return replace(exercise, judge=judge)


# -------------------------------------------------------------------------------------- wrong log-softmaxes
def _allowed(s: Evidence) -> tuple[float, float]:
    rel, abs = s.tolerance
    return 10 * rel, 10 * abs


def _lost(s: Evidence) -> torch.Tensor:
    """Where the result is infinite or NaN, but shouldn't be."""
    return ~s.got.isfinite() & s.expected.isfinite()


def _minus_infinity(s: Evidence) -> bool:
    rows = s.x.isneginf().any(dim=1, keepdim=True)
    return bool((rows & s.got.isnan() & ~s.expected.isnan()).any())


def _nan_throughout(s: Evidence) -> bool:
    return bool((s.got.isnan() & s.expected.isfinite()).all()) and s.x.shape[1] > SMALLEST


def _finite_rows(s: Evidence) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The result, what is right, and how far the result may be off, in rows without infinities and NaN."""
    rows = s.expected.isfinite().all(dim=1) & s.got.isfinite().all(dim=1)
    got, expected = s.got[rows].double(), s.expected[rows]
    rel, abs = _allowed(s)
    return got, expected, abs + rel * expected.abs()


def _own_sum(s: Evidence) -> bool:
    got, expected, allowed = _finite_rows(s)
    total = got.exp().sum(dim=1)
    all_wrong = ((got - expected).abs() > allowed).all(dim=1)
    return bool(((total > 1.5) & ((total - total.round()).abs() < 0.02) & all_wrong).any())


def _wrong_sum(s: Evidence) -> bool:
    got, expected, allowed = _finite_rows(s)
    off = got - expected
    return len(off) > 0 and bool((off.amax(dim=1) - off.amin(dim=1) < allowed.amax(dim=1)).all())


def _no_wait(s: Evidence) -> bool:
    """Whether the error is constant within each part and differs between parts."""
    got, expected, allowed = _finite_rows(s)
    steps = (got - expected).diff(dim=1).abs() > allowed.amax(dim=1, keepdim=True) / 5
    n_steps = steps.sum(dim=1)
    return bool(((n_steps > 0) & (n_steps <= max(s.x.shape[1] // 1000, 1))).any())


_MISTAKES = {
    "no-logarithm": lambda s: s.like(s.expected.exp(), *_allowed(s)),
    "nan-blind": lambda s: bool((s.expected.isnan() & ~s.got.isnan()).any()),
    "minus-infinity": _minus_infinity,
    "no-maximum": lambda s: bool((_lost(s) & (s.x > 700)).any()),
    "padded-maximum": lambda s: bool((_lost(s) & (s.x.amax(dim=1, keepdim=True) < -200)).any()),
    "nan-throughout": _nan_throughout,
    "own-sum": _own_sum,
    "wrong-sum": _wrong_sum,
    "no-wait": _no_wait,
}
# Both exercises make the same mistakes.
MISTAKES = Table(
    "log-softmax", LAB, under(lambda s: s.got.numel() > 0 and not s.like(s.expected, *_allowed(s)), _MISTAKES)
)

"""Hidden cases of rows that programs share, and what a wrong result says about the mistake that made it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from helpers.exercises.hints import HINTS
from helpers.exercises.model import Case, Outcome, Verdict

if TYPE_CHECKING:
    import torch

PART = 16_384  # columns of a row that one program may take
_SMALLEST = 2048  # and the fewest that it takes of a row that has them
TOLERANCE = {
    "float32": (1e-5, 1e-4),  # where x is several hundred, x - (m + log s) is rounded by up to 3e-5
    "float16": (2e-3, 2e-3),
}  # (relative, absolute): logarithms are no small numbers


# ------------------------------------------------------------------------------------------------------- merged parts
def _part(values: list[float]) -> tuple[float, float]:
    m = max(values, default=-math.inf)
    return (m, 0.0) if m == -math.inf else (m, math.fsum(math.exp(v - m) for v in values))


def _cut(rng: random.Random, row: list, n: int) -> list[list]:
    """A list in n pieces, some of them perhaps empty."""
    cuts = sorted(rng.choices(range(len(row) + 1), k=n - 1))
    return [row[a:b] for a, b in zip([0, *cuts], [*cuts, len(row)], strict=True)]


def merge_cases(rng: random.Random) -> Iterator[Case]:
    """Rows in parts: as they are, in every order and grouping, with parts of -inf and without elements, far from 0."""

    def case(label: str, *parts: list[float]) -> Case:
        return Case(
            label, ([_part(one) for one in parts],), expected=_part([v for one in parts for v in one])
        )

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
        parts = [_part(one) for one in _cut(rng, row, rng.randrange(2, 9))]
        yield Case(f"a row of {len(row)} in {len(parts)} parts", (parts,), expected=_part(row))
        groups = _cut(rng, parts, rng.randrange(2, 5))
        label = f"the same {len(parts)} parts in {len(groups)} groups, each merged, then the groups"
        yield Case(label, (groups,), expected=_part(row), call="in_groups")


def explain_merge(case: Case, got: Any) -> tuple[str, str] | None:
    """What a wrong pair says about its mistake."""
    if not isinstance(got, tuple | list) or len(got) != 2:
        return "not-a-pair", "Return (maximum, sum)."
    m, s = (v.item() if hasattr(v, "item") else v for v in got)
    if not all(isinstance(v, int | float) for v in (m, s)):
        return "not-numbers", "Maximum and sum are two numbers."
    want_m, want_s = case.expected
    if want_m != want_s and math.isclose(m, want_s, rel_tol=1e-6) and math.isclose(s, want_m, rel_tol=1e-6):
        return "swapped", "Both numbers are right, in the wrong order: first the maximum, then the sum."
    if math.isclose(m, want_m, rel_tol=1e-6) and math.isclose(s, want_s, rel_tol=1e-2):
        off = f"maximum {m!r} for {want_m!r}, sum {s!r} for {want_s!r}"
        return "float32", f"Near, but of fewer digits ({off}): in torch give dtype=torch.float64."
    if math.isnan(m) or math.isnan(s):
        if want_m > 700:
            return "exp-overflows", HINTS["exp-overflows"]
        return (
            "minus-infinity",
            "-inf - -inf is NaN: look whether the largest maximum is -inf before any exp.",
        )
    if m != want_m:
        return "maximum", "The maximum of all parts is the largest of theirs; of no part it is -inf."
    if want_m == -math.inf:
        return "empty-sum", "Parts that count for nothing make one that counts for nothing: its sum is 0.0."
    if case.call:
        return (
            "not-associative",
            "Merged in groups it comes out otherwise: what you return must be a part again, its sum relative to its maximum.",
        )
    parts = case.args[0]

    def near(other: float) -> bool:
        return math.isclose(s, other, rel_tol=1e-9)

    if near(sum(one for _, one in parts)):
        return (
            "sums-as-they-are",
            "Each sum is relative to its own maximum: bring all to the largest before adding.",
        )
    if near(sum(one * _exp(want_m - top) for top, one in parts)):
        return "sign", "exp(own maximum - largest maximum): the factor is never above 1."
    if near(want_s * _exp(want_m)):
        return "absolute-sums", "The sum stays relative to the largest maximum, or it overflows."
    return None


def _exp(v: float) -> float:
    return math.inf if v > 700 else math.exp(v)


# -------------------------------------------------------------------------------------------------------- shared rows
def places_for(x: torch.Tensor, rng: random.Random) -> tuple[int]:
    """How many programs of 4 warps surely run at once: on a GPU what fits it, without one a chip that is drawn."""
    if not x.is_cuda:
        return (rng.choice((40, 64, 264)),)
    from helpers.kernels.softmax import max_parts

    return (max_parts(x.device, num_warps=4),)


def shapes(rng: random.Random) -> list[tuple[int, int]]:
    """Few rows: a program takes some hundredths of a second in the interpreter."""
    odd = rng.choice([n for n in range(1100, 2040) if n % 32])
    return [(2, 1024), (1, 1), (2, 33), (3, 781), (1, odd), (2, 4096), (2, rng.randrange(16_500, 24_000))]


def wide_cases(rng: random.Random, device: str) -> Iterator[Case]:
    """Wide rows, rows whose parts a log-softmax stumbles over, and chips that are too small for a row."""
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
    three = 3 * 8192  # three, six or twelve parts: lanes beyond them have to count for nothing
    yield case(f"a (1, {three}) tensor near -300", inputs.values(rng, (1, three), device=device) - 300)
    few = rng.randrange(17_000, 18_400)
    least = -(-few // _SMALLEST)  # parts of a row, where they are small
    x = inputs.values(rng, (6, few), device=device)
    yield case(
        f"a (6, {few}) tensor on a chip of {least + 1} places: enough for a row, not for all", x, least + 1
    )
    x = inputs.values(rng, (1, wide), device=device)
    yield case(f"a (1, {wide}) tensor on a chip of 3 places, fewer than the row needs", x, 3)


def reads_once_more(case: Case) -> bool:
    """Whether two launches are right, which read the input once more: a row's parts cannot wait for each other."""
    return _too_small(case)


def _too_small(case: Case) -> bool:
    """Whether the chip has fewer places than a row needs."""
    x, places = case.args[:2]
    return -(-x.shape[1] // PART) > places


def judged(
    judge: Callable[[Case, Outcome], Verdict | None], exercise: str
) -> Callable[[Case, Outcome], Verdict | None]:
    """A kernel's judge that knows of waiting: a deadlock, a wait by ordinary loads, and the chip that is too small."""

    def look(case: Case, outcome: Outcome) -> Verdict | None:
        if outcome.error_type == "ValueError" and _too_small(case):
            return None  # it refuses to wait there: that is right
        found = _of_waiting(case, outcome) or _of_refusing(case, outcome)
        if found is None:
            return judge(case, outcome)
        mistake, hint = found
        sentence = f"{exercise}, {case.label}: {outcome.error.removesuffix('.')}."
        return Verdict(exercise, False, sentence, case.label, mistake, hint)

    return look


def _of_refusing(case: Case, outcome: Outcome) -> tuple[str, str] | None:
    """A launch refused for its places, which a row of this case does have."""
    if outcome.error_type != "ValueError" or len(case.args) < 2:
        return None
    (n_rows, n_cols), places = case.args[0].shape, case.args[1]
    parts = -(-n_cols // _SMALLEST)
    if parts > places or (n_rows == 1 and n_cols <= _SMALLEST):
        return None
    return (
        "bound-too-tight",
        f"If it is refused for its places: they bound the parts of one row, not the grid, and in parts of {_SMALLEST:,} columns this row has {parts}.",
    )


def _of_waiting(case: Case, outcome: Outcome) -> tuple[str, str] | None:
    if outcome.error_type == "PlainWait":
        return (
            "plain-wait",
            "An ordinary load may be answered by the multiprocessor's own L1 for ever: look with volatile=True, or by an atomic.",
        )
    if outcome.error_type != "Deadlock":
        return None
    if "nobody will write" in outcome.error:
        return (
            "never-published",
            "Each program publishes its word before it waits for the others, and waits for the words of its own row only.",
        )
    if "counts programs of" in outcome.error:
        return "too-many-warps", "Launch with num_warps=4, or work out anew how many of your programs fit."
    if _too_small(case):
        return (
            "no-bound",
            "Programs that wait keep their places. Where the row's parts are more than places, do not wait: two launches, or a ValueError.",
        )
    return (
        "far-apart",
        f"Give the programs of a row neighbouring numbers, and each at least {_SMALLEST:,} columns: then who waits, waits for programs that run or are next.",
    )


def explain(case: Case, got: torch.Tensor, expected: torch.Tensor) -> tuple[str, str] | None:
    """What a wrong log-softmax says about its mistake; `expected` is float64."""
    import torch

    from helpers.exercises.judge import effective

    x = effective(case)[0][0].double()
    y = got.double()
    if got.shape != expected.shape or not got.numel():
        return None
    rtol, atol = TOLERANCE[str(got.dtype).removeprefix("torch.")]

    def like(other: torch.Tensor) -> bool:
        return torch.allclose(y, other.to(got).double(), rtol=10 * rtol, atol=10 * atol, equal_nan=True)

    if like(expected):
        return None
    if like(expected.exp()):
        return (
            "no-logarithm",
            "These are the softmax's own values: asked for is its logarithm, x - m - log(s).",
        )
    special = torch.isnan(expected) & ~torch.isnan(y)
    if bool(special.any()):
        return (
            "nan-blind",
            "A row with NaN or +inf, or of -inf alone, is NaN throughout, as torch.log_softmax has it.",
        )
    infinite = torch.isneginf(x).any(dim=1, keepdim=True) & torch.isnan(y) & ~torch.isnan(expected)
    if bool(infinite.any()):
        return (
            "minus-infinity",
            "-inf - -inf is NaN. A part that holds only -inf has the sum 0: subtract 0 there instead.",
        )
    if bool((~torch.isfinite(y) & torch.isfinite(expected) & (x > 700)).any()):
        return "no-maximum", HINTS["no-maximum"]
    if bool((~torch.isfinite(y) & torch.isfinite(expected) & (x.amax(dim=1, keepdim=True) < -200)).any()):
        return (
            "padded-maximum",
            "Here all values lie far below 0, and 0 is no maximum: lanes beyond the parts have the maximum -inf and the sum 0.",
        )
    if bool((torch.isnan(y) & torch.isfinite(expected)).all()) and x.shape[1] > _SMALLEST:
        return (
            "nan-throughout",
            "NaN everywhere: either nothing was written, or lanes beyond the parts came into the merge. -1 read as a pair is NaN: mask them to (-inf, 0) first.",
        )
    rows = torch.isfinite(expected).all(dim=1) & torch.isfinite(y).all(dim=1)
    if not bool(rows.any()):
        return None
    off = (y - expected)[rows]
    wrong = off.abs() > 10 * (atol + rtol * expected[rows].abs())
    total = y[rows].exp().sum(dim=1)
    if bool(((total > 1.5) & ((total - total.round()).abs() < 0.02) & wrong.all(dim=1)).any()):
        return (
            "own-sum",
            "The row's parts each add up to 1: all of them have to take the sum of the whole row.",
        )
    spread = off.amax(dim=1) - off.amin(dim=1)
    close = 10 * (atol + rtol * expected[rows].abs().amax(dim=1))
    if bool((spread < close).all()):
        return (
            "wrong-sum",
            "All values of a row are off by the same amount: its maximum and sum are merged wrongly, or read before both are there.",
        )
    steps = (off.diff(dim=1).abs() > close[:, None] / 5).sum(dim=1)
    if bool(((steps > 0) & (steps <= max(x.shape[1] // 1000, 1))).any()):
        return (
            "no-wait",
            "Programs of one row took different sums: each has to wait for all words of its row, and these are 0 before every launch.",
        )
    return None


def described(exercise: Any) -> Any:
    """The exercise with a judge that knows of waiting."""
    return replace(exercise, judge=judged(exercise.judge, exercise.id))

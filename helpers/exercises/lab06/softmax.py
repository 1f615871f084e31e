"""Hidden cases of the softmaxes of lab 06, and what a wrong result says about the mistake that made it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from helpers.exercises.hints import HINTS
from helpers.exercises.model import Case

if TYPE_CHECKING:
    import torch

TOLERANCE = {"float32": (2e-5, 1e-30), "float16": (2e-3, 1.2e-7)}  # (relative, absolute) by dtype


def softmax_cases(widths: tuple[int, ...]) -> Callable[[random.Random, str], Iterator[Case]]:
    """Rows whose values a softmax stumbles over, at the exercise's own widths."""

    def cases(rng: random.Random, device: str) -> Iterator[Case]:
        from helpers.exercises import inputs

        n = rng.choice(widths)
        low = inputs.values(rng, (3, n), device=device) - 40
        yield Case(f"a (3, {n}) float32 tensor whose values are all near -40", (low,))
        x = inputs.values(rng, (4, n), device=device) + 1000
        yield Case(f"a (4, {n}) float32 tensor whose values are near 1000", (x,))
        x = inputs.values(rng, (4, n), device=device)
        x[:, : n // 2 + 1] = -math.inf
        yield Case(f"a (4, {n}) float32 tensor whose rows begin with -inf", (x,))
        x = inputs.values(rng, (4, n), device=device)
        x[:, n // 2 :] = -math.inf
        yield Case(f"a (4, {n}) float32 tensor whose rows end with -inf", (x,))
        x = inputs.values(rng, (4, n), device=device)
        x[1] = -math.inf
        x[2, rng.randrange(n)] = math.nan
        x[3, rng.randrange(n)] = math.inf
        yield Case(f"a (4, {n}) float32 tensor with a row of -inf, a NaN and a +inf", (x,))
        ramp = inputs.values(rng, (2, n), device=device).sort(dim=1).values * 20
        yield Case(f"a (2, {n}) float32 tensor whose rows climb", (ramp,))
        yield Case(f"a (2, {n}) float32 tensor whose rows fall", (ramp.flip(1).contiguous(),))

    return cases


def wide_cases(rng: random.Random, device: str) -> Iterator[Case]:
    from helpers.exercises import inputs

    yield from softmax_cases((9001, 17_000))(rng, device)
    n = (1 << 20) + rng.randrange(1, 5000)
    yield Case(f"a (1, {n}) float32 tensor", (inputs.values(rng, (1, n), device=device) * 3,))


def explain_softmax(case: Case, got: torch.Tensor, expected: torch.Tensor) -> tuple[str, str] | None:
    """What a wrong softmax says about its mistake; `expected` is float64."""
    from helpers.exercises.judge import effective

    (x,), _ = effective(case)
    x = x.double()
    return (
        _other_formula(x, got, expected) or _infinities(x, got, expected) or _rows_without_nan(got, expected)
    )


def _other_formula(x: torch.Tensor, got: torch.Tensor, expected: torch.Tensor) -> tuple[str, str] | None:
    """Other formulas whose values these are."""
    import torch

    y = got.double()

    def close(other: torch.Tensor, rtol: float, atol: float) -> bool:
        return torch.allclose(y, other.to(got).double(), rtol=rtol, atol=atol, equal_nan=True)

    # Values near the right ones are near those of many a formula: then it has to give them as exactly as the check asks.
    rtol, atol = 5e-3, 1e-7
    if close(expected, rtol, atol):
        rtol, atol = TOLERANCE[str(got.dtype).removeprefix("torch.")]

    def like(other: torch.Tensor) -> bool:
        return close(other, rtol, atol)

    if like(expected):
        return None
    n = x.shape[1]
    block = 1 << max(n - 1, 0).bit_length()
    largest = x.max(dim=1, keepdim=True).values
    plain = x.float().exp()
    if like(plain / plain.sum(dim=1, keepdim=True)):
        return "no-maximum", "exp of large values overflows: subtract the row's maximum first."
    if like((x - x.max()).exp() / (x - x.max()).exp().sum(dim=1, keepdim=True)):
        return "one-maximum", "Each row has a maximum of its own."
    for m in (largest, largest.clamp(min=0)):
        e = (x - m).exp()
        if block > n and like(e / (e.sum(dim=1, keepdim=True) + (block - n) * (-m).exp())):
            return "padding-counts", "What lies past the row's end counts in the sum: load it as -inf."
    e = (x - largest).exp()
    if like(e):
        return "no-sum", "Divide by the row's sum."
    if like((x - largest).softmax(dim=0)) or like(x.softmax(dim=0)):
        return "columns-for-rows", "The softmax is over each row, not over each column."
    if like(x - largest - e.sum(dim=1, keepdim=True).log()):
        return "logarithm", "That is the logarithm of the softmax."
    return None


def _infinities(x: torch.Tensor, got: torch.Tensor, expected: torch.Tensor) -> tuple[str, str] | None:
    """NaN and infinities that are missing, or where a number should be."""
    import torch

    special = torch.isnan(expected) & ~torch.isnan(got)
    if bool(special.any()) and bool(torch.isinf(x).any() | torch.isnan(x).any()):
        return (
            "nan-blind",
            "A row with NaN or +inf, or of -inf alone, is NaN throughout, as torch.softmax has it.",
        )
    minus = torch.isneginf(x).any(dim=1, keepdim=True) & torch.isnan(got) & ~torch.isnan(expected)
    if bool(minus.any()) and not bool(torch.isinf(got).any()):
        return (
            "minus-infinity",
            "-inf - -inf is NaN. Is the maximum the whole row's? In steps: while the maximum so far is -inf, subtract 0 instead.",
        )
    if bool((torch.isinf(got) & torch.isfinite(expected)).any()):
        return (
            "wrong-maximum",
            "exp overflows: subtract the largest value of the row so far, not that of one block.",
        )
    return None


def _rows_without_nan(got: torch.Tensor, expected: torch.Tensor) -> tuple[str, str] | None:
    """Rows that were not written to their end, and rows with a wrong sum."""
    import torch

    rows = ~torch.isnan(expected).any(dim=1)
    if not bool(rows.any()):
        return None
    got, expected = got[rows], expected[rows]
    n = got.shape[1]
    never = torch.isnan(got).all(dim=0)
    first = int(n - never.flip(0).to(torch.int64).cumprod(0).sum())
    if 0 < first < n and not bool(torch.isnan(got[:, :first]).any()):
        return (
            "only-first-block",
            f"Only the first {first:,} of {n:,} columns were written: who does the rest?",
        )
    # Small values of a row are left out: few bits of theirs are left in float16.
    large = expected > 1e-2 * expected.amax(dim=1, keepdim=True)
    ratio = torch.where(large, got.double() / expected, torch.nan)
    factor = ratio.nanmedian(dim=1, keepdim=True).values
    rounding = max(2e-5, torch.finfo(got.dtype).eps)
    off = (factor - 1).abs()
    same = ((ratio / factor - 1).abs() < (off / 20).clamp(rounding, 1e-3))[large]
    if bool((off > rounding).any()) and bool(same.all()):
        return (
            "wrong-sum",
            "All values of a row are wrong by the same factor: its sum is wrong. If you gather it block by block, "
            "the old sum has to shrink whenever the maximum grows.",
        )
    return None


def _part(values: list[float]) -> tuple[float, float]:
    m = max(values, default=-math.inf)
    return (m, 0.0) if m == -math.inf else (m, math.fsum(math.exp(v - m) for v in values))


def merge_cases(rng: random.Random) -> Iterator[Case]:
    empty = (-math.inf, 0.0)

    def pair(label: str, a: list[float], b: list[float]) -> Case:
        return Case(label, (_part(a), _part(b)), expected=_part(a + b))

    yield pair("parts [1, 3, 2] and [5, 0]", [1.0, 3.0, 2.0], [5.0, 0.0])
    yield pair("parts [5, 0] and [1, 3, 2]", [5.0, 0.0], [1.0, 3.0, 2.0])
    row = [rng.gauss(0, 3) for _ in range(9)]
    yield pair("two parts of a row of 9", row[:4], row[4:])
    yield pair("two parts with the same maximum", [2.5, 1.0], [2.5, 2.5])
    yield pair("two negative parts", [-50.0, -51.0], [-53.0])
    yield pair("a part near 1000 and one near 0", [1000.0, 999.0], [0.5, 1.0])
    yield pair("a part near -1000 and one near 1000", [-1000.0], [1000.0, 1000.0])
    yield Case("an empty part and another", (empty, _part(row)), expected=_part(row))
    yield Case("a part and an empty one", (_part(row), empty), expected=_part(row))
    yield Case("two empty parts", (empty, empty), expected=empty)
    yield pair("a part of -inf alone and another", [-math.inf, -math.inf], [1.0, 2.0])
    for _ in range(12):
        n = rng.randrange(3, 60)
        row = [rng.gauss(rng.choice((0, 0, 500, -500)), 5) for _ in range(n)]
        for i in range(n):
            if rng.random() < 0.1:
                row[i] = -math.inf
        cuts = sorted(rng.choices(range(n + 1), k=rng.randrange(1, 8)))
        parts = [_part(row[a:b]) for a, b in zip([0, *cuts], [*cuts, n], strict=True)]
        order = [rng.randrange(left) for left in range(len(parts) - 1, 0, -1)]
        label = f"a row of {n} in {len(parts)} parts, merged in some order"
        yield Case(label, (parts, order), expected=_part(row), call="fold")


def explain_merge(case: Case, got: Any) -> tuple[str, str] | None:
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        return "not-a-pair", "Return (m, s)."
    m, s = (v.item() if hasattr(v, "item") else v for v in got)
    if not isinstance(m, int | float) or not isinstance(s, int | float):
        return "not-numbers", "m and s are two numbers."
    want_m, _ = case.expected
    if math.isnan(m) or math.isnan(s):
        if not case.call and all(math.isfinite(largest) for largest, _ in case.args):
            return "exp-overflows", HINTS["exp-overflows"]  # inf / inf: torch and numpy raise nothing
        return "minus-infinity", "-inf - -inf is NaN: look whether the larger maximum is -inf before any exp."
    if case.call or m != want_m:
        return (
            ("maximum", "The maximum of both parts is the larger of the two.")
            if m != want_m
            else (
                "sum-in-a-chain",
                "Merged one after another the sum goes wrong: each merge must bring both sums to the new maximum.",
            )
        )
    (ma, sa), (mb, sb) = case.args

    def near(other: float) -> bool:
        return math.isclose(s, other, rel_tol=1e-9)

    if near(sa + sb):
        return (
            "sums-as-they-are",
            "Each sum is relative to its own maximum: bring both to the new one before adding.",
        )
    if want_m == -math.inf:
        return (
            "empty-sum",
            "Two parts that count for nothing make one that counts for nothing: its sum is 0.0.",
        )
    swapped = sa * _exp(mb - want_m) + sb * _exp(ma - want_m)
    if near(swapped):
        return "factors-swapped", "Each sum is multiplied by exp(its own maximum - the new one)."
    if near(sa * _exp(want_m - ma) + sb * _exp(want_m - mb)):
        return "sign", "exp(old maximum - new maximum): the factor is never above 1."
    if near(sa * _exp(ma) + sb * _exp(mb)):
        return "absolute-sums", "The sum stays relative to the new maximum, or it overflows."
    if near(sa + sb * _exp(mb - ma)) or near(sb + sa * _exp(ma - mb)):
        return (
            "first-maximum",
            "Which of the two maxima is larger differs from call to call: both sums need a factor.",
        )
    return None


def _exp(v: float) -> float:
    return math.inf if v > 700 else math.exp(v) if not math.isnan(v) else math.nan

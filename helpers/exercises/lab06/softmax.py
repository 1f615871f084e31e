"""Hidden cases of the softmaxes of lab 06, and the mistakes behind wrong results."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from helpers.exercises.mistakes import Condition, Seen, Table
from helpers.exercises.model import Case
from helpers.exercises.softmax_parts import FORM, MAXIMUM, NAN, SUM, exp, part, sum_is

if TYPE_CHECKING:
    import torch

    from helpers.exercises.evidence import Evidence

TOLERANCE = {"float32": (2e-5, 1e-30), "float16": (2e-3, 1.2e-7)}  # (relative, absolute) by dtype
_NEAR = (5e-3, 1e-7)  # the same, for the values of a wrong formula


def softmax_cases(widths: tuple[int, ...]) -> Callable[[random.Random, str], Iterator[Case]]:
    """Rows with values that softmaxes often get wrong, as wide as the exercise needs them."""

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
    """The same for rows that are wider than a block."""
    from helpers.exercises import inputs

    yield from softmax_cases((9001, 17_000))(rng, device)
    n = (1 << 20) + rng.randrange(1, 5000)
    yield Case(f"a (1, {n}) float32 tensor", (inputs.values(rng, (1, n), device=device) * 3,))


# ----------------------------------------------------------------------------------------- wrong softmaxes
def _gives(s: Evidence, values: torch.Tensor) -> bool:
    """Whether a wrong result has these values, and not just values close to the right ones.

    Values that are close to the right ones are also close to those of many formulas. Then a formula has to
    match the result as exactly as the check itself does.
    """
    rel, abs = s.tolerance if s.like(s.expected, *_NEAR) else _NEAR
    return s.like(values, rel, abs) and not s.like(s.expected, rel, abs)


def _formula(of: Callable[[torch.Tensor], torch.Tensor]) -> Condition:
    return lambda s: _gives(s, of(s.x.double()))


def _normalized(powers: torch.Tensor) -> torch.Tensor:
    return powers / powers.sum(dim=1, keepdim=True)


def _powers(x: torch.Tensor) -> torch.Tensor:
    return (x - x.amax(dim=1, keepdim=True)).exp()


def _padding_counts(s: Evidence) -> bool:
    """Whether the sum includes zeros that fill up the row to a power of two."""
    x, n = s.x.double(), s.x.shape[1]
    n_padded = (1 << max(n - 1, 0).bit_length()) - n
    largest = x.amax(dim=1, keepdim=True)
    for m in (largest, largest.clamp(min=0)):
        e = (x - m).exp()
        if n_padded and _gives(s, e / (e.sum(dim=1, keepdim=True) + n_padded * (-m).exp())):
            return True
    return False


def _nan_blind(s: Evidence) -> bool:
    return bool((s.expected.isnan() & ~s.got.isnan()).any() and not s.x.isfinite().all())


def _minus_infinity(s: Evidence) -> bool:
    rows = s.x.isneginf().any(dim=1, keepdim=True)
    return bool((rows & s.got.isnan() & ~s.expected.isnan()).any() and not s.got.isinf().any())


def _only_first_columns(s: Evidence) -> str:
    """How many columns were written, if the later ones never were; otherwise ""."""
    got = s.got[~s.expected.isnan().any(dim=1)]
    n = got.shape[1]
    all_nan = got.isnan().all(dim=0)
    first = int(n - all_nan.flip(0).long().cumprod(0).sum())
    first_columns_only = len(got) and 0 < first < n and not got[:, :first].isnan().any()
    return f"only the first {first:,} of {n:,} columns were written" if first_columns_only else ""


def _wrong_sum(s: Evidence) -> bool:
    """Whether all values of a row are wrong by the same factor."""
    import torch

    rows = ~s.expected.isnan().any(dim=1)
    got, expected = s.got[rows].double(), s.expected[rows]
    # Small values of a row are ignored, because float16 stores few of their bits.
    large = expected > 1e-2 * expected.amax(dim=1, keepdim=True)
    ratio = torch.where(large, got / expected, torch.nan)
    factor = ratio.nanmedian(dim=1, keepdim=True).values
    rounding = max(2e-5, torch.finfo(s.got.dtype).eps)
    off = (factor - 1).abs()
    same = ((ratio / factor - 1).abs() < (off / 20).clamp(rounding, 1e-3))[large]
    return bool((off > rounding).any() and same.all())


_MISTAKES = {
    "no-maximum": _formula(lambda x: _normalized(x.float().exp())),
    "one-maximum": _formula(lambda x: _normalized((x - x.max()).exp())),
    "padding-counts": _padding_counts,
    "no-sum": _formula(_powers),
    "columns-for-rows": _formula(lambda x: x.softmax(dim=0)),
    "logarithm": _formula(lambda x: x.log_softmax(dim=1)),
    "nan-blind": _nan_blind,
    "minus-infinity": _minus_infinity,
    "wrong-maximum": lambda s: bool((s.got.isinf() & s.expected.isfinite()).any()),
    "only-first-block": _only_first_columns,
    "wrong-sum": _wrong_sum,
}
MISTAKES = Table("softmax", "06_fusion", _MISTAKES)  # both exercises make the same mistakes


# -------------------------------------------------------------------------------------------- merged parts
def merge_cases(rng: random.Random) -> Iterator[Case]:
    empty = (-math.inf, 0.0)

    def pair(label: str, a: list[float], b: list[float]) -> Case:
        return Case(label, (part(a), part(b)), expected=part(a + b))

    yield pair("parts [1, 3, 2] and [5, 0]", [1.0, 3.0, 2.0], [5.0, 0.0])
    yield pair("parts [5, 0] and [1, 3, 2]", [5.0, 0.0], [1.0, 3.0, 2.0])
    row = [rng.gauss(0, 3) for _ in range(9)]
    yield pair("two parts of a row of 9", row[:4], row[4:])
    yield pair("two parts with the same maximum", [2.5, 1.0], [2.5, 2.5])
    yield pair("two negative parts", [-50.0, -51.0], [-53.0])
    yield pair("a part near 1000 and one near 0", [1000.0, 999.0], [0.5, 1.0])
    yield pair("a part near -1000 and one near 1000", [-1000.0], [1000.0, 1000.0])
    yield Case("an empty part and another", (empty, part(row)), expected=part(row))
    yield Case("a part and an empty one", (part(row), empty), expected=part(row))
    yield Case("two empty parts", (empty, empty), expected=empty)
    yield pair("a part of -inf alone and another", [-math.inf, -math.inf], [1.0, 2.0])
    for _ in range(12):
        n = rng.randrange(3, 60)
        row = [rng.gauss(rng.choice((0, 0, 500, -500)), 5) for _ in range(n)]
        for i in range(n):
            if rng.random() < 0.1:
                row[i] = -math.inf
        borders = sorted(rng.choices(range(n + 1), k=rng.randrange(1, 8)))
        parts = [part(row[a:b]) for a, b in zip([0, *borders], [*borders, n], strict=True)]
        order = [rng.randrange(left) for left in range(len(parts) - 1, 0, -1)]
        label = f"a row of {n} in {len(parts)} parts, merged in some order"
        yield Case(label, (parts, order), expected=part(row), call="fold")


def _with_factors(s: Seen, *factors: float) -> bool:
    return sum_is(s, sum(one * factor for (_, one), factor in zip(s.parts, factors, strict=True)))


def _first_maximum(s: Seen) -> bool:
    (ma, _), (mb, _) = s.parts
    return _with_factors(s, 1, exp(mb - ma)) or _with_factors(s, exp(ma - mb), 1)


MERGE_MISTAKES = {
    **FORM,
    **NAN,
    **MAXIMUM,
    "sum-in-a-chain": lambda s: bool(s.case.call),
    **SUM,
    "factors-swapped": lambda s: _with_factors(s, *(exp(m - s.want[0]) for m, _ in reversed(s.parts))),
    "first-maximum": _first_maximum,
}

"""Hidden sums for "bound-a-sum": float32 sums in honest orders, and sums that a bound has to reject."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from helpers.exercises.mistakes import Conditions, Seen
from helpers.exercises.model import Case

if TYPE_CHECKING:
    import torch

U = 2.0**-24  # float32's unit roundoff
HALF_BLOCK = 1024  # terms that the float16 accumulator gets at a time
# A sum is only used as a wrong one if a row's error is this many times u √n (|sum| + √(sum of squares)). The
# honest ones stay below 2: tests/exercises/test_lab13.py measures both.
CLEARLY_WRONG = 15.0


# ------------------------------------------------------------------------------------------------ the orders
def sequential(x: np.ndarray) -> np.ndarray:
    """From left to right in one float32 accumulator."""
    return np.add.accumulate(x, axis=1)[:, -1]


def backwards(x: np.ndarray) -> np.ndarray:
    """From right to left in one float32 accumulator."""
    return sequential(np.ascontiguousarray(x[:, ::-1]))


def shuffled(x: np.ndarray) -> np.ndarray:
    """In an order that is drawn anew for each call, as atomic additions do."""
    return sequential(x[:, np.random.default_rng().permutation(x.shape[1])])


def _padded(x: np.ndarray, multiple: int) -> np.ndarray:
    return np.pad(x, ((0, 0), (0, -x.shape[1] % multiple)))


def pairwise(x: np.ndarray) -> np.ndarray:
    """As a tree: the halves are added until one term is left."""
    x = _padded(x, 1 << max(x.shape[1] - 1, 0).bit_length())
    while x.shape[1] > 1:
        x = x[:, ::2] + x[:, 1::2]
    return x[:, 0]


def in_lanes(x: np.ndarray, n_lanes: int = 32) -> np.ndarray:
    """In one accumulator per lane, which are added as a tree."""
    lanes = _padded(x, n_lanes).reshape(len(x), -1, n_lanes)
    return pairwise(np.add.accumulate(lanes, axis=1)[:, -1])


def in_blocks(x: np.ndarray, size: int = HALF_BLOCK) -> np.ndarray:
    """Each block as a tree, and the blocks' sums from left to right."""
    return sequential(_block_sums(x, size))


def _block_sums(x: np.ndarray, size: int) -> np.ndarray:
    blocks = _padded(x, size).reshape(-1, size)
    return pairwise(blocks).reshape(len(x), -1)


def in_half(x: np.ndarray) -> np.ndarray:
    """Block by block, in a float16 accumulator."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums = _block_sums(x, min(HALF_BLOCK, x.shape[1])).astype(np.float16)
        return np.add.accumulate(sums, axis=1)[:, -1].astype(np.float32)


def without_a_block(x: np.ndarray) -> np.ndarray:
    """Without one block in the middle: one term in 500, and at least one."""
    n = x.shape[1]
    size, start = max(1, n // 500), n // 2
    return sequential(np.delete(x, slice(start, start + size), axis=1))


def without_the_tail(x: np.ndarray) -> np.ndarray:
    """Without the terms after the last full block of 32."""
    n = x.shape[1]
    return sequential(x[:, : n // 32 * 32]) if n >= 32 else x[:, 0]


@dataclass(frozen=True)
class HiddenSum:
    """One way to add a row: "a float32 sum …"."""

    add: Callable[[np.ndarray], np.ndarray]
    what: str
    honest: bool = True


SUMS = (
    HiddenSum(sequential, "a float32 sum from left to right"),
    HiddenSum(backwards, "a float32 sum from right to left"),
    HiddenSum(pairwise, "a float32 sum as a tree"),
    HiddenSum(in_lanes, "a float32 sum in 32 lanes"),
    HiddenSum(in_blocks, "a float32 sum in blocks of 1,024"),
    HiddenSum(shuffled, "a float32 sum in a random order"),
    HiddenSum(in_half, "a sum with a float16 accumulator", honest=False),
    HiddenSum(without_a_block, "a sum without one block of terms", honest=False),
    HiddenSum(without_the_tail, "a sum without the terms after the last full block", honest=False),
)


# ------------------------------------------------------------------------------------------------- the terms
def _mean_zero(g: np.random.Generator, rows: int, n: int) -> np.ndarray:
    return g.standard_normal((rows, n))


def _cancelling(g: np.random.Generator, rows: int, n: int) -> np.ndarray:
    x = _mean_zero(g, rows, n)
    x[:, -1] -= x.sum(1)
    return x


def _few_large(g: np.random.Generator, rows: int, n: int) -> np.ndarray:
    return _mean_zero(g, rows, n) * np.where(g.random((rows, n)) < 0.02, 300.0, 1.0)


TERMS: dict[str, Callable[[np.random.Generator, int, int], np.ndarray]] = {
    "terms around 0": _mean_zero,
    "terms between 0 and 1": lambda g, rows, n: g.random((rows, n)),
    "terms around 0.1": lambda g, rows, n: _mean_zero(g, rows, n) + 0.1,
    "terms whose sum is almost 0": _cancelling,
    "small terms": lambda g, rows, n: 1e-6 * _mean_zero(g, rows, n),
    "large terms": lambda g, rows, n: 1e4 * _mean_zero(g, rows, n),
    "a few large terms among small ones": _few_large,
}
SIZES = (10, 100, 781, 4_096, 30_000, 1_000_000)
_MOST_TERMS = 1 << 17  # per case, except that there are always two rows


@dataclass(frozen=True)
class Judged:
    """A hidden sum of one case.

    Attributes:
        sum: how it adds.
        errors: how far each row's sum is from the exact one, float64.
    """

    sum: HiddenSum
    errors: np.ndarray


def cases(rng: random.Random) -> Iterator[Case]:
    """One case for each number of terms and kind of term, but only two kinds for a million terms."""
    kinds = list(TERMS)
    for n in SIZES:
        for kind in kinds if n < 100_000 else kinds[:2]:
            g = np.random.default_rng(rng.randrange(2**32))
            rows = max(2, min(64, _MOST_TERMS // n))
            yield case(TERMS[kind](g, rows, n).astype(np.float32), f"{n:,} {kind}")


def case(x: np.ndarray, label: str) -> Case:
    """The case of these rows; a wrong sum that happens to be almost right is left out."""
    import torch

    exact, unit = x.astype(np.float64).sum(1), units(x)
    found = []
    for one in SUMS:
        errors = np.nan_to_num(np.abs(one.add(x) - exact), nan=np.inf)
        if one.honest or (errors >= CLEARLY_WRONG * unit).any():
            found.append(Judged(one, errors))
    return Case(label, (torch.from_numpy(x),), expected=tuple(found))


def units(x: np.ndarray) -> np.ndarray:
    """u √n (|sum| + √(sum of squares)) per row, in which errors are measured."""
    x = x.astype(np.float64)
    return U * math.sqrt(x.shape[1]) * (np.abs(x.sum(1)) + np.sqrt(np.square(x).sum(1)))


# ----------------------------------------------------------------------------------------------- the answers
def parts(seen: Seen) -> Iterable[Seen]:
    """The answer, compared with each hidden sum: how far the worst row is off, and what the bound allows."""
    bound = _bounds(seen)
    if bound is None:
        yield seen
        return
    x = seen.x.double().numpy()
    size, n = np.abs(x).sum(1), x.shape[1]
    of_all_sizes, of_partial_sums = bound / size, bound / units(x)
    exact = np.abs(x.sum(1))
    not_zero = exact > 1e-9 * size
    shapes = {
        "one_number": _alike(bound) and not _alike(size),
        "of_the_sum": not_zero.sum() > 1 and _alike(bound[not_zero] / exact[not_zero]),
        "of_all_sizes": _alike(of_all_sizes),
        "n_roundings": (_alike(of_all_sizes) and 0.2 < of_all_sizes.max() / (n * U) < 20)
        or (_alike(of_partial_sums) and 0.2 < of_partial_sums.max() / math.sqrt(n) < 20),
    }
    for judged in seen.want:
        over = judged.errors - bound
        row = int(over.argmax())
        what = f"{judged.sum.what} is off by {judged.errors[row]:.2g} in row {row}"
        yield seen.also(
            **shapes,
            rejected=bool(over[row] > 0),
            honest=judged.sum.honest,
            found=f"{what}, and your bound allows {bound[row]:.2g}",
        )


def _bounds(seen: Seen) -> np.ndarray | None:
    """The answer as one number per row, or None if it isn't that."""
    try:
        bound = np.asarray(seen.got, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    good = bound.shape == (len(seen.x),) and np.isfinite(bound).all() and (bound >= 0).all()
    return bound if good else None


def _alike(values: np.ndarray) -> bool:
    return bool(values.max() <= 1.001 * values.min())


def about(x: torch.Tensor) -> dict[str, int]:
    """Facts about a case for the table of mistakes."""
    return {"n_rows": len(x), "n_terms": x.shape[1]}


def _too_tight(s: Seen) -> str:
    return f"{s.found}, so an honest kernel is rejected" if s.honest and s.rejected else ""


def _too_loose(s: Seen) -> str:
    return f"{s.found}, so it is accepted" if not s.honest and not s.rejected else ""


MISTAKES: Conditions = {
    "not-bounds": lambda s: _bounds(s) is None,
    "one-number/tight": lambda s: s.one_number and _too_tight(s),
    "one-number/loose": lambda s: s.one_number and _too_loose(s),
    "relative/tight": lambda s: s.of_the_sum and _too_tight(s),
    "relative/loose": lambda s: s.of_the_sum and _too_loose(s),
    "worst-case": lambda s: s.n_roundings and _too_loose(s),
    "all-sizes": lambda s: s.of_all_sizes and _too_loose(s),
    "too-tight": _too_tight,
    "too-loose": _too_loose,
}

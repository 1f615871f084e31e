"""How far a right result may be off: what the operation itself can reach on these inputs.

One tolerance for every kernel is too strict for a sum of a million terms, or too lax for one rounding. So three errors
are computed for each element, and it may be off by FACTOR times the largest of them:

- **the reference's own**: |the reference in the inputs' dtype - the reference in float64|;
- **one rounding of each input**: what the float64 reference moves by when each input element is changed by one rounding
  of the dtype, by random signs, several times. That is u * t, where u is the unit roundoff and t the root of the summed
  squares of what the result is made of (for a dot product the x_i * w_i); with the rounding of the result itself,
  u * (|result| + t);
- **a sum's roundings**: u * sqrt(d) * (s + t), for partial sums of about s that are rounded d times, one after the
  other; s is |result| or the root mean square of its row, since a scan's sums were larger before one that is nearly 0
  (N. Higham and T. Mary, "A new approach to probabilistic rounding error analysis", 2019: errors grow with the root of
  the length). d is the number of inputs that a result depends on, found by changing single inputs, but 16,384 at most:
  who adds ten million numbers into one float32 is far further off than a kernel need be, and says `tolerance=`.
  float16, bfloat16 and TF32 are taken to be summed in float32.

t and the reference's error are averaged over neighbours in their row, since either is by chance near zero now and then.

FACTOR times the largest is never more than CAP times the result's size (|result| or the root mean square of its row),
or than the fixed tolerance where that is more: a product in bfloat16 in the place of one in float32 stays wrong even if
the reference itself computed in bfloat16.

What `python tests/check_bounds.py --seeds 1000` measured (2026-11-22, torch 2.13 on a CPU; the kernels are in
`tests/check_kernels.py`): the FACTOR that the right kernels needed at most, and the wrong ones at least. 0 is a result
within the fixed tolerance. Right are sums in a row, reversed, by blocks, trees, lanes and atomics.

| operation               | right, at most                    | wrong, at least                                          |
|-------------------------|-----------------------------------|----------------------------------------------------------|
| sum, float32            | 1.17 by blocks                    | 10 float16 inside, 132 a block in 1,000 left out         |
| scan, float32           | 0.98 by blocks, 781               | 6.0 float16 inside, 194 one element off by 1 %           |
| product, float32        | 0.94 in a row, 4,096              | 74 TF32 inside, 574 bfloat16 inside, 639 one element     |
| convolution, float32    | 0.93 tap by tap                   | 328 TF32 inside, 2,350 one element                       |
| product, TF32           | 2.68 cut, 2.50 to nearest         | 3.9 one element off by 1 %, 6.1 bfloat16 inside          |
| convolution, TF32       | 2.66 to nearest                   | 7.2 bfloat16 inside                                      |
| product, float16        | 0                                 | 5.3 one element, 5.9 bfloat16 inside, 209 the last tile  |
| product, bfloat16       | 0                                 | 12 three bits inside, 26 the last tile                   |
| softmax, float32        | 0                                 | 49 float16 inside, 161 one element                       |
| layer norm, float32     | 0 in one pass                     | 4.2 a variance over n - 1 of 10,000                      |
| attention, 16 bits      | 1.50 weights in bfloat16          |                                                          |
| product, GELU, float32  | 1.28                              |                                                          |

The one element is no smaller than the root mean square: what is nearly zero by cancellation is known less well than 1 %.
One result alone (a dot product of two vectors) can be right by chance in whatever precision; several are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from helpers.check.closeness import (
    Allowed,
    as_rows,
    name_of,
    row_length,
    tolerance_of,
    within,
)

if TYPE_CHECKING:
    import torch

FACTOR = 3.0
LONGEST_SUM = 16_384  # roundings one after the other in one accumulator


@dataclass(frozen=True)
class Rounding:
    """How a kernel rounds. `unit` is the unit roundoff of its inputs, `sums` that of its sums, `cap` the bound's cap."""

    name: str
    unit: float
    sums: float
    cap: float


# A cap is a rounding of the next coarser format that a kernel might use in secret, TF32 below float32, or about that.
ROUNDINGS = {
    one.name: one
    for one in (
        Rounding("float64", 2.0**-53, 2.0**-53, 2.0**-24),
        Rounding("float32", 2.0**-24, 2.0**-24, 2.0**-11),
        Rounding("TF32", 2.0**-11, 2.0**-24, 2.0**-7),
        Rounding("float16", 2.0**-11, 2.0**-24, 2.0**-7),
        Rounding("bfloat16", 2.0**-8, 2.0**-24, 2.0**-4),
    )
}


@dataclass(frozen=True)
class Bound:
    """How far each element of one result may be off: the fixed tolerance of its dtype, or what the operation can reach.

    Attributes:
        dtype: of the result.
        rounding: how the kernel may round.
        n_terms: how many inputs a result depends on; 1 for an elementwise operation.
        size: each row's root mean square, shape (rows, 1), float64; rows as `closeness.as_rows` has them.
        own: the reference's own error in the inputs' dtype, (rows, columns); None where it does not run in that dtype.
        terms: the root of the summed squares of what each result is made of, (rows, columns); None without float inputs.
    """

    dtype: torch.dtype
    rounding: Rounding
    n_terms: float
    size: torch.Tensor
    own: torch.Tensor | None = None
    terms: torch.Tensor | None = None

    def reaches(self, e: torch.Tensor, rows: slice, columns: slice) -> dict[str, torch.Tensor]:
        """The three errors that the operation itself can reach at a piece of the rows, by their names, float64."""
        import torch

        terms = 0.0 if self.terms is None else self.terms[rows, columns]
        depth = min(self.n_terms, LONGEST_SUM)
        partial = torch.maximum(e.abs(), self.size[rows])
        found = {
            "inputs": self.rounding.unit * (e.abs() + terms),
            "sums": self.rounding.sums * math.sqrt(depth) * (partial + terms),
        }
        if self.own is not None:
            found["own"] = self.own[rows, columns].double()
        return found

    def parts(self, e: torch.Tensor, rows: slice, columns: slice) -> dict[str, torch.Tensor]:
        """What each rule allows at a piece of the rows: "fixed" at least, FACTOR times the errors, "cap" at most."""
        import torch

        relative, absolute = tolerance_of(self.dtype)
        cap = self.rounding.cap * torch.maximum(e.abs(), self.size[rows])
        found = {name: FACTOR * reached for name, reached in self.reaches(e, rows, columns).items()}
        found["fixed"] = strict(self.dtype, self.size)(e, rows, columns)
        found["cap"] = torch.maximum(cap, within(relative, absolute)(e, rows, columns))
        return found

    def allowed(self, e: torch.Tensor, rows: slice, columns: slice) -> torch.Tensor:
        """How far from `e`, the float64 reference at a piece of the rows, a result may be."""
        import torch

        parts = self.parts(e, rows, columns)
        fixed, cap = parts.pop("fixed"), parts.pop("cap")
        most = torch.stack([part.nan_to_num_(0.0) for part in parts.values()]).amax(dim=0)
        return torch.maximum(fixed, torch.minimum(most, cap))

    def says(self, index: tuple[int, ...], expected: torch.Tensor) -> str:
        """Which rule it was at one element, in a sentence."""
        row, column = divmod(_flat(index, expected.shape), row_length(expected.shape))
        at = slice(row, row + 1), slice(column, column + 1)
        parts = {name: float(part) for name, part in self.parts(as_rows(expected)[at], *at).items()}
        fixed, cap = parts.pop("fixed"), parts.pop("cap")
        which = max(parts, key=parts.__getitem__)
        name, reached = self.rounding.name, parts[which]
        if fixed >= min(reached, cap):
            why = f"the fixed tolerance of {name_of(self.dtype)}; the operation itself reaches less"
            return f"Allowed at {index}: {fixed:.2g}, {why}."
        why = {
            "own": f"the error of the reference itself in {name}",
            "inputs": f"what one rounding of each input to {name} moves the float64 reference",
            "sums": f"what the roundings of a sum of {self.n_terms:,.0f} terms reach in {name}",
        }[which]
        why = f"{FACTOR:g} times {why}"
        if cap < reached:
            why = (
                f"{self.rounding.cap:.2g} of the result's size, the cap of {name}; {why} would be {reached:.2g}. "
                "Give inputs that decide more, or `tolerance`"
            )
        return f"Allowed at {index}: {min(reached, cap):.2g}, {why}."


def _flat(index: Sequence[int], shape: Sequence[int]) -> int:
    flat = 0
    for i, size in zip(index, shape, strict=True):
        flat = flat * size + i
    return flat


def strict(dtype: torch.dtype, size: torch.Tensor) -> Allowed:
    """The fixed tolerance of a dtype, whose absolute part shrinks where a row's results are far smaller than 1.

    Args:
        dtype: of the result.
        size: each row's root mean square, shape (rows, 1).
    """
    import torch

    relative, absolute = tolerance_of(dtype)
    info = torch.finfo(dtype)
    least = info.smallest_normal if dtype is not torch.float16 else info.smallest_normal * info.eps
    shrunk = (absolute * (16 * size).clamp(max=1.0)).clamp(min=least)
    return within(relative, torch.where(size == 0, absolute, shrunk))


def in_tf32(bound: Bound) -> Bound:
    """The same for a kernel that may round the factors of its float32 products to TF32."""
    return replace(bound, rounding=ROUNDINGS["TF32"])

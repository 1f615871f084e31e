"""How far a correct result may differ from the reference, derived from the operation and its inputs.

A single tolerance for every kernel is too strict for a sum of a million terms, or too lax for one rounding.
So three errors are computed for each element, and the element may be off by FACTOR times the largest of
them:

- **the reference's own error**: |the reference in the inputs' dtype - the reference in float64|;
- **one rounding of each input**: how much the float64 reference changes if each input element is changed by
  one rounding of the dtype, with random signs, several times. That is u * t, where u is the unit roundoff
  and t the root of the summed squares of the result's terms (for a dot product the x_i * w_i). With the
  rounding of the result itself it becomes u * (|result| + t);
- **the roundings of a sum**: u * sqrt(d) * (s + t), for partial sums of about s that are rounded d times in
  succession. s is |result| or the root mean square of its row, because a scan's sums were larger before
  they reached one that is almost 0 (N. Higham and T. Mary, "A new approach to probabilistic rounding error
  analysis", 2019: errors grow with the root of the length). d is the number of inputs that a result depends
  on, found by changing single inputs, but at most 16,384: adding ten million numbers into a single float32
  is much less accurate than a kernel needs to be, and requires `tolerance=`. We assume that float16,
  bfloat16 and TF32 are accumulated in float32.

A product of float16 or bfloat16 factors is known better: the factors are exact, and so are their products in
float32. The second error is left out there, and what remains is the accumulator's. Tensor cores truncate
their sums (M. Fasi et al., "Numerical behavior of NVIDIA tensor cores", 2021), so the errors can have the
same sign and grow with the number of additions. We assume 8 terms per addition, and use d / 8 instead of
sqrt(d) where that is more. So a float16 accumulator is wrong from about 256 terms on. For fp8 we don't
assume this, because the tensor cores of compute capability 9.0 add fp8 products in fewer bits than float32
(DeepSeek-V3 Technical Report, 2024). A float32 result of such sums requires `tolerance=`.

A float32 convolution may be computed in tiles that are transformed first, with fewer multiplications. In the
transforms of Winograd's F(4 x 4, 3 x 3), numbers grow before they cancel (A. Lavin and S. Gray, "Fast
algorithms for convolutional neural networks", 2016), so the third error is taken TRANSFORMED times.

Of more than COMMON results, the largest errors are farther from the usual ones, as those of a normal
distribution are, so FACTOR grows with the root of the logarithm of their number: by a fifth for 20 million.

t and the reference's error are averaged over neighbors in their row, because either can be close to zero by
chance.

A formula that adds to 1 loses small results: GELU's 1 + erf(x / sqrt(2)) is 0 below x = -5.5 in float32, and
below -8.3 in float64, where a kernel with erfc gets the right 1e-17. So the fixed tolerance of a row of small
results is at least that of a row of SMALL times the root mean square of all results (or SMALL, if that is
less). And every result may be off by FACTOR * RESOLUTION times the largest input (or 1, if that is less).

FACTOR times the largest error is limited to CAP times the result's size (|result| or the root mean square
of its row), or to the fixed tolerance if that is larger. So a product in bfloat16 instead of float32 is
wrong even if the reference itself computes in bfloat16. In TF32, only the reference's own error is limited
like that, and the two others to four times as much: of 32 million results of a convolution that is normalized
afterwards, 29 were beyond the cap, and of a convolution of numbers around 1 in Triton one of 8 million was
beyond twice the cap (H200, 2026-11-29).

Where layers of a reference may use TF32, t is at least the root mean square of all t that aren't 0, and so
is the size of a row. A ReLU can be 0 in all of a row, and t with it, although a rounding to TF32 moves one of
its inputs above 0.

The table shows what `python tests/check_bounds.py --seeds 1000` measured (2026-11-22, torch 2.13 on a CPU;
the kernels are in `tests/check_kernels.py`): the largest FACTOR that a correct kernel needed, and the
smallest one that a wrong kernel would need. 0 is a result within the fixed tolerance. Correct sums are
computed sequentially, reversed, in blocks, as trees, per lane and with atomics. The rows for 16 bits were
measured with 150 seeds (2026-11-25), that for float32 convolutions with 200 (2026-11-27).

operation            correct, at most            wrong, at least
sum, float32         1.17 in blocks              10 float16 inside, 132 one block in 1,000 missing
scan, float32        0.98 in blocks of 781       6.0 float16 inside, 194 one element off by 1 %
product, float32     0.94 sequential, 4,096      74 TF32 inside, 574 bfloat16 inside, 639 one element
convolution, float32 2.59 Winograd, 0.13 others  42 TF32 inside, 338 one element
product, TF32        2.68 truncated, 2.50 nearest  3.9 one element off by 1 %, 6.1 bfloat16 inside
convolution, TF32    2.66 nearest                7.2 bfloat16 inside
product, float16     0.33 truncated, 16,384      9.4 float16 sums, 20 one element, 31 bfloat16 inside
product, bfloat16    0.06 truncated, 16,384      9.2 bfloat16 sums, 69 three bits inside, 78 the last tile
two products, 16 bits  1.00 rounded between
softmax, float32     0                           49 float16 inside, 161 one element
layer norm, float32  0 in one pass               4.2 a variance over n - 1 of 10,000
attention, 16 bits   1.50 weights in bfloat16
product, GELU, float32  1.28

The one element is never smaller than the root mean square: an element that is almost zero by cancellation
is known less precisely than 1 %. A single result (a dot product of two vectors) can be correct by chance in
any precision; several results cannot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from helpers.check.closeness import (
    FLOAT8,
    Allowed,
    as_rows,
    name_of,
    pieces,
    row_length,
    tolerance_of,
    within,
)

if TYPE_CHECKING:
    import torch

FACTOR = 3.0
COMMON = 100_000  # results
RESOLUTION = 2.0**-52  # what a float64 reference can lose that adds numbers to 1
SMALL = 1 / 32  # the size below which the absolute tolerance doesn't shrink, in parts of all results' size
LONGEST_SUM = 16_384  # successive roundings in one accumulator
ADDED_AT_ONCE = 8  # terms that a tensor core adds to its accumulator with one rounding
TRANSFORMED = 8.0  # how much larger Winograd's transforms make the errors of a convolution's sums
EXACT = ("float16", "bfloat16")  # factors whose products are exact in float32


@dataclass(frozen=True)
class Rounding:
    """How a kernel rounds.

    Attributes:
        name: the format's name.
        unit: the unit roundoff to which the kernel may round its inputs.
        sums: the unit roundoff of its sums.
        cap: the bound's cap, relative to the result's size.
        derived: how many times that is the cap of errors that are derived from the inputs alone.
    """

    name: str
    unit: float
    sums: float
    cap: float
    derived: float = 1.0


# A cap is about one rounding of the next coarser format that a kernel might use unnoticed, such as TF32
# instead of float32.
ROUNDINGS = {
    one.name: one
    for one in (
        Rounding("float64", 2.0**-53, 2.0**-53, 2.0**-24),
        Rounding("float32", 2.0**-24, 2.0**-24, 2.0**-11),
        Rounding("TF32", 2.0**-11, 2.0**-24, 2.0**-7, derived=4.0),
        Rounding("float16", 2.0**-11, 2.0**-24, 2.0**-7),
        Rounding("bfloat16", 2.0**-8, 2.0**-24, 2.0**-4),
        # computed in bfloat16 at least
        Rounding("float8_e4m3fn", 2.0**-8, 2.0**-24, 2.0**-3),
        Rounding("float8_e4m3fnuz", 2.0**-8, 2.0**-24, 2.0**-3),
        Rounding("float8_e5m2", 2.0**-8, 2.0**-24, 2.0**-2),
    )
}


@dataclass(frozen=True)
class Bound:
    """How far each element of one result may be off: by the dtype's fixed tolerance, or by what the
    operation causes.

    Attributes:
        dtype: the result's dtype.
        rounding: how the kernel may round.
        n_terms: how many inputs a result depends on; 1 for an elementwise operation.
        size: each row's root mean square, shape (rows, 1), float64; the rows are those of
            `closeness.as_rows`.
        reference_error: the reference's own error in the inputs' dtype, (rows, columns); None if it doesn't
            run in that dtype.
        terms: the root of the summed squares of each result's terms, (rows, columns); None without float
            inputs.
        exact_factors: whether the result is a product whose factors a kernel has no reason to round.
        transformed: whether a kernel may transform the factors before it multiplies, as of a convolution.
        resolution: what the float64 reference itself may lose of small results.
        n_rounded: how many times factors are rounded, of which only the first are inputs.
    """

    dtype: torch.dtype
    rounding: Rounding
    n_terms: float
    size: torch.Tensor
    reference_error: torch.Tensor | None = None
    terms: torch.Tensor | None = None
    exact_factors: bool = False
    transformed: bool = False
    resolution: float = 0.0
    n_rounded: int = 1

    @property
    def factor(self) -> float:
        """How many times larger than the derived error an element's may be."""
        known = self.reference_error if self.terms is None else self.terms
        n = 0 if known is None else known.numel()
        return FACTOR * math.sqrt(max(1.0, math.log(max(n, 1)) / math.log(COMMON)))

    def reaches(self, e: torch.Tensor, rows: slice, columns: slice) -> dict[str, torch.Tensor]:
        """The errors that the operation itself can cause at a piece of the rows, by name, float64."""
        import torch

        terms = 0.0 if self.terms is None else self.terms[rows, columns]
        depth = min(self.n_terms, LONGEST_SUM)
        roundings = max(math.sqrt(depth), depth / ADDED_AT_ONCE if self.exact_factors else 0)
        roundings *= TRANSFORMED if self.transformed else 1
        partial = torch.maximum(e.abs(), self.size[rows])
        found = (
            {}
            if self.exact_factors
            else {"inputs": self.rounding.unit * math.sqrt(self.n_rounded) * (e.abs() + terms)}
        )
        found["sums"] = self.rounding.sums * roundings * (partial + terms)
        found["resolution"] = torch.full_like(e, self.resolution)
        if self.reference_error is not None:
            found["reference"] = self.reference_error[rows, columns].double()
        return found

    def parts(self, e: torch.Tensor, rows: slice, columns: slice) -> dict[str, tuple[torch.Tensor, ...]]:
        """What each rule allows at a piece of the rows, by name: a multiple of the error, and its cap."""
        import torch

        size = torch.maximum(e.abs(), self.size[rows])
        fixed = within(*tolerance_of(self.dtype))(e, rows, columns)
        found = {}
        for name, reached in self.reaches(e, rows, columns).items():
            cap = self.rounding.cap * (1.0 if name == "reference" else self.rounding.derived)
            found[name] = self.factor * reached, torch.maximum(cap * size, fixed)
        return found

    def allowed(self, e: torch.Tensor, rows: slice, columns: slice) -> torch.Tensor:
        """How far a result may differ from `e`, the float64 reference at a piece of the rows."""
        import torch

        parts = self.parts(e, rows, columns).values()
        most = torch.stack([torch.minimum(part.nan_to_num_(0.0), cap) for part, cap in parts]).amax(dim=0)
        return torch.maximum(strict(self.dtype, self.size)(e, rows, columns), most)

    def explain(self, index: tuple[int, ...], expected: torch.Tensor) -> str:
        """A sentence that explains which rule determines what is allowed at one element."""
        row, column = divmod(_flat(index, expected.shape), row_length(expected.shape))
        at = slice(row, row + 1), slice(column, column + 1)
        e = as_rows(expected)[at]
        fixed = float(strict(self.dtype, self.size)(e, *at))
        parts = {name: (float(part), float(cap)) for name, (part, cap) in self.parts(e, *at).items()}
        if self.n_terms < 2 and "inputs" in parts:
            del parts["sums"]  # there is no sum; both are about as large
        which = max(parts, key=lambda name: (min(parts[name]), parts[name][0]))
        name, (reached, cap) = self.rounding.name, parts[which]
        accumulator = "float64" if name == "float64" else "float32"
        if fixed >= min(reached, cap):
            why = f"the fixed tolerance of {name_of(self.dtype)}; the operation itself causes smaller errors"
            return f"Allowed at {index}: {fixed:.2g}, {why}."
        why = {
            "reference": f"the error of the reference itself in {name}",
            "resolution": "what the float64 reference itself can lose of small results",
            "inputs": f"what one rounding of each input to {name} changes in the float64 reference",
            "sums": f"the error that the roundings of a sum of {self.n_terms:,.0f} terms can reach in "
            f"{accumulator}" + (" if factors are transformed first" if self.transformed else ""),
        }[which]
        why = f"{self.factor:.2g} times {why}"
        if cap < reached:
            size = max(abs(float(e)), float(self.size[row]))
            why = (
                f"{cap / size:.2g} of the result's size, the cap of {name}; {why} would be "
                f"{reached:.2g}. Use inputs for which the result is more accurate, or pass `tolerance`"
            )
        return f"Allowed at {index}: {min(reached, cap):.2g}, {why}."


def _flat(index: Sequence[int], shape: Sequence[int]) -> int:
    flat = 0
    for i, size in zip(index, shape, strict=True):
        flat = flat * size + i
    return flat


def strict(dtype: torch.dtype, size: torch.Tensor) -> Allowed:
    """The fixed tolerance of a dtype; its absolute part shrinks if a row's results are far smaller than 1,
    but not much further than all results.

    Args:
        dtype: the result's dtype.
        size: each row's root mean square, shape (rows, 1).
    """
    import torch

    relative, absolute = tolerance_of(dtype)
    info = torch.finfo(dtype)
    flushed = name_of(dtype) not in ("float16", *FLOAT8)  # whether a GPU may flush subnormal numbers
    least = info.smallest_normal if flushed else info.smallest_normal * info.eps
    of_all = size.square().mean().sqrt().clamp(max=1.0) if size.numel() else size
    least_size = torch.maximum(size, SMALL * of_all)
    shrunk = (absolute * (16 * least_size).clamp(max=1.0)).clamp(min=least)
    return within(relative, torch.where(size == 0, absolute, shrunk))


def in_tf32(bound: Bound) -> Bound:
    """The same bound for a kernel that may round the factors of its float32 products to TF32."""
    return replace(bound, rounding=ROUNDINGS["TF32"])


def in_layers_of_tf32(bound: Bound, n_layers: int, expected: torch.Tensor) -> Bound:
    """The bound for a kernel that may compute convolutions or recurrent layers in TF32.

    Args:
        bound: the bound for float32, which must have `terms`.
        n_layers: how many of them the reference calls.
        expected: the float64 reference.
    """
    return replace(
        in_tf32(bound),
        # Each rounds its weights, which needn't be inputs, and what the one before has returned.
        n_rounded=2 * n_layers,
        size=bound.size.clamp(min=_size_of_others_than_zero(expected)),
        terms=bound.terms.clamp(min=_size_of_others_than_zero(bound.terms)),
    )


def _size_of_others_than_zero(values: torch.Tensor) -> float:
    """The root mean square of all finite elements that aren't 0; 0.0 if there is none."""
    squares, n = 0.0, 0
    rows = as_rows(values)
    for at in pieces(rows):
        piece = rows[at].double().nan_to_num(0.0, 0.0, 0.0)
        squares += float(piece.square().sum())
        n += int(piece.count_nonzero())
    return math.sqrt(squares / max(n, 1))

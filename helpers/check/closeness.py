"""Compare two results element by element, and describe the elements that differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from helpers.check.finding import describe, number

if TYPE_CHECKING:
    import torch

# The allowed errors at a piece of the rows: (expected values, rows, columns) -> a tensor of the same shape.
Allowed: TypeAlias = "Callable[[torch.Tensor, slice, slice], torch.Tensor]"

# (relative, absolute) for a kernel that rounds a few times, compared with a float64 reference.
_TOLERANCE = {
    "float64": (1e-12, 1e-14),
    "float32": (2e-6, 1e-6),
    "float16": (2e-3, 1e-4),
    "bfloat16": (1.6e-2, 1e-3),
    # Nothing is computed in these, so there is only one rounding, of the result.
    "float8_e4m3fn": (7e-2, 2e-3),
    "float8_e4m3fnuz": (7e-2, 1e-3),
    "float8_e5m2": (0.14, 2e-5),
}
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2")
_MAX_LISTED = 4
STEP = 1 << 24  # elements compared at once, because a float64 copy of everything might not fit into memory
NARROW = 17  # rows with fewer elements are combined


class Mismatch(AssertionError):
    """A kernel doesn't compute what its reference does; the message names the case, the elements and
    values.

    Attributes:
        finding: what is wrong with the values in one sentence without a period, by `finding.describe`; "" if
            they weren't compared, because a shape or a type is already wrong.
    """

    def __init__(self, message: str, finding: str = "") -> None:
        super().__init__(message)
        self.finding = finding

    @property
    def reason(self) -> str:
        """The finding, or else the first line of the message."""
        return self.finding or str(self).partition("\n")[0]


def name_of(dtype: torch.dtype) -> str:
    """A dtype's name without "torch."."""
    return str(dtype).removeprefix("torch.")


def tolerance_of(dtype: torch.dtype) -> tuple[float, float]:
    """The (relative, absolute) tolerance of a floating-point dtype.

    Raises:
        ValueError: there is no tolerance for this dtype.

    Example:
        >>> import torch
        >>> from helpers import check
        >>> check.tolerance_of(torch.float32)
        (2e-06, 1e-06)
    """
    if (name := name_of(dtype)) not in _TOLERANCE:
        known = ", ".join(_TOLERANCE)
        raise ValueError(f"There is no default tolerance for {name}, only for {known}; pass `tolerance`.")
    return _TOLERANCE[name]


def row_length(shape: Sequence[int]) -> int:
    """The length of the rows that `as_rows` makes of a tensor of this shape."""
    wide = [size for size in shape if size != 1]
    return wide[-1] if len(wide) > 1 and wide[-1] >= NARROW else math.prod(shape)


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Reshape to (rows, elements per row) along the last dimension; narrow rows are combined into one."""
    length = row_length(tensor.shape)
    return tensor.reshape(tensor.numel() // max(length, 1), length)


def pieces(rows: torch.Tensor) -> Iterator[tuple[slice, slice]]:
    """Slices that cover a (rows, elements) tensor, each of at most 2**24 elements."""
    n_rows, n_cols = rows.shape
    if not rows.numel():
        return
    if n_cols > STEP:
        for row in range(n_rows):
            for start in range(0, n_cols, STEP):
                yield slice(row, row + 1), slice(start, start + STEP)
    else:
        step = max(1, STEP // n_cols)
        for start in range(0, n_rows, step):
            yield slice(start, start + step), slice(None)


def size_of_rows(expected: torch.Tensor) -> torch.Tensor:
    """The root mean square of the finite elements of each row of `as_rows`; shape (rows, 1), float64."""
    import torch

    rows = as_rows(expected)
    total = torch.zeros((rows.shape[0], 1), dtype=torch.float64, device=rows.device)
    count = torch.zeros_like(total)
    for at in pieces(rows):
        e = rows[at].double()
        finite = torch.isfinite(e)
        total[at[0]] += e.masked_fill(~finite, 0.0).square_().sum(dim=1, keepdim=True)
        count[at[0]] += finite.sum(dim=1, keepdim=True)
    return (total / count.clamp_(min=1)).sqrt_()


def within(relative: float, absolute: float | torch.Tensor) -> Allowed:
    """A relative and an absolute error; the absolute one may be a tensor of shape (rows, 1)."""

    def allowed(e: torch.Tensor, rows: slice, columns: slice) -> torch.Tensor:
        return (absolute if isinstance(absolute, int | float) else absolute[rows]) + relative * e.abs()

    return allowed


def comparable(got: torch.Tensor, expected: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both tensors in dtypes that PyTorch can compare; only float8 is changed, to float32.

    Depending on the conversion, a value beyond the range of float8 becomes NaN, infinite or the largest
    number, so all are taken for the largest number.
    """
    import torch

    if name_of(got.dtype) not in FLOAT8:
        return got, expected
    most = torch.finfo(got.dtype).max
    got, clamped = got.float(), expected.clamp(-most, most)
    return torch.where(~got.isfinite() & (expected.abs() > most), clamped.float(), got), clamped


def outside(got: torch.Tensor, expected: torch.Tensor, allowed: Allowed) -> torch.Tensor:
    """A mask that is True where `got` differs from `expected` (float64, same shape) by more than is
    allowed.

    NaN, +Inf and -Inf are compared as masks: each must be exactly where it is expected. A value that
    overflows in the dtype of `got` is expected to be infinite, or as `comparable` says.
    """
    import torch

    wrong = torch.empty(got.shape, dtype=torch.bool, device=got.device)
    flat, flat_got, flat_expected = as_rows(wrong), as_rows(got), as_rows(expected)
    for at in pieces(flat):
        g, e = comparable(flat_got[at], flat_expected[at])
        target = e.to(g.dtype)
        finite = torch.isfinite(g) & torch.isfinite(target)
        close = (g.double() - e).abs() <= allowed(e, *at)
        same = (g == target) | (torch.isnan(g) & torch.isnan(target))
        flat[at] = torch.where(finite, ~close, ~same)
    return wrong


def wrong_elements(
    got: torch.Tensor, expected: torch.Tensor, tolerance: tuple[float, float] | None = None
) -> torch.Tensor:
    """A mask that is True where `got` differs from `expected` (float64, same shape) by more than the
    tolerance.

    The default is the tolerance of `got`'s dtype. NaN, +Inf and -Inf are compared as masks: each must be
    exactly where it is expected.

    Example:
        >>> import torch
        >>> from helpers import check
        >>> got, expected = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 4.0])
        >>> check.wrong_elements(got, expected)
        tensor([False, False,  True])
    """
    if not got.is_floating_point():
        return got != expected.to(got.dtype)
    return outside(got, expected, within(*(tolerance or tolerance_of(got.dtype))))


def assert_close(
    name: str,
    got: torch.Tensor,
    expected: torch.Tensor,
    *,
    case: str = "these inputs",
    tolerance: tuple[float, float] | None = None,
) -> None:
    """Raise `Mismatch` unless `got` equals `expected` (float64, same shape) within the tolerance of `got`'s
    dtype.

    NaN, +Inf and -Inf are compared as masks: each must be exactly where it is expected.

    Example:
        >>> import torch
        >>> from helpers import check
        >>> x = torch.arange(4.0)
        >>> try:
        ...     check.assert_close("mine", x + x, torch.square(x.double()))
        ... except check.Mismatch as mismatch:
        ...     print(str(mismatch).splitlines()[0])
        mine on these inputs: 2 of 4 elements differ.
    """
    wrong = wrong_elements(got, expected, tolerance)
    n_wrong = int(wrong.sum())
    if n_wrong:
        raise mismatch(name, case, got, expected, wrong, n_wrong)


def mismatch(
    name: str,
    case: str,
    got: torch.Tensor,
    expected: torch.Tensor,
    wrong: torch.Tensor,
    n_wrong: int,
    bound: str = "",
) -> Mismatch:
    """The exception for a wrong result: how many elements differ, the first of them, and what is wrong.

    Args:
        name: the kernel's name.
        case: a description of the inputs.
        got: the kernel's result.
        expected: the expected result in float64.
        wrong: the mask of `wrong_elements`.
        n_wrong: the number of wrong elements.
        bound: a last line about how far they may differ.
    """
    lines = [f"{name} on {case}: {n_wrong:,} of {got.numel():,} elements differ."]
    for index in wrong.nonzero()[:_MAX_LISTED].tolist():
        at = tuple(index)
        target = expected[at].to(got.dtype)  # float64 has digits that the result cannot have
        lines.append(f"  at {at}: got {number(got[at])}, expected {number(target)}")
    if n_wrong > _MAX_LISTED:
        lines.append(f"  … and {n_wrong - _MAX_LISTED:,} more")
    finding = describe(got, expected, wrong)
    summary = finding.partition("; ")[0]  # the first wrong element is listed above
    if "never" in summary or ":" in summary:  # more than a share of the elements
        lines.append(f"  {summary[0].upper()}{summary[1:]}.")
    return Mismatch("\n".join(lines + [f"  {bound}"] * bool(bound)), finding)

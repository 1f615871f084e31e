"""Describe what is wrong with a result: which part was never written, or which elements differ."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_POISON_BYTES = (0x5A, 0xFF)  # of `fill_with_poison` for integers, and of `poison_free_memory`


def describe(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> str:
    """What is wrong with a result, as a sentence without a period whose subject is "it", the kernel.

    Args:
        got: the kernel's result, in memory that was poisoned before the call.
        expected: the expected result in float64, of the same shape.
        wrong: a mask of the wrong elements, of which there is at least one.

    Example:
        >>> import torch
        >>> from helpers.check.finding import describe
        >>> got, expected = torch.full((2, 4), float("nan")), torch.ones(2, 4)
        >>> got[:, :1] = 1
        >>> describe(got, expected, got != expected)
        'it writes only the first of 4 columns in each row: 75.0 % of the output was never written'
    """
    unwritten = wrong & still_poisoned(got)
    n_unwritten, n_wrong, n = int(unwritten.sum()), int(wrong.sum()), got.numel()
    if not n_unwritten:
        where = region(wrong)
        share = (
            f"{percent(n_wrong, n)} of the elements are wrong" if n_wrong < n else "every element is wrong"
        )
        right = f"it computes only {where} correctly: " if where else ""
        return f"{right}{share}; {_first(got, expected, wrong)}"
    where = region(unwritten)
    share = f"{percent(n_unwritten, n)} of the output was never written"
    if n_unwritten == n:
        text = "it never writes its output"
    elif where:
        text = f"it writes only {where}: {share}"
    else:
        text = f"{share}, starting with the element at {_index(unwritten)}"
    if n_wrong == n_unwritten:
        return text
    written = (
        f"{percent(n_wrong - n_unwritten, n - n_unwritten)} of the elements that it does write are wrong"
    )
    return f"{text}, and {written}; {_first(got, expected, wrong & ~unwritten)}"


def still_poisoned(got: torch.Tensor) -> torch.Tensor:
    """A mask of the elements that have exactly the bits with which the memory was filled before the call.

    A NaN that a kernel computes usually has other bits: its sign is set on x86, and all bits of its fraction
    on NVIDIA GPUs. A bool has no value to spare, so none of its elements counts as unwritten.
    """
    import torch

    if got.dtype is torch.bool:
        return torch.zeros_like(got)
    size = got.element_size()
    bits = got.contiguous().view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size])
    values = [int.from_bytes(bytes([byte]) * size, "little", signed=size > 1) for byte in _POISON_BYTES]
    if not got.is_floating_point():
        return bits == values[0]
    nan = torch.full((1,), math.nan, dtype=got.dtype, device=got.device).view(bits.dtype)
    return (bits == nan) | (bits == values[1])


def region(mask: torch.Tensor) -> str:
    """The part of a tensor that a mask leaves out, such as "the first 128 of 4,096 columns in each row".

    Returns:
        The text if the mask covers the end of every row, whole rows, or the end of the flattened tensor; ""
        if it covers everything or is scattered.
    """
    import torch

    n_cols = mask.shape[-1] if mask.dim() > 1 else mask.numel()
    rows = mask.reshape(-1, n_cols)
    n_rows, n_left = len(rows), int((~mask).sum())
    if not n_left:
        return ""
    by_row = rows.all(dim=1)
    if mask.dim() > 1 and n_rows > 1:
        if torch.equal(by_row, rows.any(dim=1)):  # whole rows
            n_kept = int((~by_row).sum())
            first = not by_row[:n_kept].any()
            return _part(n_kept, n_rows, "rows", first=first)
        if n_left % n_rows == 0 and bool(rows[:, (n_kept := n_left // n_rows) :].all()):
            return f"{_part(n_kept, n_cols, 'columns')} in each row"
    if bool(mask.reshape(-1)[n_left:].all()):
        return _part(n_left, mask.numel(), "elements")
    return ""


def percent(part: int, whole: int) -> str:
    """A share with one digit, never rounded to nothing or to everything."""
    share = 100 * part / whole
    if part == whole:
        return "100 %"
    if share < 0.1:
        return "less than 0.1 %"
    return "more than 99.9 %" if share > 99.9 else f"{share:.1f} %"


def number(element: torch.Tensor) -> str:
    """An element's digits: at most seven of a float, all of an integer."""
    value = element.item()
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _part(n: int, of: int, what: str, *, first: bool = True) -> str:
    if not first:
        return f"{n:,} of {of:,} {what}"
    return f"the first {f'{n:,} ' if n > 1 else ''}of {of:,} {what}"


def _index(mask: torch.Tensor) -> tuple[int, ...]:
    """The index of a mask's first True; the copy is small, while `nonzero()` has an index per element."""
    import torch

    flat = int(mask.reshape(-1).to(torch.uint8).argmax())
    return tuple(int(one) for one in torch.unravel_index(torch.tensor(flat), mask.shape))


def _first(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> str:
    at = _index(wrong)
    target = expected[at].to(got.dtype)  # float64 has digits that the result cannot have
    return f"the first, at {at}, is {number(got[at])} instead of {number(target)}"

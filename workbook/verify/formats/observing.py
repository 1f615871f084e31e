"""Run a reference once to see what it does to its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from helpers.check.matching import bits_of
from workbook.usage import UsageError, first_line
from workbook.verify.arguments import map_tensors, tensors_of


def observed(reference: Callable[..., Any], args: Sequence[Any], what: str) -> tuple[Any, frozenset[int]]:
    """What a reference returns, and which tensors of its arguments it changes.

    Args:
        reference: the function; it gets copies.
        args: its arguments.
        what: what a message calls the reference.

    Returns:
        A copy of its value, and the tensors' numbers in the order of `arguments.tensors_of`.

    Raises:
        UsageError: the reference raises an error.
    """
    given = map_tensors(torch.clone, list(args))
    try:
        value = map_tensors(torch.clone, reference(*given))
    except Exception as error:
        says = f"{type(error).__name__}: {first_line(error)}"
        raise UsageError(f"{what} fails: {says.rstrip('.')}.") from error
    pairs = zip(tensors_of(given), tensors_of(list(args)), strict=True)
    return value, frozenset(i for i, (after, before) in enumerate(pairs) if not same(after, before))


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same shape, dtype and bits."""
    is_alike = one.shape == other.shape and one.dtype == other.dtype
    return is_alike and torch.equal(bits_of(one), bits_of(other))

"""What is known about a wrong result, and whether other values explain it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from helpers import check
from helpers.exercises.model import Case
from helpers.exercises.portable import bits

_EXPLAINED = 0.9  # of the wrong elements, by an experiment


@dataclass(frozen=True)
class Evidence:
    """Everything that is known about one wrong result.

    Attributes:
        case, kind: the case and its kind (`model.Hidden.kind`).
        args, before: the arguments, and those of earlier calls, for recognizing a cached answer.
        got, expected, wrong: the result, the right result (float64), and where they differ.
        facts: of the outcome.
        reference: arguments -> the right result for them.
        tolerance: (relative, absolute), or None for the dtype's own.
    """

    case: Case
    kind: str
    args: tuple
    before: tuple
    got: torch.Tensor
    expected: torch.Tensor
    wrong: torch.Tensor
    facts: dict
    reference: Callable[[tuple], torch.Tensor]
    tolerance: tuple[float, float] | None = None

    @cached_property
    def x(self) -> torch.Tensor:
        """The first tensor of the input."""
        return next((one for one in self.args if isinstance(one, torch.Tensor)), self.got)

    @cached_property
    def n_wrong(self) -> int:
        return int(self.wrong.sum())

    @cached_property
    def unwritten(self) -> torch.Tensor:
        """Where the output still has the poison."""
        return poison_left(self.got, self.expected)

    @cached_property
    def blank(self) -> torch.Tensor:
        """Where the output has the poison, or a wrong zero."""
        return self.unwritten | (self.wrong & (self.got == 0))

    def with_first(self, x: torch.Tensor) -> tuple:
        """The arguments, with another first tensor."""
        at = next(i for i, one in enumerate(self.args) if isinstance(one, torch.Tensor))
        return (*self.args[:at], x, *self.args[at + 1 :])

    def explains(self, values: torch.Tensor | None, valid: torch.Tensor | None = None) -> bool:
        """Whether the wrong elements have these values."""
        if values is None or values.shape != self.got.shape:
            return False
        mask = self.wrong if valid is None else self.wrong & valid
        n = int(mask.sum())
        if not n or 2 * n < self.n_wrong:
            return False
        agree = ~check.wrong_elements(self.got, values, self.tolerance) & mask
        return int(agree.sum()) >= _EXPLAINED * n

    def like(self, values: torch.Tensor | None, rel: float, abs: float) -> bool:
        """Whether the whole result equals these values, within these tolerances and as the result's dtype."""
        if values is None or values.shape != self.got.shape:
            return False
        values = values.to(self.got).double()
        return torch.allclose(self.got.double(), values, rtol=rel, atol=abs, equal_nan=True)

    def would_give(self, x: torch.Tensor) -> torch.Tensor | None:
        """The right result for another first tensor; None if the reference doesn't accept it."""
        try:
            return self.reference(self.with_first(x))
        except Exception:  # a reference may fail in any way on a tensor that it wasn't written for
            return None


def poison_left(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Where a result still has what its memory was filled with before the call."""
    left = torch.zeros(got.shape, dtype=torch.bool, device=got.device)
    if got.is_floating_point():
        left |= got.isnan() & ~expected.isnan()
    if got.element_size() > 1 and not got.is_complex():
        raw = bits(got)
        for byte in (0x5A, 0x5B):  # of check.poisoned(), of the CUDA host build
            left |= raw == int.from_bytes(bytes([byte]) * got.element_size(), "little", signed=True)
    elif got.dtype is not torch.bool:
        left |= bits(got) == 0x5A
    return left & (got != expected.to(got.dtype))


def in_float64(value: Any) -> Any:
    """A floating-point tensor in float64; anything else unchanged."""
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

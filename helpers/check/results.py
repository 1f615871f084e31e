"""What a kernel gave, against what its reference gives on the same inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers.check import closeness
from helpers.check.bounds import Bound, in_tf32, strict
from helpers.check.closeness import Mismatch, name_of
from helpers.check.operation import Operation, bounds_of, real, widened

if TYPE_CHECKING:
    import torch

PRECISIONS = (None, "ieee", "tf32")


@dataclass(frozen=True)
class Results:
    """What a function returned: its tensors, and whether it was one tensor rather than a tuple of them."""

    tensors: tuple[torch.Tensor, ...]
    is_one: bool

    def __str__(self) -> str:
        return "one tensor" if self.is_one else f"{len(self.tensors)} results"


def as_results(value: Any) -> Results | None:
    """A tensor, or a tuple or list of them, as `Results`; None for anything else."""
    import torch

    if isinstance(value, torch.Tensor):
        return Results((value,), True)
    several = tuple(value) if isinstance(value, tuple | list) else ()
    return Results(several, False) if several and all(isinstance(x, torch.Tensor) for x in several) else None


def expected_of(name: str, reference: Callable, inputs: Sequence[Any]) -> Results:
    """What the reference gives in float64, or in the inputs' dtype where it refuses float64 and its result is exact.

    Raises:
        ValueError: the reference gives no tensor; `name` says whose it is.
    """
    import torch

    try:
        value = reference(*(widened(one) for one in inputs))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError):
        # bits of a float, or an operator that has no float64: only an exact result can do without it
        copies = (one.clone() if isinstance(one, torch.Tensor) else one for one in inputs)
        with contextlib.suppress(RuntimeError, TypeError):
            found = as_results(reference(*copies))
            if found and not any(one.is_floating_point() or one.is_complex() for one in found.tensors):
                return found
        raise
    found = as_results(value)
    if found is None:
        what = type(value).__name__
        raise ValueError(
            f"the reference of {name} gave {what}: it has to give a tensor, or a tuple of tensors."
        )
    return Results(tuple(widened(one) for one in found.tensors), found.is_one)


def assert_result(
    name: str,
    got: torch.Tensor | Sequence[torch.Tensor],
    reference: Callable,
    inputs: Sequence[Any],
    *,
    case: str = "these inputs",
    tolerance: tuple[float, float] | None = None,
    precision: str | None = None,
    expected: Results | None = None,
    seed: int = 0,
) -> None:
    """Raise `Mismatch` unless a result that is there already is what `reference` computes; `assert_matches` also runs the kernel.

    Args:
        name: of the kernel.
        got: what it gave, a tensor or a tuple of them.
        reference: the same in plain torch; it is given the inputs in float64.
        inputs: what the kernel was given, unchanged.
        case: what the inputs are called in messages.
        tolerance, precision: as in `assert_matches`.
        expected: what `expected_of` gave, if it was asked already.
        seed: of what the bounds draw.

    Raises:
        Mismatch: another number of results, another shape, no floating-point numbers where the reference has them, or
            elements further off than they may be.

    Example:
        >>> import torch
        >>> from helpers import check
        >>> x = torch.arange(4.0)
        >>> check.assert_result("mine", x * x, torch.square, [x])  # says nothing: it is right
    """
    given = as_results(got)
    if given is None:
        raise Mismatch(f"{name} on {case}: it returned {type(got).__name__}, not a tensor.")
    expected = expected or expected_of(name, reference, inputs)
    if given.is_one != expected.is_one or len(given.tensors) != len(expected.tensors):
        raise Mismatch(f"{name} on {case}: it returned {given}, but the reference gives {expected}.")
    n = len(given.tensors)
    cases = [case] if given.is_one else [f"{case}, result {i}" for i in range(n)]
    for g, e, where in zip(given.tensors, expected.tensors, cases, strict=True):
        if tuple(g.shape) != tuple(e.shape):
            raise Mismatch(f"{name} on {where}: shape {tuple(g.shape)}, but {tuple(e.shape)} was expected.")
        if _inexact(e) and not _inexact(g):
            raise Mismatch(
                f"{name} on {where}: dtype {name_of(g.dtype)}, but a floating-point result was expected."
            )
    operation = Operation(reference, tuple(inputs), seed)
    real_got, real_expected = ([real(one) for one in of.tensors] for of in (given, expected))
    _compare(name, operation, real_got, real_expected, cases, tolerance, precision)


def _inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _compare(
    name: str,
    operation: Operation,
    got: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    cases: Sequence[str],
    tolerance: tuple[float, float] | None,
    precision: str | None,
) -> None:
    """Raise `Mismatch` for the first result that is further off than it may be."""
    import torch

    wrong = [_at_once(g, e, tolerance) for g, e in zip(got, expected, strict=True)]
    failed = [i for i, one in enumerate(wrong) if one.any()]
    bounds: Sequence[Bound | None] = [None] * len(wrong)
    lines = [""] * len(wrong)
    if tolerance is None and any(not _never_close(got[i], expected[i], wrong[i]) for i in failed):
        try:
            bounds = bounds_of(operation, expected, [g.dtype for g in got], precision)
        except torch.OutOfMemoryError:
            lines = ["What the operation itself can reach was not computed: the memory is too small."] * len(
                wrong
            )
    for i in failed:
        g, e, bound = got[i], expected[i], bounds[i]
        if not g.is_floating_point():
            for other in operation.exact_results(i):
                wrong[i] &= g != other.to(g.dtype)
        elif bound is not None:
            wrong[i] = closeness.outside(g, e, bound.allowed)
            lines[i] = _why(operation, precision, bound, g, e, wrong[i])
        if n_wrong := int(wrong[i].sum()):
            raise Mismatch(closeness.message(name, cases[i], g, e, wrong[i], n_wrong, lines[i]))


def _at_once(
    got: torch.Tensor, expected: torch.Tensor, tolerance: tuple[float, float] | None
) -> torch.Tensor:
    """The mask of what differs by more than the fixed tolerance, which needs nothing but the two results."""
    if not got.is_floating_point() or tolerance is not None:
        return closeness.wrong_elements(got, expected, tolerance)
    return closeness.outside(got, expected, strict(got.dtype, closeness.size_of_rows(expected)))


def _never_close(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> bool:
    """Whether no bound could make the wrong elements right: each is NaN or infinite, or should be; or an integer."""
    return not got.is_floating_point() or _first_finite(got, expected, wrong) is None


def _first_finite(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> tuple[int, ...] | None:
    """The first wrong element that is a number and should be one."""
    import torch

    rows, g, e = (closeness.as_rows(one) for one in (wrong, got, expected))
    for at in closeness.pieces(rows):
        found = (rows[at] & torch.isfinite(g[at]) & torch.isfinite(e[at].to(g.dtype))).nonzero()
        if len(found):
            row, column = found[0].tolist()
            flat = (row + (at[0].start or 0)) * rows.shape[1] + column + (at[1].start or 0)
            return tuple(int(one) for one in torch.unravel_index(torch.tensor(flat), got.shape))
    return None


def _why(
    operation: Operation,
    precision: str | None,
    bound: Bound,
    got: torch.Tensor,
    expected: torch.Tensor,
    wrong: torch.Tensor,
) -> str:
    """The message's last line: how far the first wrong number may be off, and why."""

    index = _first_finite(got, expected, wrong)
    if index is None:
        return ""
    line = bound.says(index, expected)
    has_products = bound.n_terms > 1 and operation.n_float_inputs > 1
    may_be_tf32 = precision is None and bound.rounding.name == "float32" and has_products
    if may_be_tf32 and not closeness.outside(got, expected, in_tf32(bound).allowed).any():
        line += ' With factors rounded to TF32 it would be right: say precision="tf32" if that is meant.'
    return line

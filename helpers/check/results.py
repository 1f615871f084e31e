"""Compare a kernel's results with those of its reference on the same inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers.check import closeness
from helpers.check.bounds import Bound, in_tf32, strict
from helpers.check.closeness import Mismatch, name_of
from helpers.check.measuring import bounds_of
from helpers.check.operation import Operation, real, widened

if TYPE_CHECKING:
    import torch

_FEW = 0.01  # of the integers in a floating-point result, so many may be other ones
PRECISIONS = (None, "ieee", "tf32")


@dataclass(frozen=True)
class Results:
    """What a function returned: its tensors, and whether it was a single tensor rather than a tuple."""

    tensors: tuple[torch.Tensor, ...]
    is_single: bool

    def __str__(self) -> str:
        return "one tensor" if self.is_single else f"{len(self.tensors)} results"


def as_results(value: Any) -> Results | None:
    """A tensor, or a tuple or list of them, as `Results`; None for anything else."""
    import torch

    if isinstance(value, torch.Tensor):
        return Results((value,), True)
    several = tuple(value) if isinstance(value, tuple | list) else ()
    return Results(several, False) if several and all(isinstance(x, torch.Tensor) for x in several) else None


def expected_of(name: str, reference: Callable, inputs: Sequence[Any]) -> Results:
    """The reference's results in float64, or in the inputs' dtype if it refuses float64 and its results are
    exact.

    Raises:
        ValueError: the reference doesn't return tensors; the message says that it is the reference of
            `name`.
    """
    import torch

    try:
        value = reference(*(widened(one) for one in inputs))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError):
        # The reference reads the bits of a float, or has no float64 version; that is fine for exact results.
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
            f"The reference of {name} returned {what}; it must return a tensor or a tuple of tensors."
        )
    return Results(tuple(widened(one) for one in found.tensors), found.is_single)


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
    operation: Operation | None = None,
    seed: int = 0,
) -> None:
    """Raise `Mismatch` unless an existing result is what `reference` computes; `assert_matches` also runs
    the kernel.

    Args:
        name: the kernel's name.
        got: its result, a tensor or a tuple of tensors.
        reference: the same computation in plain PyTorch; it gets the inputs in float64.
        inputs: what the kernel was given, unchanged.
        case: what messages call the inputs.
        tolerance, precision: as in `assert_matches`.
        expected: the result of `expected_of`, if it was computed already.
        operation: the reference and the inputs, if several results for them are compared; it keeps what it
            has measured.
        seed: the seed of the random numbers that the bounds need.

    Raises:
        Mismatch: the number of results or a shape differs, a result isn't floating point although the
            reference's is, or elements are off by more than is allowed.

    Example:
        >>> import torch
        >>> from helpers import check
        >>> x = torch.arange(4.0)
        >>> check.assert_result("mine", x * x, torch.square, [x])  # correct, so nothing is raised
    """
    results = as_results(got)
    if results is None:
        raise Mismatch(f"{name} on {case}: it returned {type(got).__name__}, not a tensor.")
    expected = expected or expected_of(name, reference, inputs)
    if results.is_single != expected.is_single or len(results.tensors) != len(expected.tensors):
        raise Mismatch(f"{name} on {case}: it returned {results}, but the reference gives {expected}.")
    n = len(results.tensors)
    cases = [case] if results.is_single else [f"{case}, result {i}" for i in range(n)]
    for g, e, where in zip(results.tensors, expected.tensors, cases, strict=True):
        if tuple(g.shape) != tuple(e.shape):
            raise Mismatch(f"{name} on {where}: shape {tuple(g.shape)}, but {tuple(e.shape)} was expected.")
        if _inexact(e) and not _inexact(g):
            raise Mismatch(
                f"{name} on {where}: dtype {name_of(g.dtype)}, but a floating-point result was expected."
            )
    operation = operation or Operation(reference, tuple(inputs), seed)
    real_got, real_expected = ([real(one) for one in of.tensors] for of in (results, expected))
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
    """Raise `Mismatch` for the first result that is off by more than is allowed."""
    import torch

    wrong = [_outside_fixed_tolerance(g, e, tolerance) for g, e in zip(got, expected, strict=True)]
    failed = [i for i, one in enumerate(wrong) if one.any()]
    bounds: Sequence[Bound | None] = [None] * len(wrong)
    lines = [""] * len(wrong)
    if tolerance is None and any(not _beyond_any_bound(got[i], expected[i], wrong[i]) for i in failed):
        try:
            for counted in (False, True):  # counting takes longer, and is seldom needed
                bounds = bounds_of(operation, expected, [g.dtype for g in got], precision, counted=counted)
                if not any(_is_beyond(got[i], expected[i], bounds[i]) for i in failed):
                    break
        except torch.OutOfMemoryError:
            lines = ["There was not enough memory to compute how far a result may be off."] * len(wrong)
    for i in failed:
        g, e, bound = got[i], expected[i], bounds[i]
        if bound is not None:
            wrong[i] = closeness.outside(g, e, bound.allowed)
        if not g.is_floating_point() or (tolerance is None and _may_round_otherwise(g, e, wrong[i])):
            _clear_other_roundings(wrong[i], g, operation.exact_results(i))
        if bound is not None:
            lines[i] = _bound_note(operation, precision, bound, g, e, wrong[i])
        if n_wrong := int(wrong[i].sum()):
            raise closeness.mismatch(name, cases[i], g, e, wrong[i], n_wrong, lines[i])


def _is_beyond(got: torch.Tensor, expected: torch.Tensor, bound: Bound | None) -> bool:
    return bound is not None and bool(closeness.outside(got, expected, bound.allowed).any())


def _may_round_otherwise(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> bool:
    """Whether floating-point results are rounded to integers or to float8: a few may be another of these."""
    if name_of(got.dtype) in closeness.FLOAT8:
        return True
    return 0 < int(wrong.sum()) <= _FEW * wrong.numel() and bool((expected == expected.round()).all())


def _clear_other_roundings(wrong: torch.Tensor, got: torch.Tensor, results: Iterator[torch.Tensor]) -> None:
    """Clear the wrong elements that are right in another of several results: a number between two integers,
    or between two numbers of float8, may become either of them.
    """
    for other in results:
        if not wrong.any():
            return
        rounded = other.to(got.dtype)
        wrong &= got.float() != rounded.float() if got.is_floating_point() else got != rounded


def _outside_fixed_tolerance(
    got: torch.Tensor, expected: torch.Tensor, tolerance: tuple[float, float] | None
) -> torch.Tensor:
    """The mask of elements that differ by more than the fixed tolerance, which needs only the two results."""
    if not got.is_floating_point() or tolerance is not None:
        return closeness.wrong_elements(got, expected, tolerance)
    return closeness.outside(got, expected, strict(got.dtype, closeness.size_of_rows(expected)))


def _beyond_any_bound(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> bool:
    """Whether no bound could accept the wrong elements: each is an integer, or NaN or infinite in one
    result.
    """
    return not got.is_floating_point() or _first_finite(got, expected, wrong) is None


def _first_finite(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> tuple[int, ...] | None:
    """The index of the first wrong element that is finite and should be."""
    import torch

    rows, g, e = (closeness.as_rows(one) for one in (wrong, got, expected))
    for at in closeness.pieces(rows):
        a, b = closeness.comparable(g[at], e[at])
        found = (rows[at] & torch.isfinite(a) & torch.isfinite(b.to(a.dtype))).nonzero()
        if len(found):
            row, column = found[0].tolist()
            flat = (row + (at[0].start or 0)) * rows.shape[1] + column + (at[1].start or 0)
            return tuple(int(one) for one in torch.unravel_index(torch.tensor(flat), got.shape))
    return None


def _bound_note(
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
    line = bound.explain(index, expected)
    has_products = bound.n_terms > 1 and operation.n_float_inputs > 1
    may_be_tf32 = precision is None and bound.rounding.name == "float32" and has_products
    if may_be_tf32 and not closeness.outside(got, expected, in_tf32(bound).allowed).any():
        line += ' With factors rounded to TF32 it would be correct; pass precision="tf32" if you want that.'
    return line

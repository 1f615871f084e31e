"""Compute the bound of each result of an operation."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from helpers.check.bounds import FACTOR, LONGEST_SUM, RESOLUTION, ROUNDINGS, Bound, in_layers_of_tf32, in_tf32
from helpers.check.closeness import NARROW, as_rows, name_of, pieces, size_of_rows
from helpers.check.operation import PERTURBATION, Operation, difference, own_error, spread

if TYPE_CHECKING:
    import torch

_DRAWS = (4, 16)  # draws of random signs: for many results, and for fewer than a window of them


def _own_errors(
    operation: Operation,
    results: Sequence[Any] | None,
    expected: Sequence[torch.Tensor],
    n_draws: int,
    exactly: bool,
) -> list[torch.Tensor | None]:
    """The reference's own error in each result. A few elements can all be correct by chance, so of these it
    is the root mean square over several draws.
    """
    import torch

    errors = [own_error(results, i, e) for i, e in enumerate(expected)]
    few = [i for i, error in enumerate(errors) if error is not None and error.numel() < NARROW]
    if not few:
        return errors
    with contextlib.suppress(RuntimeError, TypeError, ValueError, AssertionError):  # it may check its inputs
        drawn = list(operation.own_errors(n_draws, exactly))
        for i in few:
            others = [found[i] for found in drawn if found[i] is not None]
            if others:
                mean = torch.stack([one.square() for one in (errors[i], *others)]).mean(dim=0).sqrt()
                errors[i] = torch.maximum(errors[i], mean)
    return errors


def bounds_of(
    operation: Operation,
    expected: Sequence[torch.Tensor],
    dtypes: Sequence[torch.dtype],
    precision: str | None = None,
    *,
    counted: bool = True,
) -> list[Bound | None]:
    """How far each result may be off, from dozens of evaluations of the reference, or as the operation knows.

    Args:
        operation: the reference and the inputs.
        expected: the reference's results in float64.
        dtypes: the dtypes of the kernel's results; a result that isn't floating point has no bound, but
            None.
        precision: "tf32" if float32 products may round their factors to TF32, "ieee" if they must not,
            although the reference may; by default they may if the reference does on these inputs.
        counted: whether to find out how many terms are added, and whether TF32 is used. Without that it
            takes 5 evaluations, and the bounds are smaller or the same.
    """
    key = (*dtypes, precision, counted)
    if key not in operation.known_bounds:
        operation.known_bounds[key] = _bounds(operation, expected, dtypes, precision, counted)
    return operation.known_bounds[key]


def _bounds(
    operation: Operation,
    expected: Sequence[torch.Tensor],
    dtypes: Sequence[torch.dtype],
    precision: str | None,
    counted: bool,
) -> list[Bound | None]:
    import torch

    if counted:
        least = bounds_of(operation, expected, dtypes, precision, counted=False)
        n_terms = operation.n_terms(expected)
        products = operation.is_product(expected) if any(map(operation.has_exact_factors, dtypes)) else []
        # The weights needn't be inputs: a model holds its own.
        convolves = torch.float32 in dtypes and max(n_terms) > 1 and operation.convolves()
        bounds: list[Bound | None] = []
        for i, bound in enumerate(least):
            if bound is not None:
                bound = replace(
                    bound, n_terms=n_terms[i], exact_factors=bound.exact_factors and products[i],
                    transformed=convolves and bound.rounding.name == "float32",
                )  # fmt: skip
                bound = _with_tf32(bound, operation, i, expected[i]) if precision is None else bound
            bounds.append(bound)
        return bounds
    own_results = operation.in_own_dtype(exactly=precision == "ieee")
    n_draws = _DRAWS[min((e.numel() for e in expected), default=0) < NARROW]
    terms = _terms(operation, expected, dtypes, n_draws)
    errors = _own_errors(operation, own_results, expected, n_draws, precision == "ieee")
    resolution = RESOLUTION * min(1.0, operation.largest_input())
    least = []
    for i, (e, dtype) in enumerate(zip(expected, dtypes, strict=True)):
        name = "TF32" if precision == "tf32" and dtype == torch.float32 else name_of(dtype)
        # Without the reference's own error, results between several products might be rounded unnoticed.
        exact = errors[i] is not None and operation.has_exact_factors(dtype)
        least.append(
            Bound(
                dtype,
                ROUNDINGS[name],
                1.0,
                size_of_rows(e),
                errors[i],
                terms[i],
                exact,
                resolution=resolution,
            )
            if dtype.is_floating_point
            else None
        )
    return least


def _terms(
    operation: Operation, expected: Sequence[torch.Tensor], dtypes: Sequence[torch.dtype], n_draws: int
) -> list[torch.Tensor | None]:
    """The root of the summed squares of each result's terms, from slightly changed inputs."""
    import torch

    found: list[torch.Tensor | None] = [None] * len(expected)
    for results in operation.perturbed(n_draws):
        for i, (result, e) in enumerate(zip(results, expected, strict=True)):
            if not dtypes[i].is_floating_point:
                continue
            e, result = as_rows(e), as_rows(result)
            if found[i] is None:
                float_dtype = torch.float64 if dtypes[i] == torch.float64 else torch.float32
                found[i] = torch.zeros(e.shape, dtype=float_dtype, device=e.device)
            for at in pieces(e):
                found[i][at] = found[i][at].hypot(
                    (difference(result[at], e[at]) / PERTURBATION).to(found[i].dtype)
                )
    return [None if one is None else spread(one.div_(math.sqrt(n_draws))) for one in found]


def _with_tf32(bound: Bound, operation: Operation, number: int, expected: torch.Tensor) -> Bound:
    """The bound, or the bound for TF32 if the reference itself used TF32, or cuDNN may.

    It did if its error is far larger than float32's and becomes small without TF32.
    """
    import torch

    on_gpu = expected.is_cuda and bound.dtype == torch.float32 and bound.n_terms > 1
    if not on_gpu or bound.reference_error is None or bound.terms is None:
        return bound
    if n_permitted := operation.n_in_tf32():
        return in_layers_of_tf32(bound, n_permitted, expected)
    reached = bound.rounding.sums * math.sqrt(min(bound.n_terms, LONGEST_SUM))
    error = bound.reference_error.square().mean().sqrt()
    within_reach = reached * bound.terms.square().mean().sqrt()
    if error <= FACTOR * within_reach:
        return bound
    exact = own_error(operation.in_own_dtype(exactly=True), number, expected)
    if exact is None or exact.square().mean().sqrt() > error / 8:
        return bound
    return in_tf32(bound)

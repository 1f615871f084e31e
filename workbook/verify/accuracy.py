"""How accurate results are, where the bounds that are derived from the arithmetic don't decide."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from helpers.check.results import Results
from workbook.verify.arguments import tensors_of
from workbook.verify.problem import Case

_COARSE = 2.0**-6  # a relative error above this is not a matter of precision
TF32 = 2.0**-14  # of products whose factors are rounded to TF32, the error is about 2**-12
_UNKNOWN_TERMS = 4096
_OWN_ERRORS = 1.5  # how much larger than the reference's own errors others may be that are rounded alike
_FEWEST, _SAMPLE, _DIFFERENT = 16, 4096, 0.25  # results; of them in a sample; different numbers in it
_FEW_ROUNDINGS = 4
_FLOAT32 = 2.0**-20  # a smaller error is one of float32's own


def within_unknown_sums(
    case: Case, got: Sequence[torch.Tensor], own: Sequence[torch.Tensor], expected: Results
) -> bool:
    """Whether results that depend on integers and parameters alone, such as those of an embedding, are as
    accurate as sums of `_UNKNOWN_TERMS` terms are; nothing tells how many there are.
    """
    if any(one.is_floating_point() or one.is_complex() for one in tensors_of(case.args)):
        return False
    shapes = [[one.shape for one in of] for of in (got, own, expected.tensors)]
    if shapes[0] != shapes[1] or shapes[1] != shapes[2] or not all(one.is_floating_point() for one in got):
        return False
    for g, e in zip(got, expected.tensors, strict=True):
        unit = 3 * (torch.finfo(g.dtype).eps + torch.finfo(torch.float32).eps * _UNKNOWN_TERMS**0.5) / 2
        size = e.double().square().mean().sqrt()
        if not bool(((g.double() - e).abs() <= unit * (e.abs() + size)).all()):
            return False
    return True


def is_finite(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether all floating-point numbers are finite."""
    return all(bool(one.double().isfinite().all()) for one in tensors if one.is_floating_point())


def is_as_accurate(
    got: Sequence[torch.Tensor], own: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]
) -> bool:
    """Whether results are about as accurate as the reference's own, which may convert to half precision."""
    if not len(got) == len(own) == len(expected):
        return False
    for g, o, e in zip(got, own, expected, strict=True):
        if g.shape != e.shape or o.shape != e.shape or not g.is_floating_point():
            return False
        errors = [(one.double() - e).abs() / (e.abs() + e.square().mean().sqrt()) for one in (g, o)]
        for size in (torch.amax, lambda error: error.square().mean().sqrt()):
            if e.numel() and not size(errors[0]) <= _OWN_ERRORS * size(errors[1]):
                return False
    return True


def n_different(got: torch.Tensor, own: torch.Tensor) -> int:
    """How many results are other numbers than the reference's, and not only rounded a few times."""
    if got.dtype != own.dtype or not own.is_floating_point():
        return 0
    own, unit = own.double(), _FEW_ROUNDINGS * torch.finfo(own.dtype).eps
    size = own.abs().clamp(min=float(own.square().mean().sqrt()))
    return int(((got.double() - own).abs() > unit * size).sum())


def only_moves(
    inputs: Sequence[torch.Tensor], own: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]
) -> bool:
    """Whether a reference returns numbers of its inputs, as a sort or a maximum do: nothing is rounded.

    That is seen only if most of the numbers are different.
    """
    for o, e in zip(own, expected, strict=True):
        same = [one.reshape(-1) for one in inputs if one.dtype == o.dtype]
        if not (o.is_floating_point() and o.numel() >= _FEWEST and same and torch.equal(o.double(), e)):
            return False
        step = max(1, o.numel() // _SAMPLE)
        sample = o.reshape(-1)[::step]
        if len(sample.unique()) < _DIFFERENT * len(sample) or not torch.isin(sample, torch.cat(same)).all():
            return False
    return True


def is_near(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether a float32 result is off by less than rounding to TF32 would cause; others must be equal."""
    if got.shape != expected.shape or got.dtype != torch.float32:
        return got.shape == expected.shape and torch.equal(got, expected.to(got.dtype))
    if not got.numel():
        return True
    if not (got.isfinite().all() and expected.isfinite().all()):
        return False
    error, size = (got - expected).abs(), expected.square().mean().sqrt()
    is_small = error.square().mean().sqrt() <= TF32 * size
    return bool(is_small and (error <= 4 * TF32 * expected.abs().clamp(min=float(size))).all())


def imprecision(got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """The root mean square of the error, relative to the result's, if the error is small and spread evenly;
    else 0.0.
    """
    largest = 0.0
    for g, e in zip(got, expected, strict=False):
        if g.shape != e.shape or not g.is_floating_point() or not is_finite([g]) or not g.numel():
            return 0.0
        error, size = g.double() - e, e.double().square().mean().sqrt()
        if not size or float(error.abs().max() / size) > _COARSE:
            return 0.0
        share = float((error != 0).double().mean())
        if share < 0.5:  # a few wrong elements are not a matter of precision
            return 0.0
        largest = max(largest, float(error.square().mean().sqrt() / size))
        if g.dtype == torch.float32 and largest < _FLOAT32:
            return 0.0
    return largest

"""What a problem may promise about its tensors, and other values must keep: order, zeros, sums, symmetry, and
the layout in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

_MASK_VALUES = 3  # a tensor with so few different values is a mask or a flag, not data
_FEWEST_FREE = 64  # integers; fewer may be sizes or offsets, which belong together
_LONG_ROW = 16  # a row of so many numbers isn't sorted by chance
_UNLIKELY = 3.0  # minus the logarithm of a probability: what isn't chance


def is_data(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds numbers that may be replaced by others of the same range."""
    if not tensor.is_floating_point() or tensor.numel() < 2:
        return False
    wide = tensor.float()
    if not wide.isfinite().all() or len(wide.reshape(-1)[:10_000].unique()) <= _MASK_VALUES:
        return False
    if tensor.dim() and tensor.shape[-1] > 2 and _all_sorted(wide):
        return False
    sums = wide.sum(-1) if tensor.dim() else wide
    return bool((wide >= 0).all()) or not bool(((sums - 1).abs() < 1e-3).all())


def is_mask(tensor: torch.Tensor) -> bool:
    """Whether a floating-point tensor has two or three different values."""
    if not tensor.is_floating_point():
        return False
    wide = tensor.float()
    return not wide.isnan().any() and 1 < len(wide.unique()) <= _MASK_VALUES


def is_constant(tensor: torch.Tensor) -> bool:
    """Whether all elements are the same number, and no row is a distribution."""
    if not tensor.numel() or not (tensor.is_floating_point() or tensor.dtype == torch.bool):
        return False
    wide = tensor.double()
    sums_to_1 = tensor.numel() > 1 and tensor.dim() and bool(((wide.sum(-1) - 1).abs() < 1e-3).all())
    return bool(wide.isfinite().all()) and bool((wide == wide.reshape(-1)[0]).all()) and not sums_to_1


def is_integer(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds integers that aren't bools."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def is_free(tensor: torch.Tensor) -> bool:
    """Whether integers have no form that a problem may promise, as classes or tokens have none.

    They are many, neither sorted nor all different, and neither are their rows.
    """
    if not is_integer(tensor) or tensor.numel() < _FEWEST_FREE:
        return False
    flat = tensor.reshape(-1)
    if len(flat.unique()) == len(flat) or _all_sorted(flat):
        return False
    if tensor.dim() < 2 or tensor.shape[-1] < 2:
        return True
    rows = tensor.reshape(-1, tensor.shape[-1])
    if _has_structured_rows(rows):
        return False
    steps = rows.diff(dim=1)
    is_sorted = (steps >= 0).all(dim=1) ^ (steps <= 0).all(dim=1)  # rows of equal numbers are both
    return tensor.shape[-1] < _LONG_ROW or not bool(is_sorted.any())


def has_free_rows(tensor: torch.Tensor) -> bool:
    """Whether the rows of integers have the same form, so that two of them can be swapped."""
    if not is_integer(tensor) or tensor.numel() < _FEWEST_FREE or tensor.dim() < 2 or is_free(tensor):
        return False
    rows = tensor.reshape(-1, tensor.shape[-1])
    return len(rows) > 1 and _has_structured_rows(rows) and len(rows.unique(dim=0)) > 1


def _has_structured_rows(rows: torch.Tensor) -> bool:
    """Whether all rows of integers are sorted, have different numbers or the same sum, and not by chance."""
    n_rows, n = rows.shape
    ordered = rows.sort(dim=1).values
    n_values = int(rows.max()) - int(rows.min()) + 1
    all_different = bool((ordered.diff(dim=1) != 0).all())
    if all_different and n_rows * n * (n - 1) / 2 / n_values > _UNLIKELY:
        return True
    if _all_sorted(rows) and n_rows * math.lgamma(n + 1) > _UNLIKELY:
        return True
    sums = rows.sum(dim=1)
    return n_rows > 8 and bool((sums == sums[0]).all())


def _all_sorted(tensor: torch.Tensor) -> bool:
    """Whether all rows rise, or all fall."""
    steps = tensor.diff(dim=-1)
    return bool((steps >= 0).all()) or bool((steps <= 0).all())


def altered(tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """What `change` makes of a tensor, with the form that a problem may promise: rows of probabilities, zeros
    in certain places, matrices that are symmetric or triangular, and the same strides.
    """
    if not tensor.is_floating_point() or tensor.element_size() > 1:
        return _with_form_of(tensor, change(tensor))
    most = torch.finfo(tensor.dtype).max  # few operations know float8, and it has no numbers beyond
    return altered(tensor.float(), change).clamp(-most, most).to(tensor.dtype)


def _with_form_of(like: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    if is_data(like):
        changed = _with_values_like(like, changed)
    return _with_strides_of(like, changed)


def _with_values_like(like: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    sums = like.float().sum(-1) if like.dim() else like
    if like.dim() and bool(((sums - 1).abs() < 1e-3).all()):
        wide = changed.double().abs()
        total = wide.sum(-1, keepdim=True)
        return torch.where(total == 0, 1 / like.shape[-1], wide / total).to(like.dtype)
    if like.dim() >= 2 and like.shape[-1] == like.shape[-2] >= 3 and _is_symmetric(like):
        changed = changed.triu() + changed.triu(1).mT
    zeros = like == 0
    return torch.where(zeros, torch.zeros_like(changed), changed) if bool(zeros.any()) else changed


def _is_symmetric(matrices: torch.Tensor) -> bool:
    """Whether square matrices are symmetric, except for roundings."""
    wide = matrices.float()
    return bool(((wide - wide.mT).abs() <= 1e-3 * wide.abs().amax()).all())


def _with_strides_of(like: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    if like.is_contiguous() or like.shape != changed.shape:
        return changed
    if any(step == 0 and n > 1 for step, n in zip(like.stride(), like.shape, strict=True)):
        first = _first_of_expanded(like)
        return changed[first].expand(like.shape)
    if _overlaps(like):
        return changed
    made = torch.empty_strided(like.shape, like.stride(), dtype=changed.dtype, device=changed.device)
    return made.copy_(changed)


def _first_of_expanded(tensor: torch.Tensor) -> tuple[slice, ...]:
    """Selects one of the elements that share memory."""
    steps = zip(tensor.stride(), tensor.shape, strict=True)
    return tuple(slice(0, 1) if step == 0 and n > 1 else slice(None) for step, n in steps)


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether elements may share memory, as in sliding windows."""
    reach = 1
    for step, n in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if n > 1 and step < reach:
            return True
        reach = max(reach, step * (n - 1) + 1)
    return False


def copy_into(old: torch.Tensor, new: torch.Tensor) -> None:
    """Copy a tensor into another one, whose version counter doesn't change."""
    first = _first_of_expanded(old)
    old.data[first].copy_(new[first])

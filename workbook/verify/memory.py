"""Where tensors are in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def span(tensor: torch.Tensor) -> int:
    """The bytes from a tensor's first element to the end of its last one."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((n - 1) * stride for n, stride in steps)) * tensor.element_size()


def overlap(some: Iterable[torch.Tensor], others: Iterable[torch.Tensor]) -> bool:
    """Whether the memory of some tensors overlaps that of others, from first to last elements."""
    spans = [
        [(one.data_ptr(), one.data_ptr() + span(one)) for one in several if one.numel()]
        for several in (some, others)
    ]
    return any(a[0] < b[1] and b[0] < a[1] for a in spans[0] for b in spans[1])


def addresses(tensors: Iterable[torch.Tensor]) -> set[int]:
    """Where the memory of tensors begins, without empty ones."""
    return {one.untyped_storage().data_ptr() for one in tensors if one.numel()}


def form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What of a tensor stays the same when only its contents change."""
    return (
        type(tensor), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.requires_grad,
        tensor.data_ptr(),
    )  # fmt: skip

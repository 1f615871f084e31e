"""Where tensors are in memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
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


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether a tensor still has its memory; results of CUDA graphs in torch.compile have it only until the
    next call.
    """
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return True


def addresses(tensors: Iterable[torch.Tensor]) -> set[int]:
    """Where the memory of tensors begins, without empty ones."""
    return {one.untyped_storage().data_ptr() for one in tensors if one.numel()}


Storages = dict[int, "weakref.ref[torch.UntypedStorage]"]


def storages(tensors: Iterable[torch.Tensor]) -> Storages:
    """Weak references to the memory of tensors, by the address of their first elements, without empty ones;
    alive as long as some tensor uses the memory.
    """
    return {one.data_ptr(): weakref.ref(one.untyped_storage()) for one in tensors if one.numel()}


def comes_again(call: Callable[[], Storages], n: int, is_over: Callable[[], bool]) -> bool:
    """Whether one of `n` calls returns memory that an earlier call has returned, and that the called code
    has kept since, because nobody else has.

    Args:
        call: calls it and drops the results, of which the memory is returned.
        is_over: whether the time is up.
    """
    kept: Storages = {}
    for _ in range(n):
        now = call()
        if any(at in kept and kept[at]() is not None for at in now):
            return True
        kept.update(now)
        if is_over():
            break
    return False


def form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What of a tensor stays the same when only its contents change."""
    return (
        type(tensor), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.requires_grad,
        tensor.data_ptr(),
    )  # fmt: skip

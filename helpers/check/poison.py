"""Fill the memory that a kernel gets, so that elements it never writes are detected."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from helpers.check.dispatch import dispatch_mode

if TYPE_CHECKING:
    import torch

_MOST_FREE_BYTES = 1 << 30
_SENTINEL = 0x5A  # fills integer outputs; no kernel here writes 0x5A5A5A5A by chance


def fill_with_poison(tensor: torch.Tensor) -> torch.Tensor:
    """Fill a tensor in place with NaN, or with 0x5A bytes if its dtype has no NaN, and return it.

    Example:
        >>> import torch
        >>> from helpers import check
        >>> x = torch.zeros(2)
        >>> check.fill_with_poison(x)
        tensor([nan, nan])
        >>> x
        tensor([nan, nan])
    """
    import torch

    if tensor.is_complex():
        return tensor.fill_(complex("nan+nanj"))
    if tensor.is_floating_point():
        return tensor.fill_(float("nan"))
    if tensor.dtype is torch.bool:
        return tensor.fill_(True)
    return tensor.fill_(int.from_bytes(bytes([_SENTINEL]) * tensor.element_size(), "little", signed=True))


def empty_allocations() -> set:
    """The operators of PyTorch's dispatcher that allocate memory without filling it."""
    import torch

    aten = torch.ops.aten
    return {
        aten.empty.memory_format,
        aten.empty_like.default,
        aten.empty_strided.default,
        aten.new_empty.default,
        aten.new_empty_strided.default,
    }


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Fill everything that torch.empty, empty_like, empty_strided and new_empty allocate with NaN
    (integers: 0x5A bytes).

    This works in PyTorch's dispatcher, so allocations made in C++ extensions are filled too.

    Example:
        >>> import torch
        >>> from helpers import check
        >>> with check.poisoned():
        ...     torch.empty(3)
        tensor([nan, nan, nan])
    """
    allocations = empty_allocations()

    class Poison(dispatch_mode()):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return fill_with_poison(result) if func in allocations else result

    with Poison():
        yield


def poison_free_memory(n_bytes: int, count: int = 8) -> None:
    """Leave NaN in the blocks that CUDA's caching allocator will return next, in at most 1 GB of them.

    This is for code that allocates without PyTorch's dispatcher, as torch.compile's code does.
    """
    import torch

    count = min(count, max(1, _MOST_FREE_BYTES // max(n_bytes, 1)))
    blocks = [
        torch.empty(max(n_bytes, 1), dtype=torch.uint8, device="cuda").fill_(0xFF) for _ in range(count)
    ]
    del blocks

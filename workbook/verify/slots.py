"""The arguments with which a candidate is called, in its process."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from workbook.verify.arguments import map_tensors, overwrite, tensors_of
from workbook.verify.memory import addresses, form

_PAST_BYTES = 256 << 20


class Slots:
    """Stores arguments by name, where the candidate computes.

    The next arguments of a slot are new tensors in the memory of those before, if they fit. All others are in
    memory that held none before, as long as this takes little. So whether two tensors share an address, by
    which a fraud may recognize them, doesn't depend on the allocator.
    """

    def __init__(self, on_gpu: bool) -> None:
        self._on_gpu = on_gpu
        self._slots: dict[str, tuple[Any, ...]] = {}
        self._forms: dict[str, list[tuple[Any, ...]]] = {}
        self._past: deque[torch.Tensor] = deque()  # tensors of earlier arguments, so that they stay allocated
        self._map, self._tensors, self._overwrite = map_tensors, tensors_of, overwrite
        self._form, self._addresses = form, addresses

    def __getitem__(self, slot: str) -> tuple[Any, ...]:
        return self._slots[slot]

    def __setitem__(self, slot: str, args: tuple[Any, ...]) -> None:
        self._slots[slot] = args
        self._forms[slot] = [self._form(one) for one in self._tensors(args)]

    def clear(self) -> None:
        """Free all arguments."""
        self._slots.clear()
        self._forms.clear()
        self._past.clear()

    def put(self, slot: str, args: Sequence[Any]) -> None:
        """Store arguments."""
        before = self._tensors(self._slots.get(slot, ()))
        forms = self._forms.get(slot, ())
        # The candidate may have made them something else.
        rest = iter(
            [one if self._form(one) == form else None for one, form in zip(before, forms, strict=False)]
        )
        self[slot] = self._map(lambda one: self._in_memory_of(next(rest, None), one), tuple(args))
        used = self._addresses(self._tensors(self[slot]))
        self._past.extend(one for one in before if not used & self._addresses([one]))
        while sum(one.untyped_storage().nbytes() for one in self._past) > _PAST_BYTES:
            self._past.popleft()

    def placed(self, value: Any) -> Any:
        """A tree of arguments whose tensors are where the candidate computes."""
        return self._map(self._place, value)

    def _in_memory_of(self, before: torch.Tensor | None, tensor: torch.Tensor) -> torch.Tensor:
        if before is None or not _is_whole(before, tensor):
            return self._place(tensor)
        self._overwrite(before, tensor)
        return before.data  # another tensor, which has a version counter of its own

    def _place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor where the candidate computes, with its strides and its offset into its storage."""
        if not self._on_gpu:
            return tensor.data  # whose version is 0, like that of a new one
        if tensor.is_contiguous() and not tensor.storage_offset():
            return tensor.cuda()
        storage = tensor.untyped_storage().cuda()
        moved = torch.empty(0, dtype=tensor.dtype, device="cuda")
        return moved.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def _is_whole(before: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether both are contiguous tensors of the same form that fill their memory."""
    return all(
        one.is_contiguous() and one.untyped_storage().nbytes() == one.numel() * one.element_size()
        for one in (before, tensor)
    ) and (before.shape, before.dtype) == (tensor.shape, tensor.dtype)

"""Guard bands around every tensor of a call, so that a wrong access is counted instead of corrupting the
heap.

Inputs are copied, and new tensors are made, in the middle of larger blocks. Their storages end where the
tensor ends. Before and after them are `BAND` elements that belong to nobody: NaN around inputs and a pattern
around outputs. Writes there are counted after the call, and a read there puts NaN into the result. The views
that a case passes keep their sizes, strides, offsets and the values in their gaps.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import check
from helpers.exercises.torch_work import TorchWork, in_python

BAND = 1 << 16  # elements on each side: as large as any block that a learner would use
_OUTSIDE_INPUT = 0xFF  # bytes: NaN in every floating-point format
_OUTSIDE_OUTPUT = 0x5A  # not NaN: otherwise writing a NaN there would go unnoticed
_OUTSIDE_INTEGER = 0xA5
# Python 3.11 does not name it.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0x40)
_POOLED = 8 << 20  # bytes: larger blocks are not reused
FAR = "far rows"  # the key of a recipe in a case's arguments, see `far_rows`

_pool: list[np.ndarray] = []


def _references(pool: list[np.ndarray]) -> Iterator[int]:
    """The number of references to each array; every array or tensor that views its memory has one."""
    for one in pool:
        yield sys.getrefcount(one)


_IDLE = next(_references([np.empty(1, dtype=np.uint8)]))  # it depends on the Python version


def _memory(n_bytes: int) -> np.ndarray:
    """CPU memory, which is reused once nothing points into it, because new pages take longer than a small
    kernel.
    """
    for i, n_references in enumerate(_references(_pool)):
        if n_references == _IDLE and _pool[i].nbytes >= n_bytes:
            return _pool[i][:n_bytes]
    made = np.empty(max(1 << (n_bytes - 1).bit_length(), 1 << 19), dtype=np.uint8)
    if made.nbytes <= _POOLED and sum(one.nbytes for one in _pool) < 8 * _POOLED:
        _pool.append(made)
    return made[:n_bytes]


@dataclass
class Block:
    """One banded allocation: `raw` bytes, of which [start, stop) belong to the tensor."""

    raw: torch.Tensor
    start: int
    stop: int
    outside: int
    size: int  # of an element, in bytes
    is_input: bool = False
    inside: torch.Tensor | None = None  # bytes of an input before the call
    gaps: torch.Tensor | None = None  # True where an input's byte lies between its own elements

    @property
    def address(self) -> int:
        return self.raw.data_ptr() + self.start

    def writes_outside(self) -> int:
        """How many elements of the bands were overwritten."""
        words = self.raw[: len(self.raw) // 8 * 8].view(torch.int64)
        word = int.from_bytes(bytes([self.outside]) * 8, "little", signed=True)
        after = -(-self.stop // 8)
        edge = self.raw[self.stop : 8 * after]  # the rest is compared eight bytes at a time
        intact = (words[: self.start // 8] == word).all() & (words[after:] == word).all()
        if bool(intact & (edge == self.outside).all()):
            return 0
        bands = torch.cat([self.raw[: self.start], self.raw[self.stop : self.stop + self.start]])
        return int((bands != self.outside).view(-1, self.size).any(1).sum())

    def writes_in_gaps(self) -> int:
        """How many bytes between the elements of an input view were overwritten."""
        if self.gaps is None or self.inside is None:
            return 0
        return int(((self.raw[self.start : self.stop] != self.inside) & self.gaps).sum())


@dataclass
class Blocks:
    """All banded allocations of one call."""

    blocks: list[Block] = field(default_factory=list)
    keep_alive: list[Any] = field(default_factory=list)  # keeps lazily committed memory alive
    work: TorchWork | None = None  # notes what torch computes, where a kernel must do it
    # address ranges of other memory that may be accessed, that of the latest tensors
    allowed: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=1024))

    def allow(self, t: torch.Tensor) -> None:
        """Allow accesses to the memory of a tensor that has no guard bands."""
        storage = t.untyped_storage()
        self.allowed.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))

    def make(self, n_bytes: int, size: int, device, outside: int, **about) -> tuple[Block, torch.Tensor]:
        """A block, and the byte tensor between its bands, whose storage ends where the bands begin."""
        band = BAND * size
        total = (2 * band + n_bytes + 7) // 8 * 8
        if torch.device(device).type == "cpu":
            memory = _memory(total)
            raw = torch.from_numpy(memory)
            interior = torch.from_numpy(memory[band : band + n_bytes])
        else:
            raw = torch.empty(total, dtype=torch.uint8, device=device)
            # DLPack makes a storage of exactly these bytes, so the learner's code can't find the bands.
            interior = torch.utils.dlpack.from_dlpack(
                torch.utils.dlpack.to_dlpack(raw[band : band + n_bytes])
            )
        raw[:band] = outside
        raw[band + n_bytes :] = outside
        block = Block(raw, band, band + n_bytes, outside, size, **about)
        self.blocks.append(block)
        return block, interior

    def writes_outside(self) -> int:
        """How many elements of all bands were overwritten."""
        return sum(block.writes_outside() for block in self.blocks)

    def writes_in_gaps(self) -> int:
        """How many bytes between the elements of all input views were overwritten."""
        return sum(block.writes_in_gaps() for block in self.blocks)


def _as(dtype, interior: torch.Tensor, offset: int, size, stride) -> torch.Tensor:
    """A tensor over a storage; not a view of another tensor, as far as autograd is concerned."""
    return torch.empty(0, dtype=dtype, device=interior.device).set_(
        interior.untyped_storage(), offset, tuple(size), tuple(stride)
    )


def place(value: Any, blocks: Blocks) -> Any:
    """Copy a case's arguments into banded memory: the same views, over copies of the same storages."""
    return _place(value, blocks, {})


# Address of a copied storage -> the copy's bytes, and a mask of those that are gaps.
_Seen = dict[int, tuple[torch.Tensor, torch.Tensor]]


def _place(value: Any, blocks: Blocks, seen: _Seen) -> Any:
    if isinstance(value, torch.Tensor):
        return _place_tensor(value, blocks, seen)
    if isinstance(value, (list, tuple)):
        return type(value)(_place(one, blocks, seen) for one in value)
    if isinstance(value, dict):
        if FAR in value:
            return _far_view(value, blocks)
        return {key: _place(one, blocks, seen) for key, one in value.items()}
    return value


def _place_tensor(t: torch.Tensor, blocks: Blocks, seen: _Seen) -> torch.Tensor:
    storage = t.untyped_storage()
    if not storage.nbytes():
        return torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=t.device)
    address = storage.data_ptr()
    size = t.element_size()
    if address not in seen:
        floating = t.is_floating_point() or t.is_complex()
        outside = _OUTSIDE_INPUT if floating else _OUTSIDE_INTEGER
        block, interior = blocks.make(storage.nbytes(), size, t.device, outside, is_input=True)
        interior.copy_(torch.empty(0, dtype=torch.uint8, device=t.device).set_(storage))
        block.inside = interior.clone()
        block.gaps = torch.ones(storage.nbytes(), dtype=torch.bool, device=t.device)
        seen[address] = interior, block.gaps
    interior, gaps = seen[address]
    if t.numel():
        used = torch.arange(gaps.numel() // size, device=t.device).as_strided(
            t.size(), t.stride(), t.storage_offset()
        )
        gaps[: gaps.numel() // size * size].view(-1, size)[used.reshape(-1)] = False
    placed = _as(t.dtype, interior, t.storage_offset(), t.size(), t.stride())
    return placed.requires_grad_(t.requires_grad) if t.requires_grad else placed


def far_rows(values: torch.Tensor, row_stride: int, transposed: bool = False) -> dict:
    """A recipe for a 2-D (or 1-D) view whose rows are `row_stride` elements apart, beyond 32-bit offsets.

    With `transposed`, the columns of a 2-D view are that far apart instead, and the elements of a column are
    neighbors.

    The memory is allocated where the call is made. On a CPU it is committed lazily, so only touched pages
    exist. Its base is in the middle, and there is poison where an offset that wrapped in 32 bits would point.
    """
    return {FAR: values, "row_stride": row_stride, "transposed": transposed}


def _far_rows_of(recipe: dict) -> torch.Tensor:
    """The values, with the dimension that is far apart first."""
    return recipe[FAR].t().contiguous() if recipe.get("transposed") else recipe[FAR]


def far_bytes(recipe: dict) -> int:
    """The memory that a recipe spans, in bytes."""
    values = _far_rows_of(recipe)
    return (
        2 * BAND + (1 << 31) + (len(values) - 1) * recipe["row_stride"] + values[0].numel()
    ) * values.element_size()


def _far_view(recipe: dict, blocks: Blocks) -> torch.Tensor:
    values = _far_rows_of(recipe)
    stride, n_rows, size = recipe["row_stride"], len(values), values.element_size()
    n = far_bytes(recipe) // size
    base = BAND + (1 << 31)
    if values.is_cuda:
        torch.cuda.empty_cache()  # the memory that torch has cached counts as free, too
        free, _ = torch.cuda.mem_get_info()
        if n * size > 0.6 * free:
            raise MemoryError(f"{n * size / 1e9:.1f} GB are not free on this GPU")
    if values.device.type == "cpu":
        memory = mmap.mmap(-1, n * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        blocks.keep_alive.append(memory)
        storage = torch.frombuffer(memory, dtype=values.dtype)
    else:
        storage = torch.empty(n, dtype=values.dtype, device=values.device)
    blocks.keep_alive.append(storage)
    blocks.allow(storage)
    row = values[0].numel()
    for i in range(n_rows):
        wrapped = (i * stride + (1 << 31)) % (1 << 32) - (1 << 31)
        for at in (base + i * stride, base + wrapped):
            check.fill_with_poison(storage[max(at - 256, 0) : at + row + 256])
    # the storage begins with the view, as an ordinary tensor's does
    if values.is_cuda:
        storage_tensor = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(storage[base:]))
    else:
        storage_tensor = torch.frombuffer(memory, dtype=values.dtype, offset=base * size)
    view = storage_tensor.as_strided(values.shape, (stride, *values.stride()[1:])).copy_(values)
    return view.t() if recipe.get("transposed") else view


class Guarded(TorchDispatchMode):
    """In this mode, torch's uninitialized allocations get poison and guard bands."""

    def __init__(self, blocks: Blocks):
        super().__init__()
        self.blocks = blocks
        self.empty = check.empty_allocations()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace not in ("aten", "prim", "prims", "profiler"):
            # Run the body of a custom operator in this mode, too, so that its allocations are guarded.
            key = _backend(args)
            every = torch._C.DispatchKey.CompositeExplicitAutograd  # what torch.library.custom_op registers
            if key is not None and any(func.has_kernel_for_dispatch_key(one) for one in (key, every)):
                with self:
                    result = func.redispatch(torch._C.DispatchKeySet(key), *args, **kwargs)
                if self.blocks.work is not None and not in_python(func):
                    self.blocks.work.note(func, args, kwargs, result)
                return result
        result = func(*args, **kwargs)
        if func in self.empty:
            result = self._banded(result)
        elif isinstance(result, torch.Tensor) and result.layout is torch.strided:
            self.blocks.allow(result)
        if self.blocks.work is not None:
            self.blocks.work.note(func, args, kwargs, result)
        return result

    def _banded(self, t: torch.Tensor) -> torch.Tensor:
        if not t.numel() or t.layout is not torch.strided or t.device.type not in ("cpu", "cuda"):
            return t
        extent = 1 + sum((n - 1) * s for n, s in zip(t.size(), t.stride(), strict=True))
        size = t.element_size()
        _, interior = self.blocks.make(extent * size, size, t.device, _OUTSIDE_OUTPUT)
        filled = _as(t.dtype, interior, 0, (extent,), (1,))
        check.fill_with_poison(filled)
        return _as(t.dtype, interior, 0, t.size(), t.stride())


def _backend(args) -> Any:
    devices = {one.device.type for one in args if isinstance(one, torch.Tensor)}
    if devices == {"cpu"}:
        return torch._C.DispatchKey.CPU
    return torch._C.DispatchKey.CUDA if devices == {"cuda"} else None


@contextmanager
def guarded(blocks: Blocks) -> Iterator[None]:
    """Put guard bands and poison around every allocation in this block, where torch.compile does nothing."""
    eager = contextlib.nullcontext()
    if "torch._dynamo" in sys.modules:
        eager = torch.compiler.set_stance("force_eager")
    with eager, Guarded(blocks):
        yield

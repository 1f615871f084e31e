"""Which kernels a call launches, and which memory interpreted Triton kernels access: facts for
`Outcome.facts`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from helpers.exercises.guard import Blocks


class OutsideEveryTensor(RuntimeError):
    """A pointer of an interpreted kernel is outside every tensor and guard band. The kernel was stopped
    before the access.
    """


@dataclass
class Seen:
    """What was observed during one call. `launched` is None if it couldn't be observed.

    `read_bytes` and `written_bytes` are what interpreted kernels loaded and stored in total, without
    masked-off parts, and `most_read` is the most elements of the inputs that one program loaded in a launch;
    None if kernels were compiled. `n_accesses` counts the interpreted loads and stores.
    """

    launched: list[str] | None = None
    reads_outside: int = 0
    writes_outside: int = 0
    kernel: str = ""
    read_bytes: int | None = 0
    written_bytes: int | None = 0
    most_read: int | None = 0
    n_accesses: int = 0
    by_program: dict[tuple, int] = field(default_factory=dict)

    def count(self, ptrs: Any, mask: Any, reads: bool) -> None:
        """Count one access of an interpreted program."""
        from triton.runtime import interpreter

        self.n_accesses += 1
        if self.most_read is None:
            return
        n = int(np.count_nonzero(mask.data))
        n_bytes = n * np.dtype(interpreter._get_np_dtype(ptrs.get_element_ty())).itemsize
        if reads:
            self.read_bytes += n_bytes
        else:
            self.written_bytes += n_bytes

    def count_input(self, n: int, program: tuple) -> None:
        """Count elements of an input that one program of the launch loaded."""
        if self.most_read is not None:
            self.by_program[program] = self.by_program.get(program, 0) + n
            self.most_read = max(self.most_read, self.by_program[program])


@contextmanager
def triton_watched(blocks: Blocks, poison_masked: bool = False) -> Iterator[Seen]:
    """Count the launches of Triton kernels, compiled or interpreted, and check the interpreted ones'
    pointers.
    """
    from triton.runtime import interpreter
    from triton.runtime.jit import JITFunction

    seen = Seen(launched=[])
    executor, builder = interpreter.GridExecutor, interpreter.InterpreterBuilder
    run_compiled, run_interpreted = JITFunction.run, executor.__call__

    def launches(name: str) -> None:
        seen.launched.append(name)
        if blocks.work is not None:
            blocks.work.launches()

    def compiled(self, *args, warmup=False, **kwargs):
        if not warmup:
            launches(self.fn.__name__)
            seen.read_bytes = seen.written_bytes = seen.most_read = None
        return run_compiled(self, *args, warmup=warmup, **kwargs)

    def interpreted(self, *args, **kwargs):
        name, before = self.fn.__name__, seen.kernel
        launches(name)
        seen.kernel = name
        seen.by_program.clear()
        try:
            return run_interpreted(self, *args, **kwargs)
        finally:
            seen.kernel = before

    def access(ptrs: Any, mask: Any, reads: bool) -> Any:
        addresses = ptrs.data[mask.data]
        _classify(seen, blocks, addresses, "reads" if reads else "writes")
        seen.count(ptrs, mask, reads)
        return addresses

    def load(self, ptrs, mask, *rest, _call=builder.create_masked_load, **named):
        addresses = access(ptrs, mask, reads=True)
        if _in_input(blocks, addresses):
            seen.count_input(addresses.size, tuple(self.grid_idx))
        if poison_masked and rest and rest[0] is None:
            rest = (_nothing_promised(ptrs), *rest[1:])
        return _call(self, ptrs, mask, *rest, **named)

    def store(self, ptrs, value, mask, *rest, _call=builder.create_masked_store, **named):
        access(ptrs, mask, reads=False)
        return _call(self, ptrs, value, mask, *rest, **named)

    def add(self, op, ptr, val, mask, *rest, _call=builder.create_atomic_rmw, **named):
        access(ptr, mask, reads=False)
        return _call(self, op, ptr, val, mask, *rest, **named)

    def swap(self, ptr, *rest, _call=builder.create_atomic_cas, **named):
        _classify(seen, blocks, ptr.data.reshape(-1), "writes")
        return _call(self, ptr, *rest, **named)

    patches = [
        (JITFunction, "run", compiled),
        (executor, "__call__", interpreted),
        (builder, "create_masked_load", load),
        (builder, "create_masked_store", store),
        (builder, "create_atomic_rmw", add),
        (builder, "create_atomic_cas", swap),
    ]
    with ExitStack() as stack:
        for owner, name, new in patches:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, new)
        yield seen


def _nothing_promised(ptrs: Any) -> Any:
    """What a masked-off part contains if no `other` is given: the interpreter would use zeros, but on a GPU
    they are undefined.
    """
    from triton.runtime import interpreter

    dtype = interpreter._get_np_dtype(ptrs.get_element_ty())
    poison = np.full_like(ptrs.data, 0x5A, dtype=dtype)
    if np.issubdtype(dtype, np.floating):
        poison.fill(np.nan)
    return interpreter.TensorHandle(poison, ptrs.get_element_ty())


def _in_input(blocks: Blocks, addresses: Any) -> bool:
    """Whether an access begins in one of the call's own arguments."""
    if not addresses.size:
        return False
    first = int(addresses.reshape(-1)[0])
    return any(
        one.is_input and one.address <= first < one.address + one.stop - one.start for one in blocks.blocks
    )


def _classify(seen: Seen, blocks: Blocks, addresses, what: str) -> None:
    """Classify the addresses of one access: inside a tensor, in a guard band, or outside both."""
    if not addresses.size:
        return
    low, high = int(addresses.min()), int(addresses.max())
    for block in blocks.blocks:
        if block.address <= low and high < block.address + block.stop - block.start:
            return
    if any(start <= low and high < stop for start, stop in blocks.allowed):
        return
    rest = addresses
    n_outside = 0
    for block in blocks.blocks:
        start, n = block.raw.data_ptr(), block.raw.numel()
        in_block = (rest >= start) & (rest < start + n)
        inside = (rest >= block.address) & (rest < start + block.stop)
        n_outside += int((in_block & ~inside).sum())
        rest = rest[~in_block]
    for start, stop in blocks.allowed:
        rest = rest[(rest < start) | (rest >= stop)]
    if rest.size:
        for start, stop in _living():
            if bool(((rest >= start) & (rest < stop)).any()):
                blocks.allowed.append((start, stop))
                rest = rest[(rest < start) | (rest >= stop)]
        if rest.size:
            raise OutsideEveryTensor(f"{seen.kernel} {what} {rest.size:,} elements far outside every tensor")
    if what == "reads":
        seen.reads_outside += n_outside
    else:
        seen.writes_outside += n_outside


def _living() -> Iterator[tuple[int, int]]:
    """The memory of every live tensor, because kernels may also use tensors from before the call."""
    import torch

    for one in gc.get_objects():
        is_tensor = type(one) in (torch.Tensor, torch.nn.Parameter)
        if is_tensor and one.device.type == "cpu" and one.layout is torch.strided:
            storage = one.untyped_storage()
            yield storage.data_ptr(), storage.data_ptr() + storage.nbytes()


@contextmanager
def host_cuda_watched(small: bool) -> Iterator[Seen]:
    """Names of the kernels that run on the host; only for small cases, because every access is recorded."""
    from helpers.cuda import emulator

    seen = Seen()
    # Return the result instead of raising: the judge recognizes poison and can report which part was written.
    with emulator.unwritten_allowed():
        if not small:
            yield seen
            return
        with emulator.tracing() as trace:
            yield seen
        seen.launched = trace.kernels

"""The Python side of the CUDA emulator: errors that name the thread and line, and traced runs.

`cuda.load_cuda(…, device="emulator")` translates the CUDA source (`translate`), builds it with the C++
compiler and passes the module to `attach`. A call then runs the kernels one thread after another and raises
`EmulatorError` for errors that a GPU doesn't report: an access outside a tensor, a barrier that not all
threads reach, shared memory that is read before it is written, a race between two threads, an output element
that no thread wrote.

The emulator can't show time, memory traffic, caches, or the order in which a GPU runs blocks and warps. Its
blocks run in order, and the threads of a block run one after another up to their next barrier. So a kernel
whose blocks wait for each other, or that has a race in *global* memory, may look correct.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING

from helpers import check
from helpers.check.dispatch import dispatch_mode
from helpers.cuda.emulator import translate

if TYPE_CHECKING:
    import torch

_POISON_BYTE = 0x5B  # 0x5B5B5B5B: no result is that by chance; check.poisoned() uses NaN and 0x5A
_ERROR_PREFIX = "EmulatorError: "
_N_CALLER_FRAMES = 6


class EmulatorError(RuntimeError):
    """A kernel did something in the emulator that it must not do on a GPU.

    Attributes:
        cause: "out of bounds", "no tensor", "misaligned", "barrier", "warp", "uninitialised", "race",
            "unwritten", "assert", "too much shared memory" or "trace too long".
        kernel: the kernel's name.
        block, thread: (x, y, z) of the faulty thread; None for "unwritten".
        line: the line in the CUDA source, starting at 1; 0 if unknown.
        argument: the parameter or shared array concerned, or "".
        expression: the access as written in the source, or "".
        bytes_outside: how far an access reaches outside its tensor.
    """

    def __init__(self, message: str, **fields):
        super().__init__(message)
        self.cause: str = fields["cause"]
        self.kernel: str = fields["kernel"]
        self.block: tuple[int, int, int] | None = fields.get("block")
        self.thread: tuple[int, int, int] | None = fields.get("thread")
        self.line: int = fields.get("line", 0)
        self.argument: str = fields.get("argument", "")
        self.expression: str = fields.get("expression", "")
        self.bytes_outside: int = fields.get("bytes_outside", 0)


@dataclass(eq=False)
class _EmulatedModule:
    """A loaded module and its metadata."""

    library: ctypes.CDLL
    source: str
    sites: tuple[tuple[int, str], ...]

    def launches(self, first: int = 0) -> list[tuple[str, ...]]:
        """Returns the traced launches from number `first` on: kernel, grid, block and parameter names."""
        n = self.library.wb_n_launches()
        return [tuple(self.library.wb_launch(i).decode().split("\t")) for i in range(first, n)]


_modules: list[_EmulatedModule] = []
_traces: list[LaunchTrace] = []  # those that are entered now
_unwritten_raises: ContextVar[bool] = ContextVar("unwritten_raises", default=True)


def attach(module: ModuleType, functions: Sequence[str], source: str, *, torch_headers: bool) -> None:
    """Wraps a module's functions with the emulator's checks. `load_cuda` does so for its own modules.

    Args:
        module: a module built from `translate.cpp_file(source)`.
        functions: the names of the functions that launch kernels.
        source: the CUDA source.
        torch_headers: whether the functions take tensors; if not, integers may be addresses of tensors.
    """
    library = ctypes.CDLL(module.__file__)
    library.wb_failure.restype = library.wb_launch.restype = ctypes.c_char_p
    library.wb_accesses.restype = ctypes.c_void_p
    library.wb_n_accesses.restype = ctypes.c_ulonglong
    library.wb_add_range.argtypes = [ctypes.c_ulonglong, ctypes.c_ulonglong]
    emulated = _EmulatedModule(library, source, translate.translate(source).sites)
    _modules.append(emulated)
    if _traces:  # built inside the call that is being traced
        emulated.library.wb_trace(1)
    for name in functions:
        setattr(module, name, _checked(getattr(module, name), emulated, torch_headers))


def _checked(function: Callable, emulated: _EmulatedModule, torch_headers: bool) -> Callable:
    @functools.wraps(function, assigned=("__name__", "__doc__"))
    def call(*args, **kwargs):
        values = [*args, *kwargs.values()]
        tensors = [t for v in values for t in _tensors(v)]
        # A wrapper that takes tensors has sizes among its numbers.
        min_address = 1 << 32 if torch_headers else 0xFFFF
        tensors += _owners_of([v for v in values if type(v) is int and v > min_address])
        ranges = {(t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()) for t in tensors}
        n = len(ranges)
        starts, sizes = zip(*ranges, strict=True) if ranges else ((), ())
        array = ctypes.c_ulonglong * max(n, 1)
        emulated.library.wb_ranges(n, array(*starts), array(*sizes))
        try:
            if not torch_headers:
                return function(*args, **kwargs)
            with _track_allocations(emulated) as watch:
                result = function(*args, **kwargs)
            if _unwritten_raises.get():
                _check_written(function.__name__, result, watch)
            return result
        except RuntimeError as error:
            if not str(error).startswith(_ERROR_PREFIX):
                raise
            raise _explain(emulated) from None
        finally:
            emulated.library.wb_ranges(0, array(), array())
            for trace in _traces:
                trace.note(emulated)

    # torch.compile sees one call that it can't trace into, as it does on a GPU.
    call._torchdynamo_disable = True
    return call


def _tensors(value) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu" and value.layout is torch.strided:
            yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def _owners_of(addresses: list[int]) -> list[torch.Tensor]:
    """Returns the tensors that own these addresses: the callers' variables first, then all live tensors.

    A function that is called with `x.data_ptr()` gets a number. To know where that memory ends, the tensor
    must be found.
    """
    found: list[torch.Tensor] = []
    missing = set(addresses)

    def search(objects) -> None:
        for t in (t for o in objects for t in _tensors(o)):
            start = t.untyped_storage().data_ptr()
            covered = {a for a in missing if start <= a < start + t.untyped_storage().nbytes()}
            if covered:
                found.append(t)
                missing.difference_update(covered)

    frame = sys._getframe(2)
    for _ in range(_N_CALLER_FRAMES):
        if frame is None or not missing:
            break
        search(list(frame.f_locals.values()))
        if missing:
            search(list(frame.f_globals.values()))
        frame = frame.f_back
    if any(a > 1 << 32 for a in missing):  # smaller numbers are sizes
        import torch

        search([o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)])
    return found


def _track_allocations(emulated: _EmulatedModule):
    """While it is active, the checks know every tensor that torch creates, and empty ones are poisoned."""
    empty = check.empty_allocations()

    class Watch(dispatch_mode()):
        def __init__(self):
            super().__init__()
            self.poisoned: list[torch.Tensor] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for t in _tensors(result):
                storage = t.untyped_storage()
                emulated.library.wb_add_range(storage.data_ptr(), storage.nbytes())
                if func in empty:
                    _poison(t)
                    self.poisoned.append(t)
            return result

    return Watch()


def _poison(tensor: torch.Tensor) -> None:
    if tensor.numel():
        ctypes.memset(tensor.untyped_storage().data_ptr(), _POISON_BYTE, tensor.untyped_storage().nbytes())


def _check_written(name: str, result, watch) -> None:
    """Raises if a returned tensor still contains poison."""
    import torch

    starts = {t.untyped_storage().data_ptr() for t in watch.poisoned if t.numel()}
    views = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    for number, t in enumerate(_tensors(result)):
        size = t.element_size()
        if not t.numel() or t.untyped_storage().data_ptr() not in starts or size not in (2, 4, 8):
            continue  # a byte may be 0x5B by chance
        poison = int.from_bytes(bytes([_POISON_BYTE]) * size, "little", signed=True)
        unwritten = (t.detach().view(views[size]) == poison).nonzero()
        if len(unwritten):
            at = tuple(unwritten[0].tolist())
            which = "the returned tensor" if isinstance(result, torch.Tensor) else f"returned tensor {number}"
            raise EmulatorError(
                f"{name}: {len(unwritten):,} of {t.numel():,} elements of {which} were never written; the "
                f"first is {at}.",
                cause="unwritten",
                kernel=name,
                argument=which,
            )


@contextmanager
def unwritten_allowed() -> Iterator[None]:
    """While it is active, a call may return elements that no thread wrote; they contain poison."""
    token = _unwritten_raises.set(False)
    try:
        yield
    finally:
        _unwritten_raises.reset(token)


def _explain(emulated: _EmulatedModule) -> EmulatorError | KeyboardInterrupt:
    text = emulated.library.wb_failure().decode(errors="replace")
    cause, kernel, argument, expression, *numbers, problem = text.split("\t", 12)
    bx, by, bz, tx, ty, tz, line, outside = map(int, numbers)
    message = f"{kernel}, block {_short(bx, by, bz)}, thread {_short(tx, ty, tz)}"
    message += f", line {line}: {problem}." if line else f": {problem}."
    if cause == "interrupted":
        return KeyboardInterrupt(message)
    lines = emulated.source.splitlines()
    if 0 < line <= len(lines):
        message += f"\n    {lines[line - 1].strip()}"
    return EmulatorError(
        message,
        cause=cause,
        kernel=kernel,
        block=(bx, by, bz),
        thread=(tx, ty, tz),
        line=line,
        argument=argument,
        expression=expression,
        bytes_outside=outside,
    )


def _short(x: int, y: int, z: int) -> str:
    return f"({x}, {y}, {z})" if z else f"({x}, {y})"


# Traced runs


class LaunchTrace:
    """What the emulated kernels do while `tracing` is active."""

    def __init__(self) -> None:
        # Where this trace begins in the record of each module; an outer trace may have filled it already.
        self._first = {one: (one.library.wb_n_launches(), one.library.wb_n_accesses()) for one in _modules}
        self._called: list[_EmulatedModule] = []

    def note(self, emulated: _EmulatedModule) -> None:
        """Notes that a function of this module was called."""
        if emulated not in self._called:
            self._called.append(emulated)

    def first(self, emulated: _EmulatedModule) -> tuple[int, int]:
        """Returns the positions of this trace's first launch and first access in a module's record."""
        return self._first.get(emulated, (0, 0))

    @property
    def launched(self) -> list[_EmulatedModule]:
        """The modules that launched kernels, in the order of their first calls."""
        return [one for one in self._called if one.launches(self.first(one)[0])]

    @property
    def kernels(self) -> list[str]:
        """The kernels' names, one per launch, grouped by module."""
        return [launch[0] for one in self._called for launch in one.launches(self.first(one)[0])]


@contextmanager
def tracing() -> Iterator[LaunchTrace]:
    """Records the launches and accesses of emulated kernels. Traces can be nested; an outer one includes the
    inner.

    Yields:
        The trace. It can be read until the next outermost trace begins.
    """
    if not _traces:
        for one in _modules:
            one.library.wb_trace(1)
    trace = LaunchTrace()
    _traces.append(trace)
    try:
        yield trace
    finally:
        _traces.remove(trace)
        if not _traces:
            for one in _modules:
                one.library.wb_trace(0)


_ACCESS = [
    ("block", "u8"),
    ("offset", "i8"),
    ("thread", "u4"),
    ("launch", "i4"),
    ("argument", "i4"),
    ("site", "i4"),
    ("size", "u2"),
    ("use", "u2"),
    ("phase", "u4"),
]


@dataclass(frozen=True)
class Recording:
    """The accesses of one traced call, from which `helpers.lessons.grid` makes tables and pictures.

    Attributes:
        accesses: a NumPy record array with one row per access to a tensor, in the order of execution.
        launches: (kernel, grid (x, y, z), block (x, y, z), parameter names) for each launch.
        sites: number to (line, expression); a negative number is a line.
        result: what the traced call returned.
    """

    accesses: object
    launches: tuple
    sites: tuple
    result: object = field(repr=False)


def record(run: Callable[[], object]) -> Recording:
    """Calls `run` and stores every access to a tensor by emulated kernels.

    Raises:
        ValueError: `run` launched no emulated kernel.
        EmulatorError: as in any run, and after more than four million accesses.
    """
    import numpy as np

    with tracing() as trace:
        result = run()
    modules = trace.launched
    if len(modules) != 1:
        raise ValueError(
            "A traced run takes a call that launches kernels of exactly one module built with "
            f'device="emulator"; this one launched kernels of {len(modules)}.'
        )
    (emulated,) = modules
    first_launch, first_access = trace.first(emulated)
    kind = np.dtype(_ACCESS)
    n_bytes = emulated.library.wb_n_accesses() * kind.itemsize
    raw = ctypes.string_at(emulated.library.wb_accesses(), n_bytes) if n_bytes else b""
    accesses = np.frombuffer(raw, kind)[first_access:].copy()
    accesses["launch"] -= first_launch
    launches = []
    for name, *words in emulated.launches(first_launch):
        sizes = tuple(map(int, words[:6]))
        launches.append((name, sizes[:3], sizes[3:], tuple(words[6:])))
    return Recording(accesses, tuple(launches), emulated.sites, result)

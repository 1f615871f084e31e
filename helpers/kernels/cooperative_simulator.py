"""A simulated GPU for Triton's interpreter, on which a limited number of programs run concurrently.

The interpreter runs programs one after the other, so a program that waits for a later one silently waits
forever. Inside `chip(places)`, an interpreted launch behaves as on a GPU: programs start in the order of
their numbers as soon as a place is free, a program keeps its place until it ends, and a waiting program lets
the others run. If all programs that have a place wait for one that can't start, a GPU would hang. Here,
`Deadlock` reports which programs wait.

Only one program runs at a time, so every run is the same. A program runs until it waits or ends. Programs
with odd numbers also pause after each write until all others wait, which exposes code that takes one store of
a program as proof that its next store is visible too. Stores become visible in program order, although a GPU
doesn't guarantee that either. A program counts as waiting if it reads the same words again and finds the same
values.
"""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_MAX_REMEMBERED_READS = 4  # reads per program; a waiting loop has no more than that per iteration
# After more unchanged reads than this, a program counts as waiting; some kernels read a row twice.
_MAX_UNCHANGED_READS = 2
_IDLE_ROUNDS = 8  # rounds in which no program wrote anything or ended


class Deadlock(RuntimeError):
    """All programs that have a place are waiting, and no program can write what they wait for."""


@dataclass
class Chip:
    """The simulated GPU that `chip` yields: how many programs can run at once, and what was observed.

    Attributes:
        places: The number of programs that run at once; None for no limit.
        plain_waits: Whether a program waited with ordinary loads and eventually saw another program's write.
            On a GPU, the multiprocessor's own L1 cache can answer such a load forever; `volatile=True` or an
            atomic operation reads from the L2.
    """

    places: int | None = None
    plain_waits: bool = False


class _Stopped(BaseException):
    """Ends a program after its launch has ended. No `except Exception` of a kernel catches it."""


@dataclass
class _Program:
    """One program: a thread that runs while it has the baton."""

    number: int
    index: tuple[int, ...]
    thread: threading.Thread | None = None
    baton: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    ended: bool = False
    paused: bool = False
    error: BaseException | None = None
    seen: deque = field(default_factory=lambda: deque(maxlen=_MAX_REMEMBERED_READS))


_here = threading.local()
_chips: list[Chip] = []


class _Launch:
    """The programs of one launch. It replaces the kernel's function, which the interpreter calls for each
    program.
    """

    def __init__(self, chip: Chip, function: Callable, builder: Any) -> None:
        self.chip, self.function, self.builder = chip, function, builder
        # The attributes of a kernel's function that the interpreter uses.
        self.__name__, self.__globals__ = function.__name__, function.__globals__
        self.__signature__ = inspect.signature(function)
        self.resident: list[_Program] = []
        self.returned = threading.Semaphore(0)
        self.n_started, self.progress, self.stopped = 0, 0, False

    def __call__(self, **args: Any) -> None:
        try:
            self._start(args)
        except BaseException:
            self.stop()  # here, while Triton's language is still patched by the interpreter
            raise

    def _start(self, args: dict[str, Any]) -> None:
        """Starts one more program as soon as there is a place for it. After the last one, runs all programs
        to completion.
        """
        index = tuple(self.builder.grid_idx)
        while self.chip.places is not None and len(self.resident) >= self.chip.places:
            self._round(more_to_start=True)
        program = _Program(self.n_started, index)
        self.n_started += 1
        context = contextvars.copy_context()  # numpy's errstate belongs to the context
        program.thread = threading.Thread(target=context.run, args=(self._run, program, args), daemon=True)
        self.resident.append(program)
        program.thread.start()
        self._resume(program)
        if index == tuple(n - 1 for n in self.builder.grid_dim):
            while self.resident:
                self._round(more_to_start=False)

    def _run(self, program: _Program, args: dict[str, Any]) -> None:
        _here.launch, _here.program = self, program
        try:
            program.baton.acquire()
            if not self.stopped:
                self.function(**args)
        except _Stopped:
            pass
        except BaseException as error:
            program.error = error
        finally:
            program.ended = True
            self.returned.release()

    def _resume(self, program: _Program) -> None:
        """Gives a program the baton until it waits or ends."""
        self.builder.set_grid_idx(*program.index)
        program.baton.release()
        self.returned.acquire()
        if program.ended:
            self.progress += 1
            self.resident.remove(program)
            if program.error is not None:
                raise program.error

    def _round(self, more_to_start: bool) -> None:
        """Lets every resident program run until one has ended.

        Raises:
            Deadlock: No program ends, and none writes anything.
        """
        idle, n = 0, len(self.resident)
        while len(self.resident) == n:
            before = self.progress
            for program in list(self.resident):
                if not program.paused:
                    self._resume(program)
            if self.progress == before and any(program.paused for program in self.resident):
                for program in self.resident:
                    program.paused = False
                continue
            idle = idle + 1 if self.progress == before else 0
            if idle >= _IDLE_ROUNDS:
                raise Deadlock(self._describe_deadlock(more_to_start))

    def _describe_deadlock(self, more_to_start: bool) -> str:
        first, last = self.resident[0].number, self.resident[-1].number
        n = len(self.resident)
        programs = f"program {first}" if n == 1 else f"programs {first} to {last}"
        if n != last - first + 1:
            programs = f"{n} programs between {first} and {last}"
        wait_verb = "waits" if n == 1 else "wait"
        if not more_to_start:
            return (
                f"{programs} of {self.function.__name__} {wait_verb} for words that nobody will write: all "
                "others have ended"
            )
        places = (
            "the chip's only place" if self.chip.places == 1 else f"all {self.chip.places} places of the chip"
        )
        hold_verb = "holds" if n == 1 else "hold"
        return (
            f"{programs} of {self.function.__name__} {hold_verb} {places} and {wait_verb}; program "
            f"{self.n_started} cannot start"
        )

    def wait(self, program: _Program) -> None:
        """Gives the baton back; a waiting program calls this."""
        self.returned.release()
        program.baton.acquire()
        if self.stopped:
            raise _Stopped

    def stop(self) -> None:
        """Ends all programs that are still running."""
        self.stopped = True
        for program in self.resident:
            program.baton.release()
            if program.thread is not None:
                program.thread.join()
        self.resident.clear()


def _record_read(pointers: Any, values: np.ndarray, plain: bool) -> None:
    """Records a read. If the program finds the same values as a moment ago, it waits."""
    program = getattr(_here, "program", None)
    if program is None or not values.size:
        return
    flat = pointers.data.reshape(-1)
    key, now = (int(flat[0]), int(flat[-1]), flat.size), values.tobytes()
    before = next((one for one in program.seen if one[0] == key), None)
    n_unchanged = 1
    if before is not None:
        program.seen.remove(before)
        if before[1] == now:
            n_unchanged = before[2] + 1
        else:
            _here.launch.chip.plain_waits |= plain
    program.seen.append((key, now, n_unchanged))
    if n_unchanged > _MAX_UNCHANGED_READS:
        _here.launch.wait(program)


def _record_write() -> None:
    program = getattr(_here, "program", None)
    if program is not None:
        _here.launch.progress += 1
        program.seen.clear()
        if program.number % 2:
            program.paused = True
            _here.launch.wait(program)


def _patches() -> list[tuple[Any, str, Callable]]:
    """Returns the replacements for parts of the interpreter while a chip is simulated."""
    from triton.runtime import interpreter

    executor, builder = interpreter.GridExecutor, interpreter.InterpreterBuilder
    original = executor.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        function = self.fn
        self.fn = _Launch(_chips[-1], function, interpreter.interpreter_builder)
        try:
            return original(self, *args, **kwargs)
        except interpreter.InterpreterError as error:
            if isinstance(error.__cause__, Deadlock):
                raise error.__cause__ from None
            raise
        finally:
            self.fn = function

    def load(self: Any, ptrs: Any, mask: Any, *rest: Any, _call=builder.create_masked_load) -> Any:
        got = _call(self, ptrs, mask, *rest)
        volatile = bool(rest[-1]) if rest else False
        _record_read(ptrs, got.data[mask.data], plain=not volatile)  # values from `other` are not memory
        return got

    def store(self: Any, *args: Any, _call=builder.create_masked_store) -> Any:
        result = _call(self, *args)
        _record_write()
        return result

    def atomic(_call: Callable) -> Callable:
        def run(self: Any, *args: Any) -> Any:
            ptr = next(one for one in args if hasattr(one, "data"))
            kind, full_mask = ptr.get_element_ty(), np.ones_like(ptr.data, dtype=bool)
            mask_argument = next(
                (
                    one
                    for one in args[1:]
                    if getattr(one, "data", None) is not None and one.data.dtype == bool
                ),
                None,
            )
            mask = full_mask if mask_argument is None else mask_argument.data
            got = _call(self, *args)
            zeros = np.zeros_like(got.data)
            after = interpreter._interpreter.load(ptr.data, mask, zeros, interpreter._get_np_dtype(kind))
            if np.where(mask, got.data, zeros).tobytes() != after.tobytes():
                _record_write()
            else:
                _record_read(ptr, after, plain=False)
            return got

        return run

    return [
        (executor, "__call__", call),
        (builder, "create_masked_load", load),
        (builder, "create_masked_store", store),
        (builder, "create_atomic_rmw", atomic(builder.create_atomic_rmw)),
        (builder, "create_atomic_cas", atomic(builder.create_atomic_cas)),
    ]


@contextmanager
def chip(places: int | None = None) -> Iterator[Chip]:
    """Runs interpreted launches on a simulated GPU with room for `places` programs.

    Compiled kernels are not affected.

    Args:
        places: How many programs can run at once, at least 1; None for no limit.

    Raises:
        ValueError: `places` is less than 1.
        Deadlock: All running programs of a launch wait, and none can continue.
    """
    if places is not None and places < 1:
        raise ValueError(f"A chip needs room for at least one program; places={places}.")
    new_chip = Chip(places)
    patches = [] if _chips else _patches()
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    _chips.append(new_chip)
    try:
        for owner, name, new in patches:
            setattr(owner, name, new)
        yield new_chip
    finally:
        for owner, name, old in originals:
            setattr(owner, name, old)
        _chips.pop()

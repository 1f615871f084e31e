"""A chip in miniature for Triton's interpreter: programs that run at once, and as many places as you say.

The interpreter runs one program after the other, so a program that waits for a later one waits for ever, without a word.
Inside `chip(places)` an interpreted launch goes as on a GPU: programs start in the order of their numbers as long as a
place is free, a program keeps its place until it ends, and who waits lets the others work. Where all that have a place
wait for somebody who cannot start, a GPU hangs; here `Deadlock` says who waits for whom.

One program runs at a time, so a run is the same every time. A program goes on until it waits or ends; one of an odd number
also rests after each write, until all others wait: who takes one of its stores for a sign that the next one is there
too is shown wrong. Stores become visible in the order in which they are made; a GPU does not promise that either.
A program waits when it reads the same words again and finds what it found before.
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

_REMEMBERED = 4  # reads of a program: a loop that waits has no more in a turn
_PATIENCE = 2  # times that a program finds the same words before it is said to wait: some read a row twice
_IDLE_ROUNDS = 8  # turns of all programs in which nothing was written and none ended


class Deadlock(RuntimeError):
    """All programs that have a place wait, and nobody can write what they wait for."""


@dataclass
class Chip:
    """What `chip` gives: how many places there are, and what was seen.

    Attributes:
        places: programs that run at once; None for any number.
        plain_waits: whether a program waited by ordinary loads and saw another's write in the end. A GPU may answer such
            a load from the multiprocessor's own L1 for ever; `volatile=True` or an atomic goes to the L2.
    """

    places: int | None = None
    plain_waits: bool = False


class _Stopped(BaseException):
    """Ends a program whose launch is over; no `except Exception` of a kernel may hold it up."""


@dataclass
class _Program:
    """One program: a thread that runs while it has the baton."""

    number: int
    index: tuple[int, ...]
    thread: threading.Thread | None = None
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    ended: bool = False
    rests: bool = False
    error: BaseException | None = None
    seen: deque = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


_here = threading.local()
_chips: list[Chip] = []


class _Launch:
    """The programs of one launch. It stands in for the kernel's function, which the interpreter calls for each program."""

    def __init__(self, chip: Chip, function: Callable, builder: Any) -> None:
        self.chip, self.function, self.builder = chip, function, builder
        # What the interpreter asks of a kernel's function.
        self.__name__, self.__globals__ = function.__name__, function.__globals__
        self.__signature__ = inspect.signature(function)
        self.resident: list[_Program] = []
        self.back = threading.Semaphore(0)
        self.n_started, self.progress, self.stopped = 0, 0, False

    def __call__(self, **args: Any) -> None:
        try:
            self._start(args)
        except BaseException:
            self.stop()  # here, while the interpreter's functions still stand in for Triton's language
            raise

    def _start(self, args: dict[str, Any]) -> None:
        """Start one more program, as soon as there is a place for it; after the last, see all to their end."""
        index = tuple(self.builder.grid_idx)
        while self.chip.places is not None and len(self.resident) >= self.chip.places:
            self._round(waiting=True)
        program = _Program(self.n_started, index)
        self.n_started += 1
        context = contextvars.copy_context()  # numpy's errstate is a context's own
        program.thread = threading.Thread(target=context.run, args=(self._run, program, args), daemon=True)
        self.resident.append(program)
        program.thread.start()
        self._resume(program)
        if index == tuple(n - 1 for n in self.builder.grid_dim):
            while self.resident:
                self._round(waiting=False)

    def _run(self, program: _Program, args: dict[str, Any]) -> None:
        _here.launch, _here.program = self, program
        try:
            program.go.acquire()
            if not self.stopped:
                self.function(**args)
        except _Stopped:
            pass
        except BaseException as error:
            program.error = error
        finally:
            program.ended = True
            self.back.release()

    def _resume(self, program: _Program) -> None:
        """Give a program the baton until it waits or ends."""
        self.builder.set_grid_idx(*program.index)
        program.go.release()
        self.back.acquire()
        if program.ended:
            self.progress += 1
            self.resident.remove(program)
            if program.error is not None:
                raise program.error

    def _round(self, waiting: bool) -> None:
        """Let every resident program go on, until one has ended.

        Raises:
            Deadlock: none ends, and none writes anything.
        """
        idle, n = 0, len(self.resident)
        while len(self.resident) == n:
            before = self.progress
            for program in list(self.resident):
                if not program.rests:
                    self._resume(program)
            if self.progress == before and any(program.rests for program in self.resident):
                for program in self.resident:
                    program.rests = False
                continue
            idle = idle + 1 if self.progress == before else 0
            if idle >= _IDLE_ROUNDS:
                raise Deadlock(self._who(waiting))

    def _who(self, waiting: bool) -> str:
        first, last = self.resident[0].number, self.resident[-1].number
        n = len(self.resident)
        who = f"program {first}" if n == 1 else f"programs {first} to {last}"
        if n != last - first + 1:
            who = f"{n} programs between {first} and {last}"
        wait = "waits" if n == 1 else "wait"
        if not waiting:
            return f"{who} of {self.function.__name__} {wait} for words that nobody will write: all others have ended"
        places = (
            "the chip's only place" if self.chip.places == 1 else f"all {self.chip.places} places of the chip"
        )
        hold = "holds" if n == 1 else "hold"
        return f"{who} of {self.function.__name__} {hold} {places} and {wait}; program {self.n_started} cannot start"

    def wait(self, program: _Program) -> None:
        """Give the baton back; called by a program that waits."""
        self.back.release()
        program.go.acquire()
        if self.stopped:
            raise _Stopped

    def stop(self) -> None:
        """End what still runs."""
        self.stopped = True
        for program in self.resident:
            program.go.release()
            if program.thread is not None:
                program.thread.join()
        self.resident.clear()


def _read(pointers: Any, values: np.ndarray, plain: bool) -> None:
    """A program has read: if it found there what it found a moment ago, it waits."""
    program = getattr(_here, "program", None)
    if program is None or not values.size:
        return
    flat = pointers.data.reshape(-1)
    key, now = (int(flat[0]), int(flat[-1]), flat.size), values.tobytes()
    before = next((one for one in program.seen if one[0] == key), None)
    times = 1
    if before is not None:
        program.seen.remove(before)
        if before[1] == now:
            times = before[2] + 1
        else:
            _here.launch.chip.plain_waits |= plain
    program.seen.append((key, now, times))
    if times > _PATIENCE:
        _here.launch.wait(program)


def _wrote() -> None:
    program = getattr(_here, "program", None)
    if program is not None:
        _here.launch.progress += 1
        program.seen.clear()
        if program.number % 2:
            program.rests = True
            _here.launch.wait(program)


def _patches() -> list[tuple[Any, str, Callable]]:
    """What of the interpreter is replaced while there is a chip."""
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
        _read(ptrs, got.data[mask.data], plain=not volatile)  # what `other` stands for is no memory
        return got

    def store(self: Any, *args: Any, _call=builder.create_masked_store) -> Any:
        made = _call(self, *args)
        _wrote()
        return made

    def atomic(_call: Callable) -> Callable:
        def run(self: Any, *args: Any) -> Any:
            ptr = next(one for one in args if hasattr(one, "data"))
            kind, all_of = ptr.get_element_ty(), np.ones_like(ptr.data, dtype=bool)
            named = next(
                (
                    one
                    for one in args[1:]
                    if getattr(one, "data", None) is not None and one.data.dtype == bool
                ),
                None,
            )
            mask = all_of if named is None else named.data
            got = _call(self, *args)
            nothing = np.zeros_like(got.data)
            after = interpreter._interpreter.load(ptr.data, mask, nothing, interpreter._get_np_dtype(kind))
            if np.where(mask, got.data, nothing).tobytes() != after.tobytes():
                _wrote()
            else:
                _read(ptr, after, plain=False)
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
    """Run interpreted launches made inside on a chip that has so many places for programs.

    Compiled kernels run as ever: there the GPU is the chip.

    Args:
        places: how many programs run at once, from 1; None has a place for each.

    Raises:
        ValueError: fewer than one place.
        Deadlock: from a launch inside, see there.
    """
    if places is not None and places < 1:
        raise ValueError(f"A chip has one place for a program at least; places is {places}.")
    made = Chip(places)
    patches = [] if _chips else _patches()
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    _chips.append(made)
    try:
        for owner, name, new in patches:
            setattr(owner, name, new)
        yield made
    finally:
        for owner, name, old in before:
            setattr(owner, name, old)
        _chips.pop()

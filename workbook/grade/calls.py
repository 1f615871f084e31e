"""How the examiner has one hidden call made: by the learner's object, by its text in a clean process, or
served from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import check
from helpers.exercises.guard import FAR
from helpers.exercises.model import Case, Exercise, Outcome
from helpers.exercises.proxies import KernelProxy, Proxy
from workbook.grade.stand_ins import ARRAY, KEPT, SAME, SHOWN
from workbook.grade.untrusted import outcome_of
from workbook.sandbox.messages import plain

Ask = Callable[..., dict[str, Any]]  # (message, answer=None) -> reply


class Unusable(Exception):
    """An answer that cannot be judged. Not a ValueError, which a judge may expect of its own work."""


class Calls:
    """Makes the calls of one exercise's check: `calls(case)` gives the outcome."""

    def __init__(self, exercise: Exercise, ask: Ask, clean: Callable[[], Ask]) -> None:
        """Nothing is asked yet.

        Args:
            exercise: Whose cases they are.
            ask: Asks the learner's process.
            clean: Starts a clean process if there is none, and gives what asks it.
        """
        self._exercise, self._ask, self._clean = exercise, ask, clean
        self._without_text: Outcome | None = None
        self._has_text = False

    def __call__(self, case: Case) -> Outcome:
        """One call.

        Raises:
            Unusable: What came back is no outcome of this call.
        """
        if case.call in self._exercise.served:
            return self._serve(case)
        message = {"do": "call", "args": case.args, "kwargs": case.kwargs, "call": case.call}
        if self._exercise.text is None:
            return self._tried(_outcome(self._ask(message)), case)
        if not self._has_text and self._without_text is None:
            self._hand_over()
        return self._without_text or self._tried(_outcome(self._clean()(message)), case)

    def _hand_over(self) -> None:
        """Take the text from the learner's process, and nothing else, to a clean one."""
        reply = self._ask({"do": "text"})
        text = reply.get("text")
        if type(text) is not str:
            outcome = _outcome(reply)
            if not outcome.error:
                raise Unusable("it is no text")
            self._without_text = Outcome(
                error=outcome.error, error_type=outcome.error_type, line=outcome.line
            )
            return
        if len(text) > 1_000_000:
            raise Unusable("it is a text of more than a million characters")
        self._clean()({"do": "take", "text": text})
        self._has_text = True

    def _tried(self, outcome: Outcome, case: Case) -> Outcome:
        """The outcome; a call that was not made for want of room must be one for which this
        machine has none.
        """
        if "skipped" not in outcome.facts:
            return outcome
        if not _is_far(case):
            raise Unusable("it claims that there is no room for so small a case")
        if self._clean()({"do": "room", "args": case.args}).get("room") is not False:
            raise Unusable(
                "it claims that there is no room, and there is: does the notebook limit or hold memory?"
            )
        return Outcome(facts={"skipped": "this machine has no room for it"})

    def _serve(self, case: Case) -> Outcome:
        """A case of which the learner's process sees only what it is shown."""

        def ask(*args: Any) -> Outcome:
            desk = _Desk()
            message = {"do": "ask", "call": case.call, "args": desk.encoded(args)}
            return _outcome(self._ask(message, desk.answer))

        value = self._exercise.served[case.call](ask, *case.args)
        return value if isinstance(value, Outcome) else Outcome(value)


def _is_far(case: Case) -> bool:
    """Whether a machine may have no room for a case: only for those that reach past 2^31 elements."""
    return any(type(arg) is dict and FAR in arg for arg in (*case.args, *case.kwargs.values()))


def _outcome(reply: dict[str, Any]) -> Outcome:
    if reply.get("too_large"):
        raise Unusable("it is too large")
    try:
        return outcome_of(reply.get("outcome"))
    except ValueError as error:
        raise Unusable(str(error)) from None


class _Desk:
    """The objects that one call shows to the learner's function, and the answers for them."""

    def __init__(self) -> None:
        self._shown: list[Proxy] = []
        self._results: dict[
            int, tuple[int, torch.Tensor]
        ] = {}  # address of a memory -> its number, who holds it
        self._n_results = 0

    def encoded(self, value: Any) -> Any:
        if isinstance(value, Proxy):
            self._shown.append(value)
            kernel = isinstance(value, KernelProxy)
            return {SHOWN: len(self._shown) - 1, "methods": list(value.methods), "kernel": kernel}
        if isinstance(value, np.ndarray):
            return {ARRAY: torch.from_numpy(value)}
        if isinstance(value, list | tuple):
            return type(value)(self.encoded(one) for one in value)
        return value

    def answer(self, raw: Any) -> dict[str, Any]:
        """What a method gives or raises; what is asked may be anything."""
        try:
            asked = plain(raw)
            shown = self._object(asked["object"])
            args = [self._object(one[SHOWN]) if type(one) is dict else one for one in asked["args"]]
            if isinstance(shown, KernelProxy):
                return self._kernel(shown, args[0], asked["fill"])
            value = shown.methods[asked["method"]](*args)
        except (Exception, RecursionError) as error:
            return {"error_type": type(error).__name__, "error": str(error)[:2000]}
        return {"value": self.encoded(value)}

    def _object(self, number: Any) -> Proxy:
        if type(number) is not int or not 0 <= number < len(self._shown):
            raise ValueError("there is no such object")
        return self._shown[number]

    def _kernel(self, kernel: KernelProxy, x: Any, fill: Any) -> dict[str, Any]:
        if type(x) is not torch.Tensor:
            raise TypeError("the kernel takes a tensor")
        memory = torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())
        before = memory.clone()
        with _filled(fill):
            y = kernel(x)
        changed = None if torch.equal(memory, before) else memory
        return {"value": self._described(y, x), "argument": changed}

    def _described(self, y: torch.Tensor, x: torch.Tensor) -> dict[str, Any]:
        address = y.untyped_storage().data_ptr()
        if y.untyped_storage().nbytes() and address == x.untyped_storage().data_ptr():
            return {SAME: (tuple(y.size()), tuple(y.stride()), y.storage_offset())}
        number, known = self._results.get(address, (-1, None))
        if known is not y:  # a kernel that keeps its memory gives the same tensor again
            number, self._n_results = self._n_results, self._n_results + 1
        self._results = {address: (number, y)} | dict(list(self._results.items())[-7:])
        return {KEPT: number, "tensor": y}


@contextmanager
def _filled(value: Any) -> Iterator[None]:
    """Fill new memory with a value, as it was on the other side; None leaves it as it is."""
    if type(value) is not float:
        yield
        return
    empty = check.empty_allocations()

    class Fill(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            return made.fill_(value) if func in empty and made.is_floating_point() else made

    with Fill():
        yield

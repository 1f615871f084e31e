"""The process that runs what a learner wrote: it knows no expected result and makes no verdict.

There are two kinds. A learner's process runs the notebook; of the exercises it knows what is called how, and
nothing of cases, references and answers. A clean process runs no cell: it is given texts, builds them and
runs them.

It runs the learner's cells in an IPython shell and answers the grader over a pipe; what the cells print goes
elsewhere, to a log. A reply repeats the token of its request. The grader checks every reply, because the
learner's code can send whatever it likes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from workbook.grade import stand_ins
from workbook.grade.shell import Originals, line_of, make_shell
from workbook.grade.stubs import as_told, known
from workbook.sandbox.inside import enter
from workbook.sandbox.messages import receive
from workbook.sandbox.serving import Server, sentence


def main(settings: dict[str, Any]) -> None:
    """Serve the grader; does not return.

    Args:
        settings: `told`: what a learner's process is told of the exercises; `lab`: for a clean process, whose
            exercises it knows, else ""; `exercises`: a Python file with further ones or ""; `folder` and
            `sandboxed`: as in `inside.enter`.
    """
    requests, replies = enter(settings, "notebook")
    further, lab = settings["exercises"], settings["lab"]
    if lab:
        _Clean(requests, replies, known(lab, further)).serve()
    else:
        exercises = as_told(settings["told"], further)
        import helpers.exercises

        helpers.exercises.hold(tuple(exercises.values()))
        _Worker(requests, replies, exercises).serve()
    os._exit(0)


class _Answering(Server):
    """Answers the grader about exercises: makes calls, and asks back of the objects that it was shown."""

    def __init__(self, requests: int, replies: int, exercises: dict[str, Any]) -> None:
        super().__init__(requests, replies)
        self._exercises = exercises
        from helpers.exercises import call
        from helpers.exercises.model import Case, Outcome

        self._call_here, self._ask_here, self._text_here = call.call_here, call.ask_here, call.text_here
        self._case, self._outcome = Case, Outcome
        self._link = stand_ins.Link(self._ask_back)
        self._prepared: dict[str, Any] = {}
        self._asking = threading.Lock()

    def _ask_back(self, message: dict[str, Any]) -> dict[str, Any]:
        """Ask the grader while the learner's function runs; an interrupt waits until the answer is there."""
        with self._asking:
            untrusted, self._untrusted = self._untrusted, False
            try:
                self._send({"token": self._token, "asks": message})
                payload = receive(self._requests, self._read)
            finally:
                self._untrusted = untrusted
        if payload is None:
            os._exit(0)
        if self._interrupted:
            raise KeyboardInterrupt
        return self._load(self._source(payload), weights_only=True)["answer"]

    def _do_call(self, message: dict[str, Any]) -> dict[str, Any]:
        """Make one hidden call."""
        case = self._case("", message["args"], message["kwargs"], None, message["call"])
        return self._made(lambda exercise, obj: self._call_here(exercise, obj, case), message)

    def _do_ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Call the learner's object for a case that the grader serves."""
        args = self._link.decoded(message["args"])
        return self._made(lambda exercise, obj: self._ask_here(exercise, obj, message["call"], args), message)

    def _made(self, call: Callable[[Any, Any], Any], message: dict[str, Any]) -> dict[str, Any]:
        self._before_a_call()
        exercise = self._exercises[message["exercise"]]
        try:
            with self._untrusted_code():
                outcome = call(exercise, self._prepared[message["exercise"]])
        except KeyboardInterrupt as error:
            outcome = self._outcome(error=sentence(error), error_type="KeyboardInterrupt")
        return self._sent(outcome)

    def _sent(self, outcome: Any) -> dict[str, Any]:
        return {"outcome": {name: getattr(outcome, name) for name in outcome.__dataclass_fields__}}

    def _before_a_call(self) -> None:
        """Nothing."""


class _Worker(_Answering):
    """The learner's shell, and the answers to the grader.

    The functions that it needs are bound before the first cell runs, and those of the workbook and of torch
    are put back before each call, so that a cell that replaces one changes no answer by it.
    """

    def __init__(self, requests: int, replies: int, exercises: dict[str, Any]) -> None:
        os.environ.setdefault("MPLBACKEND", "agg")
        super().__init__(requests, replies, exercises)
        self._shell = make_shell()
        self._originals = Originals()

    def _before_a_call(self) -> None:
        self._originals.put_back()

    def _do_cell(self, message: dict[str, Any]) -> dict[str, Any]:
        """Run one cell; say what it raised."""
        with self._untrusted_code():
            result = self._shell.run_cell(message["source"], store_history=True)
        error = result.error_before_exec or result.error_in_exec
        with contextlib.suppress(Exception):  # a cell may have closed or replaced them
            sys.stdout.flush()
            sys.stderr.flush()
        if error is None:
            return {"error": "", "line": 0}
        return {"error": sentence(error), "error_type": type(error).__name__, "line": line_of(error)}

    def _do_has(self, message: dict[str, Any]) -> dict[str, Any]:
        """Take the object that an exercise checks, by its name or an expression; it stays the same whatever
        cells do to the name later.
        """
        expression, names = message["name"], self._shell.user_ns
        if expression.isidentifier():
            if expression not in names:
                return {"found": False}
            found = names[expression]
        else:
            try:
                with self._untrusted_code():
                    found = eval(compile(expression, "<check>", "eval"), names)
            except (Exception, SystemExit) as error:
                return {"found": False, "error": sentence(error)}
        self._prepared[message["exercise"]] = found
        return {"found": True}

    def _do_text(self, message: dict[str, Any]) -> dict[str, Any]:
        """The text that is the learner's answer, or the outcome that says why there is none."""
        self._before_a_call()
        with self._untrusted_code():
            found = self._text_here(self._exercises[message["exercise"]], self._prepared[message["exercise"]])
        return {"text": str(found)} if isinstance(found, str) else self._sent(found)


class _Clean(_Answering):
    """Builds and runs texts, in a process that never ran a learner's Python."""

    def _do_take(self, message: dict[str, Any]) -> dict[str, Any]:
        """Take a text as the answer to an exercise."""
        from helpers.exercises.model import Text

        self._prepared[message["exercise"]] = Text(message["text"])
        return {}

    def _do_room(self, message: dict[str, Any]) -> dict[str, Any]:
        """Whether this machine has room for a call with these arguments."""
        from helpers.exercises import guard

        try:
            guard.place(message["args"], guard.Blocks())
        except (OSError, MemoryError, RuntimeError):
            return {"room": False}
        return {"room": True}

"""The process that runs one learner's notebook: it knows no expected result and makes no verdict.

`main` forks. The first process stays what it is, a supervisor that runs nothing of the learner's: when the second one
ends, or the grader lets go of the leash, it ends every process that the notebook started, however far they forked away.
The second process runs the learner's cells in an IPython shell and answers the grader over a pipe of its own; what the
cells print goes elsewhere, to a log.

A message is eight bytes of length and a dict by `torch.save`. A reply repeats the token of its request. The grader checks
every reply, for the learner's code can send whatever it likes.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from helpers.workshop.grade import confine
from helpers.workshop.supervisor import end_with_parent, supervised

MAX_BYTES = 512 * 2**20  # of one message
_LENGTH = struct.Struct(">Q")


def main(settings: dict[str, Any]) -> None:
    """Supervise a process that serves the grader; does not return.

    Requests come over stdin, whose end is the leash; replies go to stdout, and what cells print to stderr.

    Args:
        settings: `lab`: whose exercises are asked about; `exercises`: a Python file with further ones or ""; `folder`: where
            the notebook runs; `confine`: whether to ask the kernel to keep it in; `private`: further folders that are its
            own; `user`: whose id to take, or 0; `file_bytes`: of one file, or 0 for what `confine` allows.
    """
    requests, replies, leash = (os.dup(fd) for fd in (0, 1, 0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    supervised(leash, (requests, replies))
    sys.argv = ["notebook"]
    folder, user = settings["folder"], settings["user"]
    os.chdir(folder)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory runs out, this process goes first and not the grader
    further = settings["exercises"]
    allowed = confine.plan(Path(folder), sys.path, [further] if further else [])
    allowed["write"] += settings["private"]
    if user and not settings["private"]:  # in a sandbox the folder is everybody's
        with contextlib.suppress(OSError):
            os.chown(folder, user, user)
    tier = confine.enter(allowed if settings["confine"] else None, user, settings["file_bytes"])
    end_with_parent(signal.SIGKILL)  # which a change of the user undoes
    for name in ("cache", "tmp"):
        os.mkdir(name)
    _Worker(requests, replies, known(settings["lab"], further)).serve(tier)
    os._exit(0)


# ------------------------------------------------------------------------------------------------ messages


def receive(fd: int, read: Callable[[int, int], bytes] = os.read) -> bytes | None:
    """The next message's bytes, or None at the end of the pipe."""
    head = _exactly(fd, _LENGTH.size, read)
    return None if head is None else _exactly(fd, _LENGTH.unpack(head)[0], read)


def _exactly(fd: int, n: int, read: Callable[[int, int], bytes]) -> bytes | None:
    parts = bytearray()
    while len(parts) < n:
        part = read(fd, min(n - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def frame(payload: bytes) -> bytes:
    """A message as it goes through the pipe."""
    return _LENGTH.pack(len(payload)) + payload


# ------------------------------------------------------------------------------------------------ the notebook's process


class _Worker:
    """The learner's shell, and the answers to the grader.

    The functions that it needs are bound before the first cell runs, and those of the workbook and of torch are put back
    before each call, so that a cell that replaces one changes no answer by it.
    """

    def __init__(self, requests: int, replies: int, exercises: dict[str, Any]) -> None:
        os.environ.setdefault("MPLBACKEND", "agg")
        import torch

        self._requests, self._replies, self._pid = requests, replies, os.getpid()
        for fd in (requests, replies):
            os.set_inheritable(fd, False)
        self._load, self._save = torch.load, torch.save
        self._read, self._write = os.read, os.write
        self._exercises = exercises
        from helpers.exercises.call import call_here
        from helpers.exercises.model import Case, Outcome

        self._call_here, self._case, self._outcome = call_here, Case, Outcome
        self._shell = _make_shell()
        self._prepared: dict[str, Any] = {}
        self._learners = False  # whether the learner's code runs, which an interrupt may stop
        self._originals = _Originals()

    def serve(self, tier: str) -> None:
        """Say how this process is confined, and answer until the grader closes the pipe."""
        self._send({"token": "", "pid": self._pid, "tier": tier})
        while (payload := receive(self._requests, self._read)) is not None:
            message = self._load(io.BytesIO(payload), weights_only=True)
            signal.signal(signal.SIGINT, self._on_interrupt)
            try:
                reply = getattr(self, f"_do_{message['do']}")(message)
            except KeyboardInterrupt:  # the grader's, which knows of it, or the learner's own
                reply = {"error": "KeyboardInterrupt", "error_type": "KeyboardInterrupt"}
            if os.getpid() != self._pid:
                os._exit(0)  # a cell forked, and this is the copy
            self._send({"token": message["token"], **reply})

    def _on_interrupt(self, number: int, frame: object) -> None:
        if self._learners:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def _learners_code(self) -> Iterator[None]:
        self._learners = True
        try:
            yield
        finally:
            self._learners = False

    def _send(self, reply: dict[str, Any]) -> None:
        buffer = io.BytesIO()
        self._save(reply, buffer)
        if buffer.tell() > MAX_BYTES:
            buffer = io.BytesIO()
            self._save({"token": reply["token"], "too_large": True}, buffer)
        rest = memoryview(frame(buffer.getvalue()))
        while rest:
            rest = rest[self._write(self._replies, rest) :]

    def _do_cell(self, message: dict[str, Any]) -> dict[str, Any]:
        """Run one cell; say what it raised."""
        with self._learners_code():
            result = self._shell.run_cell(message["source"], store_history=True)
        error = result.error_before_exec or result.error_in_exec
        with contextlib.suppress(Exception):  # a cell may have closed or replaced them
            sys.stdout.flush()
            sys.stderr.flush()
        if error is None:
            return {"error": "", "line": 0}
        return {"error": _sentence(error), "error_type": type(error).__name__, "line": _line(error)}

    def _do_has(self, message: dict[str, Any]) -> dict[str, Any]:
        """Take the object that an exercise checks, by its name or an expression; it stays the same whatever cells do to
        the name later.
        """
        expression, names = message["name"], self._shell.user_ns
        if expression.isidentifier():
            if expression not in names:
                return {"found": False}
            found = names[expression]
        else:
            try:
                with self._learners_code():
                    found = eval(compile(expression, "<check>", "eval"), names)
            except (Exception, SystemExit) as error:
                return {"found": False, "error": _sentence(error)}
        self._prepared[message["exercise"]] = found
        return {"found": True}

    def _do_call(self, message: dict[str, Any]) -> dict[str, Any]:
        """Make one hidden call."""
        self._originals.put_back()
        exercise = self._exercises[message["exercise"]]
        case = self._case(message["label"], message["args"], message["kwargs"], None, message["call"])
        try:
            with self._learners_code():
                outcome = self._call_here(exercise, self._prepared[message["exercise"]], case)
        except KeyboardInterrupt as error:
            outcome = self._outcome(error=_sentence(error), error_type="KeyboardInterrupt")
        return {"outcome": {name: getattr(outcome, name) for name in outcome.__dataclass_fields__}}


def known(lab: str, extra: str = "", *, every_lab: bool = False) -> dict[str, Any]:
    """A lab's exercises by id: the course's, and those of a Python file's `EXERCISES` where one is named.

    Other labs' exercises stay unimported, for one of them may import Triton before a notebook has chosen its interpreter.
    With `every_lab` all exercises of the file are there, whatever their lab.
    """
    from helpers import exercises

    found = {e.id: e for e in (exercises.of_lab(lab) if lab in exercises.LABS else ())}
    if extra:
        import importlib.util

        spec = importlib.util.spec_from_file_location("further_exercises", extra)
        module = importlib.util.module_from_spec(spec)
        sys.modules["further_exercises"] = module
        spec.loader.exec_module(module)
        found.update({e.id: e for e in module.EXERCISES if every_lab or e.lab == lab})
    return found


def _make_shell() -> Any:
    """An IPython shell as a kernel has, with neither the teacher's profile nor a history file."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.text import LSString, SList
    from traitlets.config import Config

    class Shell(InteractiveShell):
        """What a kernel's shell does where IPython's base class raises."""

        def enable_gui(self, gui: object = None) -> None:
            """Nothing: figures go nowhere."""

        # A kernel gives a command a terminal of its own; here it writes into the log as all else does.
        system = InteractiveShell.system_raw

        def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> object:
            """What a command prints, for `x = !command`."""
            ran = subprocess.run(self.var_expand(cmd, depth=depth + 1), shell=True, text=True, errors="replace",
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)  # fmt: skip
            return SList(ran.stdout.splitlines()) if split else LSString(ran.stdout)

        def ask_exit(self) -> None:
            """Nothing: the cells below `exit()` run too."""

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.xmode = "Plain"
    return Shell.instance(config=config)


def _sentence(error: BaseException) -> str:
    """An error in a line, without calling more of the learner's code than must be."""
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error).strip().splitlines()
    except Exception:
        text = []
    return type(error).__name__ + (f": {text[0][:300]}" if text else "")


def _line(error: BaseException) -> int:
    """The line of the cell in which it was raised, or 0."""
    if isinstance(error, SyntaxError):
        return error.lineno or 0
    line, trace = 0, error.__traceback__
    while trace is not None:
        if (
            "ipython-input" in trace.tb_frame.f_code.co_filename
            or "ipykernel_" in trace.tb_frame.f_code.co_filename
        ):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


class _Originals:
    """The functions and classes of the workbook and of torch as they were before the learner's first cell."""

    def __init__(self) -> None:
        import torch

        modules = [m for name, m in list(sys.modules.items()) if name.partition(".")[0] == "helpers"]
        modules.append(sys.modules.get("further_exercises"))
        modules = [module for module in modules if module is not None]
        classes = [
            value
            for module in modules
            for value in vars(module).values()
            if isinstance(value, type) and value.__module__ == module.__name__
        ]
        kinds = (staticmethod, classmethod, property)
        self._kept = [
            (holder, name, value)
            for holder in (*modules, *classes, torch, torch.Tensor, torch.nn.functional)
            for name, value in vars(holder).items()
            if callable(value) or isinstance(value, kinds)
        ]

    def put_back(self) -> None:
        """Undo what cells replaced."""
        for holder, name, value in self._kept:
            if vars(holder).get(name) is not value:
                setattr(holder, name, value)

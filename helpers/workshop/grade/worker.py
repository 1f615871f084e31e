"""The process that runs what a learner wrote: it knows no expected result and makes no verdict.

There are two kinds. A learner's process runs the notebook; of the exercises it knows what is called how, and nothing of
cases, references and answers. A clean process runs no cell: it is given texts, builds them and runs them.

`main` forks. The first process stays what it is, a supervisor that runs nothing of the learner's: when the second one
ends, or the grader lets go of the leash, it ends every process that the notebook started, however far they forked away.
The second process runs the learner's cells in an IPython shell and answers the grader over a pipe of its own; what the
cells print goes elsewhere, to a log.

A message is eight bytes of length and a dict by `torch.save`. A reply repeats the token of its request. The grader checks
every reply, for the learner's code can send whatever it likes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import io
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from helpers.workshop.grade import confine, stand_ins
from helpers.workshop.supervisor import supervised

_FURTHER = "further_exercises"
MAX_BYTES = 512 * 2**20  # of one message
_LENGTH = struct.Struct(">Q")


def main(settings: dict[str, Any]) -> None:
    """Supervise a process that serves the grader; does not return.

    Args:
        settings: `requests`, `replies`, `leash`: file descriptors; `told`: what a learner's process is told of the
            exercises; `lab`: for a clean process, whose exercises it knows, else ""; `exercises`: a Python file with
            further ones or ""; `folder`: where the notebook runs; `allowed`: what it may do with which files, or None.
    """
    supervised(settings["leash"], (settings["requests"], settings["replies"]))
    sys.argv = ["notebook"]
    os.chdir(settings["folder"])
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory runs out, this process goes first and not the grader
    tier = confine.enter(settings["allowed"])
    ends = settings["requests"], settings["replies"]
    if settings["lab"]:
        _Clean(*ends, known(settings["lab"], settings["exercises"])).serve(tier)
    else:
        exercises = as_told(settings["told"], settings["exercises"])
        import helpers.exercises

        helpers.exercises.hold(tuple(exercises.values()))
        _Worker(*ends, exercises).serve(tier)
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


class _Answering:
    """Answers the grader about exercises: makes calls, and asks back of the objects that it was shown."""

    def __init__(self, requests: int, replies: int, exercises: dict[str, Any]) -> None:
        import torch

        self._requests, self._replies, self._pid = requests, replies, os.getpid()
        for fd in (requests, replies):
            os.set_inheritable(fd, False)
        self._load, self._save = torch.load, torch.save
        self._read, self._write = os.read, os.write
        self._exercises = exercises
        from helpers.exercises import call
        from helpers.exercises.model import Case, Outcome

        self._call_here, self._ask_here, self._text_here = call.call_here, call.ask_here, call.text_here
        self._case, self._outcome = Case, Outcome
        self._link = stand_ins.Link(self._ask_back)
        self._prepared: dict[str, Any] = {}
        self._learners = False  # whether the learner's code runs, which an interrupt may stop
        self._interrupted = False  # while it did not
        self._asking = threading.Lock()
        self._token = ""

    def serve(self, tier: str) -> None:
        """Say how this process is confined, and answer until the grader closes the pipe."""
        self._send({"token": "", "pid": self._pid, "tier": tier})
        while (payload := receive(self._requests, self._read)) is not None:
            message = self._load(io.BytesIO(payload), weights_only=True)
            self._token = message["token"]
            signal.signal(signal.SIGINT, self._on_interrupt)
            try:
                reply = getattr(self, f"_do_{message['do']}")(message)
            except KeyboardInterrupt:  # the grader's, which knows of it, or the learner's own
                reply = {"error": "KeyboardInterrupt", "error_type": "KeyboardInterrupt"}
            if os.getpid() != self._pid:
                os._exit(0)  # a cell forked, and this is the copy
            self._send({"token": message["token"], **reply})

    def _on_interrupt(self, number: int, frame: object) -> None:
        self._interrupted = True
        if self._learners:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def _learners_code(self) -> Iterator[None]:
        self._learners, self._interrupted = True, False
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

    def _ask_back(self, message: dict[str, Any]) -> dict[str, Any]:
        """Ask the grader while the learner's function runs; an interrupt waits until the answer is there."""
        with self._asking:
            learners, self._learners = self._learners, False
            try:
                self._send({"token": self._token, "asks": message})
                payload = receive(self._requests, self._read)
            finally:
                self._learners = learners
        if payload is None:
            os._exit(0)
        if self._interrupted:
            raise KeyboardInterrupt
        return self._load(io.BytesIO(payload), weights_only=True)["answer"]

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
            with self._learners_code():
                outcome = call(exercise, self._prepared[message["exercise"]])
        except KeyboardInterrupt as error:
            outcome = self._outcome(error=_sentence(error), error_type="KeyboardInterrupt")
        return self._sent(outcome)

    def _sent(self, outcome: Any) -> dict[str, Any]:
        return {"outcome": {name: getattr(outcome, name) for name in outcome.__dataclass_fields__}}

    def _before_a_call(self) -> None:
        """Nothing."""


class _Worker(_Answering):
    """The learner's shell, and the answers to the grader.

    The functions that it needs are bound before the first cell runs, and those of the workbook and of torch are put back
    before each call, so that a cell that replaces one changes no answer by it.
    """

    def __init__(self, requests: int, replies: int, exercises: dict[str, Any]) -> None:
        os.environ.setdefault("MPLBACKEND", "agg")
        super().__init__(requests, replies, exercises)
        self._shell = _make_shell()
        self._originals = _Originals()

    def _before_a_call(self) -> None:
        self._originals.put_back()

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

    def _do_text(self, message: dict[str, Any]) -> dict[str, Any]:
        """The text that is the learner's answer, or the outcome that says why there is none."""
        self._before_a_call()
        with self._learners_code():
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


def told(exercises: Iterable[Any]) -> list[dict[str, Any]]:
    """What a learner's process is told of exercises: what is called how, and no case, no reference, no judge.

    Raises:
        ValueError: A function that has to run beside the learner's object cannot be imported by its name.
    """
    plain = ("id", "lab", "title", "name", "minutes", "guarded", "must_launch", "on_gpu", "poison_masked")
    found = []
    for exercise in exercises:
        prepare = None if exercise.text else exercise.prepare
        found.append(
            {name: getattr(exercise, name) for name in plain}
            | {"adapters": {name: _path(function) for name, function in exercise.adapters.items()}}
            | {name: function and _path(function) for name, function in (("text", exercise.text), ("prepare", prepare))}
        )  # fmt: skip
        if exercise.text:  # its adapters are called where the text is built
            found[-1]["adapters"] = {}
    return found


def _path(function: Any) -> str:
    if "<" in function.__qualname__:
        says = f"{function.__qualname__} of {function.__module__} runs beside the learner's code: define it at the top"
        raise ValueError(f"{says} of a module, so that the grader finds it by its name.")
    return f"{function.__module__}:{function.__qualname__}"


def as_told(descriptions: Iterable[dict[str, Any]], further: str) -> dict[str, Any]:
    """Exercises without cases and judges, from what `told` gives, by id."""
    from helpers.exercises.model import Exercise, graded_elsewhere

    def function(path: str | None) -> Any:
        if not path:
            return None
        module, _, name = path.partition(":")
        if module == _FURTHER and module not in sys.modules:
            _load_further(further)
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))

    found = {}
    for description in descriptions:
        rest = dict(description)
        adapters = {name: function(path) for name, path in rest.pop("adapters").items()}
        rest |= {name: function(rest[name]) for name in ("text", "prepare")}
        found[rest["id"]] = Exercise(
            **rest, adapters=adapters, cases=graded_elsewhere, judge=graded_elsewhere
        )
    return found


def known(lab: str, extra: str = "", *, every_lab: bool = False) -> dict[str, Any]:
    """A lab's exercises by id: the course's, and those of a Python file's `EXERCISES` where one is named.

    Other labs' exercises stay unimported, for one of them may import Triton before a notebook has chosen its interpreter.
    With `every_lab` all exercises of the file are there, whatever their lab.
    """
    from helpers import exercises

    found = {e.id: e for e in (exercises.of_lab(lab) if lab in exercises.LABS else ())}
    if extra:
        found.update({e.id: e for e in _load_further(extra).EXERCISES if every_lab or e.lab == lab})
    return found


def _load_further(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(_FURTHER, path)
    module = sys.modules[_FURTHER] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
        modules.append(sys.modules.get(_FURTHER))
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

"""The examiner: takes notebooks one after another, each in a fresh process of its own, for it looks at what
learners' processes send.

It reads a JSON line for each notebook and writes a JSON line for each thing that it finds, at once, so that
nothing found is lost with it. `examination` is what it does with one.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib
import json
import os
import pkgutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import psutil

from helpers.exercises.model import Exercise
from workbook.grade.advice import reaching
from workbook.grade.examination import Examination
from workbook.grade.marks import BROKEN
from workbook.grade.notebook import Unreadable, read
from workbook.grade.stubs import known
from workbook.sandbox.cgroup import limited
from workbook.sandbox.process import Limits
from workbook.supervisor import end_with_parent

_WATCH_S = 0.05


def examine(task: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
    """Examine one notebook and tell everything about it.

    Args:
        task: `content`, its bytes in base64; `stem`, what the file was called; `lab` ("" to find out),
            `exercises` (a Python file or ""), `seed` and the fields of `Limits`.
        tell: Takes each event: "lab" (with its exercises), "predictions", "reaching", "cell" (one that raised
            or ended the process), "ended", "mark" and "unreadable".
    """
    labs = _labs(task["exercises"])
    try:
        submission = read(
            Path(task["stem"]),
            {lab: {e.id: e.name for e in of.values()} for lab, of in labs.items()},
            task["lab"],
            task["stem"],
            base64.b64decode(task["content"]),
        )
    except Unreadable as error:
        tell({"event": "unreadable", "says": str(error)})
    else:
        exercises = labs[submission.lab]
        listed = [[e.id, e.title] for e in exercises.values()]
        tell({"event": "lab", "lab": submission.lab, "exercises": listed})
        if submission.predictions:
            tell({"event": "predictions", "data": submission.predictions.data()})
        if says := reaching((cell.name, cell.source) for cell in submission.cells):
            tell({"event": "reaching", "says": says})
        limits = Limits(**{name: task[name] for name in Limits.__dataclass_fields__})
        with limited(limits.memory_mb) if limits.sandboxed else nullcontext() as cgroup:
            Examination(submission, exercises, task["exercises"], limits, task["seed"], cgroup, tell).run()


@functools.cache
def _labs(further: str) -> dict[str, dict[str, Exercise]]:
    """Every lab that has exercises, with them."""
    from helpers.exercises import LABS

    found: dict[str, dict[str, Exercise]] = {lab: dict(known(lab)) for lab in LABS}
    if further:
        for exercise in known("", further, every_lab=True).values():
            found.setdefault(exercise.lab, {})[exercise.id] = exercise
    return {lab: exercises for lab, exercises in found.items() if exercises}


def _import_all(further: str) -> None:
    """Import what examining needs, so that no file that a learner's code changes is read afterwards."""
    from helpers import exercises

    _labs(further)
    for module in pkgutil.iter_modules(exercises.__path__):
        if module.name not in exercises.LABS and not module.ispkg:
            importlib.import_module(f"helpers.exercises.{module.name}")
    import nbformat

    nbformat.reads(nbformat.writes(nbformat.v4.new_notebook()), as_version=4)


def main() -> None:
    """Examine the notebooks that are named on stdin, a JSON line each, until it is closed.

    This process imports and waits; each notebook gets a fork of it, which looks at what that notebook's
    process sends and ends with it. Every event repeats its notebook's name, which only this process and the
    batch know.
    """
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what else is printed here is no event
    end_with_parent(signal.SIGTERM)

    def end(number: int, frame: object) -> None:
        signal.signal(
            signal.SIGTERM, signal.SIG_IGN
        )  # it may come twice: from the batch, and at the batch's end
        raise KeyboardInterrupt  # so that the learner's process and its folder are cleared away

    signal.signal(signal.SIGTERM, end)
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        for line in sys.stdin:
            task = json.loads(line)
            _import_all(task["exercises"])

            def tell(event: dict[str, Any], name: str = task["name"]) -> None:
                out.write(json.dumps({**event, "name": name}, default=str) + "\n")
                out.flush()

            child = os.fork()
            if not child:
                end_with_parent(signal.SIGTERM)
                _examine_and_exit(task, tell)
            try:
                broken = _wait(child, task["memory_mb"])
            except KeyboardInterrupt:
                os.kill(child, signal.SIGTERM)
                os.waitpid(child, 0)
                raise
            if broken:
                tell({"event": "broken", "says": broken})
            tell({"event": "done"})
    os._exit(0)


def _wait(child: int, memory_mb: float) -> str:
    """Wait for the process that examines one notebook; why it did not come to its end, or ""."""
    process = psutil.Process(child)
    most = process.memory_info().rss + memory_mb * 1e6
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if process.memory_info().rss > most:
            process.kill()
            os.waitpid(child, 0)
            return f"judging it took more than {memory_mb:g} MB of memory"
        time.sleep(_WATCH_S)
    return BROKEN if ended[1] else ""


def _examine_and_exit(task: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> NoReturn:
    status = 1
    try:
        examine(task, tell)
        status = 0
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)

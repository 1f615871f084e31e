"""The examiner: takes notebooks one after another, each in a fresh process of its own, for it looks at what
learners' processes send.

It reads a JSON line for each notebook and writes a JSON line for each thing that it finds, at once, so that
nothing found is lost with it. `examination` is what it does with one.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import importlib
import json
import os
import pkgutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from helpers.exercises.model import Exercise
from workbook.grade.advice import reaching
from workbook.grade.confine import unobserved
from workbook.grade.examination import Examination
from workbook.grade.marks import BROKEN
from workbook.grade.notebook import Unreadable, read
from workbook.grade.process import Limits
from workbook.grade.sandbox import Sandbox
from workbook.grade.stubs import known
from workbook.supervisor import end_with_parent


def examine(task: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
    """Examine one notebook and tell everything about it.

    Args:
        task: `content`, its bytes in base64; `digest`, what they must be; `stem`, what the file was called;
            `lab` ("" to find out), `exercises` (a Python file or ""), `seed` and the fields of `Limits`.
        tell: Takes each event: "lab" (with its exercises), "predictions", "reaching", "tier" (how its process
            is confined), "cell" (one that raised or ended the process), "ended", "mark", "unreadable" and
            "broken" (the copy is not what was handed in).
    """
    labs = _labs(task["exercises"])
    content = base64.b64decode(task["content"])
    if hashlib.sha256(content).hexdigest() != task["digest"]:
        tell({"event": "broken", "says": "its copy was changed after it was handed in"})
        return
    try:
        submission = read(
            Path(task["stem"]),
            {lab: {e.id: e.name for e in of.values()} for lab, of in labs.items()},
            task["lab"],
            task["stem"],
            content,
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
        sandbox = Sandbox(**task["sandbox"]) if task["sandbox"] else None
        limits = Limits(task["cell_s"], task["total_s"], task["memory_mb"], task["confine"], sandbox)
        Examination(submission, exercises, task["exercises"], limits, task["seed"], tell).run()


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
    unobserved(True)
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
                _, status = os.waitpid(child, 0)
            except KeyboardInterrupt:
                os.kill(child, signal.SIGTERM)
                os.waitpid(child, 0)
                raise
            if status:
                tell({"event": "broken", "says": BROKEN})
            tell({"event": "done"})
    os._exit(0)


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

"""The functions that the cells of a lab call: `check`, `progress`, `reset`, and `WriteUp` for written
answers.
"""

from __future__ import annotations

import ast
import html
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import aliases, exercises
from helpers import progress as progress_store
from helpers.exercises.model import Exercise, Verdict
from helpers.exercises.writeup import WriteUp
from helpers.predict import summary

__all__ = ["NotYet", "WriteUp", "check", "progress", "reset"]

STARTERS = Path(exercises.__file__).with_name("starters.json")  # written by `workbook form`


class NotYet(AssertionError):
    """An exercise is not solved yet. A notebook shows the sentences of the check instead of a traceback.

    Attributes:
        verdict: The result of the check.
    """

    def __init__(self, verdict: Verdict):
        super().__init__(repr(verdict))
        self.verdict = verdict

    def _render_traceback_(self) -> list[str]:
        return repr(self.verdict).splitlines()


def check(id: str, obj: Any, *, seed: int | None = None) -> Verdict:
    """Checks your answer with hidden cases, which differ on every run, and stores the result.

    Args:
        id: The id of the exercise.
        obj: Your function, or whatever the exercise asks for.
        seed: The seed of a previous run, to repeat its cases.

    Returns:
        The verdict, if all cases agree or the exercise is not written yet, so that "Run All" continues.

    Raises:
        NotYet: A case doesn't agree. The message shows the case, the first wrong elements and a hint.
        UnknownExercise: No exercise has this id.
    """
    from helpers.exercises.attempt import attempt

    exercise = exercises.get(id)
    verdict = attempt(exercise, obj, seed)
    if not verdict.passed and verdict.mistake != "to-do" and _is_untouched(exercise):
        # This starter is code to fix, which fails without NotImplementedError.
        verdict = Verdict(exercise.id, False, f"{exercise.id} is not written yet.", mistake="to-do")
    if verdict.mistake == "to-do":
        starters = _starter_cells(exercise.id).values()
        for name in {exercise.name, *(name for starter in starters for name in _defined(starter))}:
            _unwritten[name] = exercise.id
        _forgive_unwritten(_shell())
        return verdict
    for name in [name for name, id in _unwritten.items() if id == exercise.id]:
        del _unwritten[name]
    _store_attempt(exercise, verdict)
    if not verdict.passed:
        raise NotYet(verdict) from None
    return verdict


# The names that unwritten exercises define, with the exercises' ids, and the sources of the excused cells.
_unwritten: dict[str, str] = {}
_excused: list[str] = []


def _forgive_unwritten(shell: Any) -> None:
    """Lets "Run All" continue past a cell that fails because an exercise is not written yet."""
    if shell is None or Exception in shell.custom_exceptions:
        return

    def excuse(shell: Any, kind: type, error: BaseException, traceback: Any, tb_offset: Any = None) -> list:
        source = shell.history_manager.input_hist_raw[-1]
        own = _defined(source)  # an error in the exercise's own cell is the learner's to see
        needed = [
            id
            for name, id in _unwritten.items()
            if name not in own and re.search(rf"\b{re.escape(name)}\b", source)
        ]
        unknown = not needed and not isinstance(error, NotImplementedError)
        if unknown or isinstance(error, NotYet):
            shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
            return []
        what = needed[0] if needed else "an exercise"
        print(f"This cell needs {what}, which is not written yet.")
        _excused.append(source)
        return []

    def succeed(result: Any) -> None:
        if _excused and result.error_in_exec is not None:
            result.error_in_exec = None
        _excused.clear()

    shell.set_custom_exc((Exception,), excuse)
    shell.events.register("post_run_cell", succeed)


def _is_untouched(exercise: Exercise) -> bool:
    """Whether this notebook ran the starter cells as they are, and nothing redefined them later."""
    shell = _shell()
    if shell is None:
        return False
    ran = [source.strip() for source in shell.history_manager.input_hist_raw]
    starters = _starter_cells(exercise.id).values()
    for starter in starters:
        if starter.strip() not in ran:
            return False
        later = ran[len(ran) - ran[::-1].index(starter.strip()) :]
        names = "|".join(map(re.escape, _defined(starter))) or "(?!)"
        defines = re.compile(rf"^(?:(?:async )?def|class) (?:{names})\b|^(?:{names})\s*[:=]", re.MULTILINE)
        if any(defines.search(source) for source in later):
            return False
    return bool(starters)


def _defined(source: str) -> list[str]:
    """The functions, classes and variables that a cell defines; none if it is not plain Python."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return []
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    names = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return names + [target.id for target in targets if isinstance(target, ast.Name)]


def _update_progress(lab: str, id: str, change: Callable[[dict], dict]) -> None:
    if problem := progress_store.update(lab, id, change):
        print(f"Your progress was not saved: {problem}.")


def _store_attempt(exercise: Exercise, verdict: Verdict) -> None:
    def change(entry: dict) -> dict:
        tries = entry.get("tries", 0)
        entry["tries"] = (tries if isinstance(tries, int) else 0) + 1
        if verdict.passed:
            entry.setdefault("passed", time.strftime("%Y-%m-%d %H:%M"))
            if verdict.speed:
                entry["speed"] = verdict.speed
        else:
            entry["last"] = verdict.mistake
        return entry

    _update_progress(exercise.lab, exercise.id, change)


@dataclass(frozen=True)
class Row:
    """One exercise in a table of progress."""

    id: str
    title: str
    state: str
    when: str
    tries: int
    speed: str


@dataclass(frozen=True)
class Progress:
    """How much of a lab is done, and what the learner predicted in its lesson.

    A notebook that is submitted contains the predictions in its stored output, as data, for the teacher's
    report.
    """

    lab: str
    rows: tuple[Row, ...]
    predictions: summary.Summary

    @property
    def n_passed(self) -> int:
        """The number of exercises that have passed."""
        return sum(row.state == "passed" for row in self.rows)

    def _title(self) -> str:
        return f"Lab {self.lab}: {self.n_passed} of {len(self.rows)} exercises passed"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        head = ["exercise", "task", "state", "when", "tries"]
        rows = [[r.id, r.title, r.state, r.when, str(r.tries or "")] for r in self.rows]
        if any(r.speed for r in self.rows):  # without a GPU, no speed is measured
            head.append("speed")
            rows = [[*row, r.speed] for row, r in zip(rows, self.rows, strict=True)]
        return head, rows

    def __repr__(self) -> str:
        head, rows = self._table()
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
        ]
        return "\n".join([self._title(), *lines, *self._predicted()])

    def _predicted(self) -> list[str]:
        if not self.predictions.answered:
            return []
        return [f"Predictions in lesson {self.lab}:", *self.predictions.sentences()]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {summary.MIME: self.predictions.data()} if self.predictions.answered else {}

    def _repr_html_(self) -> str:
        head, rows = self._table()
        cells = "".join(f'<th style="text-align: left">{html.escape(c)}</th>' for c in head)
        body = ""
        for row, r in zip(rows, self.rows, strict=True):
            mark = "✓ " if r.state == "passed" else ""
            texts = [row[0], row[1], mark + row[2], *row[3:]]
            body += (
                "<tr>"
                + "".join(f'<td style="text-align: left">{html.escape(c)}</td>' for c in texts)
                + "</tr>"
            )
        table = f"<b>{html.escape(self._title())}</b><table><tr>{cells}</tr>{body}</table>"
        if not self.predictions.answered:
            return table
        predicted = html.escape(" ".join(self._predicted()))
        return f"{table}<details><summary>{predicted}</summary>{self.predictions.table_html()}</details>"


def progress(lab: str) -> Progress:
    """Shows which exercises of a lab you have passed, how often you tried, and what you predicted.

    Args:
        lab: The name of a lab, such as "03_triton".

    Raises:
        UnknownExercise: No lab has this name.
    """
    lab = aliases.current(str(lab))
    entries = progress_store.read(lab) if lab in exercises.LABS else {}
    rows = []
    for exercise in exercises.of_lab(lab):
        entry = entries.get(exercise.id, {})
        state = "passed" if entry.get("passed") else "tried" if entry.get("tries") else "to do"
        tries = entry.get("tries")
        rows.append(
            Row(
                id=exercise.id,
                title=exercise.title,
                state=state,
                when=str(entry.get("passed") or ""),
                tries=tries if isinstance(tries, int) else 0,
                speed=str(entry.get("speed") or ""),
            )
        )
    return Progress(lab, tuple(rows), summary.of_lesson(lab))


def reset(id: str) -> None:
    """Restores the starter of an exercise in a new cell below this one, and forgets that you passed it.

    Args:
        id: The id of the exercise.

    Raises:
        UnknownExercise: No exercise has this id.
    """
    exercise = exercises.get(id)
    starter = _starter(exercise.id)
    _update_progress(exercise.lab, exercise.id, lambda entry: {"tries": entry.get("tries", 0)})
    shell = _shell()
    if shell is None:
        print(starter)
        return
    shell.set_next_input(starter)
    print(f"The starter of {exercise.id} is in a new cell below. Run it, then run the check again.")


def _shell() -> Any:
    """Returns the notebook's shell, or None outside of a notebook."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    return get_ipython()


def _starter_cells(id: str) -> dict[str, str]:
    """Returns the starter cells of an exercise by id; empty if this installation lacks them."""
    try:
        return json.loads(STARTERS.read_text("utf-8"))[id]["cells"]
    except (OSError, ValueError, KeyError):
        return {}


def _starter(id: str) -> str:
    """Returns the starter cells of an exercise as one text."""
    if not (cells := _starter_cells(id)):
        raise exercises.UnknownExercise(
            f"This installation has no starter for {id!r}. Run `workbook form` on the labs, or open the "
            "lab's starter notebook again."
        ) from None
    return "\n\n\n".join(cells.values())


# A cell may use an exercise before its check runs.
if hasattr(_shell(), "kernel"):
    _forgive_unwritten(_shell())

"""What a lab's cells call: `check`, `progress` and `reset`."""

from __future__ import annotations

import contextlib
import html
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import device, exercises
from helpers.exercises.model import Exercise, Verdict

__all__ = ["NotYet", "check", "progress", "reset"]

STARTERS = Path(exercises.__file__).with_name("starters.json")  # `workbook form` writes it


class NotYet(AssertionError):
    """An exercise is not solved yet. A notebook shows the check's sentences instead of a traceback.

    Attributes:
        verdict: what the check found.
    """

    def __init__(self, verdict: Verdict):
        super().__init__(repr(verdict))
        self.verdict = verdict

    def _render_traceback_(self) -> list[str]:
        return repr(self.verdict).splitlines()


def check(id: str, obj: Any, *, seed: int | None = None) -> Verdict:
    """Try your answer on hidden cases, new ones each time, and keep the result.

    Args:
        id: of the exercise.
        obj: your function, or whatever the exercise asks for.
        seed: to repeat a run: the cases of that seed.

    Returns:
        The verdict, where every case agrees.

    Raises:
        NotYet: a case does not agree; it says which, with the first wrong elements and a hint.
        UnknownExercise: no exercise has this id.
    """
    from helpers.exercises.attempt import attempt

    exercise = exercises.get(id)
    verdict = attempt(exercise, obj, seed)
    if verdict.mistake != "to-do":
        _note(exercise, verdict)
    if not verdict.passed:
        raise NotYet(verdict) from None
    return verdict


def progress_folder() -> Path:
    """Where progress is kept: WORKBOOK_PROGRESS, or a folder in the workbook's cache."""
    return Path(os.environ.get("WORKBOOK_PROGRESS") or device.cache_folder() / "progress")


def _file(lab: str) -> Path:
    return progress_folder() / f"{lab}.json"


def _read(lab: str) -> dict[str, dict]:
    """What is kept of a lab; nothing where the file is missing or cannot be read."""
    try:
        kept = json.loads(_file(lab).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(kept, dict):
        return {}
    return {key: value for key, value in kept.items() if isinstance(value, dict)}


@contextlib.contextmanager
def _locked(lab: str):
    """One notebook at a time changes a lab's file; where locks do not work, the last one wins."""
    path = _file(lab)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("a") as lock:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _change(lab: str, id: str, how) -> None:
    """Change what is kept of one exercise: read, change, write beside, put in place."""
    try:
        with _locked(lab):
            kept = _read(lab)
            kept[id] = how(kept.get(id, {}))
            handle, name = tempfile.mkstemp(dir=progress_folder(), prefix=f"{lab}.", suffix=".tmp")
            try:
                with os.fdopen(handle, "w") as file:
                    json.dump(kept, file, indent=1)
                os.replace(name, _file(lab))
            except OSError:
                Path(name).unlink(missing_ok=True)
                raise
    except OSError as error:  # a check must not fail because a disk is full or read-only
        print(f"Progress is not kept: {error}.")


def _note(exercise: Exercise, verdict: Verdict) -> None:
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

    _change(exercise.lab, exercise.id, change)


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
    """How far a lab is done."""

    lab: str
    rows: tuple[Row, ...]

    @property
    def n_passed(self) -> int:
        """Exercises that passed once."""
        return sum(row.state == "passed" for row in self.rows)

    def _title(self) -> str:
        return f"Lab {self.lab}: {self.n_passed} of {len(self.rows)} exercises passed"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        head = ["exercise", "task", "state", "when", "tries"]
        rows = [[r.id, r.title, r.state, r.when, str(r.tries or "")] for r in self.rows]
        if any(r.speed for r in self.rows):  # without a GPU there is no speed to speak of
            head.append("speed")
            rows = [[*row, r.speed] for row, r in zip(rows, self.rows, strict=True)]
        return head, rows

    def __repr__(self) -> str:
        head, rows = self._table()
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
        ]
        return "\n".join([self._title(), *lines])

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
        return f"<b>{html.escape(self._title())}</b><table><tr>{cells}</tr>{body}</table>"


def progress(lab: str) -> Progress:
    """What you have done of a lab: exercise, state, when it passed, tries, and the speed on a GPU.

    Args:
        lab: such as "03_triton".

    Raises:
        UnknownExercise: no lab has this name.
    """
    kept = _read(lab) if lab in exercises.LABS else {}
    rows = []
    for exercise in exercises.of_lab(lab):
        entry = kept.get(exercise.id, {})
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
    return Progress(lab, tuple(rows))


def reset(id: str) -> None:
    """Give an exercise's starter cell back, in a new cell below this one, and forget that it passed.

    Args:
        id: of the exercise.

    Raises:
        UnknownExercise: no exercise has this id.
    """
    exercise = exercises.get(id)
    starter = _starter(id)
    _change(exercise.lab, id, lambda entry: {"tries": entry.get("tries", 0)})
    shell = _shell()
    if shell is None:
        print(starter)
        return
    shell.set_next_input(starter)
    print(f"{id}: its starter cell is in a new cell below. Run that, then the check again.")


def _shell() -> Any:
    """The notebook's shell; None outside of one."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    return get_ipython()


def _starter(id: str) -> str:
    """The starter's cells of an exercise, one below the other."""
    try:
        cells = json.loads(STARTERS.read_text("utf-8"))[id]["cells"]
    except (OSError, ValueError, KeyError):
        raise exercises.UnknownExercise(
            f"The starter of {id!r} is not in this installation; run `workbook form` on the labs, or open the lab's "
            "starter notebook again."
        ) from None
    return "\n\n\n".join(cells.values())

"""`overrides.csv`: the marks and remarks of a teacher, which win over the computed ones whenever the reports
are made.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path

from helpers import aliases
from workbook.grade.marks import VERDICTS, Graded, Mark
from workbook.sandbox.texts import printable
from workbook.usage import UsageError

NAME = "overrides.csv"
_NEEDED = ("learner", "exercise", "verdict")
_MOST_BYTES = 10**7
_KNOWN = (*_NEEDED, "remark", "lab")


@dataclass(frozen=True)
class Override:
    """One line: whose mark, the verdict or "" where only a remark is added, the remark."""

    line: int
    learner: str
    exercise: str
    verdict: str
    remark: str = ""
    lab: str = ""

    def concerns(self, one: Graded, exercise: str) -> bool:
        """Whether it is about this exercise of this notebook."""
        return (self.learner, self.exercise) == (one.learner, exercise) and self.lab in ("", one.lab)


def read(out: Path) -> tuple[Override, ...]:
    """What the teacher wrote into the folder of the reports; nothing where the file is missing.

    Raises:
        UsageError: A line cannot be understood.
    """
    path = out / NAME
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        text = printable(content.decode("utf-8-sig"))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read; save it as CSV in UTF-8.") from error
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{path} is larger than {_MOST_BYTES // 10**6} MB, so it holds more than marks.")
    try:
        return _parsed(path, text)
    except csv.Error as error:
        raise UsageError(f"{path} is no CSV that can be read ({error}).") from error


def _parsed(path: Path, text: str) -> tuple[Override, ...]:
    first = text.partition("\n")[0]
    # Spreadsheets of many countries write semicolons.
    delimiter = ";" if first.count(";") > first.count(",") else ","
    reader = csv.DictReader(io.StringIO(text), delimiter=delimiter)
    columns = [(name or "").strip().lower() for name in reader.fieldnames or ()]
    if missing := [name for name in _NEEDED if name not in columns]:
        raise UsageError(f"{path} has no column {missing[0]!r}; its first line is {','.join(_KNOWN)}.")
    reader.fieldnames = columns
    found: dict[tuple[str, str, str], Override] = {}
    for row in reader:
        values = {name: (row.get(name) or "").strip() for name in _KNOWN}
        if not any(values.values()):
            continue
        values |= {name: aliases.current(values[name]) for name in ("exercise", "lab")}
        one = Override(reader.line_num, **values)
        where = f"{path}, line {one.line}:"
        if not one.learner or not one.exercise:
            raise UsageError(f"{where} a learner and an exercise belong to each mark.")
        if one.verdict not in ("", *VERDICTS):
            says = f"{one.verdict[:40]!r} is no verdict; write {', '.join(VERDICTS)}, or nothing."
            raise UsageError(f"{where} {says}")
        if not one.verdict and not one.remark:
            raise UsageError(f"{where} it has neither a verdict nor a remark.")
        key = (one.learner, one.exercise, one.lab)
        if key in found:
            raise UsageError(
                f"{where} {one.learner}'s {one.exercise} stands in line {found[key].line} too; keep one."
            )
        found[key] = one
    return tuple(found.values())


def apply(
    graded: tuple[Graded, ...], given: tuple[Override, ...]
) -> tuple[tuple[Graded, ...], tuple[str, ...]]:
    """Put the teacher's marks into what was computed.

    Returns:
        The notebooks, and a sentence for each line that concerns none of their exercises.
    """
    used: set[int] = set()
    changed = []
    for one in graded:
        marks = []
        for mark in one.marks:
            # A line that names the lab goes before one that does not.
            fitting = sorted((o for o in given if o.concerns(one, mark.exercise)), key=lambda o: not o.lab)
            used |= {o.line for o in fitting}
            marks.append(_overridden(mark, fitting[0]) if fitting else mark)
        changed.append(replace(one, marks=tuple(marks)))
    unused = tuple(
        f"{NAME}, line {o.line}: there is no mark of {o.learner[:80]} for "
        f"{o.exercise[:80]}{f' of {o.lab}' if o.lab else ''}."
        for o in given
        if o.line not in used
    )
    return tuple(changed), unused


def _overridden(mark: Mark, by: Override) -> Mark:
    if not by.verdict:
        return replace(mark, remark=by.remark)
    return replace(mark, verdict=by.verdict, computed=mark.verdict, remark=by.remark)

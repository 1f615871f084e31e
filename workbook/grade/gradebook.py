"""Marks as CSV: `grades.csv` with a row for each exercise, and a score for each lab as Canvas and nbgrader
write theirs.

Gradebooks read columns by their names: those of `grades.csv` stay, and new ones come at the end.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

from workbook.grade.marks import Grades

COLUMNS = (
    "learner", "notebook", "lab", "exercise", "verdict", "failing case", "mistake", "sentence", "speed",
    "seconds", "seed", "remark", "computed verdict", "tier",
)  # fmt: skip
# As Canvas's guide to importing grades has them; a second row holds the points that are possible.
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
# As nbgrader's CsvExportPlugin writes them (nbgrader/plugins/export.py, looked at in 0.9).
NBGRADER = (
    "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email", "raw_score",
    "late_submission_penalty", "score", "max_score",
)  # fmt: skip


def grades_csv(grades: Grades) -> str:
    """One row for a learner and exercise; one for a notebook that could not be graded."""
    rows = []
    for one in grades.graded:
        whose = (one.learner, one.notebook, one.lab)
        if one.problem:
            seconds = f"{one.seconds:.1f}"
            rows.append(
                (*whose, "", "not graded", "", "", one.problem, "", seconds, one.seed, "", "", one.tier)
            )
            continue
        for m in one.marks:
            says = (m.exercise, m.verdict, m.case, m.mistake, m.sentence, m.speed, f"{m.seconds:.1f}")
            rows.append((*whose, *says, one.seed, m.remark, m.computed, one.tier))
    return _csv(COLUMNS, (dict(zip(COLUMNS, row, strict=True)) for row in rows))


def canvas_csv(grades: Grades) -> str:
    """One row for a learner, with a column for each lab: how many exercises passed, a teacher's marks
    counted.
    """
    scores = _scores(grades)
    labs = {lab: n for (_, lab), (_, n) in sorted(scores.items(), key=lambda item: item[0][1])}
    rows = [{"Student": "Points Possible", **labs}]
    for learner in dict.fromkeys(one.learner for one in grades.graded):
        of = {lab: scores[learner, lab][0] for lab in labs if (learner, lab) in scores}
        rows.append({"Student": learner, "SIS Login ID": learner, **of})
    return _csv((*CANVAS, *labs), rows)


def nbgrader_csv(grades: Grades) -> str:
    """One row for a learner and lab; 0 points for a notebook that cannot be graded."""
    rows = [
        {
            "assignment": lab,
            "student_id": learner,
            "raw_score": float(passed),
            "late_submission_penalty": 0.0,
            "score": float(passed),
            "max_score": float(n),
        }
        for (learner, lab), (passed, n) in _scores(grades).items()
    ]
    return _csv(NBGRADER, rows)


def _scores(grades: Grades) -> dict[tuple[str, str], tuple[int, int]]:
    """Learner and lab to how many exercises passed and how many there are; of several notebooks the best
    one's. A notebook that the grader did not finish has no score, because that is not the learner's fault.
    """
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for one in grades.graded:
        if one.exercises and (one.finished or not one.problem):
            key = (one.learner, one.lab)
            found[key] = max(found.get(key, (0, 0)), (one.n_passed, len(one.exercises)))
    return found


def _csv(columns: tuple[str, ...], rows: Iterable[dict[str, object]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row.get(column, "")) for column in columns] for row in rows)
    return buffer.getvalue()


def _cell(value: object) -> str:
    """A value as a spreadsheet may read it: in one line, and never a formula."""
    text = re.sub(r"[\x00-\x1f\x7f\u2028\u2029]+", " ", str(value)).strip()
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text

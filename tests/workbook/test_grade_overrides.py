"""A teacher's marks win, also after everything is graded anew, and are shown as the teacher's."""

from __future__ import annotations

import csv
from pathlib import Path

import nbformat
import pytest
from grade_notebooks import FURTHER, WRONG_A, mark, notebook, verdicts

from workbook.grade import grade, journal, overrides
from workbook.usage import UsageError

HEAD = "learner,exercise,verdict,remark\n"


@pytest.fixture
def ada(tmp_path: Path) -> Path:
    path = tmp_path / "ada.ipynb"
    nbformat.write(notebook(a=WRONG_A), path)
    (tmp_path / "out").mkdir()
    return path


def test_a_teachers_mark_wins_and_survives_every_regrade(ada, tmp_path):
    out = tmp_path / "out"
    (out / overrides.NAME).write_text(
        HEAD + "ada,count-blocks,passed,<b>shown</b> at the board\nada,twice,,well done\nbob,twice,failed,\n",
        "utf-8-sig",
    )
    for resume in (False, True, False):
        grades = grade([ada], out, exercises=FURTHER, seed=7, resume=resume)
        assert verdicts(grades, "ada") == ("passed", "passed")
        assert (
            mark(grades, "ada", "count-blocks").computed == "failed"
            and not mark(grades, "ada", "twice").computed
        )
        rows = list(csv.DictReader((out / "grades.csv").open()))
        assert [(r["verdict"], r["computed verdict"], r["remark"]) for r in rows] == [
            ("passed", "failed", "<b>shown</b> at the board"), ("passed", "", "well done"),
        ]  # fmt: skip
        page = (out / "ada.html").read_text()
        assert "The teacher&#x27;s mark; computed: failed." in page and "&lt;b&gt;shown&lt;/b&gt;" in page
        assert "by the teacher" in (out / "index.html").read_text()
        assert "overrides.csv, line 4: there is no mark of bob for twice." in repr(grades)
        assert '"computed": "failed"' not in (out / journal.NAME).read_text()  # the computed mark is kept
    (out / overrides.NAME).unlink()
    assert verdicts(grade([ada], out, exercises=FURTHER, resume=True), "ada") == ("failed", "passed")


def test_a_spreadsheets_semicolons_and_labs(tmp_path):
    (tmp_path / overrides.NAME).write_text(
        "Learner;Lab;Exercise;Verdict;Remark\nada;90_mini;twice;to do;a, b\n;;;;\n"
    )
    (found,) = overrides.read(tmp_path)
    assert (found.learner, found.lab, found.exercise, found.verdict, found.remark) == (
        "ada",
        "90_mini",
        "twice",
        "to do",
        "a, b",
    )


@pytest.mark.parametrize(("text", "says"), [
    ("", "has no column 'learner'"), ("learner,exercise\n", "has no column 'verdict'"),
    (HEAD + "ada,twice,good,\n", "line 2: 'good' is no verdict; write passed, failed, to do, not reached"),
    (HEAD + "ada,,passed,\n", "line 2: a learner and an exercise belong to each mark"),
    (HEAD + "ada,twice,,\n", "line 2: it has neither a verdict nor a remark"),
    (HEAD + "ada,twice,passed,\nada,twice,failed,\n", "line 3: ada's twice stands in line 2 too"),
    ("\x00\xff", "has no column 'learner'"), ("x" * 200_000, "is no CSV that can be read (field larger"),
    (HEAD + "ada,twice,failed," + "x" * 200_000, "is no CSV that can be read (field larger"),
    (HEAD + "ada\x00\x1b,twice,failed,\n" * 2, "line 3: ada\ufffd\ufffd's twice stands in line 2 too"),
    (HEAD + "\n" * 10**7, "is larger than 10 MB"),
    (HEAD + f"ada,twice,{'x' * 1000},\n", "is no verdict; write"),
])  # fmt: skip
def test_lines_that_are_not_understood_are_said_before_anything_is_graded(ada, tmp_path, text, says):
    (tmp_path / "out" / overrides.NAME).write_text(text)
    with pytest.raises(UsageError) as error:
        grade([ada], tmp_path / "out", exercises=FURTHER)
    assert says in str(error.value)
    assert not (tmp_path / "out" / journal.NAME).exists()

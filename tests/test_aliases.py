"""Learners keep what they have: files made before exercises, lessons and modules were renamed still work.

`before_14` holds a progress folder and submissions that were made with the last version before the renames
(issue 14). Run the notebooks there only with that version.
"""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path

import nbformat
import pytest

from helpers import aliases, exercises, lab, progress
from helpers.exercises import UnknownExercise
from helpers.predict import answers
from workbook.grade import Grades, grade, overrides
from workbook.grade.notebook import read
from workbook.usage import UsageError

BEFORE = Path(__file__).parent / "before_14"
WHEN = "2026-11-23 11:57"  # when the exercises of the old progress folder were solved


@pytest.fixture
def old_progress(tmp_path, monkeypatch) -> Path:
    """A copy of the old progress folder, in use."""
    folder = tmp_path / "progress"
    shutil.copytree(BEFORE / "progress", folder)
    monkeypatch.setenv("WORKBOOK_PROGRESS", str(folder))
    return folder


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> Grades:
    """The old submissions, graded; the teacher's file still has the old names as well."""
    out = tmp_path_factory.mktemp("grades")
    (out / overrides.NAME).write_text(
        "learner,exercise,verdict,remark,lab\nada,mend-the-unset,passed,She told me the line.,08_failures\n"
    )
    return grade([BEFORE / "submissions"], out, seed=14, time_limit=300)


def states(name: str) -> dict[str, str]:
    return {row.id: row.state for row in lab.progress(name).rows}


def test_every_alias_leads_to_something_that_exists():
    assert set(aliases.EXERCISES.values()) <= set(exercises.all_ids())
    assert set(aliases.LESSONS.values()) <= set(exercises.LABS)
    for old, new in aliases.MODULES.items():
        module = importlib.import_module(old)
        assert module is importlib.import_module(new)
        assert module.__name__ == module.__spec__.name == new


def test_old_progress_is_read(old_progress):
    assert states("08_builds") == {
        "fix-the-index": "passed",
        "fix-the-race": "passed",
        "fix-the-unset": "tried",
    }
    assert {row.when for row in lab.progress("08_builds").rows} == {WHEN, ""}
    assert states("02_load_inline")["fix-the-guard"] == "passed"
    assert lab.progress("02_load_inline").n_passed == 2
    assert lab.progress("08_builds").predictions.answered.keys() == {"blocking-blame", "overwritten-behind"}
    assert answers.read("blocking-blame").hit


def test_an_update_keeps_old_entries_under_their_new_names(old_progress):
    right = json.loads((old_progress / "02_load_inline.json").read_text())
    assert not progress.update("02_load_inline", "slow-kernel", lambda entry: {"tries": 1})
    stored = json.loads((old_progress / "02_load_inline.json").read_text())
    assert stored == {
        "cover-a-matrix": right["cover-a-matrix"],
        "fix-the-guard": right["mend-the-guard"],
        "slow-kernel": {"tries": 1},
    }

    assert not progress.update("08_builds", "fix-the-unset", lambda entry: {**entry, "passed": "today"})
    assert progress.read("08_builds")["fix-the-unset"] == {"tries": 1, "last": "line", "passed": "today"}
    assert states("08_builds") == dict.fromkeys(("fix-the-index", "fix-the-race", "fix-the-unset"), "passed")


def test_a_pass_under_either_name_counts(old_progress):
    new = {"fix-the-unset": {"tries": 2, "passed": "today"}, "fix-the-race": {"tries": 4, "last": "line"}}
    (old_progress / "08_builds.json").write_text(json.dumps(new))
    assert states("08_builds") == dict.fromkeys(("fix-the-index", "fix-the-race", "fix-the-unset"), "passed")
    assert progress.read("08_builds")["fix-the-race"]["tries"] == 4


def test_an_old_copy_of_a_lab_works(old_progress, monkeypatch, capsys):
    with pytest.raises(lab.NotYet) as caught:
        lab.check("mend-the-unset", None)
    assert caught.value.verdict.exercise == "fix-the-unset"
    assert progress.read("08_builds")["fix-the-unset"]["tries"] == 2
    assert lab.progress("08_failures").lab == "08_builds"

    monkeypatch.setattr(lab, "_shell", lambda: None)
    lab.reset("mend-the-index")
    assert "REVERSE_ROWS" in capsys.readouterr().out
    assert states("08_failures")["fix-the-index"] == "tried"
    assert states("08_failures")["fix-the-race"] == "passed"


def test_names_that_never_existed_are_still_unknown(old_progress):
    for call in (lambda: exercises.get("mend-the-clock"), lambda: lab.progress("09_failures")):
        with pytest.raises(UnknownExercise):
            call()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("helpers.exercises.shiped")


# ------------------------------------------------------------------------------------------------ grade


def test_old_submissions_are_marked_under_the_new_names(graded):
    found = {one.lab: one for one in graded.graded}
    assert found.keys() == {"02_load_inline", "05_ncu", "08_builds"}
    assert {one.learner for one in graded.graded} == {"ada"}
    verdicts = {
        name: {mark.exercise: mark.verdict for mark in one.marks if mark.verdict == "passed"}
        for name, one in found.items()
    }
    assert verdicts["02_load_inline"].keys() == {"cover-a-matrix", "fix-the-guard"}
    assert verdicts["05_ncu"].keys() == {"sectors-of-a-run"}  # below a cell that uses a renamed module
    builds = {mark.exercise: mark for mark in found["08_builds"].marks}
    assert [(mark.verdict, mark.computed) for mark in builds.values()] == [
        ("passed", ""),
        ("passed", ""),
        ("passed", "failed"),  # the teacher's override, written with the old names
    ]
    assert builds["fix-the-unset"].mistake == "line" and "BLOCK_MAXIMA" in builds["fix-the-unset"].code
    assert graded.notes == ()


def test_reports_on_old_submissions_use_the_new_names(graded):
    for page in ("grades.csv", "index.html", "ada.html"):
        text = (graded.out / page).read_text()
        text = text.replace(str(BEFORE / "submissions" / "ada" / "08_failures.ipynb"), "")
        text = "".join(line for line in text.splitlines() if "check(" not in line)
        assert "fix-the-unset" in text
        assert not [name for name in (*aliases.EXERCISES, *aliases.LESSONS) if name in text], page


def test_nothing_in_an_old_submission_looks_like_reaching_or_raises(graded):
    raised = {one.lab: [(cell.cell, cell.error) for cell in one.raised] for one in graded.graded}
    assert raised == {
        "02_load_inline": [],
        "05_ncu": [],
        "08_builds": [("run-fix-the-unset", "AssertionError")],
    }
    assert [one.reaching for one in graded.graded] == [(), (), ()]
    assert next(one for one in graded.graded if one.lab == "08_builds").predictions.n_asked == 8


def test_a_lab_may_be_named_as_before(tmp_path):
    with pytest.raises(UsageError, match="08_failed"):
        grade([BEFORE / "submissions"], tmp_path, lab="08_failed")
    notebook = nbformat.read(BEFORE / "submissions" / "ada" / "08_failures.ipynb", 4)
    notebook.cells = [cell for cell in notebook.cells if "the-" not in cell.id]
    nbformat.write(notebook, tmp_path / "ada.ipynb")
    (one,) = grade([tmp_path / "ada.ipynb"], tmp_path / "out", lab="08_failures").graded
    assert one.lab == "08_builds" and one.marks[0].exercise == "fix-the-index"


def test_a_submission_without_exercises_is_recognized_by_its_old_file_name(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import torch")])
    nbformat.write(notebook, tmp_path / "08_failures.ipynb")
    labs = {"02_load_inline": {"fix-the-guard": "X"}, "08_builds": {"fix-the-index": "Y"}}
    assert read(tmp_path / "08_failures.ipynb", labs).lab == "08_builds"


def test_a_write_up_may_have_its_old_name(tmp_path):
    solution = Path(__file__).parents[1] / "labs" / "solutions" / "02_load_inline.ipynb"
    (tmp_path / "ada.ipynb").write_text(solution.read_text().replace("SLOW_KERNEL", "MENDED"))
    known = {one.id: one.name for one in exercises.of_lab("02_load_inline")}
    submission = read(tmp_path / "ada.ipynb", {"02_load_inline": known})
    assert submission.names["slow-kernel"] == "MENDED"
    assert "MENDED = WriteUp" in submission.code["slow-kernel"]

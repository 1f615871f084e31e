"""The labs as learners get them: every solution passes, and no untouched starter does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from commands import LESSONS, ROOT, environment

from helpers import exercises
from workbook import batch, grade
from workbook.batch.notebook_runs import NotebookRun
from workbook.form import canonical, files, starters

SOLUTIONS = sorted((ROOT / "labs" / "solutions").glob("*.ipynb"))
NAMES = [path.stem for path in SOLUTIONS]


def cells(path: Path) -> dict[str, nbformat.NotebookNode]:
    return {cell["id"]: cell for cell in nbformat.read(path, as_version=4).cells}


def starter(name: str) -> Path:
    return ROOT / "labs" / f"{name}.ipynb"


# ---------------------------------------------------------------------------------------------- one source


def test_there_is_a_lab_for_every_lesson():
    assert (
        set(NAMES)
        == {path.stem for path in LESSONS}
        == {path.stem for path in (ROOT / "labs").glob("*.ipynb")}
        == set(exercises.LABS)
    )


def test_the_starters_are_derived_from_the_solutions():
    written, differences, problems = files.form([*SOLUTIONS, *(starter(name) for name in NAMES)], check=True)
    assert (written, differences, problems) == ([], [], [])


@pytest.mark.parametrize("name", NAMES)
def test_starter_and_solution_differ_in_exercises_only(name):
    have, want = cells(starter(name)), cells(ROOT / "labs" / "solutions" / f"{name}.ipynb")
    assert list(have) == list(want)
    for key, cell in want.items():
        if "exercise" in canonical.tags(cell):
            assert have[key].source != cell.source and "SOLUTION" not in have[key].source, key
            assert have[key].metadata == cell.metadata
        else:
            # The badge names its own notebook, and the starter's links start one folder lower.
            mine, theirs = (
                re.sub(r"\]\((?:\.\./)+", "](", canonical.without_badge(c.source)) for c in (have[key], cell)
            )
            assert (mine, have[key].metadata) == (theirs, cell.metadata), key
        assert not cell.get("outputs") or canonical.CHECKED in canonical.tags(cell)


@pytest.mark.parametrize("name", NAMES)
def test_what_every_lab_has(name):
    of = exercises.of_lab(name)
    found = cells(starter(name))
    assert 3 <= len(of) <= 6
    keys = list(found)
    places = [keys.index(e.id) for e in of]
    assert places == sorted(places), "another order than in helpers.exercises"
    for e in of:
        above = keys[keys.index(f"about-{e.id}") : keys.index(e.id)]
        about = "\n".join(found[key].source for key in above if found[key].cell_type == "markdown")
        assert (
            keys.index(f"about-{e.id}") < keys.index(e.id)
            and found[f"check-{e.id}"].source == f'check("{e.id}", {e.name})'
        )
        assert 3 <= about.count("<details>") <= 4 and about.count("<details>") == about.count("</details>"), (
            e.id
        )
        assert "The idea of the solution" in about and "Hint 1" in about, e.id
    assert found["progress"].source == f'progress("{name}")'
    assert keys.index("what-you-can-do-now") < keys.index("progress") < keys.index("start-again")
    assert not any(cell.get("outputs") for cell in found.values())
    for key, cell in found.items():
        if cell.cell_type == "markdown":
            for link in re.findall(r"\]\((?!https?:|#)([^)\s#]+)", cell.source):
                assert (ROOT / "labs" / link).exists(), f"{name}, cell {key}: {link}"


def test_ids_are_unique_and_every_reset_has_its_text():
    ids = exercises.all_ids()
    assert len(set(ids)) == len(ids)
    kept = json.loads((ROOT / starters.STARTERS).read_text())
    for name in NAMES:
        found = cells(starter(name))
        for e in exercises.of_lab(name):
            assert kept[e.id]["lab"] == name and kept[e.id]["cells"]
            for key, source in kept[e.id]["cells"].items():
                assert found[key].source == source


# These measure torch or the workbook's own kernels; the learner's code only reads the figures.
NOT_THE_LEARNERS = {"lab/launched-grids", "lab/three-squares"}


@pytest.mark.parametrize("name", NAMES)
def test_a_replay_of_a_learners_code_names_its_source(name):
    """If a lab times the learner's code, the recorded figures belong to the solution and name it."""
    for id, cell in cells(ROOT / "labs" / "solutions" / f"{name}.ipynb").items():
        for record, rest in re.findall(r'records\.measured\(\s*"(lab/[^"]+)"([^\n]*)', cell.source):
            said = "sources=" in rest or "stand_in=" in rest
            assert said or record in NOT_THE_LEARNERS, f"{id}: {record} has neither sources nor stand_in"


def test_exercises_leave_triton_to_the_notebook():
    """Importing a lab's exercises must not import Triton before the setup cell chooses its interpreter."""
    code = (
        "import sys; from helpers import exercises, lab; from helpers.exercises import attempt, call; "
        f"[exercises.of_lab(name) for name in {NAMES!r}]; print('triton' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert ran.stdout == "False\n", ran.stdout + ran.stderr


# ---------------------------------------------------------------------------------------------- they run


def run(paths: list[Path], folder: Path) -> dict[str, NotebookRun]:
    """Run notebooks as `workbook run` does, two at a time; the results by name."""
    report = batch.run_course(paths, folder / "out", cell_timeout=300, jobs=2)
    return {one.name: one for one in report.runs}


@pytest.fixture(scope="module")
def ran_solutions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, NotebookRun], Path]:
    """The results of the selected solutions by name, and the folder of the executed notebooks."""
    folder = tmp_path_factory.mktemp("solutions")
    selected = {item.name for item in request.session.items}
    chosen = [path for path in SOLUTIONS if f"test_a_solution_runs_and_passes[{path.stem}]" in selected]
    return run(chosen, folder), folder / "out"


@pytest.mark.seeded
@pytest.mark.parametrize("name", NAMES)
def test_a_solution_runs_and_passes(name, ran_solutions):
    runs, out = ran_solutions
    result, executed = runs[name], cells(out / f"{name}.ipynb")
    assert result.status == "ok", result.failure and f"{result.failure}\n{result.failure.traceback}"
    for e in exercises.of_lab(name):
        shown = json.dumps(executed[f"check-{e.id}"].outputs, ensure_ascii=False)
        assert f"✓ {e.id}: " in shown, (e.id, shown)


def test_an_untouched_starter_passes_nothing(tmp_path, seed):
    """Every exercise is "to do", also where the starter is code to fix."""
    grades = grade.grade([starter(name) for name in NAMES], tmp_path, jobs=2, seed=seed)
    assert [one.lab for one in grades.graded] == NAMES
    for one in grades.graded:
        assert [mark.exercise for mark in one.marks] == [e.id for e in exercises.of_lab(one.lab)]
        assert {mark.verdict for mark in one.marks} == {"to do"}, one

"""A wrong exercise passes by nothing that its notebook's own process says, finds or hides; or the teacher is
told what looks like it.

Each file in attacks/answers/ tries one way on one exercise of the labs. They are graded in one batch. A file
with `says:` must fail with these words. One with `named:` gets past the check, which runs in the process that
it attacks, and must be named under "Worth a look".
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
from grade_notebooks import ATTACKS, mark, of
from lab_attempts import solution_cells

from helpers import exercises
from workbook.grade import grade
from workbook.grade.marks import Grades

FILES = {path.stem: path.read_text() for path in sorted((ATTACKS / "answers").glob("*.py"))}
NAMED = [name for name, text in FILES.items() if "\nnamed: " in text]


def about(name: str, what: str) -> str:
    """What a file says of itself."""
    return re.search(rf"^{what}: (.*)$", FILES[name], re.MULTILINE)[1]


def attack(name: str, folder: Path) -> Path:
    """The notebook of an attack: the lab's first cells, the exercise as the file has it, its check."""
    lab, exercise = about(name, "lab"), about(name, "exercise")
    cells = solution_cells(lab)
    source = re.split(r"^# %% .*\n", FILES[name], flags=re.MULTILINE)[1].replace("PID", str(os.getpid()))
    made = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell("from helpers import device\ndevice.prepare()", id="prepare"),
            nbformat.v4.new_code_cell(cells["begin"], id="begin"),
            nbformat.v4.new_code_cell(source, id=exercise),
            nbformat.v4.new_code_cell(cells[f"check-{exercise}"], id=f"check-{exercise}"),
        ]
    )
    path = folder / f"{name}.ipynb"
    nbformat.write(made, path)
    return path


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Grades:
    folder = tmp_path_factory.mktemp("answers")
    return grade([attack(name, folder) for name in FILES], folder / "out", jobs=2, seed=7)


@pytest.mark.parametrize("name", sorted(FILES.keys() - NAMED))
def test_an_attack_on_an_answer_earns_nothing(attacked, name):
    found = mark(attacked, name, about(name, "exercise"))
    assert found.verdict == "failed", found
    assert about(name, "says") in f"{found.sentence} {found.details}", found
    assert not any(other.verdict == "passed" for other in of(attacked, name).marks)


@pytest.mark.parametrize("name", NAMED)
def test_an_answer_that_hides_what_computes_is_named_for_the_teacher(attacked, name):
    assert about(name, "named") in "; ".join(of(attacked, name).reaching)


def test_nothing_that_a_text_brings_has_run():
    assert not Path(f"/tmp/workbook-attack-{os.getpid()}").exists()


def test_every_module_that_a_labs_notebook_imports_is_there_while_it_is_graded():
    for lab in exercises.LABS:
        package = f"lab{lab[:2]}"
        text = "\n".join(solution_cells(lab).values())
        for names in re.findall(rf"from helpers\.exercises\.{package} import (.*)", text):
            assert set(names.split(", ")) <= set(exercises.ADAPTERS[package]), (lab, names)

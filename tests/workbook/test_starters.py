"""workbook.form.starters and what `workbook form` does with labs: one source, derived starters, nobody's work
overwritten.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest
from small_checkout import BADGE, code

from workbook.form import files, labs, starters

SOLUTION = '''\
def n_blocks(n: int) -> int:
    """How many blocks of 256 cover n elements."""
    # BEGIN SOLUTION: a block that is half full is a block too
    whole = n + 255
    return whole // 256
    # END SOLUTION'''
STARTER = '''\
def n_blocks(n: int) -> int:
    """How many blocks of 256 cover n elements."""
    raise NotImplementedError("a block that is half full is a block too")'''
CUDA = '''\
SQUARE = r"""
__global__ void square(float* y, const float* x, int n) {
    // BEGIN SOLUTION: which element is this thread's, and is there one?
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
    // END SOLUTION
}
"""'''
FIX = """\
def copy(y, x, n):
    for i in range(0, n, 4):
        # BEGIN SOLUTION
        # STARTER: for j in range(4):
        # STARTER:     y[i + j] = x[i + j]
        for j in range(min(4, n - i)):
            y[i + j] = x[i + j]
        # END SOLUTION
    return y"""


def text(source: str) -> str:
    made, problems = starters.starter_text(source, "here")
    assert problems == []
    return made


def test_a_solution_becomes_its_task():
    assert text(SOLUTION) == STARTER


def test_cuda_text_gets_an_error_directive():
    made = text(CUDA)
    assert '    #error "which element is this thread\'s, and is there one?"\n}\n' in made
    assert "blockIdx" not in made
    assert text(CUDA.replace("which element is", 'say "which" is')).count("#error \"say 'which' is") == 1


def test_starter_lines_give_code_to_fix():
    made = text(FIX)
    assert "min(" not in made
    namespace: dict = {}
    exec(made, namespace)
    with pytest.raises(IndexError):
        namespace["copy"]([0] * 5, [1] * 5, 5)


def test_several_regions_and_quotes():
    source = (
        "# BEGIN SOLUTION: the 'first'\na = 1\n# END SOLUTION\nb = 2\n# BEGIN SOLUTION: the "
        '"second"\nc = 3\n# END SOLUTION'
    )
    made = text(source)
    first, second = (
        "raise NotImplementedError(\"the 'first'\")",
        "raise NotImplementedError('the \"second\"')",
    )
    assert made == f"{first}\nb = 2\n{second}"
    long = text(f"if True:\n    # BEGIN SOLUTION: {'many words ' * 10}\n    pass\n    # END SOLUTION")
    assert long.splitlines()[1] == "    raise NotImplementedError(" and max(map(len, long.splitlines())) < 130


NESTED = "# BEGIN SOLUTION: a\n# BEGIN SOLUTION: b\nx = 1\n# END SOLUTION"
EMPTY_BODY = "if x:\n    # BEGIN SOLUTION: a\n    # STARTER:\n    y = 1\n    # END SOLUTION"


@pytest.mark.parametrize(
    ("source", "fact"),
    [
        ("# BEGIN SOLUTION: a\nx = 1", "line 1: .*not closed"),
        ("x = 1\n# END SOLUTION", "line 2: END SOLUTION"),
        ("# STARTER: x = 2\nx = 1", "STARTER"),
        (NESTED, "line 2: .*line 1"),
        ("# BEGIN SOLUTION: a\n# END SOLUTION", "no solution"),
        ("# BEGIN SOLUTION:\nx = 1\n# END SOLUTION", "task"),
        ("# begin solution: a\nx = 1\n# end solution", "line 1 looks like a marker"),
        ("# BEGIN SOLUTION a\nx = 1\n# END SOLUTION", "line 1 looks like a marker"),
        ("x = 1  # BEGIN SOLUTION: a\n# END SOLUTION", "line 1 looks like a marker"),
        ("### BEGIN SOLUTION\nx = 1\n### END SOLUTION", "looks like a marker"),
        ("x = 1", "no region"),
        ("// BEGIN SOLUTION: a\nx = 1\n// END SOLUTION", "# in Python"),
        ('S = """\n# BEGIN SOLUTION: a\nint i;\n# END SOLUTION\n"""', "// inside CUDA"),
        ('S = """\n// BEGIN SOLUTION: a\\n\nint i;\n// END SOLUTION\n"""', "backslash"),
        (EMPTY_BODY, r"invalid Python \(line"),
    ],
)
def test_wrong_markers_are_problems(source, fact):
    _, problems = starters.starter_text(source, "lab.ipynb: cell one")
    assert any(re.search(fact, sentence) for sentence in problems), problems
    assert all(s.startswith("lab.ipynb: cell one") and "\n" not in s for s in problems)


# ---------------------------------------------------------------------------------------------- in a checkout


def solution(root: Path, *cells: nbformat.NotebookNode, name: str = "03_mini") -> Path:
    """A lab's solution with two exercises, or with other cells."""
    title = (
        f"# Mini\n\n{BADGE.format('https://colab.research.google.com/github/x/y')}\n\nSee [the "
        "lesson](../../notebooks/03_x.ipynb) and [this](03_mini.ipynb)."
    )
    both = [
        code(SOLUTION, "count-blocks", "exercise"),
        code('check("count-blocks", n_blocks)', "check-count-blocks", "check"),
        code(FIX, "fix-copy", "exercise"),
        code('check("fix-copy", copy)', "check-fix-copy", "check"),
    ]
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell(title, id="title"),
            code("1", "setup", "setup"),
            *(cells or both),
        ]
    )
    path = root / "labs" / "solutions" / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    (root / "notebooks" / "03_x.ipynb").write_text("{}")
    return path


def run(root: Path, *paths: Path, **how) -> tuple[list[str], list[str], list[str]]:
    return files.form([*paths] or [root / "labs" / "solutions" / "03_mini.ipynb"], **how)


def cells(path: Path) -> dict[str, nbformat.NotebookNode]:
    return {cell["id"]: cell for cell in nbformat.read(path, as_version=4).cells}


@pytest.fixture
def lab(checkout: Path) -> tuple[Path, Path, Path]:
    """A checkout with one formed lab: its folder, the solution, the starter."""
    path = solution(checkout)
    assert run(checkout)[2] == []
    return checkout, path, checkout / "labs" / "03_mini.ipynb"


def test_form_derives_the_starter(lab):
    root, path, starter = lab
    assert run(root, check=True) == ([], [], [])
    have, want = cells(starter), cells(path)
    assert list(have) == list(want) and have["count-blocks"].source == STARTER
    assert {name for name in have if have[name] != want[name]} == {"title", "count-blocks", "fix-copy"}
    assert "/blob/main/labs/03_mini.ipynb)" in have["title"].source
    assert "/blob/main/labs/solutions/03_mini.ipynb)" in want["title"].source
    assert "](../notebooks/03_x.ipynb) and [this](03_mini.ipynb)" in have["title"].source
    kept = json.loads((root / starters.STARTERS).read_text())
    assert kept["count-blocks"] == {"lab": "03_mini", "cells": {"count-blocks": STARTER}}
    assert run(root, starter) == ([], [], [])


def test_outputs_of_a_solution_do_not_reach_the_starter(checkout):
    shown = code("print(6 * 7)", "shown", "nbval-check-output")
    path = solution(
        checkout,
        code("def check(*answer): ...", "begin"),
        shown,
        code(SOLUTION, "e", "exercise"),
        code('check("e", n_blocks)', "check-e", "check"),
    )
    written, _, problems = run(checkout, run=True)
    assert problems == [] and written[0].endswith("03_mini.ipynb")
    assert cells(path)["shown"].outputs[0].text == "42\n" and cells(path)["shown"].execution_count == 1
    starter = cells(checkout / "labs" / "03_mini.ipynb")
    assert starter["shown"].outputs == [] and starter["shown"].execution_count is None
    assert run(checkout, check=True) == ([], [], [])


def test_a_changed_solution_makes_its_starter_out_of_date(lab):
    root, path, starter = lab
    path.write_text(path.read_text().replace("half full", "not empty"))
    _, differences, problems = run(root, check=True)
    assert problems == [] and "labs/03_mini.ipynb: cell count-blocks" in differences[0]
    assert "starters.json" in differences[1] and "count-blocks, labs/03_mini.ipynb" in differences[1]
    assert run(root)[0] == ["labs/03_mini.ipynb", starters.STARTERS]
    assert "not empty" in cells(starter)["count-blocks"].source and run(root, check=True) == ([], [], [])


def test_a_starter_that_somebody_worked_in_is_left_alone(lab):
    root, _, starter = lab
    notebook = nbformat.read(starter, as_version=4)
    notebook.cells[2].source = "def n_blocks(n):\n    return 7  # an hour's work"
    notebook.cells[2].outputs = [nbformat.v4.new_output("stream", name="stdout", text="7")]
    nbformat.write(notebook, starter)
    before = starter.read_text()
    for how in ({}, {"check": True}):
        _, _, problems = run(root, **how)
        assert "labs/03_mini.ipynb" in problems[0] and "cell count-blocks" in problems[0]
        assert starter.read_text() == before
    starter.unlink()
    assert run(root)[2] == [] and cells(starter)["count-blocks"].source == STARTER


def test_a_starter_that_was_only_run_is_restored(lab):
    root, _, starter = lab
    formed = starter.read_text()
    notebook = nbformat.read(starter, as_version=4)
    notebook.cells[2].execution_count = 3
    nbformat.write(notebook, starter)
    _, differences, problems = run(root, starter, check=True)
    assert problems == [] and "has stored outputs" in differences[0]
    run(root, starter)
    assert starter.read_text() == formed


def test_all_labs_at_once(lab, monkeypatch):
    root, path, _ = lab
    monkeypatch.chdir(root)
    (root / "notebooks" / "03_x.ipynb").unlink()  # an empty file is no lesson
    links = "See [the lesson](../../notebooks/03_x.ipynb) and [this](03_mini.ipynb)."
    path.write_text(path.read_text().replace(links, ""))
    files.form([])
    assert files.form([], check=True) == ([], [], [])
    twin = path.with_name("04_twin.ipynb")
    twin.write_text(path.read_text())
    (root / "labs" / "05_lost.ipynb").write_text(path.read_text())
    _, _, problems = files.form([], check=True)
    assert any(p.startswith("labs/05_lost.ipynb") for p in problems)
    assert any("labs/solutions/03_mini.ipynb" in p and "count-blocks" in p for p in problems)
    twin.unlink()
    (root / "labs" / "05_lost.ipynb").unlink()
    path.unlink()
    (root / "labs" / "03_mini.ipynb").unlink()
    files.form([])
    assert json.loads((root / starters.STARTERS).read_text()) == {}


EXERCISE, CHECK = code(SOLUTION, "e", "exercise"), code('check("e", n_blocks)', "check-e", "check")


def check_cell(source: str, *tags: str, name: str = "check-e") -> nbformat.NotebookNode:
    return code(source, name, *tags)


MARKED = code("# BEGIN SOLUTION: x\n1\n# END SOLUTION", "two")
LINKED = nbformat.v4.new_markdown_cell("[x](../notebooks/03_x.ipynb)", id="m")


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ([EXERCISE], "code cell check-e"),
        ([EXERCISE, code("1", "between"), CHECK], "code cell check-e"),
        ([EXERCISE, check_cell('check("e", n_blocks)')], "code cell check-e"),
        ([EXERCISE, check_cell('check("f", n_blocks)', "check")], 'must be exactly check("e", NAME)'),
        ([EXERCISE, check_cell('v = check("e", n_blocks)', "check")], "cell check-e must be exactly"),
        ([EXERCISE, CHECK, check_cell('check("g", 1)', "check", name="check-g")], "cell check-g"),
        ([code("1", "one")], "no cell is tagged exercise"),
        ([EXERCISE, CHECK, MARKED], "cell two has a marker (# BEGIN SOLUTION)"),
        ([EXERCISE, CHECK, LINKED], "cell m links to ../notebooks/03_x.ipynb"),
    ],
)
def test_labs_with_a_wrong_structure_are_problems(checkout, given, fact):
    solution(checkout, *given)
    _, _, problems = run(checkout, check=True)
    assert any(fact in sentence for sentence in problems), problems


def test_exercises_must_be_those_in_helpers(lab):
    _, path, _ = lab
    notebook = nbformat.read(path, as_version=4)
    known = {"03_mini": {"count-blocks": "blocks", "third": "f"}}
    problems = labs.structure(notebook, "03_mini", "labs/solutions/03_mini.ipynb", known)
    facts = ['exactly check("count-blocks", blocks)', "no exercise fix-copy", "has the id third"]
    assert len(problems) == len(facts)
    assert all(fact in problem for fact, problem in zip(facts, problems, strict=True)), problems


def test_more_cells_of_one_exercise(checkout):
    solution(checkout, EXERCISE, code(SOLUTION, "e-2", "exercise"), CHECK)
    assert run(checkout)[2] == []
    kept = json.loads((checkout / starters.STARTERS).read_text())
    assert kept["e"]["cells"] == {"e": STARTER, "e-2": STARTER}

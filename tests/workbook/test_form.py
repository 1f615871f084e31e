"""`workbook form` and `workbook publish`, on a small checkout of the tests' own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from commands import ROOT
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from small_checkout import BADGE, GOOD_BADGE, code

from workbook import project
from workbook.form import canonical, publish
from workbook.project import UNPUBLISHED

PARAMETERS = code("n: int = 1", "parameters", "parameters")


def lesson(checkout: Path, *cells: nbformat.NotebookNode, name: str = "01_x", setup: bool = True) -> Path:
    first = [
        nbformat.v4.new_markdown_cell(
            f"# Title\n\n{BADGE.format('https://colab.research.google.com/github/x/y')}", id="title"
        ),
        code("print('setup')", "setup", "setup"),
    ]
    notebook = nbformat.v4.new_notebook(cells=[*(first if setup else first[:1]), *cells])
    path = checkout / "notebooks" / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return path


def stream(text: str, name: str = "stdout") -> nbformat.NotebookNode:
    return nbformat.v4.new_output("stream", name=name, text=text)


def formed(path: Path) -> tuple[dict[str, nbformat.NotebookNode], canonical.Formed]:
    """Form a notebook in place; its cells by id, and what the form said."""
    said = canonical.canonical(path, project.load_project(project.find_root(path.parent)))
    path.write_text(said.text)
    return {cell["id"]: cell for cell in nbformat.reads(said.text, as_version=4).cells}, said


def test_the_form_of_a_messy_notebook(checkout):
    messy = code("x = 1   \n\n\n", "run-me", "b", "a", outputs=(stream("1\n"),), count=7)
    messy.metadata["collapsed"] = True
    path = lesson(
        checkout,
        messy,
        code("", "nothing"),
        code("def first_thing(): pass", "3f2a9c1d"),
        code("pass", "triple", "kernel:triple_it"),
    )
    cells, said = formed(path)
    notebook = json.loads(path.read_text())
    assert notebook["metadata"] == canonical.METADATA
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert list(cells) == ["title", "setup", "run-me", "first-thing", "triple"]
    assert cells["run-me"].source == "x = 1" and cells["run-me"].metadata == {"tags": ["a", "b"]}
    assert cells["run-me"].outputs == [] and cells["run-me"].execution_count is None
    assert cells["setup"].source == canonical.setup_source("ada/kernels")
    assert GOOD_BADGE in cells["title"].source
    triple = 'TRIPLE_IT_CUDA = r"""\n__global__ void triple_it(float* x) {\n    x[0] *= 3;\n}\n"""'
    assert cells["triple"].source == triple
    assert path.read_text().endswith("}\n") and not said.problems
    parts = (
        "metadata",
        "1 empty cells",
        "Colab",
        "setup cell",
        "tags",
        "stored output",
        "'3f2a9c1d'",
        "triple_it",
    )
    for part in parts:
        assert any(part in sentence for sentence in said.differences), (part, said.differences)


def test_forming_twice_changes_nothing_and_ruff_agrees(checkout):
    checked = code("print(1)", "checked", canonical.CHECKED, outputs=(stream("1\n"),), count=9)
    path = lesson(
        checkout, code("pass", "k", "kernel:double_it"), checked, code("%timeit -n1 pass\n!ls", "magic")
    )
    formed(path)
    before = path.read_text()
    _, again = formed(path)
    assert not again.differences and path.read_text() == before
    ruff = [sys.executable, "-m", "ruff"]
    for arguments in (["format"], ["check", "--fix"]):
        config = f"--config={ROOT / 'pyproject.toml'}"
        ran = subprocess.run([*ruff, *arguments, config, str(path)], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert path.read_text() == before


ASK = """
from helpers import predict

question = f"How many of {n}?"
predict.ask("k", question, choices=["1", "2"])
"""


@pytest.mark.parametrize(
    ("source", "folded"),
    [
        (ASK, True),
        ('predict.reveal(\n    "k", n, because="Since."\n)', True),
        ('predict.reveal("k", n)\npredict.ask("j", "How many?")', True),
        ('n = 2\npredict.reveal("k", n)', False),
        ('import torch\nfrom helpers import predict\n\npredict.ask("k", "How many?")', False),
        ('sizes = ["1", "2"]\npredict.ask("k", "How many?", choices=sizes)', True),
        ("predict.review()", False),
        ("from helpers import predict", False),
    ],
)
def test_a_cell_that_only_asks_or_reveals_is_folded(checkout, source, folded):
    path = lesson(checkout, code(source, "question"))
    differences = canonical.canonical(path, project.load_project(checkout)).differences
    assert any("cell question should be folded" in one for one in differences) == folded
    cells, _ = formed(path)
    assert (cells["question"].metadata == canonical.FOLDED) == folded


def test_a_folded_cell_is_folded_in_jupyterlab_and_colab(checkout):
    by_hand = code("y = 1", "unfolded")
    by_hand.metadata["jupyter"] = {"source_hidden": True}
    path = lesson(checkout, code("x = 1", "folded", canonical.HIDDEN), by_hand)
    cells, _ = formed(path)
    folded = {"cellView": "form", "jupyter": {"source_hidden": True}, "tags": ["hide-input"]}
    assert cells["folded"].metadata == folded
    assert cells["unfolded"].metadata == {}
    _, again = formed(path)
    assert not again.differences


def test_the_setup_cell_says_what_it_installs_and_keeps_what_is_installed():
    published, unpublished = canonical.setup_source("ada/kernels"), canonical.setup_source(UNPUBLISHED)
    for source in (published, unpublished):
        assert "OWNER" not in source and "a minute" in source
        assert source.endswith("device.prepare()")
    assert '%pip install --quiet "kernel-workbook @ git+https://github.com/ada/kernels"' in published
    assert "pip install --quiet" not in unpublished


@pytest.mark.parametrize("here", [True, False])
def test_an_unpublished_notebook_explains_how_to_install_the_package(here):
    """As in Colab, which has neither `helpers` nor an address to install it from."""
    without = """\
import sys
sys.path = [p for p in sys.path if 'site-packages' in p]
sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)]"""
    cells = [] if here else [code(without, "colab")]
    cells += [code(canonical.setup_source(UNPUBLISHED), "setup"), code("print('after')", "after")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(notebook, timeout=120)
    if here:
        client.execute()
        assert "Python" in notebook.cells[0].outputs[0]["data"]["text/plain"]
        return
    with pytest.raises(CellExecutionError):
        client.execute()
    said = next(o for o in notebook.cells[1].outputs if o.output_type == "error")
    assert said.ename == "SystemExit" and "ask whoever gave you this notebook" in said.evalue
    assert "%pip install FILE.zip" in said.evalue and "publish" not in said.evalue
    assert sum(line.count("\n") for line in said.traceback) <= 6
    assert notebook.cells[2].outputs == []


def test_checked_outputs_keep_what_nbval_compares(checkout):
    table = nbformat.v4.new_output(
        "execute_result",
        {"text/plain": "t", "text/html": "<b>", "image/png": "aGk="},
        execution_count=31,
        metadata={"x": 1},
    )
    error = nbformat.v4.new_output("error", ename="E", evalue="v", traceback=["\x1b[0m /somewhere"])
    path = lesson(
        checkout,
        code("f()", "checked", canonical.CHECKED, outputs=(stream("a"), table, stream("b"), error), count=31),
    )
    cells, said = formed(path)
    first, second, third = cells["checked"].outputs
    assert (first.text, cells["checked"].execution_count) == ("ab", 1)
    assert second.data == {"text/plain": "t", "text/html": "<b>"}
    assert (second.execution_count, second.metadata) == (1, {})
    assert third.traceback == [] and not said.problems


def shown_as(mime: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_output("display_data", {mime: {}})


@pytest.mark.parametrize(
    ("outputs", "count", "fact"),
    [
        ((), 3, "no stored output"),
        ((stream("1"),), None, "no stored output"),
        ((stream("at 0x7f3b2c001a90"),), 1, "address"),
        ((stream("/tmp/abc/x.py"),), 1, "path"),
        ((stream("Warning", "stderr"),), 1, "stderr"),
        ((shown_as("application/vnd.plotly.v1+json"),), 1, "nbval"),
        ((shown_as("application/vnd.kernel-workbook.provenance+json"),), 1, "nbval"),
    ],
)
def test_checked_outputs_that_nbval_cannot_compare_are_problems(checkout, outputs, count, fact):
    _, said = formed(lesson(checkout, code("f()", "weak", canonical.CHECKED, outputs=outputs, count=count)))
    assert len(said.problems) == 1 and "weak" in said.problems[0] and fact in said.problems[0]


@pytest.mark.parametrize(
    "source",
    [
        "# Title\n\nWhat you will learn.",
        "# Title\nWhat you will learn.",
        f"# Title\n\nWhat you will learn.\n\n{GOOD_BADGE}",
        f"# Title\n{GOOD_BADGE}\n{GOOD_BADGE}\n\nWhat you will learn.",
    ],
)
def test_the_badge_of_a_published_notebook_is_below_its_heading(checkout, source):
    path = lesson(checkout, code("x = 1", "one"))
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[0].source = source
    nbformat.write(notebook, path)
    cells, said = formed(path)
    assert cells["title"].source == f"# Title\n\n{GOOD_BADGE}\n\nWhat you will learn."
    assert not said.problems and "cell title" in str(said.differences)
    assert formed(path)[1].differences == ()


def test_a_published_notebook_without_a_title_is_a_problem(checkout):
    path = lesson(checkout, code("x = 1", "one"))
    path.write_text(path.read_text().replace('"id": "title"', '"id": "heading"'))
    _, said = formed(path)
    assert ["id title" in problem for problem in said.problems] == [True]


def unpublish(checkout: Path) -> None:
    pyproject = checkout / "pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace("ada/kernels", UNPUBLISHED))


def test_an_unpublished_notebook_has_no_badge(checkout):
    path = lesson(checkout, PARAMETERS)
    unpublish(checkout)
    cells, said = formed(path)
    assert cells["title"].source == "# Title" and cells["setup"].source == canonical.setup_source(UNPUBLISHED)
    assert not said.problems and "cell title" in str(said.differences)
    assert formed(path)[1].differences == ()


def test_problems_that_only_a_person_can_fix(checkout):
    _, said = formed(lesson(checkout, code("pass", "k", "kernel:unknown"), setup=False))
    shown, setup = said.problems
    assert "kernel:unknown" in shown and "double_it, triple_it" in shown and "setup" in setup


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# [kernel:a]\n", r"\[kernel:a\] is never closed"),
        ("# [/kernel:a]\n", "not open"),
        ("# [kernel:a]\n# [kernel:b]\n", r"before \[kernel:a\]"),
        ("# [kernel:double_it]\n# [/kernel:double_it]\n", "already .*double_it"),
    ],
)
def test_broken_kernel_markers(checkout, text, expected):
    (checkout / "helpers" / "kernels" / "m.py").write_text(text)
    with pytest.raises(ValueError, match=expected):
        project.load_project(checkout)


def test_check_and_execute(checkout, cli, workbook):
    path = lesson(
        checkout, PARAMETERS, code("x = 2", "compute"), code("print(x)", "checked", canonical.CHECKED)
    )
    before = path.read_text()
    checked = cli("form", "--check", cwd=checkout)
    assert checked.returncode == 1 and path.read_text() == before
    assert "setup cell" in checked.stdout and "no stored output" in checked.stdout
    # Its setup cell imports helpers.device, which this small checkout has not; the installed one serves.
    executed = workbook("form", "--execute", path, cwd=checkout)
    assert executed.returncode == 0, executed.stdout + executed.stderr
    cells = {cell["id"]: cell for cell in nbformat.read(path, as_version=4).cells}
    assert cells["checked"].outputs[0].text == "2\n" and cells["setup"].outputs == []
    assert cli("form", "--check", cwd=checkout).returncode == 0


@pytest.mark.parametrize(
    ("source", "expected"),
    [("1/0", "ZeroDivisionError"), ("import os; os._exit(1)", "died")],
)
def test_execute_stores_nothing_when_a_cell_fails(checkout, workbook, source, expected):
    path = lesson(
        checkout,
        code("print(1)", "checked", canonical.CHECKED, outputs=(stream("0\n"),), count=1),
        code(source, "bad"),
    )
    result = workbook("form", "--execute", path, cwd=checkout)
    assert result.returncode == 2 and expected in result.stderr and "cell bad" in result.stderr
    assert nbformat.read(path, as_version=4).cells[2].outputs[0].text == "0\n"


@pytest.mark.parametrize("arguments", [["missing.ipynb"], ["--check", "--execute"]])
def test_wrong_commands_are_refused(checkout, refusal, arguments):
    assert arguments[0] in refusal("form", *arguments, cwd=checkout)


def test_publish_shows_the_links_and_publishing_again_changes_them(checkout, cli):
    path = lesson(checkout, PARAMETERS)
    unpublish(checkout)
    formed(path)
    readme, citation = checkout / "README.md", checkout / "CITATION.cff"
    link = "[the book](https://OWNER.github.io/REPO)"
    readme.write_text(f"# Title\n\n<!-- published:\nRead {link}.\n-->\n\nText. github.com/OWNER/REPO-old\n")
    citation.write_text('title: "T"\n# published: repository-code: https://github.com/OWNER/REPO\n')
    changed = ["pyproject.toml", "README.md", "CITATION.cff", "notebooks/01_x.ipynb"]
    for owner, name in (("grace-h", "gpu.course_2"), ("ada", "kernels")):
        result = cli("publish", f"{owner}/{name}", cwd=checkout)
        assert [line.split(":")[0] for line in result.stdout.splitlines()] == changed
        address = f"https://github.com/{owner}/{name}"
        assert f'Repository = "{address}"' in (checkout / "pyproject.toml").read_text()
        shown = f"[the book](https://{owner}.github.io/{name})"
        assert readme.read_text() == f"# Title\n\nRead {shown}.\n\nText. github.com/OWNER/REPO-old\n"
        assert citation.read_text().endswith(f"\nrepository-code: {address}\n")
        assert path.read_text().count(f"{owner}/{name}") == 2
    again = cli("publish", "ada/kernels", cwd=checkout)
    assert again.returncode == 0 and len(again.stdout.splitlines()) == 1
    assert cli("form", "--check", cwd=checkout).returncode == 0


@pytest.mark.parametrize(
    "name", ["ada", "https://github.com/ada/kernels", "-ada/x", "ada--x/y", "ada/x y", "ada/x.git", "ada/.."]
)
def test_publish_refuses_what_is_no_repository(checkout, name):
    before = (checkout / "pyproject.toml").read_text()
    with pytest.raises(ValueError, match="OWNER/REPO"):
        publish.publish(name, checkout)
    assert (checkout / "pyproject.toml").read_text() == before

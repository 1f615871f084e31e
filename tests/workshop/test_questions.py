"""helpers.workshop.form.questions: each question stands before its answer, and which lesson asks what is written down."""

from __future__ import annotations

import json

import nbformat
import pytest
from commands import LESSONS, ROOT
from small_checkout import BADGE, code

from helpers.workshop.form import files, questions

ASK = 'predict.ask("sectors", "How many sectors?", unit="sectors")'
REVEAL = 'predict.reveal("sectors", touched)'


def lesson(*sources: str) -> nbformat.NotebookNode:
    """A notebook: a text that begins with "# " is a text cell, one that begins with "CHECKED " a checked one."""
    cells = []
    for i, source in enumerate(sources):
        if source.startswith("# "):
            cells.append(nbformat.v4.new_markdown_cell(source, id=f"text-{i}"))
        else:
            tags = ("nbval-check-output",) if source.startswith("CHECKED ") else ()
            cells.append(code(source.removeprefix("CHECKED "), f"code-{i}", *tags))
    return nbformat.v4.new_notebook(cells=cells)


@pytest.mark.parametrize(
    "sources",
    [
        (ASK, REVEAL, "# Because"),
        (ASK, "touched = 4", "table = 5", REVEAL, "# Because"),
        (f"question = 'How many?'\n{ASK}", f"%time x\n{REVEAL}", "# Because"),
        (ASK, ASK.replace("sectors", "lines"), "x = 1", f"{REVEAL}\n{REVEAL.replace('sectors', 'lines')}", "# Because"),
        (ASK, REVEAL, "display(Markdown(f'It is {touched}.'))"),
        (ASK, "if touched:\n    predict.reveal('sectors', touched)", "# Because", "predict.review()"),
        ("x = 1", "# No question at all"),
    ],
)  # fmt: skip
def test_a_lesson_that_asks_as_it_must(sources):
    assert questions.problems(lesson(*sources), "01_x.ipynb") == []


@pytest.mark.parametrize(
    ("sources", "told"),
    [
        ((ASK, "# Because"), "cell code-0 asks sectors, and no cell below reveals it"),
        ((REVEAL, "# Because"), "cell code-0 reveals sectors, which no cell above asks"),
        ((REVEAL, ASK, "# Because"), "which no cell above asks"),
        ((ASK, ASK, REVEAL, "# Because"), "cell code-1 asks sectors a second time"),
        ((ASK, "a = 1", "b = 1", "c = 1", REVEAL, "# Because"), "3 code cells after its question"),
        ((ASK, 'predict.reveal("sectors", 4)', "# Because"), "by a literal"),
        ((ASK, 'predict.reveal("sectors")', "# Because"), "by a literal"),
        ((ASK, REVEAL), "nothing after it explains"),
        ((ASK, REVEAL, ASK.replace("sectors", "lines"), REVEAL.replace("sectors", "lines"), "# Because"), "nothing after it explains"),
        ((f"CHECKED {ASK}", REVEAL, "# Because"), "cell code-0 is checked and must not show predict.ask"),
        ((ASK, f"CHECKED {REVEAL}", "# Because"), "cell code-1 is checked and must not show predict.reveal"),
        (("CHECKED predict.review()",), "must not show predict.review"),
        (("predict.ask(key, 'How many?')", "# Because"), "the key of predict.ask must be a literal text"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_questions(sources, told):
    found = questions.problems(lesson(*sources), "01_x.ipynb")
    assert any(told in sentence for sentence in found), found


def test_three_guesses_are_too_many():
    cells = []
    for key in ("a", "b", "c"):
        cells += [f'predict.ask("{key}", "?", guess=True)', f'predict.reveal("{key}", x)', "# Because"]
    assert questions.problems(lesson(*cells), "01_x.ipynb") == [
        "01_x.ipynb: 3 questions are guesses; at most 2 may be."
    ]


def test_which_lesson_asks_what_is_written_down(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    badge = BADGE.format("https://colab.research.google.com/github/x/y")
    for name in ("01_x", "02_y"):
        made = lesson(ASK, REVEAL, "# Because")
        made.cells = [nbformat.v4.new_markdown_cell(f"# T\n\n{badge}", id="title"), code("", "setup", "setup"), *made.cells]  # fmt: skip
        nbformat.write(made, checkout / "notebooks" / f"{name}.ipynb")
        files.form([checkout / "notebooks" / f"{name}.ipynb"])
    assert not (checkout / questions.KEYS).exists()  # one lesson alone does not say what all ask
    written, _, problems = files.form([])
    assert questions.KEYS in written
    assert json.loads((checkout / questions.KEYS).read_text()) == {"01_x": ["sectors"], "02_y": ["sectors"]}
    assert problems == ["02_y: 01_x asks sectors too; keys are unique in the whole course."]
    assert files.form([], check=True)[1] == []
    (checkout / questions.KEYS).write_text("{}")
    assert files.form([], check=True)[1] == [f"{questions.KEYS} is not what the lessons ask."]


def test_the_package_knows_what_the_lessons_ask():
    asked = {path.stem: questions.asked(nbformat.read(path, as_version=4)) for path in LESSONS}
    assert questions.double_keys(asked) == []
    assert not questions.keys_differ(ROOT, asked), "run `workbook form`"

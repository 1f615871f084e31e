"""What a teacher sees of a class: the table, where most fail, the CSV files for gradebooks, advice; also in
Chromium.
"""

from __future__ import annotations

import csv
import random
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import browser as harness
import nbformat
import pytest
from grade_notebooks import FURTHER, RIGHT_A, RIGHT_B, WRONG_A, notebook, of

from helpers.exercises import LABS, of_lab
from helpers.predict import summary
from workbook.grade import advice, grade, gradebook, overview, report, starters, submissions
from workbook.grade.marks import Graded, Grades, Mark, Raised, placed
from workbook.grade.notebook import read
from workbook.usage import UsageError

ROOT = Path(__file__).parents[2]
EXERCISES = (("flip-rows", "Mend a kernel"), ("rms-norm", "A norm in one kernel"))
OWN = """\
def {name}(x, {rows}):
    if {rows} < 1:
        raise ValueError("no rows")
    total = x.new_zeros({rows})
    for row in range({rows}):
        total[row] = (x[row] * x[row]).sum() / x.shape[1]
    total = total.clamp(min=1e-6)
    return x * total.rsqrt()[:, None]
"""
OTHER = """\
def norm(x, weight):
    squares = torch.square(x).mean(dim=-1, keepdim=True)
    while squares.dim() < x.dim():
        squares = squares.unsqueeze(0)
    scale = torch.sqrt(squares + 1e-6)
    y = torch.div(x, scale)
    assert y.shape == x.shape
    return torch.mul(y, weight)
"""


def mark(exercise: str, verdict: str, code: str = "", **more: Any) -> Mark:
    return Mark(
        exercise,
        dict(EXERCISES)[exercise],
        verdict,
        more.pop("mistake", ""),
        f"{exercise}: {verdict}.",
        code=code,
        **more,
    )


def learner(name: str, *marks: Mark, **more: Any) -> Graded:
    return Graded(name, f"in/{name}.ipynb", "03_triton", EXERCISES, marks, tier="sandboxed", **more)


FAILED = {
    "mistake": "missing-mask",
    "hint": "Who owns the end?",
    "case": "a 7 x 300 <b>",
    "details": "got 1, expected 2",
}
PREDICTED = summary.parse(
    {
        "asked": 2,
        "answers": {
            "sectors": {
                "question": "How many sectors?",
                "choices": None,
                "unit": "sectors",
                "measured": False,
                "guess": False,
                "answer": 4,
                "revealed": "2026-11-22 02:00",
                "truth": 4,
            }
        },
    }
)
CLASS = (
    learner(
        "ada",
        mark("flip-rows", "passed", "x = 1"),
        mark("rms-norm", "passed", OWN.format(name="norm", rows="n")),
        predictions=PREDICTED,
    ),
    learner("bob", mark("flip-rows", "failed", "y = 2", **FAILED), mark("rms-norm", "passed", OTHER)),
    learner(
        "eve",
        mark("flip-rows", "failed", "z = 3", **FAILED),
        mark("rms-norm", "passed", OWN.format(name="mine", rows="count")),
        reaching=("rms-norm: names _getframe (line 3)",),
    ),
    learner(
        "zoe",
        mark("flip-rows", "passed", computed="failed", remark="shown in person"),
        mark("rms-norm", "to do"),
    ),
    learner(
        "ben",
        mark("flip-rows", "failed", mistake="timeout"),
        mark("rms-norm", "not reached"),
        raised=(Raised("own", "it ran past 120 s and was interrupted", 0, ""),),
        seconds=141.0,
    ),
    Graded("max", "in/max.ipynb", problem="it is no notebook that can be read (odd)"),
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    report.write(Grades(folder, placed(CLASS), 7))
    return folder


# ------------------------------------------------------------------------------------------------ gradebooks


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_columns_of_grades_csv_stay(written):
    assert gradebook.COLUMNS[:13] == (
        "learner",
        "notebook",
        "lab",
        "exercise",
        "verdict",
        "failing case",
        "mistake",
        "sentence",
        "speed",
        "seconds",
        "seed",
        "remark",
        "computed verdict",
    )
    rows = rows_of(written / "grades.csv")
    assert tuple(rows[0]) == gradebook.COLUMNS and len(rows) == 11
    assert {row["tier"] for row in rows} == {"sandboxed", ""}


def test_canvas_reads_a_score_for_each_learner(written):
    """Canvas's guide: the columns Student, ID, SIS User ID, SIS Login ID, Section, then assignments; a row of
    possible points.
    """
    rows = rows_of(written / "canvas.csv")
    assert tuple(rows[0]) == ("Student", "ID", "SIS User ID", "SIS Login ID", "Section", "03_triton")
    assert rows[0]["Student"].strip() == "Points Possible" and rows[0]["03_triton"] == "2"
    scores = {row["SIS Login ID"]: row["03_triton"] for row in rows[1:]}
    assert scores == {"ada": "2", "bob": "1", "eve": "1", "zoe": "1", "ben": "0", "max": "0"}


def test_nbgraders_columns_are_there_with_numbers(written):
    """nbgrader's CsvExportPlugin: these columns in this order, scores as numbers."""
    rows = rows_of(written / "nbgrader.csv")
    assert tuple(rows[0]) == (
        "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email", "raw_score",
        "late_submission_penalty", "score", "max_score",
    )  # fmt: skip
    assert {row["student_id"]: float(row["score"]) for row in rows} == {
        "ada": 2,
        "bob": 1,
        "eve": 1,
        "zoe": 1,
        "ben": 0,
        "max": 0,
    }
    assert all(float(row["max_score"]) == 2 and row["assignment"] == "03_triton" for row in rows)


def test_the_best_of_several_notebooks_counts(tmp_path):
    again = (CLASS[1], learner("bob", mark("flip-rows", "passed"), mark("rms-norm", "passed")), CLASS[1])
    rows = csv.DictReader(gradebook.nbgrader_csv(Grades(tmp_path, again, 7)).splitlines())
    assert [row["score"] for row in rows] == ["2.0"]


# ------------------------------------------------------------------------------------------------ the page


def test_the_class_is_a_table_with_words_and_signs(written):
    page = (written / "index.html").read_text()
    table = page[page.index('class="glance"') : page.index("</tbody>")]
    assert table.count("✓ passed") == 5 and table.count("✗ failed") == 3
    assert table.count("… not written yet") == 1
    assert (
        "missing mask" in table
        and "by the teacher" in table
        and 'href="bob.html#03_triton-flip-rows"' in table
    )
    assert "1 of 1" in table  # ada's prediction


def row_of(written: Path, name: str) -> str:
    page = (written / "index.html").read_text()
    table = page[page.index('class="glance"') : page.index("</tbody>")]
    return next(line for line in table.splitlines() if f">{name}</a>" in line)


def test_a_notebook_that_could_not_be_graded_is_in_the_table_and_the_headline(written):
    row = row_of(written, "max")
    assert "not graded" in row and "it is no notebook that can be read" in row and "0 of 2" in row
    assert (
        "6 learners, 6 notebooks · 1 not graded · 5 of 12 exercises passed"
        in (written / "index.html").read_text()
    )


def test_what_ran_too_long_is_said_to_have_timed_out(written):
    row = row_of(written, "ben")
    assert "<small>timed out</small>" in row and "141<br><small>a cell timed out</small>" in row
    assert "a cell timed out" in (written / "ben.html").read_text()
    assert str(CLASS[4]).endswith("; flip-rows failed (timeout), rms-norm not reached, a cell timed out")


def test_the_lab_of_a_notebook_that_could_not_be_graded():
    """It is in the name of its file or folder; or it is the class's only one."""

    def lab_of(path: str, *others: Graded, lab: str = "") -> str:
        return placed((*others, Graded("max", path, problem="it is empty")), lab)[-1].lab

    other = Graded("max", "max.ipynb", "05_ncu", EXERCISES, CLASS[0].marks)
    assert lab_of("in/max/03_triton-Copy1.ipynb", other) == "03_triton"
    assert lab_of("in/03_triton/max.ipynb", other) == "03_triton"
    assert lab_of("in/max/08_failures.ipynb") == "08_builds"  # as it was called
    assert lab_of("in/max.ipynb", *CLASS) == "03_triton" and lab_of("in/max.ipynb", *CLASS, other) == ""
    assert lab_of("in/max/notes.ipynb", other) == "" and lab_of("in/max.ipynb", lab="05_ncu") == "05_ncu"


def test_a_notebook_that_the_grader_did_not_finish_has_no_score(tmp_path):
    stopped = Graded("max", "in/max.ipynb", problem="the batch was interrupted", finished=False)
    rows = csv.DictReader(
        gradebook.nbgrader_csv(Grades(tmp_path, placed((*CLASS[:2], stopped)), 7)).splitlines()
    )
    assert [row["student_id"] for row in rows] == ["ada", "bob"]


def test_two_notebooks_that_claim_one_learner_are_named(tmp_path):
    for path in ("ada.ipynb", "ada/03_triton.ipynb", "bob/03_triton.ipynb", "bob/03_triton-Copy1.ipynb",
                 "eve/02_load_inline.ipynb", "eve/03_triton.ipynb"):  # fmt: skip
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("{}")
    with submissions.Copies() as copies:
        taken = submissions.take(submissions.find([tmp_path]), LABS, copies)
    labs = ("02_load_inline", *["03_triton"] * 3, "02_load_inline", "03_triton")
    graded = tuple(Graded(one.learner, one.notebook, lab) for one, lab in zip(taken, labs, strict=True))
    first, second = submissions.claims(taken, graded)
    assert first.startswith("A file and a folder are called ada: ") and "/ada.ipynb. Are they" in first
    assert second.startswith("bob has 2 notebooks of 03_triton: ") and "03_triton-Copy1.ipynb" in second
    assert "Each was graded; the gradebooks count the best one." in second
    both = tuple(
        replace(CLASS[0], learner="bob", notebook=f"in/{name}") for name in ("bob.ipynb", "bob/b.ipynb")
    )
    report.write(Grades(tmp_path / "out", both, 7, notes=(first, second)))
    page = (tmp_path / "out" / "index.html").read_text()
    assert "<small>bob.ipynb</small>" in page and "<small>bob/b.ipynb</small>" in page
    assert "bob has 2 notebooks of 03_triton" in page


def test_what_is_still_as_the_starter_has_it_is_not_taken_for_an_answer():
    labs = {lab: {e.id: e.name for e in of_lab(lab)} for lab in LABS}
    for path in sorted((ROOT / "labs").glob("*.ipynb")):
        given, solved = read(path, labs), read(ROOT / "labs" / "solutions" / path.name, labs)
        assert all(starters.untouched(given, exercise) for exercise in given.checks), path
        assert not any(starters.untouched(solved, exercise) for exercise in solved.checks), path
    made = nbformat.read(ROOT / "labs" / "03_triton.ipynb", 4)
    own = nbformat.v4.new_code_cell("def flip_rows(x):\n    return x.flip(1).contiguous()")
    made.cells.insert(next(i for i, c in enumerate(made.cells) if c.id == "check-flip-rows"), own)
    changed = read(Path("03_triton"), labs, content=nbformat.writes(made).encode())
    assert not starters.untouched(changed, "flip-rows") and starters.untouched(changed, "rms-norm-rows")


def test_where_most_fail_names_the_mistake_and_the_hint(written):
    page = (written / "index.html").read_text()
    hard = page[page.index("Where most fail") :]
    hard = hard[: hard.index("</table>")]
    assert hard.index("flip-rows") < hard.index("rms-norm")
    assert (
        "3 of 5" in hard
        and "2 × missing mask" in hard
        and "2 × Who owns the end?" in hard
        and "1 not written yet" in hard
    )


def test_a_learners_page_has_the_code_beside_the_failing_case(written):
    page = (written / "bob.html").read_text()
    beside = page[page.index('class="beside"') :]
    beside = beside[: beside.index("</pre></div></div>")]
    assert (
        "a 7 x 300 &lt;b&gt;" in beside
        and "got 1, expected 2" in beside
        and "Who owns the end?" in beside
        and "y = 2" in beside
    )
    assert 'class="beside"' not in (written / "ada.html").read_text().split("</style>")[1]


def test_an_index_that_cannot_be_made_says_so_and_the_marks_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(overview, "page", lambda *_: 1 / 0)
    report.write(Grades(tmp_path, CLASS, 7))
    assert "could not be made (ZeroDivisionError)" in (tmp_path / "index.html").read_text()
    assert len(rows_of(tmp_path / "grades.csv")) == 11


def test_a_folder_that_takes_no_reports_is_one_sentence(tmp_path):
    (tmp_path / "index.html").mkdir()
    with pytest.raises(UsageError, match=r"cannot be written into .* go on with --resume"):
        report.write(Grades(tmp_path, CLASS, 7))


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with harness.browser() as running:
        yield running


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 400])
def test_the_class_can_be_read_in_both_themes_on_wide_and_narrow_screens(chrome, written, scheme, width):
    page = chrome.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto((written / "index.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # tables scroll inside themselves
    colours = page.evaluate(
        "['passed', 'failed', 'to-do'].map(c => getComputedStyle(document.querySelector('.glance td.' + "
        "c)).backgroundColor)"
    )
    assert len(set(colours)) == 3
    for kind in ("passed", "failed", "to-do"):
        ink, back = page.evaluate(
            "k => { const td = document.querySelector('.glance td.' + k); return "
            "[getComputedStyle(td.querySelector('a')).color,"
            " getComputedStyle(td).backgroundColor] }",
            kind,
        )
        assert contrast(ink, back) >= 3, (kind, ink, back)
    page.goto((written / "bob.html").as_uri())
    left, right = (page.locator(".beside > div").nth(i).bounding_box() for i in (0, 1))
    assert (right["x"] > left["x"]) == (width > 800)
    page.close()


def contrast(ink: str, back: str) -> float:
    """WCAG's contrast of two CSS colours, 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((luminance(ink), luminance(back)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


# ------------------------------------------------------------------------------------------------ advice


def test_what_reaches_for_the_grader_is_named(tmp_path):
    cell = (
        "import sys, gc\nframe = sys._getframe()\nimport torch\ntorch.equal = lambda a, b: True\nfrom "
        "helpers.exercises import judge"
    )
    nbformat.write(notebook(cell, "%%time\nopen('/proc/1/mem')"), tmp_path / "eve.ipynb")
    nbformat.write(notebook(), tmp_path / "ada.ipynb")
    grades = grade(
        [tmp_path / "eve.ipynb", tmp_path / "ada.ipynb"], tmp_path / "out", exercises=FURTHER, seed=7
    )
    says = "; ".join(of(grades, "eve").reaching)
    for words in (
        "imports gc",
        "names _getframe (line 2)",
        "sets torch.equal",
        "imports judge from helpers.exercises",
        "'/proc/'",
    ):
        assert words in says, says
    assert of(grades, "ada").reaching == ()
    assert [m.verdict for m in of(grades, "eve").marks] == ["passed", "passed"]  # advice changes no mark
    index = (tmp_path / "out" / "index.html").read_text()
    assert "Worth a look" in index and "sets torch.equal" in index and "and 2 more" in index
    assert "names _getframe" in (tmp_path / "out" / "eve.html").read_text()
    again = grade([tmp_path / "eve.ipynb"], tmp_path / "out", exercises=FURTHER, resume=True)
    assert of(again, "eve").reaching == of(grades, "eve").reaching


@pytest.mark.parametrize(
    "path", sorted((ROOT / "labs").rglob("0*.ipynb")), ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_no_starter_and_no_solution_looks_like_reaching(path):
    cells = [(cell.id, cell.source) for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    assert advice.reaching(cells) == []


def test_source_that_cannot_be_parsed_says_nothing():
    assert advice.reaching([("a", "def f(:"), ("b", "\0"), ("c", "-" * 10**5 + "1")]) == []


def test_code_that_differs_in_names_is_the_same_and_another_is_not():
    found = advice.alike(CLASS[:3]).groups
    assert [(one.learners, one.share) for one in found] == [(("ada", "eve"), 1.0)]


def test_nearly_alike_is_told_and_what_all_have_is_not():
    changed = OWN.replace('raise ValueError("no rows")', "return None if x is None else x")
    pair = [
        learner("ada", mark("rms-norm", "passed", OWN.format(name="a", rows="b"))),
        learner("eve", mark("rms-norm", "passed", changed.format(name="a", rows="b"))),
    ]
    (found,) = advice.alike(pair).groups
    assert found.learners == ("ada", "eve") and 0.8 <= found.share < 1 and found.n_lines == 7
    starter = [OWN.format(name="given", rows="n")]
    assert advice.alike(pair, starter).groups == ()
    seven = [
        learner(f"l{i}", mark("rms-norm", "passed", OWN.format(name="f", rows="n") + "-x" * (i + 2)))
        for i in range(7)
    ]
    assert advice.alike(seven).groups == ()  # each has a line of its own, and the rest is everybody's


def test_short_exercises_are_never_alike():
    short = RIGHT_A + "\n" + RIGHT_B + "\n" + WRONG_A
    assert advice.alike([learner(name, mark("flip-rows", "passed", short)) for name in "ab"]).groups == ()


def test_large_notebooks_and_classes_do_not_delay_the_report(tmp_path):
    draw = random.Random(3)
    names = ("add", "sub", "mul", "div", "pow")

    def code(n_lines: int) -> str:
        lines = (
            f"    x = {'+'.join(['f(x)'] * draw.randint(1, 9))} {draw.choice('+-*/%')} 2"
            for _ in range(n_lines)
        )
        return f"def {draw.choice(names)}(x):\n" + "\n".join(lines)

    huge = [learner(name, mark("flip-rows", "passed", code(20_000)[:100_000])) for name in ("ada", "bob")]
    many = [learner(f"l{i}", mark("flip-rows", "passed", code(60))) for i in range(300)]
    begin = time.monotonic()
    report.write(Grades(tmp_path, (*huge, *many), 7))
    assert time.monotonic() - begin < 30
    page = (tmp_path / "index.html").read_text()
    assert 'first 40,000 characters of: <a href="ada.html">ada</a>, <a href="bob.html">bob</a>.' in page
    few = advice._MOST_LEARNERS
    assert advice.alike([learner(f"l{i}", mark("flip-rows", "passed")) for i in range(few + 1)]).left_out == (
        f"l{few}",
    )

"""What learners write in a free exercise reaches the teacher: as text, bounded, in the pages and the results,
in no CSV.
"""

from __future__ import annotations

import json

import nbformat
import pytest
from grade_notebooks import mark

from helpers.exercises.writeup import MOST
from workbook.grade import grade, gradebook
from workbook.grade.journal import Journal
from workbook.grade.marks import Grades

LAB, ID = "01_profiling", "slow-step"
RIGHT = """\
SLOW_STEP = WriteUp(
    finding="host-makes-batch",
    figures={"batch_us": 501_571, "step_us": 555_227, "step_after_us": 40_000},
    change="make-on-gpu",
    undecided=("after-the-copy",),
    words=WORDS,
)"""
WORDS = (
    "Of a step the host spends 501,571 µs on random numbers, while the GPU has nothing to do at all. I "
    "would make the batch on the GPU, and I do not know what happens behind the copy."
)
CLASS = {
    "ada": (f'WORDS = {WORDS!r} + "<script>alert(1)</script> \\u202e\\x1b[31m \\ud800 =1+1"', RIGHT),
    "bob": (f"WORDS = {WORDS!r}", RIGHT.replace("host-makes-batch", "copy")),
    "cyd": (f'WORDS = {WORDS!r} + " and so on" * 20_000', RIGHT),
    "dan": ("", "SLOW_STEP = WriteUp()"),
    "eve": (  # says that it agrees, and is something else
        "import helpers.exercises.consistency as c, helpers.exercises.writeup as w\nw.as_plain = lambda "
        "answer: {}\n"
        "c.WriteUpJudge.__call__ = lambda *a: None\nclass Liar(WriteUp):\n    def __eq__(self, other): "
        "return True\n"
        "    @property\n    def finding(self): return 7\n    @finding.setter\n    def finding(self, value): "
        "pass",
        f"WORDS = {WORDS!r}\n"
        + RIGHT.replace("SLOW_STEP = WriteUp(", "SLOW_STEP = Liar(").replace("host-makes-batch", "kernel"),
    ),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Grades:
    folder = tmp_path_factory.mktemp("class")
    given = []
    for name, (own, answer) in CLASS.items():
        code = nbformat.v4.new_code_cell
        cells = [
            code("from helpers.lab import WriteUp, check\n" + own, id="begin"),
            code(answer, id=ID, metadata={"tags": ["exercise"]}),
            code(f'check("{ID}", SLOW_STEP)', id=f"check-{ID}", metadata={"tags": ["check"]}),
        ]
        path = folder / f"{name}.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
        given.append(path)
    return grade(given, folder / "out", lab=LAB, jobs=2, seed=7)


def page(graded: Grades, name: str) -> str:
    return (graded.out / f"{name}.html").read_text()


def test_the_verdicts_come_from_the_data(graded):
    got = {name: mark(graded, name, ID) for name in CLASS}
    assert {name: one.verdict for name, one in got.items()} == {
        "ada": "passed", "bob": "failed", "cyd": "failed", "dan": "to do", "eve": "failed",
    }  # fmt: skip
    assert got["bob"].mistake == "finding-contradicted" and "7.6 %" in got["bob"].sentence
    assert got["ada"].sentence.startswith(f"{ID}: your write-up agrees with the data")


def test_the_words_stand_on_the_learners_page_as_text(graded):
    ada = page(graded, "ada")
    assert "The learner&#x27;s own words" in ada or "The learner's own words" in ada
    assert "I do not know what happens behind the copy." in ada and "Left open: after-the-copy" in ada
    assert "&lt;script&gt;alert(1)" in ada and "<script" not in ada
    assert not {"\u202e", "\x1b", "\ud800"} & set(ada)
    assert "I would make the batch on the GPU" in page(graded, "bob"), (
        "words of an answer that failed are shown too"
    )
    assert "blockquote>" not in page(graded, "dan")


def test_the_class_page_gathers_them(graded):
    index = page(graded, "index")
    assert (
        "What learners wrote: Where does a slow step&#x27;s time go?" in index
        or "What learners wrote: Where does a slow step's time go?" in index
    )
    part = index[index.index("What learners wrote") :]
    for name in ("ada", "bob", "cyd"):
        assert f'href="{name}.html#{LAB}-{ID}"' in part
    assert 'href="dan.html#01_profiling-slow-step"' not in part
    assert part.count("and so on") < 100 and len(part) < 40_000, "long words are cut on the page of the class"


def test_they_are_bounded_and_kept_in_the_results_and_in_no_csv(graded):
    assert len(mark(graded, "cyd", ID).words) < MOST + 500
    kept = [json.loads(line) for line in (graded.out / "results.jsonl").read_text().splitlines()[1:]]
    words = {
        one["graded"]["learner"]: {m["exercise"]: m["words"] for m in one["graded"]["marks"]} for one in kept
    }
    assert "behind the copy" in words["ada"][ID] and words["ada"]["vector-grid"] == ""
    for name in ("grades.csv", "canvas.csv", "nbgrader.csv"):
        assert "behind the copy" not in (graded.out / name).read_text()
    assert (graded.out / "grades.csv").read_text().splitlines()[0] == ",".join(gradebook.COLUMNS)
    assert "words" not in gradebook.COLUMNS


def test_results_without_words_of_an_older_run_are_read(graded, tmp_path):
    lines = (graded.out / "results.jsonl").read_text().splitlines()
    old = [json.loads(line) for line in lines]
    for one in old[1:]:
        for m in one["graded"]["marks"]:
            del m["words"]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(one) + "\n" for one in old))
    with Journal(tmp_path, 7, resume=True) as kept:
        assert {m.words for one in kept.graded.values() for m in one.marks} == {""} and len(kept.graded) == 5

"""`workbook grade` on real notebooks in real processes: good ones, broken ones, and ones that try to cheat.

The notebooks of CLASS are graded in one batch on the two cheap exercises of grade_exercises.py, and so are
those of HOSTILE in `make test-slow`. Each test then checks what the reports contain about one of them.
"""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import nbformat
import psutil
import pytest
from grade_notebooks import (
    FURTHER,
    RIGHT_A,
    TO_DO_A,
    UNFINISHED_A,
    WRONG_A,
    WRONG_B,
    hostile,
    mark,
    notebook,
    of,
    said,
    verdicts,
)

from helpers.predict import summary
from workbook.grade import grade, gradebook, grader, report, submissions
from workbook.grade.marks import Graded, Grades, Raised
from workbook.grade.notebook import Unreadable, bound, check_call, read
from workbook.grade.worker import _Answering
from workbook.usage import UsageError

MEMORY_MB = 1500
CLASS_LIMIT_S = 100  # no notebook of the class waits for it, and none comes near it on a busy machine
SHORT_LIMIT_S = 3  # for notebooks that do nothing but wait for it
LABS = {"90_mini": {"count-blocks": "n_blocks", "twice": "twice"}, "91_other": {"thing": "thing"}}
ASLEEP = (["sleep", f"600.{os.getpid()}"], ["sleep", f"601.{os.getpid()}"])  # what hostile/children.py starts


def predicted(made: nbformat.NotebookNode, data: object) -> nbformat.NotebookNode:
    """The notebook with the output of a `progress` cell that carries predictions."""
    output = nbformat.v4.new_output(
        "execute_result", {"text/plain": "", summary.MIME: data}, execution_count=1
    )
    made.cells[0].outputs = [output]
    return made


def claim(**entry: object) -> dict[str, object]:
    """What a notebook may claim of a question."""
    right = {
        "question": "How many sectors?",
        "choices": None,
        "unit": "sectors",
        "measured": False,
        "guess": False,
    }
    return {**right, "answer": 8, "revealed": "2026-11-22 02:00", "truth": 4, **entry}


CLASS: dict[str, nbformat.NotebookNode] = {
    "good": predicted(
        notebook(
            "%matplotlib inline",
            "!echo hello",
            "await __import__('asyncio').sleep(0)",
            "input_size = get_ipython().execution_count",
        ),
        {
            "asked": 3,
            "answers": {
                "sectors": claim(),
                "share": claim(question="What share?", unit="%", measured=True, answer=[50, 80], truth=66.6),
            },
        },
    ),
    "raises": notebook("1/0", "def f(:", "raise KeyboardInterrupt"),
    "half": notebook(a=TO_DO_A),
    "unfinished": notebook(a=UNFINISHED_A, b=""),
    "segfaults": hostile("segfaults"),
    "again": notebook(a=WRONG_A, last=RIGHT_A),
    "a=b <script>alert(1)</script>": predicted(
        hostile("markup"),
        {
            "asked": "<script>",
            "answers": {
                "sectors": claim(question="<script>alert(2)</script>", unit="<script>"),
                "which": claim(choices=["<script>", "b"], unit="", answer="<script>", truth="b"),
                **{f"long-{i}": claim(question="x" * 10_000) for i in range(9)},
            },
        },
    ),
}


HOSTILE: dict[str, nbformat.NotebookNode] = {
    "exits": hostile("exits"),
    "killed": hostile("killed"),
    "eater": hostile("eater"),
    "flood": hostile("flood"),
    "children": hostile("children"),
    "forker": hostile("forker", a=WRONG_A),
    "closes": hostile("closes"),
    "orphan": hostile("orphan"),
    "prints": hostile("prints", a=WRONG_A),
    "patches": hostile("patches", a=WRONG_A, b=WRONG_B),
    "progress": hostile("progress", a=WRONG_A, b=WRONG_B),
    "writes": hostile("writes"),
    "liar": hostile("liar"),
    "forger-skips": hostile("finds_worker", "forger_skips", a=WRONG_A, b=WRONG_B),
    "forger-grows": hostile("finds_worker", "forger_grows", a=WRONG_A, b=WRONG_B),
    "forger-pickles": hostile("finds_worker", "forger_pickles", a=WRONG_A, b=WRONG_B),
    "forger-answers": hostile("finds_worker", "forger_answers", a=WRONG_A, b=WRONG_B),
}


def write_class(folder: Path, notebooks: dict[str, nbformat.NotebookNode]) -> list[Path]:
    """Write notebooks into a folder; the paths of their files."""
    paths = [folder / f"{name.replace('/', '∕')}.ipynb" for name in notebooks]
    for path, made in zip(paths, notebooks.values(), strict=True):
        nbformat.write(made, path)
    return paths


def grade_class(given: list[Path], out: Path) -> Grades:
    """Grade notebooks with the limits of these tests."""
    limits = {"time_limit": CLASS_LIMIT_S, "memory_limit": MEMORY_MB}
    return grade(given, out, exercises=FURTHER, jobs=2, seed=7, **limits)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Grades:
    """The class and some files that are no notebooks, graded once."""
    folder = tmp_path_factory.mktemp("class")
    given = write_class(folder, CLASS)
    (folder / "corrupt.ipynb").write_text('{"cells": [')
    (folder / "binary.ipynb").write_bytes(bytes(range(256)))
    (folder / "list.ipynb").write_text("[1, 2]")
    (folder / "empty.ipynb").write_text(nbformat.writes(nbformat.v4.new_notebook()))
    (folder / "folder.ipynb").mkdir()
    os.mkfifo(folder / "pipe.ipynb")
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")]), folder / "strange.ipynb")
    nbformat.write(old_format(), folder / "old.ipynb")
    nbformat.write(colab_download(), folder / "colab.ipynb")
    names = ("corrupt", "binary", "list", "empty", "folder", "pipe", "strange", "old", "colab", "missing")
    given += [folder / f"{name}.ipynb" for name in names]
    return grade_class(given, tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Grades:
    """The hostile notebooks, graded once."""
    given = write_class(tmp_path_factory.mktemp("hostile"), HOSTILE)
    return grade_class(given, tmp_path_factory.mktemp("hostile-out"))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Grades:
    """Notebooks that hang, graded with a short time limit. Their other cells take milliseconds."""
    folder = tmp_path_factory.mktemp("hanging")
    given = [folder / "loops.ipynb", folder / "deaf.ipynb", folder / "forger-drips.ipynb"]
    for path, names in zip(given, (["loops"], ["deaf"], ["finds_worker", "forger_drips"]), strict=True):
        nbformat.write(hostile(*names), path)
    given.append(folder / "stuck.ipynb")
    nbformat.write(notebook(a="while True:\n    pass"), given[-1])
    return grade(given, folder / "out", exercises=FURTHER, time_limit=SHORT_LIMIT_S, jobs=2, seed=7)


def old_format() -> nbformat.NotebookNode:
    """The good notebook in nbformat 3."""
    made = notebook()
    return nbformat.v3.nbbase.new_notebook(
        worksheets=[
            nbformat.v3.new_worksheet(cells=[nbformat.v3.new_code_cell(input=c.source) for c in made.cells])
        ]
    )


def colab_download() -> nbformat.NotebookNode:
    """A notebook whose cells lost their ids and tags; the checks are known by their text."""
    made = notebook(a=WRONG_A)
    for cell in made.cells:
        del cell["id"]
        cell.metadata = {"id": "x8Hq2_zzPQ"}
    made.nbformat_minor = 0
    return made


# ---------------------------------------------------------------------------------------------- the marks


def test_a_good_notebook_passes(graded):
    assert verdicts(graded, "good") == ("passed", "passed") and of(graded, "good").raised == ()
    assert re.fullmatch(r"twice: \d cases agree\.", mark(graded, "good", "twice").sentence)


def test_the_teacher_sees_what_was_predicted(graded):
    page = (graded.out / "good.html").read_text()
    assert "What the learner predicted in the lesson" in page and "not checked" in page
    assert "Answered: 2 of 3 questions." in page
    assert "<td>How many sectors?</td><td>8 sectors</td><td>4 sectors</td>" in page
    assert "<td>50 to 80 %</td><td>66.6 %</td><td>✓ inside the range</td>" in page
    index = (graded.out / "index.html").read_text()
    assert '<td>What share?</td><td class="number">1</td><td class="number">1</td>' in index
    assert "What the learner predicted" not in (graded.out / "half.html").read_text()


def test_what_a_notebook_claims_to_have_predicted_is_escaped_and_bounded(graded):
    name = report.page_names(graded)["a=b <script>alert(1)<∕script>"]
    page = (graded.out / name).read_text()
    assert "&lt;script&gt;alert(2)&lt;/script&gt;" in page and "<script" not in page
    assert "Answered: 2 of 2 questions." in page and "xxx" not in page


def test_every_notebook_has_its_marks(graded):
    assert [one.learner for one in graded.graded][: len(CLASS)] == [name.replace("/", "∕") for name in CLASS]
    for one in graded.graded:
        assert one.problem or [m.exercise for m in one.marks] == ["count-blocks", "twice"], one


def test_cells_that_raise_are_noted_and_the_rest_goes_on(graded):
    assert verdicts(graded, "raises") == ("passed", "passed")
    first, second, third = of(graded, "raises").raised
    assert (first.cell, first.error, first.line) == ("own-one", "ZeroDivisionError: division by zero", 1)
    assert second.error.startswith("SyntaxError") and third.error == "KeyboardInterrupt"


def test_an_untouched_starter_is_still_to_do(graded):
    assert verdicts(graded, "half") == ("to do", "passed")
    assert "count the last one too" in mark(graded, "half", "count-blocks").sentence


def test_what_is_not_defined_is_said(graded):
    assert verdicts(graded, "unfinished") == ("failed", "failed")
    sentence = mark(graded, "unfinished", "count-blocks").sentence
    assert "n_blocks" in sentence and "SyntaxError: '(' was never closed" in sentence


def test_endless_loops_are_stopped(stopped):
    assert verdicts(stopped, "loops") == ("passed", "failed")
    words = said(stopped, "loops")
    # On a busy machine the interrupt may come too late, and the process is killed.
    assert "own-one: " in words and (f"{SHORT_LIMIT_S} s" in words or "past its time" in words)
    late = mark(stopped, "loops", "twice")
    assert late.mistake == "timeout" and late.case.endswith(" numbers")
    assert f"{SHORT_LIMIT_S} s" in late.sentence or "past its time" in late.sentence
    assert str(of(stopped, "loops")).endswith(", a cell timed out")
    assert verdicts(stopped, "stuck") == ("failed", "passed")
    assert mark(stopped, "stuck", "count-blocks").mistake == "timeout"


def test_an_interrupt_that_comes_before_the_learners_code_stops_it():
    """On a busy machine a call's time may pass while it is prepared."""
    answering = _Answering.__new__(_Answering)
    answering._untrusted = answering._interrupted = False
    answering._on_interrupt(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt), answering._untrusted_code():
        pytest.fail("the learner's code ran")
    assert not answering._untrusted


def test_a_cell_that_heeds_no_interrupt_is_killed_and_left_out(stopped):
    assert verdicts(stopped, "deaf") == ("passed", "passed")
    assert "own-one: " in said(stopped, "deaf") and "killed" in said(stopped, "deaf")


def test_an_answer_that_comes_in_drops_does_not_come_for_ever(stopped):
    assert verdicts(stopped, "forger-drips") == ("passed", "passed")
    assert "own-two: " in said(stopped, "forger-drips") and "killed" in said(stopped, "forger-drips")


def test_exits(attacked):
    assert verdicts(attacked, "exits") == ("failed", "passed")
    assert "n = " in mark(attacked, "exits", "count-blocks").sentence
    assert verdicts(attacked, "killed") == ("passed", "passed")
    assert "own-one: it crashed the process (SIGKILL)" in said(attacked, "killed")


def test_a_crash_costs_its_own_exercise_only(graded):
    assert verdicts(graded, "segfaults") == ("failed", "passed")
    assert mark(graded, "segfaults", "count-blocks").mistake == "crash"
    assert "crashed the process (SIGSEGV)" in mark(graded, "segfaults", "count-blocks").sentence
    assert "in n_blocks" in of(graded, "segfaults").raised[0].log  # where it was, by faulthandler


def test_memory_is_limited(attacked):
    assert verdicts(attacked, "eater") == ("failed", "passed")
    assert f"took more than {MEMORY_MB} MB of memory" in mark(attacked, "eater", "count-blocks").sentence


def test_output_neither_counts_nor_fills_anything(attacked):
    assert verdicts(attacked, "flood") == ("passed", "passed")
    assert verdicts(attacked, "prints") == ("failed", "failed")
    assert sum(path.stat().st_size for path in attacked.out.iterdir()) < 2_000_000


def test_nothing_that_a_notebook_started_survives(attacked):
    assert verdicts(attacked, "children") == ("passed", "passed")
    assert verdicts(attacked, "forker") == ("failed", "passed")
    running = [p.info["cmdline"] or [] for p in psutil.process_iter(["cmdline"])]
    assert [words for words in running if words in ASLEEP] == []
    assert not [p for p in psutil.Process().children(recursive=True) if str(FURTHER) in " ".join(p.cmdline())]


def test_without_the_graders_pipe_or_the_process_above(attacked):
    for learner in ("closes", "orphan"):
        assert verdicts(attacked, learner) == ("passed", "passed"), of(attacked, learner)
    assert "own-one: " in said(attacked, "closes")


FORGERS = ["patches", "progress", "liar", *(name for name in HOSTILE if name.startswith("forger-"))]


@pytest.mark.parametrize("learner", FORGERS)
def test_a_forger_passes_nothing(attacked, learner):
    assert verdicts(attacked, learner) == ("failed", "failed"), of(attacked, learner)
    assert "agree" not in " ".join(m.sentence for m in of(attacked, learner).marks)


def test_what_a_forger_sends_is_looked_at(attacked):
    assert "claims that there is no room" in mark(attacked, "forger-skips", "twice").sentence
    assert "too many parts" in mark(attacked, "forger-grows", "twice").sentence
    assert "sent an answer that cannot be read" in mark(attacked, "forger-grows", "count-blocks").sentence
    assert "sent an answer that cannot be read" in mark(attacked, "forger-pickles", "twice").sentence
    assert verdicts(attacked, "writes") == ("passed", "failed")
    assert "wrote into the pipe of its answers" in mark(attacked, "writes", "twice").sentence


def test_what_stands_above_the_check_counts(graded):
    assert verdicts(graded, "again") == ("failed", "passed")
    assert (
        "n_blocks is defined again in cell last, below its check"
        in mark(graded, "again", "count-blocks").sentence
    )


def test_old_and_stripped_notebooks_are_graded(graded):
    assert verdicts(graded, "old") == ("passed", "passed")
    assert verdicts(graded, "colab") == ("failed", "passed")
    assert mark(graded, "colab", "count-blocks").code == WRONG_A


@pytest.mark.parametrize(
    ("learner", "says"),
    [
        ("corrupt", "it is no notebook that can be read"),
        ("binary", "it is no notebook that can be read"),
        ("list", "it is no notebook that can be read"),
        ("empty", "it has no code cell"),
        ("folder", "it is a folder without a notebook"),
        ("pipe", "it is no ordinary file"),
        ("strange", "it holds no exercise of a lab"),
        ("missing", "there is no such file"),
    ],
)
def test_what_is_no_notebook_is_one_sentence(graded, learner, says):
    one = of(graded, learner)
    assert says in one.problem and one.marks == () and str(one).startswith(f"{learner}: not graded, ")


# ---------------------------------------------------------------------------------------------- the reports


def test_the_table_has_a_row_for_each_exercise_and_no_formula(graded):
    text = (graded.out / "grades.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert tuple(rows[0]) == gradebook.COLUMNS
    assert len(rows) == sum(max(len(one.marks), 1) for one in graded.graded)
    row = next(r for r in rows if r["learner"] == "segfaults" and r["exercise"] == "count-blocks")
    assert (row["verdict"], row["lab"], row["mistake"]) == ("failed", "90_mini", "crash")
    assert row["failing case"].startswith("n = ")
    broken = next(r for r in rows if r["learner"] == "corrupt")
    assert broken["verdict"] == "not graded" and "no notebook" in broken["sentence"]
    assert not any(value.startswith(tuple("=+-@\t")) for r in rows for value in r.values())


def test_pages_are_whole_escaped_and_linked(graded):
    pages = sorted(path for path in graded.out.glob("*.html"))
    assert len(pages) == len({one.learner for one in graded.graded}) + 1
    for path in pages:
        text = path.read_text()
        assert text.endswith("</html>\n") and "<script" not in text, path
        for href in re.findall(r'href="([^"#]*)', text):
            assert not href or (graded.out / href).is_file(), (path, href)
    index = (graded.out / "index.html").read_text()
    assert (
        "Twice &lt;each&gt;" in index and index.count("<h2>") == 3 and "seed 7" in index
    )  # lab, not graded, worth a look
    page = (graded.out / "segfaults.html").read_text()
    assert (
        "ctypes.string_at(0)" in page
        and "crashed the process (SIGSEGV)" in page
        and "1 of 2 exercises passed" in page
    )


def test_names_become_file_names_of_their_own():
    names = ["a/b", "a b", "index", "../up", "A b", "x" * 300, "=1+1", "é", "e\u0301", "İ", "i\u0307"]
    names += ["漢" * 83, "漢" * 82 + "字", "漢" * 300, "...", "...2"]
    pages = report.page_names(Grades(Path(), tuple(Graded(name, name) for name in names), 0))
    assert len({page.lower() for page in pages.values()}) == len(names) and "index.html" not in pages.values()
    assert all("/" not in page and not page.startswith(".") for page in pages.values())
    assert all(len(page.encode()) < 200 for page in pages.values())  # a temporary name is 38 bytes longer


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r\n=1", " =1"])
def test_a_cell_is_never_a_formula(text):
    graded = Graded(text, text, problem=text, raised=(Raised(text, text, 0, text),))
    rows = list(csv.reader(gradebook.grades_csv(Grades(Path(), (graded,), 0)).splitlines()))
    assert len(rows) == 2 and all(value[:1] not in ("=", "+", "-", "@") for value in rows[1])


# ---------------------------------------------------------------------------------------------- reading


@pytest.fixture
def submit(tmp_path: Path) -> Callable[..., Path]:
    def write(made: nbformat.NotebookNode, name: str = "ada") -> Path:
        path = tmp_path / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(made, path)
        return path

    return write


def test_which_lab_it_is(submit):
    assert read(submit(notebook()), LABS).lab == "90_mini"
    with pytest.raises(Unreadable, match=r"90_mini.* 91_other"):
        read(submit(notebook()), LABS, "91_other")
    bare = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("thing = 1")])
    found = read(submit(bare, "ada_91_other"), LABS)
    assert found.lab == "91_other" and found.checks == {"thing": 1} and found.code == {"thing": "thing = 1"}


@pytest.mark.parametrize(
    "data",
    [None, 3, "x", [], {}, {"answers": 3}, {"answers": {"a": 3}}, {"answers": {"a": claim(answer="x")}},
     {"answers": {"a": claim(answer=float("inf"))}}, {"answers": {"a": claim(answer=[[1], 2],
         measured=True)}},
     {"answers": {"a": claim(choices=["a"] * 9)}},
         {"answers": {"a": claim(choices=list("abcdefghijklmnopqrstuvwxyz"), unit="", answer="a",
             truth=None)}},
     {"answers": {"NOT A KEY": claim()}}, {"answers": {"a": claim(answer=10**400)}}],
)  # fmt: skip
def test_predictions_that_are_none_are_left_out(submit, data):
    assert read(submit(predicted(notebook(), data)), LABS).predictions is None


def test_of_very_many_predictions_some_are_shown(submit):
    many = {"asked": 10**9, "answers": {f"key-{i}": claim() for i in range(5000)}}
    found = read(submit(predicted(notebook(), many)), LABS).predictions
    assert len(found.answered) == found.n_asked == 40


def test_where_an_exercise_is_checked(submit):
    made = notebook()
    del made.cells[2]  # the first check cell: then the end of the notebook counts
    made.cells += [nbformat.v4.new_code_cell('check("twice", my_twice)', id="check-again")]
    found = read(submit(made), LABS)
    assert found.checks == {"count-blocks": 5, "twice": 4} and found.names["twice"] == "my_twice"


def test_check_calls():
    assert check_call('check("a", f)') == ("a", "f") and check_call('lab.check("a", f(1))') == ("a", "f(1)")
    for source in (
        'x = check("a", f)',
        "check()",
        "check(1, 2)",
        "print('x')",
        "f(",
        'check("a", f)\n1',
        "(" * 300,
    ):
        assert check_call(source) == ("", "")
    assert bound("def f(): x = 1\nclass C: pass\na, (b, c[0]) = 1, 2\nd: int = 3") >= {
        "f",
        "C",
        "a",
        "b",
        "d",
    }
    assert "x" not in bound("def f(): x = 1") and bound("(") == set()


def learners(*found: tuple[str, str]) -> list[str]:
    """The learners of notebooks, each given as a path on the command line and one below it."""
    labs = ["02_load_inline", "03_triton", "08_failures"]
    all_found = [submissions.Found(Path(top), Path(inside).parts) for top, inside in found]
    return [learner for learner, _ in submissions.learners_of(all_found, labs)]


def test_a_folder_names_the_learner_of_everything_in_it():
    inside = (
        "ada/03_triton.ipynb",
        "ada/03_triton (1).ipynb",
        "ada/old/bob.ipynb",
        "bob/ada.ipynb",
        "joan.ipynb",
    )
    assert learners(*(("s", path) for path in inside)) == ["ada", "ada", "ada", "bob", "joan"]
    assert learners(
        ("submitted", "ada/03_triton/03_triton.ipynb"), ("submitted", "bob/03_triton/l.ipynb")
    ) == [
        "ada",
        "bob",
    ]  # nbgrader's layout


@pytest.mark.parametrize(
    "file", ["03_triton.ipynb", "03_triton (1).ipynb", "03_triton-Copy1.ipynb", "08_failures.ipynb"]
)
def test_a_file_that_is_called_like_a_lab_is_its_folders(file):
    assert learners((f"s/ada/{file}", ""), (f"s/bob/{file}", "")) == ["ada", "bob"]
    assert learners(("s/ada", file), ("s/bob", file), ("s/joan.ipynb", "")) == ["ada", "bob", "joan"]


def test_learners_of_one_name_in_different_folders_stay_apart():
    assert learners(("one", "ada/l.ipynb"), ("two", "ada/l.ipynb")) == ["one/ada", "two/ada"]
    assert learners(("x", "one/ada/l.ipynb"), ("x", "two/ada/l.ipynb")) == ["one", "two"]
    assert learners(("one/ada/03_triton.ipynb", ""), ("two/ada/03_triton.ipynb", "")) == [
        "one/ada",
        "two/ada",
    ]
    assert learners(("week1", "ada.ipynb"), ("week2", "ada.ipynb")) == ["week1/ada", "week2/ada"]


# ---------------------------------------------------------------------------------------------- the command


def test_the_command_grades_a_lab_of_the_course(submit, workbook, tmp_path):
    from helpers import exercises

    lab = next(lab for lab in exercises.LABS if exercises.of_lab(lab))
    first = exercises.of_lab(lab)[0]
    made = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(
                f"def {first.name}(*args, **kwargs):\n    raise NotImplementedError('begin here')",
                id=first.id,
            ),
            nbformat.v4.new_code_cell(f'check("{first.id}", {first.name})', id=f"check-{first.id}"),
        ]
    )
    submit(made, f"submissions/ada/{lab}")
    (tmp_path / "seed").write_text("3\n")
    result = workbook("grade", "submissions", "--out", "out", "--seed", "seed", "--memory-limit", "4000")
    assert result.returncode == 0, result.stderr
    n = len(exercises.of_lab(lab))
    assert result.stderr.splitlines()[0].startswith(f"ada: {lab}, 0 of {n} passed; {first.id} to do"), (
        result.stderr
    )
    assert "Open" in result.stdout and (tmp_path / "out" / "ada.html").is_file()
    rows = list(csv.DictReader((tmp_path / "out" / "grades.csv").open()))
    assert [row["verdict"] for row in rows] == ["to do"] + ["failed"] * (n - 1)
    # each notebook's own, and the class's
    assert int(rows[0]["seed"], 0) != 3 and "seed 3, " in result.stdout
    assert "begin here" in rows[0]["sentence"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Missing argument"),
        (["nothing.ipynb"], "There is no notebook nothing.ipynb"),
        (["here.ipynb", "--time-limit", "0"], "--time-limit is 0; give a number above 0"),
        (["here.ipynb", "--jobs", "-1"], "--jobs is -1; give a number above 0"),
        (["here.ipynb", "--lab", "99_none"], "--lab '99_none' is no lab; there are 01_profiling"),
        (["here.ipynb", "--out", "here.ipynb/x"], "cannot be written"),
        (["here.ipynb", "--seed", "7"], "other processes can read a seed on the command line"),
        (["here.ipynb", "--seed", "none"], "--seed none cannot be read"),
        (["here.ipynb", "--seed", "here.ipynb"], "--seed here.ipynb has no seed on its first line"),
    ],
)
def test_wrong_commands(cli, tmp_path, arguments, says):
    (tmp_path / "here.ipynb").write_text("{}")
    result = cli("grade", *arguments)
    assert result.returncode == 2 and says in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "build").exists()


def test_ctrl_c_leaves_reports_and_no_process(submit, tmp_path, interrupter):
    paths = [str(submit(notebook(interrupter.cell), "slow")), str(submit(notebook(), "later"))]
    out = tmp_path / "out"
    # The cell's sign that it sleeps is a file outside of its folder.
    code = f"""\
import sys
from workbook.grade import grade
grades = grade({paths!r}, {str(out)!r}, exercises={str(FURTHER)!r}, seed=7, jobs=1,
    unsafe=True)
sys.exit(grades.exit_status)"""
    ended = interrupter.run([sys.executable, "-c", code], signal.SIGINT)
    assert ended.status == 130 and "Traceback" not in ended.stderr, ended.stderr
    assert not psutil.pid_exists(ended.sleeper)
    rows = list(csv.DictReader((out / "grades.csv").open()))
    assert [row["verdict"] for row in rows] == ["not graded", "not graded"]
    assert "interrupted" in rows[0]["sentence"]
    assert "interrupted" in (out / "index.html").read_text()


STUMBLES = """

import os

def _stumbling(case, outcome):
    if outcome.value == 666:
        os._exit(1)
    return _own(case, outcome)

_own = EXERCISES[0].judge
object.__setattr__(EXERCISES[0], "judge", _stumbling)
"""
NO_SPACE = """

import os

if os.environ["HOME"] == os.getcwd():  # only in a learner's process
    raise OSError("no space left")
"""


@pytest.fixture
def further(tmp_path: Path) -> Callable[[str], Path]:
    """A file of exercises as FURTHER, with some more code at its end."""

    def write(more: str) -> Path:
        path = tmp_path / "exercises.py"
        path.write_text(FURTHER.read_text() + more)
        return path

    return write


def test_an_examiner_that_ends_spoils_its_notebook_only(submit, tmp_path, further):
    paths = [submit(notebook(a=RIGHT_A.replace("-(-n // 256)", "666")), "evil"), submit(notebook(), "good")]
    grades = grade(paths, tmp_path / "out", exercises=further(STUMBLES), seed=7)
    assert verdicts(grades, "evil") == ("not reached", "not reached")
    assert verdicts(grades, "good") == ("passed", "passed")
    assert "the examiner's process ended or hung over it" in of(grades, "evil").marks[0].sentence


def test_a_notebook_has_its_time_in_all(submit, tmp_path, monkeypatch):
    monkeypatch.setattr(grader, "TOTAL", 1)
    slow = submit(notebook(*["import time; time.sleep(2)"] * 3))
    grades = grade([slow], tmp_path / "out", exercises=FURTHER, time_limit=SHORT_LIMIT_S, seed=7)
    assert verdicts(grades, "ada") == ("not reached", "not reached")
    why = of(grades, "ada").marks[0].sentence
    assert f"not reached: the notebook had run for {SHORT_LIMIT_S} s in all" in why


def test_where_no_process_comes_up_the_reason_is_said(submit, tmp_path, further):
    grades = grade([submit(notebook())], tmp_path / "out", exercises=further(NO_SPACE), seed=7)
    assert verdicts(grades, "ada") == ("not reached", "not reached")
    assert "could be started: OSError: no space left" in of(grades, "ada").marks[0].sentence


def test_a_class_that_is_graded_twice_gets_the_same_marks(graded, tmp_path):
    given = write_class(tmp_path, {name: CLASS[name] for name in ("again", "half", "good")})
    again = grade_class(given, tmp_path / "out")
    for name in ("again", "half", "good"):
        before, after = ([replace(m, seconds=0) for m in of(one, name).marks] for one in (graded, again))
        assert before == after


def test_nothing_is_graded_without_a_notebook(tmp_path):
    with pytest.raises(UsageError, match="No notebook is given"):
        grade([], tmp_path)


def test_reports_of_a_batch_can_be_read_by_programs(graded):
    assert json.loads(json.dumps([str(one) for one in graded.graded]))[0] == "good: 90_mini, 2 of 2 passed"
    assert repr(graded).startswith(f"{len(graded.graded)} notebooks, 8 not graded, seed 7")

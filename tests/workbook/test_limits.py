"""workbook.form.limits and questions: each sentence, on notebooks of a few cells."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from small_checkout import code

from workbook.form import canonical, limits, questions

REVIEW = code("predict.review()", "review")
CUDA = 'CUDA = r"""\n__global__ void f(float* x) {\n' + "    x[0] = 1;\n" * 22 + '}\n"""'


def text(n_words: int, name: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_markdown_cell(" ".join(["word"] * n_words), id=name)


def stretch(n_lines: int, name: str, *tags: str) -> nbformat.NotebookNode:
    """A code cell of so many lines, with a blank line after each."""
    return code("\n\n".join(f"x = {i}" for i in range(n_lines)), name, *tags)


def checked(printed: str, source: str = "f()") -> nbformat.NotebookNode:
    output = nbformat.v4.new_output("stream", text=printed)
    return code(source, "truth", canonical.CHECKED, outputs=(output,), count=1)


def lesson(*cells: nbformat.NotebookNode) -> nbformat.NotebookNode:
    first = [
        text(5, "title"),
        code("setup", "setup", "setup"),
        code("n: int = 1", "parameters", "parameters"),
    ]
    return nbformat.v4.new_notebook(cells=[*first, *cells])


def ask(key: str, more: str = "", name: str = "") -> nbformat.NotebookNode:
    source = f'from helpers import predict\n\npredict.ask("{key}", "How many?"{more})'
    return code(source, name or f"ask-{key}")


def reveal(key: str, value: str = "n", before: str = "n = 2\n") -> nbformat.NotebookNode:
    return code(f'{before}predict.reveal("{key}", {value})', f"see-{key}")


def problems_of(*cells: nbformat.NotebookNode, name: str = "90_new.ipynb") -> list[str]:
    return limits.problems(lesson(*cells), name)


def test_a_lesson_at_its_limits_is_no_problem():
    cells = [
        text(120, "long"),
        stretch(20, "most"),
        code(CUDA, "cuda"),
        stretch(30, "call", limits.WHOLE_CALL),
        stretch(11, "folded", canonical.HIDDEN),
        text(200, "readings"),
        code('%timeit -n1 pass\n"""A text of words.""" if n else f"{n} words"', "magic"),
        code("%%bash\nif then ((", "shell"),
        code("x", "small"),
        ask("one"),
        stretch(3, "sweep", canonical.HIDDEN),
        code("n = 1", "answer"),
        reveal("one", before=""),
        code('question = f"Of {n}?"\npredict.ask("four", question, choices=["1", "2"])', "ask-four"),
        code("from helpers import ncu\n\n%load_ext helpers.ncu", "load"),
        code("n = 1", "run"),
        reveal("four", "8 * 10**3 / 4"),
        ask("two"),
        ask("three", ", guess=True"),
        code('n = 1\npredict.reveal("two", n)\npredict.reveal("three", f"m[{n}]")', "both"),
        checked("17 sectors\nIt is True that\n"),
        REVIEW,
    ]
    assert problems_of(*cells) == []


MANY_WORDS = [c for i in range(35) for c in (text(100, f"t-{i}"), code("x", f"c-{i}"))]
THREE_GUESSES = [*(c for k in "abc" for c in (ask(k, ", guess=True"), reveal(k))), REVIEW]
TOO_LATE = [ask("k"), code("1", "a"), code("2", "b"), reveal("k"), REVIEW]


@pytest.mark.parametrize(
    ("cells", "facts"),
    [
        ([stretch(21, "long")], ["cell long", "21 lines", "limit is 20", "30 with a kernel"]),
        ([stretch(31, "long", limits.WHOLE_CALL)], ["cell long", "31 lines", "limit is 30"]),
        ([text(131, "long")], ["cell long", "131 words", "limit is 130"]),
        ([text(110, "a"), text(91, "b")], ["cell b", "201 words without code", "limit is 200"]),
        (
            [*(stretch(20, f"c-{i}") for i in range(3)), stretch(1, "d")],
            ["median", "20 lines", "limit is 10"],
        ),
        ([stretch(10, f"c-{i}") for i in range(45)], ["451 lines of visible code", "limit is 450"]),
        ([stretch(10, "a"), stretch(3, "fold", canonical.HIDDEN)], ["3 folded", "27%", "limit is 15%"]),
        (MANY_WORDS, ["3,505 words", "limit is 3,500"]),
        ([checked("sum: 3\nequal: True \n")], ["cell truth", "'equal: True'", "assert"]),
        ([ask("k"), reveal("other"), REVIEW], ["cell ask-k", "predict.reveal", "there is none"]),
        (TOO_LATE, ["cell ask-k", "predict.reveal", "it is in cell see-k"]),
        ([reveal("k")], ["cell see-k", "no cell asks"]),
        ([ask("k"), reveal("k", 'str("m[0, 1]")'), REVIEW], ["cell see-k", "literal"]),
        ([ask("k"), reveal("k", "value=-3"), REVIEW], ["cell see-k", "literal"]),
        ([ask("k"), checked("2\n"), reveal("k"), REVIEW], ["checked cell truth", "between the question k"]),
        ([ask("k"), checked("2", 'n = 2\npredict.reveal("k", n)'), REVIEW], ["checked cell truth", "answer"]),
        ([code('print(2)\npredict.ask("k", "?")', "mixed"), reveal("k")], ["cell mixed", "other code"]),
        ([code("predict.ask(key, 'How many?')", "named")], ["cell named", "key in quotes"]),
        (THREE_GUESSES, ["3 questions", "ask-a, ask-b, ask-c", "limit is 2"]),
        ([ask("k"), reveal("k")], ["predict.review 0 times"]),
    ],
)
def test_each_problem_names_the_cell_and_the_figure(cells, facts):
    sentences = problems_of(*cells)
    assert any(s.startswith("90_new.ipynb: ") and all(f in s for f in facts) for s in sentences), sentences


def test_the_first_cells_are_fixed():
    notebook = nbformat.v4.new_notebook(cells=[text(1, "title"), text(1, "goals"), code("x", "setup")])
    (problem,) = limits.problems(notebook, "90_new.ipynb")
    assert "title, goals, setup;" in problem


def test_words_that_a_learner_reads_are_counted():
    cells = [
        nbformat.v4.new_markdown_cell(
            "## Two words\n\n| a | <b>[three](far away) ![x](y z)</b> <!-- no no -->", id="t"
        ),
        code('# a comment\nprint(f"it took {n:.1f} µs")\nkey = "no-words"', "c"),
        code(CUDA + '\nscript = """\nimport torch\n"""', "cuda"),
        code("# not seen\nprint('but this')", "folded", canonical.HIDDEN),
        text(500, "readings"),
    ]
    title = 5
    assert limits.lesson_words(lesson(*cells)) == title + 5 + 2 + 4 + 0 + 2


def test_keys_are_unique_over_the_course():
    first, second = lesson(ask("k"), ask("j", name="a")), lesson(ask("j", name="b"))
    (sentence,) = questions.asked_twice([("01_a.ipynb", first), ("02_b.ipynb", second)])
    assert all(part in sentence for part in ("02_b.ipynb, cell b", " j,", "01_a.ipynb, cell a;"))


def test_the_command_reports_problems_of_lessons_and_labs(checkout, cli):
    def write(folder: str, name: str, *cells: nbformat.NotebookNode) -> Path:
        path = checkout / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(lesson(*cells), path)
        return path

    path = write("notebooks", "90_new.ipynb", stretch(21, "long"), ask("k"), reveal("k"), REVIEW)
    write("notebooks", "13_next.ipynb", ask("k"), reveal("k"), REVIEW)
    formed = cli("form", path, cwd=checkout)
    assert formed.returncode == 1 and "90_new.ipynb: cell long" in formed.stdout
    again = cli("form", "--check", path, cwd=checkout)
    assert again.returncode == 1 and "13_next.ipynb, cell ask-k" in again.stdout
    write("labs/solutions", "90_new.ipynb", stretch(60, "long"), ask("other", name="a"), REVIEW)
    lab = cli("form", "--check", checkout / "labs/solutions/90_new.ipynb", cwd=checkout).stdout
    assert "labs/solutions/90_new.ipynb: cell a asks other" in lab and "60 lines" not in lab

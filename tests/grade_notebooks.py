"""Learners' notebooks of the two exercises in grade_exercises.py, and how to look at what they got."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat

from workbook.grade.marks import Graded, Grades, Mark

FURTHER = Path(__file__).parent / "grade_exercises.py"
HOSTILE = Path(__file__).parent / "attacks" / "hostile"
ATTACKS = Path(__file__).parent / "attacks"
RIGHT_A = """\
def n_blocks(n):
    return -(-n // 256)"""
RIGHT_B = """\
def twice(x):
    return x * 2"""
WRONG_A = """\
def n_blocks(n):
    return 4"""
WRONG_B = """\
def twice(x):
    return x"""
TO_DO_A = """\
def n_blocks(n):
    raise NotImplementedError('count the last one too')"""
UNFINISHED_A = """\
def n_blocks(n:
    return 4"""


def notebook(*between: str, a: str = RIGHT_A, b: str = RIGHT_B, last: str = "") -> nbformat.NotebookNode:
    """A learner's notebook: imports, up to four cells of their own, both exercises with their checks, one
    last cell.
    """

    def code(source: str, name: str, *tags: str) -> nbformat.NotebookNode:
        return nbformat.v4.new_code_cell(source, id=name, metadata={"tags": list(tags)} if tags else {})

    words = ("one", "two", "three", "four")[: len(between)]
    cells = [
        code("import torch\nfrom helpers.lab import check", "begin"),
        *(code(source, f"own-{word}") for source, word in zip(between, words, strict=True)),
        code(a, "count-blocks", "exercise"),
        code('check("count-blocks", n_blocks)', "check-count-blocks", "check"),
        code(b, "twice", "exercise"),
        code('check("twice", twice)', "check-twice", "check"),
    ]
    if last:
        cells.append(code(last, "last"))
    return nbformat.v4.new_notebook(cells=cells)


def hostile(
    *names: str, a: str = RIGHT_A, b: str = RIGHT_B, folder: Path = HOSTILE, **words: object
) -> nbformat.NotebookNode:
    """A notebook of files in hostile/: cells of their own below `# %%`, an exercise's cell below
    `# %% <its id>`.

    Args:
        names: Files, whose cells stand in this order.
        a, b: The exercises' cells where no file has them.
        folder: Where the files are.
        words: What stands in the files in place of these words, beside PID.
    """
    own: list[str] = []
    exercises = {"count-blocks": a, "twice": b}
    for name in names:
        text = (folder / f"{name}.py").read_text()
        for word, value in {"PID": os.getpid(), **words}.items():
            text = text.replace(word, str(value))
        _docstring, *parts = re.split(r"^# %%(.*)\n", text, flags=re.MULTILINE)
        for exercise, source in zip(parts[::2], parts[1::2], strict=True):
            if exercise:
                exercises[exercise.strip()] = source.strip()
            else:
                own.append(source.strip())
    return notebook(*own, a=exercises["count-blocks"], b=exercises["twice"])


def of(grades: Grades, learner: str) -> Graded:
    return next(one for one in grades.graded if one.learner == learner)


def verdicts(grades: Grades, learner: str) -> tuple[str, ...]:
    return tuple(mark.verdict for mark in of(grades, learner).marks)


def mark(grades: Grades, learner: str, exercise: str) -> Mark:
    return next(m for m in of(grades, learner).marks if m.exercise == exercise)


def said(grades: Grades, learner: str) -> str:
    return "\n".join(f"{r.cell}: {r.error}" for r in of(grades, learner).raised)

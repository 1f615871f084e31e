"""How large a lesson and its cells may be, in one table, and what a checked cell must not print.

Counted is what is in the file, which `ruff format` has formatted, without blank lines. A lesson's visible code is all
that is not folded (tag `hide-input`). Its words are those of its text cells, of comments, and of strings with a blank in
them, which the learner sees printed; links to read (the cell `readings`), CUDA text and the setup cell are left out.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace

from nbformat import NotebookNode

from helpers.cuda.text import is_cuda
from helpers.workshop.form import questions
from helpers.workshop.form.canonical import CHECKED, HIDDEN, tags
from helpers.workshop.form.source import comment_words, markdown_words, string_words


@dataclass(frozen=True)
class Limits:
    """The most that a lesson may have.

    Attributes:
        cell_lines: lines of a code cell.
        whole_lines: lines of one that holds a kernel, CUDA text, or a real API's whole call (tag `whole-call`).
        median_lines: lines of the median code cell, without setup, questions and folded cells.
        cell_words: words of a text cell.
        words_between: words between two code cells.
        lines: lines of visible code.
        folded_share: folded lines by visible lines.
        words: words in all.
        guesses: questions marked as a guess.
    """

    cell_lines: int = 20
    whole_lines: int = 30
    median_lines: float = 10
    cell_words: int = 120
    words_between: int = 200
    lines: int = 450
    folded_share: float = 0.15
    words: int = 2_500
    guesses: int = 2


@dataclass(frozen=True)
class Raised:
    """A limit that would hide a lesson's subject, and is higher there.

    Attributes:
        lesson: the lesson's number.
        limit: the name of a field of `Limits`.
        value: the limit there.
        reason: why it is.
        cell: the id of the one cell that it is raised for; "" for the lesson.
    """

    lesson: str
    limit: str
    value: float
    reason: str
    cell: str = ""


STANDARD = Limits()
LESSONS = {
    "01": replace(STANDARD, lines=400, words=3_000),
    "04": replace(STANDARD, lines=400),
    "05": replace(STANDARD, lines=350, words=3_000),
}
RAISED: tuple[Raised, ...] = (
    Raised(
        "09", "folded_share", 0.35, "the tuned kernel stands in a fold beside the plain one, which is read"
    ),
)

FIRST_CELLS = ["title", "setup", "parameters"]
WHOLE_CALL = "whole-call"
_VERDICT = re.compile(r":\s*True\s*$")


def number_of(name: str) -> str:
    """A lesson's number, "01" for 01_profiling.ipynb; "" where its file has none."""
    match = re.match(r"\d\d(?=_)", name)
    return match[0] if match else ""


def problems(notebook: NotebookNode, name: str) -> list[str]:
    """What in a lesson passes a limit or breaks a rule, one sentence each.

    Args:
        notebook: The lesson.
        name: Its file's name.
    """
    number = number_of(name)
    found = [*_of_cells(notebook, number), *_of_lesson(notebook, number)]
    found += questions.problems(notebook, _limit(number, "guesses"))
    return [f"{name}: {sentence}" for sentence in [*found, *verdicts(notebook)]]


def of_lab(notebook: NotebookNode, shown: str) -> list[str]:
    """What holds for a lab too: what it asks, it answers, and a checked cell prints no verdict."""
    found = [*questions.problems(notebook, STANDARD.guesses), *verdicts(notebook)]
    return [f"{shown}: {sentence}" for sentence in found]


def _limit(number: str, name: str, cell: str = "") -> float:
    """The limit called `name` of a lesson, or of one cell of it."""
    raised = {(r.cell, r.limit): r.value for r in RAISED if r.lesson == number}
    standard = getattr(LESSONS.get(number, STANDARD), name)
    return raised.get((cell, name), raised.get(("", name), standard))


def n_lines(source: str) -> int:
    """Lines that are not blank."""
    return sum(bool(line.strip()) for line in source.splitlines())


def _of_cells(notebook: NotebookNode, number: str) -> Iterator[str]:
    """Sentences for cells that are too long."""
    since_code = 0
    for cell in notebook.cells:
        if cell.cell_type == "code":
            since_code = 0
            whole = WHOLE_CALL in tags(cell) or "@triton.jit" in cell.source or is_cuda(cell.source)
            most = _limit(number, "whole_lines" if whole else "cell_lines", cell.id)
            if HIDDEN not in tags(cell) and n_lines(cell.source) > most:
                hint = "" if whole else f" ({STANDARD.whole_lines} with a kernel or the tag {WHOLE_CALL})"
                yield f"cell {cell.id} has {n_lines(cell.source)} lines of code; {most:g} is the most{hint}."
        elif cell.cell_type == "markdown" and not cell.id.startswith("readings"):
            n_words = markdown_words(cell.source)
            before, since_code = since_code, since_code + n_words
            if n_words > (most := _limit(number, "cell_words", cell.id)):
                yield f"cell {cell.id} has {n_words} words; {most:g} is the most."
            if before and since_code > (most := _limit(number, "words_between", cell.id)):
                yield f"cell {cell.id} ends {since_code} words without a code cell; {most:g} is the most."


def _of_lesson(notebook: NotebookNode, number: str) -> Iterator[str]:
    """Sentences for the lesson as a whole."""
    first = [cell.id for cell in notebook.cells[: len(FIRST_CELLS)]]
    if first != FIRST_CELLS:
        yield f"its first cells are {', '.join(first)}; they must be {', '.join(FIRST_CELLS)}."
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    folded = sum(n_lines(cell.source) for cell in code if HIDDEN in tags(cell))
    visible = [cell for cell in code if HIDDEN not in tags(cell)]
    n_visible = sum(n_lines(cell.source) for cell in visible)
    if n_visible > (most := _limit(number, "lines")):
        yield f"it has {n_visible} lines of visible code; {most:g} is the most."
    if folded > (most := _limit(number, "folded_share")) * n_visible:
        yield f"it has {folded} folded lines of code, {folded / max(n_visible, 1):.0%} of the visible; {most:.0%} is the most."
    read = [c for c in visible if "setup" not in tags(c) and not questions.only_asks(c.source)]
    if read and (median := statistics.median(n_lines(c.source) for c in read)) > (
        most := _limit(number, "median_lines")
    ):
        yield f"its median code cell has {median:g} lines; {most:g} is the most."
    if (n_words := lesson_words(notebook)) > (most := _limit(number, "words")):
        yield f"it has {n_words:,} words; {most:,.0f} is the most."


def lesson_words(notebook: NotebookNode) -> int:
    """The words of a lesson that a learner reads; of a folded cell only what it may print."""
    total = 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and not cell.id.startswith("readings"):
            total += markdown_words(cell.source)
        elif cell.cell_type == "code" and "setup" not in tags(cell):
            total += string_words(cell.source)
            total += 0 if HIDDEN in tags(cell) else comment_words(cell.source)
    return total


def verdicts(notebook: NotebookNode) -> Iterator[str]:
    """Sentences for checked cells that print that something is true: a test in the dress of a lesson."""
    for cell in notebook.cells:
        if cell.cell_type != "code" or CHECKED not in tags(cell):
            continue
        for output in cell.outputs:
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            line = next((line for line in text.splitlines() if _VERDICT.search(line)), None)
            if line is not None:
                yield f"checked cell {cell.id} prints {line.strip()!r}; assert it, or print what the learner wants to know."

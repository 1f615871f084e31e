"""How long a lesson and its cells may be, and what a checked cell must not print.

Lines are counted as `ruff format` writes them, without blank lines. The visible code of a lesson is all code
that is neither the setup cell nor folded with the tag `hide-input`. A text cell's words are those outside of
its `<details>`. The words of a lesson are those a learner
reads: in text cells, in comments, and in strings that contain a space, because those get printed. Reading
lists (cells `readings`), CUDA text and the setup cell don't count.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace

from nbformat import NotebookNode

from helpers.cuda.text import is_cuda
from workbook.form import questions
from workbook.form.canonical import CHECKED, HIDDEN, tags
from workbook.form.source import comment_words, markdown_words, string_words


@dataclass(frozen=True)
class Limits:
    """The most that a lesson may have.

    Attributes:
        cell_lines: Lines per code cell.
        whole_lines: Lines of a code cell with a kernel, CUDA text, or a complete call of a real API (tag
            `whole-call`).
        median_lines: Lines of the median code cell, not counting setup, questions and folded cells.
        cell_words: Words per text cell.
        words_between: Words between two code cells.
        lines: Lines of visible code.
        folded_share: Folded lines as a fraction of the visible lines.
        words: Words of the lesson.
        guesses: Questions that are marked as a guess.
    """

    cell_lines: int = 20
    whole_lines: int = 30
    median_lines: float = 10
    cell_words: int = 130
    words_between: int = 200
    lines: int = 450
    folded_share: float = 0.15
    words: int = 3_500
    guesses: int = 2


STANDARD = Limits()
LESSONS = {
    "01": replace(STANDARD, lines=400),
    "03": replace(STANDARD, words=3_100),
    "04": replace(STANDARD, lines=400),
    "05": replace(STANDARD, words=3_800),  # three optional sections
    "06": replace(STANDARD, words=3_700),
    "11": replace(STANDARD, lines=530, words=4_600),  # five optional sections
    "12": replace(STANDARD, words=4_150),  # six optional sections
}
FIRST_CELLS = ["title", "setup", "parameters"]
WHOLE_CALL = "whole-call"
_DETAILS = re.compile(r"<details>.*?</details>", re.DOTALL)
_VERDICT = re.compile(r":\s*True\s*$")


def number_of(name: str) -> str:
    """A lesson's number, such as "01" for 01_profiling.ipynb, or "" if its file name has none."""
    match = re.match(r"\d\d(?=_)", name)
    return match[0] if match else ""


def problems(notebook: NotebookNode, name: str) -> list[str]:
    """One sentence for each limit that a lesson exceeds and each rule that it breaks.

    Args:
        notebook: The lesson.
        name: The name of its file.
    """
    number = number_of(name)
    found = [*_of_cells(notebook, number), *_of_lesson(notebook, number)]
    found += questions.problems(notebook, _limit(number, "guesses"))
    return [f"{name}: {sentence}" for sentence in [*found, *verdicts(notebook)]]


def of_lab(notebook: NotebookNode, filename: str) -> list[str]:
    """The same for a lab, which has no limits on its length."""
    found = [*questions.problems(notebook, STANDARD.guesses), *verdicts(notebook)]
    return [f"{filename}: {sentence}" for sentence in found]


def _limit(number: str, name: str) -> float:
    """A limit of a lesson."""
    return getattr(LESSONS.get(number, STANDARD), name)


def n_lines(source: str) -> int:
    """The number of lines that are not blank."""
    return sum(bool(line.strip()) for line in source.splitlines())


def _of_cells(notebook: NotebookNode, number: str) -> Iterator[str]:
    """Sentences for cells that are too long."""
    since_code = 0
    for cell in notebook.cells:
        if cell.cell_type == "code":
            since_code = 0
            long_allowed = WHOLE_CALL in tags(cell) or "@triton.jit" in cell.source or is_cuda(cell.source)
            most = _limit(number, "whole_lines" if long_allowed else "cell_lines")
            if HIDDEN not in tags(cell) and n_lines(cell.source) > most:
                hint = (
                    "" if long_allowed else f" ({STANDARD.whole_lines} with a kernel or the tag {WHOLE_CALL})"
                )
                yield f"cell {cell.id} has {n_lines(cell.source)} lines of code; the limit is {most:g}{hint}."
        elif cell.cell_type == "markdown" and not cell.id.startswith("readings"):
            n_words = markdown_words(_DETAILS.sub("", cell.source))
            before, since_code = since_code, since_code + n_words
            if n_words > (most := _limit(number, "cell_words")):
                yield f"cell {cell.id} has {n_words} words; the limit is {most:g}."
            if before and since_code > (most := _limit(number, "words_between")):
                yield f"cell {cell.id} is the end of {since_code} words without code; the limit is {most:g}."


def _of_lesson(notebook: NotebookNode, number: str) -> Iterator[str]:
    """Sentences for the lesson as a whole."""
    first = [cell.id for cell in notebook.cells[: len(FIRST_CELLS)]]
    if first != FIRST_CELLS:
        yield f"the first cells are {', '.join(first)}; they must be {', '.join(FIRST_CELLS)}."
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    folded = sum(n_lines(cell.source) for cell in code if HIDDEN in tags(cell))
    visible = [cell for cell in code if HIDDEN not in tags(cell)]
    n_visible = sum(n_lines(cell.source) for cell in visible if "setup" not in tags(cell))
    if n_visible > (most := _limit(number, "lines")):
        yield f"the lesson has {n_visible} lines of visible code; the limit is {most:g}."
    if folded > (most := _limit(number, "folded_share")) * n_visible:
        yield (
            f"the lesson has {folded} folded lines of code, {folded / max(n_visible, 1):.0%} of the visible "
            f"ones; the limit is {most:.0%}."
        )
    read = [c for c in visible if "setup" not in tags(c) and not questions.only_asks(c.source)]
    if read and (median := statistics.median(n_lines(c.source) for c in read)) > (
        most := _limit(number, "median_lines")
    ):
        yield f"the median code cell has {median:g} lines; the limit is {most:g}."
    if (n_words := lesson_words(notebook)) > (most := _limit(number, "words")):
        yield f"the lesson has {n_words:,} words; the limit is {most:,.0f}."


def lesson_words(notebook: NotebookNode) -> int:
    """The number of words that a learner reads; a folded cell only counts with what it may print."""
    total = 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and not cell.id.startswith("readings"):
            total += markdown_words(cell.source)
        elif cell.cell_type == "code" and "setup" not in tags(cell):
            total += string_words(cell.source)
            total += 0 if HIDDEN in tags(cell) else comment_words(cell.source)
    return total


def verdicts(notebook: NotebookNode) -> Iterator[str]:
    """One sentence for each checked cell that prints that something is true, which belongs into an assert."""
    for cell in notebook.cells:
        if cell.cell_type != "code" or CHECKED not in tags(cell):
            continue
        for output in cell.outputs:
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            line = next((line for line in text.splitlines() if _VERDICT.search(line)), None)
            if line is not None:
                yield (
                    f"checked cell {cell.id} prints {line.strip()!r}; use an assert, or print something that "
                    "the learner wants to know."
                )

"""How long a lesson takes a reader, computed from an executed notebook.

A reader meets prose at 180 words per minute (folded text and `because=` included), displayed output at 400,
and visible code at 12 lines per minute. A question takes one minute, or two if its answer is a number to
compute, a figure 45 seconds, a "Try it" three minutes, an exercise five, and the cells run as long as they
ran. Readers of the second edition's ten lessons needed 0.96 to 1.43 times what this formula gives, 1.13 times
on average; without the "Try it" 1.45 times. Two readers each of lessons 11 to 13, who weren't told it, needed
0.85 to 1.2 times.

`notebooks/minutes.json` stores the minutes of each part, rounded to 5, and `workbook form` writes them into
the lessons' titles.

A section belongs to the part whose letter its heading begins with ("## A1. …"). Sections under a heading that
begins with "Optional" belong to no part. A heading without a letter changes nothing, so a lesson without
lettered headings has one part, called "".
"""

from __future__ import annotations

import ast
import html
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from workbook.form.canonical import HIDDEN, tags
from workbook.form.exercises import TAG
from workbook.form.source import comment_words, markdown_words, only_questions, question_call, tree, words

OPTIONAL = "optional"
_HEADING = re.compile(r"^## (?:(?P<part>[A-Z])\d+\b|(?P<optional>Optional)\b)", re.MULTILINE)
# Calls that measure, replay or draw; the rest of a lesson's code is its subject.
_MEASURES = re.compile(r"\b(?:timing|records|plots|widgets|trace|pd|px|go|fig|display)\b[.(]")


@dataclass(frozen=True)
class Part:
    """What a reader meets in one part of a lesson.

    Attributes:
        name: "A", "B", "" for the only part, or "optional".
        cells: Cells, text and code.
        prose_words: Words of text, of explanations that appear with an answer, and of visible comments.
        output_words: Words that visible outputs print.
        code_lines: Lines of visible code, without the setup.
        measuring_lines: How many of them measure or draw.
        questions: Predictions.
        computed: How many of them ask for a number that follows from the text.
        figures: Plotly figures, pictures and widgets.
        tries: Invitations to change a cell and run it again.
        exercises: Exercises to write.
        run_s: Seconds that the cells ran.
    """

    name: str
    cells: int = 0
    prose_words: int = 0
    output_words: int = 0
    code_lines: int = 0
    measuring_lines: int = 0
    questions: int = 0
    computed: int = 0
    figures: int = 0
    tries: int = 0
    exercises: int = 0
    run_s: float = 0.0

    @property
    def minutes(self) -> float:
        """The minutes that a reader needs."""
        reading = self.prose_words / 180 + self.output_words / 400 + self.code_lines / 12
        doing = self.questions + self.computed + 0.75 * self.figures + 3 * self.tries + 5 * self.exercises
        return reading + doing + self.run_s / 60

    @property
    def rounded(self) -> int:
        """The minutes, rounded to 5."""
        return max(5, 5 * round(self.minutes / 5))


def parts(notebook: NotebookNode) -> list[Part]:
    """What a reader meets in each part of an executed lesson, in order."""
    found: dict[str, Part] = {}
    for name, cell in _by_part(notebook.cells):
        before = found.get(name, Part(name))
        met = _met(cell)
        names = [field.name for field in fields(Part) if field.name not in ("name", "cells")]
        added = {field: getattr(before, field) + met.get(field, 0) for field in names}
        found[name] = Part(name=name, cells=before.cells + 1, **added)
    return list(found.values())


def _by_part(cells: Iterable[NotebookNode]) -> Iterator[tuple[str, NotebookNode]]:
    """Each cell with its part; what precedes the first section belongs to the first part."""
    cells = list(cells)
    headings = [_heading(cell) for cell in cells]
    now = next((name for name in headings if name not in (None, OPTIONAL)), "")
    for cell, name in zip(cells, headings, strict=True):
        now = now if name is None else name
        yield now, cell


def _heading(cell: NotebookNode) -> str | None:
    """The part that begins with this cell, or None if it continues the part before."""
    match = _HEADING.search(cell.source) if cell.cell_type == "markdown" else None
    if match is None:
        return None
    return OPTIONAL if match["optional"] else match["part"]


def _met(cell: NotebookNode) -> dict[str, float]:
    """What a reader meets in one cell."""
    if cell.cell_type != "code":
        return {"prose_words": markdown_words(cell.source), "tries": cell.source.count("**Try it")}
    met: dict[str, float] = {"run_s": cell.metadata.get("papermill", {}).get("duration") or 0}
    if "setup" in tags(cell):
        return met
    visible = HIDDEN not in tags(cell) and not only_questions(cell.source)
    body = tree(cell.source)
    calls = [node for node in ast.walk(body) if question_call(node)]
    met["questions"] = sum(question_call(call) == "ask" for call in calls)
    met["computed"] = sum(question_call(call) == "ask" and _is_computed(call) for call in calls)
    met["prose_words"] = sum(words(text) for call in calls for text in _texts(call))
    met["exercises"] = TAG in tags(cell)
    if visible:
        lines = [line for line in cell.source.splitlines() if line.strip()]
        met["code_lines"] = len(lines)
        met["measuring_lines"] = sum(_n_lines(node) for node in body.body if _measures(node))
        met["prose_words"] += comment_words(cell.source)
    if not calls:  # what a question shows is counted with its call
        for output in cell.get("outputs", []):
            n_words, figure = _shown(output)
            met["output_words"] = met.get("output_words", 0) + n_words
            met["figures"] = met.get("figures", 0) + figure
    return met


def _is_computed(ask: ast.Call) -> bool:
    """Whether a question asks for a number that isn't measured."""
    names = {keyword.arg for keyword in ask.keywords}
    return "unit" in names and "measured" not in names


def _texts(call: ast.Call) -> Iterator[str]:
    """The strings of a question or an answer that a learner reads."""
    for node in [*call.args[1:], *(keyword.value for keyword in call.keywords)]:
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value


def _n_lines(node: ast.stmt) -> int:
    return node.end_lineno - node.lineno + 1


def _measures(node: ast.stmt) -> bool:
    """Whether a statement measures or draws; a function that is defined does so if any of its lines does."""
    return not isinstance(node, ast.Import | ast.ImportFrom) and bool(_MEASURES.search(ast.unparse(node)))


def _shown(output: NotebookNode) -> tuple[int, bool]:
    """The words of an output, and whether it is a figure."""
    if output.output_type == "stream":
        return words(output.text), False
    data = output.get("data", {})
    figures = ("application/vnd.plotly.v1+json", "application/vnd.jupyter.widget-view+json")
    if any(kind in data for kind in figures) or any(kind.startswith("image/") for kind in data):
        return 0, True
    if page := data.get("text/html"):
        if "<svg" in page or "kx-packed" in page:
            return 0, True
        page = re.sub(r"<(style|script)\b.*?</\1>", " ", page, flags=re.DOTALL)
        return words(html.unescape(re.sub(r"<[^>]+>", " ", page))), False
    return words(data.get("text/markdown") or data.get("text/plain", "")), False


def read(folder: Path) -> dict[str, list[Part]]:
    """The parts of every lesson that `workbook run` wrote into a folder.

    Raises:
        ValueError: The folder has no executed notebook.
    """
    found = {
        path.stem: parts(nbformat.read(path, as_version=4)) for path in sorted(folder.glob("[0-9]*.ipynb"))
    }
    if not found:
        raise ValueError(f"{folder} has no executed lesson; run `workbook run notebooks --out {folder}`.")
    return found


def rounded(lessons: dict[str, list[Part]]) -> dict[str, dict[str, int]]:
    """What minutes.json stores: for each lesson the minutes of its parts."""
    return {
        name: {part.name: part.rounded for part in found if part.name != OPTIONAL}
        for name, found in lessons.items()
    }


def text(minutes: dict[str, dict[str, int]]) -> str:
    """The text of minutes.json."""
    return json.dumps(minutes, indent=1, sort_keys=True) + "\n"


def table(lessons: dict[str, list[Part]]) -> str:
    """What every part has, one line each, for a terminal."""
    head = ["lesson", "part", *(f.name for f in fields(Part) if f.name != "name"), "minutes"]
    rows = []
    for name, found in lessons.items():
        for part in found:
            values = [f"{v:.0f}" if isinstance(v, float) else str(v) for v in asdict(part).values()]
            rows.append([name, *values, f"{part.minutes:.0f}"])
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in (head, *rows)]
    return "\n".join(lines)

"""The page of headline figures: what the executed lessons showed with `records.headline`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

from nbformat import NotebookNode

from helpers import records
from workbook.book.course import Entry, cell_link

_INTRODUCTION = """\
# Headline figures

The main results of the lessons, each with the GPU and the day of its measurement.

| Lesson | What was measured | Figure | GPU | Day |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Headline:
    """One headline figure.

    Attributes:
        cell: The cell that shows it, "01_profiling/bandwidths".
        label, value: What was measured, and the figure with its unit.
        mode: "replayed" or "live".
        gpu, day: Where and when it was measured.
        nearest: The parameters of the recorded case, if the lesson asked for others; otherwise "".
    """

    cell: str
    label: str
    value: str
    mode: str
    gpu: str
    day: str
    nearest: str


def headlines(lesson: str, notebook: NotebookNode) -> Iterator[Headline]:
    """The headline figures of an executed lesson, in reading order."""
    days: dict[str, str] = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if origin := data.get(records.PROVENANCE_MIME):
                days[origin["record"]] = origin["date"]
            if headline := data.get(records.HEADLINE_MIME):
                mode, _, gpu = headline["source"].partition(", ")
                yield Headline(
                    f"{lesson}/{cell['id']}",
                    headline["label"],
                    headline["value"],
                    mode,
                    gpu,
                    days[headline["record"]],
                    headline.get("nearest", ""),
                )


def page(lessons: dict[str, Entry]) -> str:
    """The page as Markdown; "" if the lessons show no headline figure."""
    rows = [_row(one) for stem, entry in lessons.items() for one in headlines(stem, entry.notebook)]
    return _INTRODUCTION + "".join(rows) if rows else ""


def _row(one: Headline) -> str:
    label = one.label + (f" (recorded at {one.nearest})" if one.nearest else "")
    gpu = one.gpu if one.mode == "replayed" else f"{one.gpu}, measured in this run"
    day = f'<span class="kw-day">{one.day}</span>'
    return (
        f"| {cell_link(one.cell)} | {_literal(label)} | {_literal(one.value)} | {_literal(gpu)} | {day} |\n"
    )


def _literal(text: str) -> str:
    """Plain text in a cell of a Markdown table."""
    return re.sub(r"([\\|*_`\[\]])", r"\\\1", html.escape(text, quote=False))

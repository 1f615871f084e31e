"""The page of headline figures: what each lesson shows with `records.headline`, with GPU and day, as it was executed."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat

from helpers import records
from helpers.workshop.book import places

EXECUTED = "build/course"  # where `make run` puts the executed lessons


@dataclass(frozen=True)
class Headline:
    """One headline figure.

    Attributes:
        lesson, cell: the cell that shows it.
        label, value: what was measured, and the figure with its unit.
        mode: "replayed" or "live".
        gpu: the GPU that it was measured on.
        day: when, as "2026-11-22".
        nearest: the parameters of the recorded case where others were asked for; or "".
    """

    lesson: str
    cell: str
    label: str
    value: str
    mode: str
    gpu: str
    day: str
    nearest: str


def headlines(executed: Path) -> Iterator[Headline]:
    """The headline figures of all executed lessons in a folder, in reading order.

    Raises:
        ValueError: a headline does not say which record it was computed from, as with an older workbook, and the lesson's
            records are of several days.
    """
    for path in sorted(executed.glob("[0-9][0-9]_*.ipynb")):
        days: dict[str, str] = {}
        for cell in nbformat.read(path, as_version=4).cells:
            for output in cell.get("outputs", []):
                data = output.get("data", {})
                if origin := data.get(records.PROVENANCE_MIME):
                    days[origin["record"]] = origin["date"]
                if shown := data.get(records.HEADLINE_MIME):
                    mode, _, gpu = shown["source"].partition(", ")
                    day = days.get(shown.get("record")) or _only(days.values())
                    if day is None:
                        raise ValueError(
                            f"{path}: headline {shown['label']!r} does not say which record it was computed from: execute the "
                            "lesson again with `make run`."
                        )
                    nearest = shown.get("nearest", "")
                    yield Headline(
                        path.stem, cell["id"], shown["label"], shown["value"], mode, gpu, day, nearest
                    )


def _only(days: Iterable[str]) -> str | None:
    """The one day on which everything that a lesson showed was measured; None where there are several."""
    found = set(days)
    return found.pop() if len(found) == 1 else None


def pages(root: Path, executed: Path | None = None) -> dict[str, str]:
    """The page of headline figures.

    Args:
        root: the checkout.
        executed: the folder with the executed lessons; `build/course` of the checkout by default.

    Returns:
        {"headlines.md": MyST Markdown}.

    Raises:
        ValueError: there are no executed lessons, or they show no headline figure.
    """
    executed = executed or root / EXECUTED
    found = list(headlines(executed))
    if not found:
        raise ValueError(f"There are no executed lessons with figures in {executed}: run `make run` first.")
    lines = [
        "# Headline figures",
        "",
        "The figures that the lessons came to, each with the GPU and the day of its measurement.",
        "",
        "| Lesson | What was measured | Figure | GPU | Day |",
        "|---|---|---|---|---|",
    ]
    for one in found:
        where = places.link(root, one.lesson, one.cell, one.lesson[:2])
        label = _cell(one.label) + (f" (recorded at {_cell(one.nearest)})" if one.nearest else "")
        gpu = _cell(one.gpu) + ("" if one.mode == "replayed" else ", measured in this run")
        day = f'<span class="kw-day">{one.day}</span>'
        lines.append(f"| {where} | {label} | {_cell(one.value)} | {gpu} | {day} |")
    return {"headlines.md": "\n".join([*lines, ""])}


def _cell(text: str) -> str:
    """Plain text in a cell of a Markdown table."""
    escaped = html.escape(text, quote=False)
    for mark in "\\|*_`[]":
        escaped = escaped.replace(mark, f"\\{mark}")
    return escaped

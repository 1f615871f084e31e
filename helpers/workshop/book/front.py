"""The book's first page: a slider over recorded kernels, the lessons as a map, and how to run them."""

from __future__ import annotations

import contextlib
import html
import io
import json
import re
from typing import Any
from urllib.parse import quote

from helpers.workshop.book.cells import Shelf
from helpers.workshop.book.course import Entry, colab
from helpers.workshop.project import UNPUBLISHED, Project

_LEAD = (
    "Profile a GPU kernel, write it in CUDA C++ and in Triton, read the PTX and SASS it becomes, and let the hardware's "
    "counters say what to do next: in Jupyter, with a GPU or without."
)
_QUESTION = "Five kernels square the same matrix. Which one is fastest, and where does one break?"

# The lesson whose sweep it is.
_LESSON = "03_triton"


def front(shelf: Shelf, data: dict[str, Any]) -> str:
    """The first page's Markdown, without its lists of pages.

    Args:
        shelf: The book's lessons and labs.
        data: What `kernels` gives.
    """
    core = [entry for entry in shelf.lessons.values() if not entry.deeper]
    deeper = [entry for entry in shelf.lessons.values() if entry.deeper]
    parts = [
        f'<p class="kw-lead">{html.escape(_LEAD)}</p>',
        _kernels_html(data, shelf),
        _run_it(shelf.project),
    ]
    parts.append("<h2>The lessons</h2>")
    parts.append(_map(core, shelf))
    if deeper:
        parts += ["<h2>Deeper, in any order</h2>", _map(deeper, shelf)]
    body = "\n".join(parts)
    return f"---\nhtml_theme.sidebar_secondary.remove: true\n---\n\n# Kernel Workbook\n\n````{{raw}} html\n{body}\n````\n"


def kernels() -> dict[str, Any]:
    """The recorded sweep of lesson 03 for the first page's slider, whose kernels' texts are still those measured.

    Returns:
        `axes`, `kernels` (each with its colour, whether it has all axes, and its values in the axes' order: GB/s, or the
        number of a reason), `reasons`, `start`, `copy` (GB/s), and `note`, where it was measured; empty where no record
        is of today's kernels.
    """
    from helpers import records
    from helpers.widgets.figure import colour
    from helpers.widgets.square import LAUNCH
    from helpers.widgets.table import load

    with contextlib.redirect_stdout(io.StringIO()):  # without a notebook a record's provenance is printed
        try:
            table = load(LAUNCH, replay=True)
        except records.NoRecord:
            return {}
    if not table.rows:
        return {}
    reasons: list[str] = []
    shown: dict[str, dict[str, Any]] = {}
    for kernel, point in LAUNCH.points():
        row = table.row(kernel, point)
        made = shown.setdefault(
            kernel, {"colour": colour(LAUNCH, kernel), "all": kernel in LAUNCH.mapped, "values": {}}
        )
        axes = LAUNCH.axes if made["all"] else ("n_cols", "dtype")
        key = "|".join(str(point[axis]) for axis in axes)
        speed = table.value(row)
        if speed is None:
            reason = _reason(row)
            if reason not in reasons:
                reasons.append(reason)
            made["values"][key] = f"r{reasons.index(reason)}"
        else:
            made["values"][key] = round(speed)
    return {
        "axes": {axis: list(values) for axis, values in LAUNCH.axes.items()},
        "kernels": shown,
        "reasons": reasons,
        "start": dict(LAUNCH.start),
        "copy": round(table.spec.copy_gb_per_s or 0),
        "note": table.note,
    }


def _kernels_html(data: dict[str, Any], shelf: Shelf) -> str:
    """Bars under sliders; they move without a network and without plotly.js."""
    if not data:
        return ""
    start = data["start"]
    names = {
        "n_cols": "Columns of the matrix (4,096 rows)",
        "block_size": "BLOCK_SIZE, elements a Triton program",
        "num_warps": "num_warps, warps a Triton program",
    }
    sliders = "".join(_slider(axis, name, data["axes"][axis], start[axis]) for axis, name in names.items())
    choices = "".join(
        f'<label><input type="radio" name="kw-dtype" value="{dtype}"{" checked" if dtype == start["dtype"] else ""}> {dtype}</label>'
        for dtype in data["axes"]["dtype"]
    )
    bars = "".join(
        f'<li data-kernel="{html.escape(name, quote=True)}"><span class="kw-name">{html.escape(name)}</span>'
        f'<span class="kw-bar"><span style="background:{made["colour"]}"></span></span><span class="kw-value"></span></li>'
        for name, made in data["kernels"].items()
    )
    copied = f"The line is a copy of the same bytes, {data['copy']:,} GB/s. " if data["copy"] else ""
    lesson = shelf.lessons.get(_LESSON)
    why = f'<a href="{quote(lesson.page)}">Lesson {lesson.name[:2]}</a> says why.' if lesson else ""
    note = html.escape(f"{data['note'][0].upper()}{data['note'][1:]}.")
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    return (
        f'<section class="kw-hero" aria-labelledby="kw-hero-title"><h2 id="kw-hero-title">{html.escape(_QUESTION)}</h2>'
        f'<div class="kw-controls">{sliders}<fieldset><legend>dtype</legend>{choices}</fieldset></div>'
        f'<ul class="kw-bars" aria-label="Effective bandwidth of each kernel">{bars}</ul><p role="status" class="kw-says"></p>'
        f'<p class="kw-note">Effective bandwidth: bytes read and written, over time. {copied}{note} '
        f"{why}</p>"
        f'<script type="application/json" class="kw-kernels">{text}</script></section>'
    )


def _slider(axis: str, name: str, values: list[int], start: int) -> str:
    at = values.index(start)
    labels = html.escape(json.dumps([f"{value:,}" for value in values]), quote=True)
    return (
        f'<label><span>{html.escape(name)}: <output>{start:,}</output></span><input type="range" min="0" '
        f'max="{len(values) - 1}" step="1" value="{at}" data-axis="{axis}" data-labels="{labels}" '
        f'aria-valuetext="{start:,}"></label>'
    )


def _reason(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not measured"
    if row["verdict"] == "wrong":
        return "wrong result, so it gets no time"
    return str(row.get("reason") or row["verdict"])


def _run_it(project: Project) -> str:
    address = f"https://github.com/{project.repository}"
    folder = project.repository.split("/")[1]
    lines = f"git clone {address} && cd {folder}\nmake lab    # sets everything up, then opens the first lesson in JupyterLab"
    where = (
        f'Or open a lesson in Colab, by its link below. The source is at <a href="{address}">{html.escape(project.repository)}</a>.'
        if project.repository != UNPUBLISHED
        else "OWNER/REPO stands for the repository until it is published; from then on each lesson also opens in Colab."
    )
    return (
        "<h2>Run it here: two commands</h2>"
        f'<div class="highlight"><pre tabindex="0">{html.escape(lines)}</pre></div>'
        f"<p>Python 3.11 or newer and a C++ compiler are enough. {where}</p>"
    )


def _map(entries: list[Entry], shelf: Shelf) -> str:
    """The lessons as a list of cards: number, minutes, what each answers, its lab and Colab."""
    cards = []
    for entry in entries:
        number, _, name = entry.name.partition(" ")
        links = []
        if lab := shelf.labs.get(entry.stem):
            minutes = f", {lab.minutes} min" if lab.minutes else ""
            links.append(f'<a href="{quote(lab.page)}">Lab {html.escape(lab.name[:2])}{minutes}</a>')
        if address := colab(shelf.project, entry):
            links.append(
                f'<a href="{html.escape(address)}">Open in Colab<span class="kw-hidden">: {html.escape(entry.name)}</span></a>'
            )
        minutes = f'<span class="kw-minutes">{entry.minutes} min</span>' if entry.minutes else ""
        cards.append(
            f'<li><p class="kw-card-title"><a href="{quote(entry.page)}"><span>{html.escape(number)}</span> {html.escape(name)}</a>'
            f"{minutes}</p><p>{_line(entry.says)}</p>"
            + (f'<p class="kw-links">{" · ".join(links)}</p>' if links else "")
            + "</li>"
        )
    return f'<ol class="kw-map">{"".join(cards)}</ol>'


def _line(text: str) -> str:
    """A line of README's table as HTML: code and links' words."""
    text = html.escape(re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text))
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)

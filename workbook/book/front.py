"""The book's first page: `docs/book/index.md`, filled in with the lessons and the recorded kernels."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from workbook.book.course import SOURCES, Course

_TEMPLATES = Path(__file__).parent / "templates"


def front(course: Course, look_up: list[str]) -> str:
    """The first page as Markdown.

    Args:
        course: The lessons, labs and guide pages to list.
        look_up: The names of the other pages in the sidebar.
    """
    import jinja2

    root = course.project.root
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([root / SOURCES, _TEMPLATES]),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {}  # the axes keep their order
    return environment.get_template("index.md").render(
        kernels=kernels(),
        lessons=list(course.lessons.values()),
        stems=list(course.lessons),
        labs=course.labs,
        guide=[_listed_page(path) for path in course.guide],
        look_up=look_up,
        published=course.project.published,
        repository=course.project.repository,
    )


def _listed_page(path: str) -> str:
    """A guide page's line in a toctree."""
    page = path.removesuffix(".md")
    return f"Overview <{page}>" if page.endswith("/index") else page


def kernels() -> dict[str, Any]:
    """The sweep of lesson 03 for the slider, from the records of today's kernels.

    Returns:
        `axes`; `kernels`, each with its color, whether it has all axes, and its values in the order of the
        axes: GB/s, or "r" with the number of a reason; `reasons`; `start`; `copy` in GB/s; and `note`, which
        says where it was measured. Empty if there is no record of today's kernels.
    """
    from helpers import records
    from helpers.widgets.square import LAUNCH
    from helpers.widgets.table import load

    with contextlib.redirect_stdout(io.StringIO()):  # outside a notebook, replaying prints the provenance
        try:
            table = load(LAUNCH, replay=True)
        except records.NoRecord:
            return {}
    if not table.rows:
        return {}
    reasons: list[str] = []
    return {
        "axes": {axis: list(values) for axis, values in LAUNCH.axes.items()},
        "kernels": _values(table, reasons),
        "reasons": reasons,
        "start": dict(LAUNCH.start),
        "copy": round(table.spec.copy_gb_per_s or 0),
        "note": table.note,
    }


def _values(table: Any, reasons: list[str]) -> dict[str, dict[str, Any]]:
    """By kernel: its color, whether it has all axes, and its values.

    Why a value is missing is added to `reasons`.
    """
    from helpers.widgets.figure import colour
    from helpers.widgets.square import LAUNCH

    found: dict[str, dict[str, Any]] = {}
    for kernel, point in LAUNCH.points():
        row = table.row(kernel, point)
        all_axes = kernel in LAUNCH.mapped
        one = found.setdefault(kernel, {"color": colour(LAUNCH, kernel), "all": all_axes, "values": {}})
        key = "|".join(str(point[axis]) for axis in (LAUNCH.axes if all_axes else ("n_cols", "dtype")))
        speed = table.value(row)
        if speed is not None:
            one["values"][key] = round(speed)
            continue
        if (reason := _reason(row)) not in reasons:
            reasons.append(reason)
        one["values"][key] = f"r{reasons.index(reason)}"
    return found


def _reason(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not measured"
    if row["verdict"] == "wrong":
        return "wrong result, so it gets no time"
    return str(row.get("reason") or row["verdict"])

"""The book's first page: `docs/book/index.md`, filled in with the lessons and the recorded kernels."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

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


def kernels() -> str:
    """The sliders of lesson 03 over the recorded sweeps of today's kernels; "" if there are none."""
    from helpers import records
    from helpers.widgets.shown import page_html
    from helpers.widgets.square import LAUNCH
    from helpers.widgets.table import by_gpu, load
    from helpers.widgets.view import kernels_data, still_html

    with contextlib.redirect_stdout(io.StringIO()):  # outside a notebook, replaying prints the provenance
        try:
            tables = by_gpu(load(LAUNCH, replay=True))
        except records.NoRecord:
            return ""
    table = next(iter(tables.values()))
    if not table.rows:
        return ""
    shown = (*LAUNCH.mapped, *LAUNCH.rivals)
    data = kernels_data(tables, shown, LAUNCH.start)
    return page_html(data, still_html(table, shown, LAUNCH.start))

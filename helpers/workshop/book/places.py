"""Where the pages of the book are, and the anchors in them: for links from made pages to a lesson's cell."""

from __future__ import annotations

import functools
import html
import json
from pathlib import Path
from urllib.parse import quote


@functools.lru_cache(maxsize=64)
def _read(path: Path, changed_ns: int) -> tuple[dict, ...]:
    """A notebook's cells; `changed_ns` renews what is remembered."""
    return tuple(json.loads(path.read_text("utf-8"))["cells"])


def cells(root: Path, lesson: str) -> tuple[dict, ...]:
    """The cells of a lesson, such as "03_triton", as nbformat has them, each with its `source` in one text.

    Raises:
        KeyError: there is no such lesson.
    """
    path = root / "notebooks" / f"{lesson}.ipynb"
    if not path.is_file():
        raise KeyError(f"There is no lesson {lesson!r} in {path.parent}.")
    return tuple({**cell, "source": "".join(cell["source"])} for cell in _read(path, path.stat().st_mtime_ns))


def cell(root: Path, lesson: str, name: str) -> dict:
    """One cell of a lesson.

    Raises:
        KeyError: the lesson has no cell of that name.
    """
    for one in cells(root, lesson):
        if one["id"] == name:
            return one
    raise KeyError(f"Lesson {lesson} has no cell {name!r}.")


def address(root: Path, lesson: str, name: str) -> str:
    """Where the book shows a cell, from its first page: a code cell's anchor.

    A text has none of its own: the link leads to the code cell before it, so that what follows is the text; or to the top of
    the page where there is none.

    Raises:
        KeyError: the lesson has no such cell.
    """
    anchor = ""
    for one in cells(root, lesson):
        if one["cell_type"] == "code":
            anchor = f"#cell-{one['id']}"
        if one["id"] == name:
            return f"notebooks/{quote(lesson)}.html{anchor}"
    raise KeyError(f"Lesson {lesson} has no cell {name!r}.")


def title(root: Path, lesson: str) -> str:
    """What a link to a lesson is called, "03 Triton", from its first heading or its name."""
    number, _, words = lesson.partition("_")
    for line in cells(root, lesson)[0]["source"].splitlines():
        if line.startswith("# "):
            return line.removeprefix("# ").strip()
    return f"{number} {words.replace('_', ' ')}"


def link(root: Path, lesson: str, name: str, words: str, *, up: int = 0) -> str:
    """An HTML link to a cell.

    Args:
        root: the checkout.
        lesson, name: the cell.
        words: plain text of the link.
        up: how many folders below the book's top the page with the link lies.
    """
    # HTML and not Markdown: MyST would look for a document of that name, and these are pages.
    return f'<a href="{"../" * up}{html.escape(address(root, lesson, name))}">{html.escape(words)}</a>'

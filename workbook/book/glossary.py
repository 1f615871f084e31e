"""The glossary page, and the words that lessons explain when you point at them.

`docs/book/glossary.yaml` has the terms; Sphinx's `glossary` directive makes the page and the anchors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbook.book.course import SOURCES, cell_link, read_yaml

_INTRODUCTION = """\
# Glossary

The {count} terms that the lessons set in bold, and where each is introduced.

```{{glossary}}
"""


@dataclass(frozen=True)
class Term:
    """An entry of the glossary.

    Attributes:
        term: The word as the glossary lists it.
        meaning: One sentence.
        cell: The cell that introduces it, "01_profiling/picture-says".
        also: Other words for it.
        bold: Words that are bold for it in its own lesson and mean something else in other lessons.
        not_on: Lessons in which its word means something else.
    """

    term: str
    meaning: str
    cell: str
    also: tuple[str, ...] = ()
    bold: tuple[str, ...] = ()
    not_on: tuple[str, ...] = ()

    @property
    def lesson(self) -> str:
        """The lesson that introduces it, "01_profiling"."""
        return self.cell.split("/")[0]


def read(root: Path) -> Mapping[str, Any]:
    """The content of `docs/book/glossary.yaml`; empty if the checkout has no such file."""
    return read_yaml(root / SOURCES / "glossary.yaml") or {}


def terms(root: Path) -> list[Term]:
    """All entries, in the order of the lessons."""
    lists = ("also", "bold", "not_on")
    return [
        Term(one["term"], one["meaning"], one["cell"], **{name: tuple(one.get(name, ())) for name in lists})
        for one in read(root).get("terms", ())
    ]


def page(found: list[Term]) -> str:
    """The page as Markdown: each term with its meaning and a link to the cell that introduces it."""
    entries = [
        f"{one.term}\n  {_literal(one.meaning)} {cell_link(one.cell)}\n"
        for one in sorted(found, key=lambda one: one.term.lower())
    ]
    return _INTRODUCTION.format(count=len(found)) + "\n".join(entries) + "```\n"


def _literal(text: str) -> str:
    """A sentence in Markdown: `vectorized_elementwise_kernel<4, …>` has no markup in it."""
    return text.replace("_", r"\_").replace("<", r"\<")


def words(root: Path) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """The words that pages explain, in lower case.

    Returns:
        By word: its term, the term's meaning, and the pages that don't explain it, which are the lesson that
        introduces it and the notebooks in which it means something else. The term is "" for a phrase that
        contains a term's word and means something else.
    """
    found: dict[str, tuple[str, str, tuple[str, ...]]] = {}
    for one in terms(root):
        pages_without = [f"{folder}/{lesson}" for lesson in one.not_on for folder in ("notebooks", "labs")]
        for word in (one.term, *one.also):
            found[word.lower()] = (one.term, one.meaning, (f"notebooks/{one.lesson}", *pages_without))
    return found | dict.fromkeys(read(root).get("not_in", ()), ("", "", ()))

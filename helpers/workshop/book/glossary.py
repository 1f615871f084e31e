"""The glossary: every term that the lessons set in bold, in one sentence, with the cell that introduces it.

`glossary.yaml` has the sentences; this module reads them, makes the page, and finds what the lessons set in bold.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from helpers.workshop.book import places

_FILE = Path(__file__).with_name("glossary.yaml")
_CODE = re.compile(r"(```.*?```|(?<!`)`[^`\n]+`(?!`))", re.DOTALL)
_BOLD = re.compile(r"\*\*(?=\S)([^*]+?)(?<=\S)\*\*")
_LONGEST = 4  # words of a term


@dataclass(frozen=True)
class Term:
    """An entry.

    Attributes:
        term: the word, in the form in which the glossary lists it.
        meaning: one sentence.
        lesson, cell: where it is introduced, "01_profiling" and "picture-says".
        also: other words for it.
        bold: words that stand in bold for it in its lesson, and mean something else in others.
        not_on: lessons in which its word means something else.
    """

    term: str
    meaning: str
    lesson: str
    cell: str
    also: tuple[str, ...] = ()
    bold: tuple[str, ...] = ()
    not_on: tuple[str, ...] = ()

    def names(self) -> set[str]:
        """The words that mean it in any lesson, as `plain` writes them."""
        return {plain(self.term), *map(plain, self.also)}

    def in_bold(self) -> set[str]:
        """Those that may stand in bold for it."""
        return self.names() | set(map(plain, self.bold))


@functools.cache
def entries() -> tuple[Term, ...]:
    """All entries, in the order of the lessons."""
    found = []
    for one in _data()["terms"]:
        lesson, cell = one["cell"].split("/")
        more = {name: tuple(one.get(name, ())) for name in ("also", "bold", "not_on")}
        found.append(Term(one["term"], one["is"], lesson, cell, **more))
    return tuple(found)


def no_terms() -> dict[str, str]:
    """Bold phrases that are no terms, as `plain` writes them, and why."""
    return {plain(phrase): one["why"] for one in _data()["no_terms"] for phrase in one["phrases"]}


def not_in() -> tuple[str, ...]:
    """Phrases in which a term's word means something else."""
    return tuple(_data()["not_in"])


@functools.cache
def _data() -> Mapping[str, Any]:
    return yaml.safe_load(_FILE.read_text("utf-8"))


def plain(phrase: str) -> str:
    """A bold phrase for comparison: small letters, one space, no article before it."""
    return re.sub(r"^the ", "", " ".join(phrase.lower().split()))


def bold(text: str) -> list[str]:
    """The phrases in bold in a Markdown text that can be terms: no sentences, no headings, nothing in code."""
    prose = "".join(part for i, part in enumerate(_CODE.split(text)) if not i % 2)
    return [
        phrase
        for phrase in _BOLD.findall(prose)
        if phrase[-1] not in ".:?!" and len(phrase.split()) <= _LONGEST
    ]


def set_in_bold(root: Path) -> Iterator[tuple[str, str, str]]:
    """Each bold phrase of the lessons that can be a term: (lesson, cell, phrase), in reading order."""
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        for cell in places.cells(root, path.stem):
            if cell["cell_type"] == "markdown":
                for phrase in bold(cell["source"]):
                    yield path.stem, cell["id"], phrase


def term_id(term: str) -> str:
    """A term's anchor on the page."""
    return "term-" + re.sub(r"[^\w]+", "-", term.lower()).strip("-")


def pages(root: Path) -> dict[str, str]:
    """The glossary's page.

    Args:
        root: the checkout.

    Returns:
        {"glossary.md": MyST Markdown}: the terms by letter, each a definition with an anchor `term_id(term)`.

    Raises:
        KeyError: an entry names a cell that its lesson does not have.
    """
    lines = [
        "# Glossary",
        "",
        f"{len(entries())} terms that the lessons set in bold, and where each is introduced.",
        "",
    ]
    for one in sorted(entries(), key=lambda one: one.term.lower()):
        where = places.link(root, one.lesson, one.cell, f"Lesson {one.lesson[:2]}")
        lines += [
            f'<span id="{term_id(one.term)}"></span>**{html.escape(one.term)}**',
            f": {_prose(one.meaning)} {where}",
            "",
        ]
    return {"glossary.md": "\n".join(lines)}


def _prose(sentence: str) -> str:
    """A sentence as Markdown: what looks like markup in it is meant as it stands."""
    return re.sub(r"([<>*_`\[\]])", r"\\\1", sentence)

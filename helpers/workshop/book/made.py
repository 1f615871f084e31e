"""The pages that are made from the checkout, by the sidebar's headings, and the terms that all pages explain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from helpers.workshop.book import glossary, headlines, mistakes, reference


@dataclass(frozen=True)
class Made:
    """Pages beside the notebooks'.

    Attributes:
        pages: By heading, file name to MyST Markdown.
        terms: What the glossary explains, each entry with all its words.
    """

    pages: Mapping[str, Mapping[str, str]]
    terms: tuple[glossary.Term, ...] = ()


def of_course(root: Path, executed: Path) -> Made:
    """Those of the workbook's own lessons.

    Raises:
        KeyError: an entry of the glossary or of the mistakes names a cell that its lesson does not have.
    """
    look_up = {**glossary.pages(root), **mistakes.pages(root)}
    if any(True for _ in headlines.headlines(executed)):  # lessons that were never executed show none
        look_up |= headlines.pages(root, executed)
    return Made({"Look up": look_up, "Reference": reference.pages(root)}, glossary.entries())

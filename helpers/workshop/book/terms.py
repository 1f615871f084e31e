"""The glossary's terms, as the pages need them: their meanings for pointing, their places, and how they stand in a text."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Mapping

GLOSSARY = "glossary"


def known() -> dict[str, tuple[str, str]]:
    """Each term with its meaning and the lesson that explains it, such as "03_triton"."""
    name = f"helpers.workshop.book.{GLOSSARY}"
    return dict(importlib.import_module(name).TERMS) if importlib.util.find_spec(name) else {}


def term_id(term: str) -> str:
    """A term's place on the glossary's page."""
    return "term-" + re.sub(r"[^\w]+", "-", term.lower()).strip("-")


def pattern(terms: Mapping[str, object]) -> re.Pattern:
    """Finds any of the terms as a word, in the singular and the plural; longer ones first."""
    words = "|".join(re.escape(term) for term in sorted(terms, key=len, reverse=True))
    return re.compile(rf"(?<![\w-])({words})(?:s|es)?(?![\w-])", re.IGNORECASE)

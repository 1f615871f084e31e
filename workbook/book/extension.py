"""What the book adds to Sphinx: lexers, an anchor for each cell, and explained terms.

A term gets a link to the glossary where another lesson than its own uses it, once per section.
`assets/book.js` shows its meaning when you point at it or focus it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from docutils import nodes

from helpers.cuda.highlight import CudaCpp, InPython
from workbook.book.lexers import SassLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# Inside these nodes a word is a name, a link or a title, so it is not explained.
_NOT_IN = (
    nodes.literal,
    nodes.literal_block,
    nodes.reference,
    nodes.title,
    nodes.raw,
    nodes.math,
    nodes.comment,
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.add_config_value("kw_words", {}, "env")
    app.add_lexer("ipython3", InPython)
    app.add_lexer("cuda", CudaCpp)
    app.add_lexer("sass", SassLexer)
    app.connect("autodoc-process-docstring", _restore_property, priority=600)
    app.connect("doctree-read", _add_anchors)
    app.connect("doctree-resolved", _explain_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _restore_property(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Undo what Napoleon does to a property, whose first words up to a colon it takes for a type."""
    if what == "property":
        lines[:] = [*(inspect.getdoc(obj) or "").splitlines(), ""]


def _add_anchors(app: Sphinx, doctree: nodes.document) -> None:
    """Give code cells their anchors, and let Markdown links to `#cell-id=NAME` find them.

    The text cells below a code cell share its anchor.
    """
    anchors = app.env.metadata[app.env.docname].setdefault("myst_slugs", {})
    for cell in doctree.findall(nodes.container):
        if cell.get("nb_element") == "cell_code":
            names = cell["cell_metadata"].get("kw_cells", [])
            for name in names:
                anchors[f"cell-id={name}"] = (0, f"cell-{names[0]}", "")
            cell["ids"] += [f"cell-{name}" for name in names[:1]]


def _explain_terms(app: Sphinx, doctree: nodes.document, page: str) -> None:
    if not page.startswith(("notebooks/", "labs/")) or not app.config.kw_words:
        return
    marker = Marker(app, page)
    done: dict[int, set[str]] = {}
    for text in [one for one in doctree.findall(nodes.Text) if _in_prose(one)]:
        made = list(marker.split(text.astext(), done.setdefault(id(_section(text)), set())))
        if any(not isinstance(one, nodes.Text) for one in made):
            text.parent.replace(text, made)


class Marker:
    """Finds the terms that one page explains."""

    def __init__(self, app: Sphinx, page: str) -> None:
        self.app, self.page = app, page
        self.words: Mapping[str, tuple[str, str, tuple[str, ...]]] = app.config.kw_words
        # Longer words come first. Words that this page doesn't explain are found too, so that no shorter
        # term is found inside them.
        any_word = "|".join(re.escape(word) for word in sorted(self.words, key=len, reverse=True))
        self.pattern = re.compile(rf"(?<![\w-])({any_word})(?:s|es)?(?![\w-])", re.IGNORECASE)

    def split(self, text: str, done: set[str]) -> Iterator[nodes.Node]:
        """A text as nodes, with a link for each term that is not in `done` yet; adds those to it."""
        start = 0
        for match in self.pattern.finditer(text):
            term, meaning, not_on = self.words[match[1].lower()]
            if not term or term in done or self.page in not_on:
                continue
            done.add(term)
            if match.start() > start:
                yield nodes.Text(text[start : match.start()])
            yield self._link(term, meaning, match[0])
            start = match.end()
        if start < len(text):
            yield nodes.Text(text[start:])

    def _link(self, term: str, meaning: str, word: str) -> nodes.reference:
        page, anchor = self.app.env.get_domain("std").objects["term", term]
        uri = f"{self.app.builder.get_relative_uri(self.page, page)}#{anchor}"
        return nodes.reference("", word, refuri=uri, internal=True, reftitle=meaning, classes=["kw-term"])


def _in_prose(text: nodes.Text) -> bool:
    node, inside = text.parent, False
    while node is not None:
        if isinstance(node, _NOT_IN) or (isinstance(node, nodes.container) and node.get("nb_element")):
            return False
        inside = inside or isinstance(node, nodes.paragraph)
        node = node.parent
    return inside


def _section(text: nodes.Node) -> nodes.Node | None:
    node = text.parent
    while node is not None and not isinstance(node, nodes.section):
        node = node.parent
    return node

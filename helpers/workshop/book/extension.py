"""What the book adds to Sphinx, as an extension of it: lexers, an anchor for each cell, and the glossary's terms.

A term is marked where another lesson than its own uses it, once a section; `assets/book.js` shows its meaning on
pointing and on focus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from docutils import nodes

from helpers.cuda.highlight import CudaCpp, InPython
from helpers.workshop.book.cells import anchor
from helpers.workshop.book.glossary import term_id
from helpers.workshop.book.lexers import SassLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

GLOSSARY = "glossary"
# Where a word is a name, a link or a title, it is not explained.
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
    """Sphinx's entry."""
    app.add_config_value("kw_terms", {}, "env")
    app.add_lexer("ipython3", InPython)
    app.add_lexer("cuda", CudaCpp)
    app.add_lexer("sass", SassLexer)
    app.connect("doctree-read", _anchor_cells)
    app.connect("doctree-resolved", _mark_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _anchor_cells(app: Sphinx, doctree: nodes.document) -> None:
    for cell in doctree.findall(lambda node: isinstance(node, nodes.container)):
        if cell.get("nb_element") == "cell_code" and (name := cell.get("cell_metadata", {}).get("kw_cell")):
            cell["ids"].append(anchor(name))


def _mark_terms(app: Sphinx, doctree: nodes.document, page: str) -> None:
    words: Mapping[str, tuple[str, tuple[str, ...]]] = app.config.kw_terms
    if not page.startswith(("notebooks/", "labs/")) or GLOSSARY not in app.env.found_docs:
        return
    # What is not marked here is found all the same, so that no shorter term is found in it.
    terms = {word: "" if page in plain else term for word, (term, plain) in words.items()}
    if not any(terms.values()):
        return
    found = _pattern(terms)
    marked: dict[int, set[str]] = {}
    for text in [one for one in doctree.findall(nodes.Text) if _in_prose(one)]:
        seen = marked.setdefault(id(_section(text)), set())
        made = list(_split(text.astext(), found, terms, seen, app, page))
        if any(not isinstance(one, nodes.Text) for one in made):
            text.parent.replace(text, made)


def _pattern(words: Mapping[str, str]) -> re.Pattern:
    """Finds any of the words in the singular and the plural; longer ones first."""
    any_ = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?<![\w-])({any_})(?:s|es)?(?![\w-])", re.IGNORECASE)


def _split(
    text: str, words: re.Pattern, terms: Mapping[str, str], seen: set[str], app: Sphinx, page: str
) -> Iterator[nodes.Node]:
    done = 0
    for match in words.finditer(text):
        term = terms[match[1].lower()]
        if not term or term in seen:
            continue
        seen.add(term)
        if match.start() > done:
            yield nodes.Text(text[done : match.start()])
        place = app.builder.get_relative_uri(page, GLOSSARY) + "#" + term_id(term)
        yield nodes.reference("", match[0], refuri=place, internal=True, classes=["kw-term"])
        done = match.end()
    if done < len(text):
        yield nodes.Text(text[done:])


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

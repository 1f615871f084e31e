"""The glossary and the lessons: each bold term has an entry, and each entry's cell introduces it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from commands import LESSONS, ROOT
from docutils import nodes
from markdown_it import MarkdownIt

from workbook.book import glossary
from workbook.book.extension import Marker

TERMS = glossary.terms(ROOT)
NO_TERMS = {phrase for one in glossary.read(ROOT)["no_terms"] for phrase in one["phrases"]}
_LONGEST = 4  # words; a longer bold phrase is a sentence


def plain(phrase: str) -> str:
    """A phrase for comparison: lower case, single spaces, no article."""
    return re.sub(r"^the ", "", " ".join(phrase.lower().split()))


def bold(text: str) -> Iterator[str]:
    """The bold phrases of a Markdown text that can be terms: no sentences and no headings."""
    for block in MarkdownIt().parse(text):
        phrase = None
        for token in block.children or ():
            if token.type == "strong_open":
                phrase = ""
            elif token.type == "strong_close":
                if phrase and phrase[-1] not in ".:?!" and len(phrase.split()) <= _LONGEST:
                    yield phrase
                phrase = None
            elif phrase is not None:
                phrase += token.content or " "


BOLD = [
    (f"{path.stem}/{cell['id']}", plain(phrase))
    for path in LESSONS
    for cell in json.loads(path.read_text("utf-8"))["cells"]
    if cell["cell_type"] == "markdown"
    for phrase in bold("".join(cell["source"]))
]


def in_bold(term: glossary.Term) -> set[str]:
    """The phrases that can be bold for a term."""
    return {plain(word) for word in (term.term, *term.also, *term.bold)}


def test_every_bold_term_has_an_entry():
    known = {phrase for one in TERMS for phrase in in_bold(one)} | set(map(plain, NO_TERMS))
    missing = [f"{cell}: {phrase!r}" for cell, phrase in BOLD if phrase not in known]
    assert not missing, "add these to docs/book/glossary.yaml, under `terms` or under `no_terms`"


@pytest.mark.parametrize("one", TERMS, ids=lambda one: one.term)
def test_an_entry_names_the_cell_that_introduces_it(one):
    """The term is bold there, and in no earlier cell."""
    assert next((cell for cell, phrase in BOLD if phrase in in_bold(one)), None) == one.cell


def test_entries_are_one_sentence_and_unique():
    names = [phrase for one in TERMS for phrase in in_bold(one)]
    assert len(names) == len(set(names))
    for one in TERMS:
        assert not one.meaning[0].islower() and one.meaning.endswith("."), one.term
        assert ". " not in one.meaning and len(one.meaning.split()) <= 40, one.term


def test_lists_of_exceptions_are_up_to_date():
    assert {plain(phrase) for phrase in NO_TERMS} <= {phrase for _, phrase in BOLD}
    paths = [*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "labs").glob("*.ipynb")]
    texts = [path.read_text("utf-8").lower() for path in paths]
    for phrase in glossary.read(ROOT)["not_in"]:
        assert any(phrase in text for text in texts), phrase
    assert {lesson for one in TERMS for lesson in one.not_on} <= {path.stem for path in LESSONS}


@pytest.mark.parametrize(
    ("page", "text", "terms"),
    [
        ("notebooks/10_another_gpu", "Its launch floor, and a stream of bytes in waves.", ["wave"]),
        ("notebooks/09_wide_rows", "Two streams, and no floor.", ["stream", "floor"]),
        ("labs/04_ptx", "Between guard bands it reads global memory; a guard follows.", ["guard"]),
        ("notebooks/08_builds", "It passes tensors; local memory, online, sections.", ["local memory"]),
        ("labs/10_another_gpu", "A launch floor, a launch floor, and the floor.", ["launch floor", "floor"]),
    ],
)
def test_words_are_linked_only_where_they_are_the_term(page, text, terms):
    """In other lessons than the term's own, and not where the word means something else."""
    std = SimpleNamespace(objects={("term", one.term): ("glossary", one.term) for one in TERMS})
    app = SimpleNamespace(
        config=SimpleNamespace(kw_words=glossary.words(ROOT)),
        env=SimpleNamespace(get_domain=lambda name: std),
        builder=SimpleNamespace(get_relative_uri=lambda page, to: f"../{to}.html"),
    )
    made = list(Marker(app, page).split(text, set()))
    meanings = {one.term: one.meaning for one in TERMS}
    assert [(one["refuri"], one["reftitle"]) for one in made if isinstance(one, nodes.reference)] == [
        (f"../glossary.html#{term}", meanings[term]) for term in terms
    ]
    assert "".join(one.astext() for one in made) == text

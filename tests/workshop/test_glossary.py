"""The glossary against the lessons: nothing in bold without an entry, no entry without its lesson."""

from __future__ import annotations

import json
import re

import pytest
from commands import ROOT

from helpers.workshop.book import glossary, places

TERMS = glossary.entries()


def test_every_term_in_bold_has_an_entry():
    known = {name for one in TERMS for name in one.in_bold()} | glossary.no_terms().keys()
    lacking = [
        f"{lesson} {cell}: {phrase!r}"
        for lesson, cell, phrase in glossary.set_in_bold(ROOT)
        if glossary.plain(phrase) not in known
    ]
    assert not lacking, (
        "in bold and not in helpers/workshop/book/glossary.yaml; give it a sentence under `terms`, or list it under `no_terms`: "
        + "; ".join(lacking)
    )


@pytest.mark.parametrize("one", TERMS, ids=lambda one: one.term)
def test_an_entry_s_cell_introduces_it(one):
    """It stands there in bold, and in no earlier cell."""
    first = next(
        (
            (lesson, cell)
            for lesson, cell, phrase in glossary.set_in_bold(ROOT)
            if glossary.plain(phrase) in one.in_bold()
        ),
        None,
    )
    assert first == (one.lesson, one.cell)


def test_entries_are_one_sentence_and_each_word_has_one():
    names = [name for one in TERMS for name in one.in_bold()]
    assert len(names) == len(set(names))
    for one in TERMS:
        assert not one.meaning[0].islower() and one.meaning.endswith(".") and ". " not in one.meaning, (
            one.term
        )
        assert len(one.meaning.split()) <= 40, one.term
    assert len({glossary.term_id(one.term) for one in TERMS}) == len(TERMS)


def test_what_is_no_term_stands_in_bold_somewhere_and_has_a_reason():
    stands = {glossary.plain(phrase) for _, _, phrase in glossary.set_in_bold(ROOT)}
    listed = glossary.no_terms()
    assert not listed.keys() - stands, "listed under no_terms, and in bold nowhere"
    assert not listed.keys() & {name for one in TERMS for name in one.in_bold()}
    assert all(listed.values())


def test_bold_is_found_as_a_reader_sees_it():
    text = "A **warp** has `**no**` bold; **two\nwords** do. **A sentence does not.** `a ** 2` and `b ** 3`\n```\n**code**\n```"
    assert glossary.bold(text) == ["warp", "two\nwords"]
    assert glossary.plain("The  Interpreter") == "interpreter"


def test_the_page_has_an_anchor_and_a_link_for_each_term():
    (name, page), *others = glossary.pages(ROOT).items()
    assert name == "glossary.md" and not others
    assert set(re.findall(r'<span id="([^"]+)"', page)) == {glossary.term_id(one.term) for one in TERMS}
    links = re.findall(r'<a href="notebooks/(\w+)\.html#cell-([\w-]+)"', page)
    assert len(links) == len(TERMS)
    for lesson, cell in links:
        assert places.cell(ROOT, lesson, cell)["cell_type"] == "code"


def test_places_say_what_is_not_there():
    with pytest.raises(KeyError, match="no lesson '99_none'"):
        places.cells(ROOT, "99_none")
    with pytest.raises(KeyError, match="has no cell 'none'"):
        places.address(ROOT, "01_profiling", "none")
    assert places.address(ROOT, "01_profiling", "title") == "notebooks/01_profiling.html"
    assert places.address(ROOT, "01_profiling", "picture") == "notebooks/01_profiling.html#cell-picture"
    assert places.address(ROOT, "01_profiling", "picture-says") == "notebooks/01_profiling.html#cell-picture"


@pytest.mark.parametrize(
    ("page", "text", "terms"),
    [
        ("notebooks/10_another_gpu", "Its launch floor, and a stream of bytes in waves.", ["wave"]),
        ("notebooks/09_wide_rows", "Two streams, and no floor.", ["stream", "floor"]),
        ("labs/04_ptx", "Between guard bands it reads global memory; a guard follows.", ["guard"]),
        ("notebooks/08_failures", "It passes tensors; local memory, online, sections.", ["local memory"]),
        (
            "labs/10_another_gpu",
            "A launch floor, again a launch floor, and the floor.",
            ["launch floor", "floor"],
        ),
    ],
)
def test_a_word_is_explained_where_it_is_the_term(page, text, terms):
    """Another lesson than the term's own, and not where it means something else."""
    from types import SimpleNamespace

    from docutils import nodes

    from helpers.workshop.book import build, extension

    words = build._words(TERMS)
    here = {word: "" if page in plain else term for word, (term, plain) in words.items()}
    app = SimpleNamespace(builder=SimpleNamespace(get_relative_uri=lambda page, to: f"../{to}.html"))
    made = list(extension._split(text, extension._pattern(here), here, set(), app, page))
    assert [one["refuri"] for one in made if isinstance(one, nodes.reference)] == [
        f"../glossary.html#{glossary.term_id(term)}" for term in terms
    ]
    assert "".join(one.astext() for one in made) == text


def test_where_a_word_is_no_term_the_course_says_it():
    """A phrase that the lessons no longer have goes from the list."""
    texts = [
        "".join(cell["source"]).lower()
        for folder in ("notebooks", "labs")
        for path in sorted((ROOT / folder).glob("*.ipynb"))
        for cell in json.loads(path.read_text())["cells"]
    ]
    assert not [phrase for phrase in glossary.not_in() if not any(phrase in text for text in texts)]
    for one in TERMS:
        assert set(one.not_on) <= {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}

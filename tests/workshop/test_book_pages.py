"""The book's pages that are made from the records: the mistakes of the field, and the headline figures."""

from __future__ import annotations

import re

import nbformat
import pytest
from commands import ROOT

from helpers import records
from helpers.workshop.book import headlines, mistakes, places

# ---------------------------------------------------------------------------------------------- mistakes


@pytest.fixture(scope="module")
def page() -> str:
    (name, text), *others = mistakes.pages(ROOT).items()
    assert name == "mistakes.md" and not others
    return text


def test_every_erratum_has_its_place(page):
    """Each with a heading, a sentence and a link, numbered one by one."""
    sections = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    assert [int(one.split(".")[0]) for one in sections] == list(range(1, len(mistakes.MISTAKES) + 1))
    assert all(one.count("<a href=") == 1 for one in sections)


@pytest.mark.parametrize("one", mistakes.MISTAKES, ids=lambda one: one.cell)
def test_the_linked_cell_is_about_it(one):
    cell = places.cell(ROOT, one.lesson, one.cell)
    assert cell["cell_type"] == "code", "a text has no anchor in the book"
    assert one.about in cell["source"]
    if one.record:
        lesson = "\n".join(other["source"] for other in places.cells(ROOT, one.lesson))
        assert one.record in lesson, "figures of a record that this lesson does not show"


@pytest.mark.parametrize("one", [one for one in mistakes.MISTAKES if one.record], ids=lambda one: one.record)
def test_what_was_measured_stands_there_for_each_gpu_that_has_the_record(page, one):
    kept = mistakes.kept(one.record)
    assert kept
    section = page.split(f". {one.claim}\n")[1].split("\n## ")[0]
    assert section.count("\n- ") == len(kept)
    for k in kept:
        (line,) = [line for line in section.splitlines() if line.startswith(f"- {k.gpu}, {k.day}: ")]
        assert re.search(r"\d", line.split(": ", 1)[1]) and "nan" not in line


def test_a_claim_without_a_record_states_no_figure_of_a_gpu():
    for one in mistakes.MISTAKES:
        assert (one.figures is None) == (not one.record)
        assert not re.search(r"\d\s?(?:GB/s|µs|ms|%)", one.is_so), one.claim


# --------------------------------------------------------------------------------------------- headlines


def shown(label: str, *, record: str | None = "triton/race", day: str = "2026-11-22") -> list:
    """The outputs of a cell that replays a record and shows a headline of it."""
    origin = {"record": "triton/race", "mode": "replayed", "gpu": "NVIDIA H200", "date": day, "text": "…"}
    headline = {"label": label, "value": "1,234 µs", "source": "replayed, NVIDIA H200"}
    headline |= {"record": record} if record else {}
    return [
        nbformat.v4.new_output("display_data", data={records.PROVENANCE_MIME: origin}),
        nbformat.v4.new_output("display_data", data={records.HEADLINE_MIME: headline}),
    ]


@pytest.fixture
def executed(tmp_path):
    """A folder with one executed lesson, and what writes its cells: {cell's name: outputs}."""

    def write(**cells):
        notebook = nbformat.v4.new_notebook(
            cells=[
                nbformat.v4.new_code_cell("…", id=name.replace("_", "-"), outputs=outputs)
                for name, outputs in cells.items()
            ]
        )
        nbformat.write(notebook, tmp_path / "01_profiling.ipynb")
        return tmp_path

    return write


def test_a_headline_has_its_gpu_its_day_and_its_cell(executed):
    folder = executed(bandwidths_say=shown("square | 10,000 × 10,000"))
    text = headlines.pages(ROOT, folder)["headlines.md"]
    (row,) = [line for line in text.splitlines() if "1,234 µs" in line]
    assert '<a href="notebooks/01_profiling.html#cell-bandwidths-say">01</a>' in row
    assert row.endswith(
        '| square \\| 10,000 × 10,000 | 1,234 µs | NVIDIA H200 | <span class="kw-day">2026-11-22</span> |'
    )


def test_a_real_lesson_s_headline_is_read(executed, monkeypatch):
    """What `records` displays is what the page reads: the shape of the data is not assumed."""
    import IPython.display

    bundles = []
    monkeypatch.setattr(IPython.display, "publish_display_data", lambda data, **_: bundles.append(data))
    three = records.stored("profiling/three-timers")
    records.headline("three timers", f"{three['trace'][0]:.1f} µs", of="profiling/three-timers")
    folder = executed(bandwidths_say=[nbformat.v4.new_output("display_data", data=data) for data in bundles])
    (found,) = headlines.headlines(folder)
    assert (found.label, found.mode) == ("three timers", "replayed")
    assert (found.gpu, found.day) == (three.attrs["provenance"].gpu["name"], three.attrs["provenance"].date)


def test_a_headline_of_an_older_workbook_has_the_day_if_there_is_one_only(executed):
    folder = executed(bandwidths_say=shown("old", record=None))
    assert next(headlines.headlines(folder)).day == "2026-11-22"
    other = shown("old", record=None, day="2026-11-21")
    other[0].data[records.PROVENANCE_MIME]["record"] = "triton/curve"
    folder = executed(steps=shown("new"), bandwidths_say=other)
    with pytest.raises(ValueError, match="does not say which record"):
        list(headlines.headlines(folder))


def test_without_executed_lessons_one_sentence_says_so(tmp_path):
    with pytest.raises(ValueError, match=r"no executed lessons with figures in .*: run `make run` first"):
        headlines.pages(ROOT, tmp_path)

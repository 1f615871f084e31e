"""The book's pages of figures: common mistakes, and the lessons' headline figures."""

from __future__ import annotations

import json
import re

import nbformat
import pytest
from commands import ROOT

from helpers import records
from workbook.book import headlines, mistakes
from workbook.book.course import Entry
from workbook.folds import fold_title

# ---------------------------------------------------------------------------------------------- mistakes

MISTAKES = mistakes.mistakes(ROOT)
MEASURED = [one for one in MISTAKES if "record" in one]


@pytest.mark.parametrize("one", MISTAKES, ids=lambda one: one["cell"])
def test_the_linked_cell_is_about_the_mistake(one):
    lesson, name = one["cell"].split("/")
    notebook = nbformat.read(ROOT / "notebooks" / f"{lesson}.ipynb", as_version=4)
    (cell,) = [cell for cell in notebook.cells if cell["id"] == name]
    assert cell.cell_type == "code" and one["about"] in cell.source
    if "record" in one:
        name = one["record"].split("/")[-1]  # helpers/lessons may add the folder, or read the whole record
        modules = (path.read_text() for path in (ROOT / "helpers" / "lessons").glob("*.py"))
        sources = [*(other.source for other in notebook.cells), *modules]
        assert any(re.search(rf'{name}[" ]', source) for source in sources), "this lesson doesn't show it"


@pytest.mark.parametrize("one", MEASURED, ids=lambda one: one["record"])
def test_each_gpu_that_has_the_record_has_a_line_of_figures(one):
    lines, sources = list(mistakes.figures(one)), list(mistakes.measured(one["record"]))
    assert len(lines) == len(sources) > 0
    for line, source in zip(lines, sources, strict=True):
        assert line.startswith(f"{source.gpu}, {source.day}: ")
        assert re.search(r"\d", line.split(": ", 1)[1]) and "nan" not in line


def test_the_figures_are_computed_from_the_record():
    (one,) = [one for one in MISTAKES if one.get("record") == "load_inline/gelu-rungs"]
    recorded = json.loads((records.folder() / "h200" / "load_inline" / "gelu-rungs.json").read_text("utf-8"))
    us = {row["kernel"]: row["median_us"] for row in recorded["cases"][0]["rows"]}
    (line,) = [line for line in mistakes.figures(one) if "H200" in line]
    assert all(f"{us[name] / us['0.5f']:.2f} times" in line for name in ("0.5", "0.5 and pow"))


def test_a_figure_of_a_gpu_comes_from_a_record():
    for one in MISTAKES:
        assert ("measured" in one) == ("record" in one)
        assert not re.search(r"\d\s?(?:GB/s|µs|ms|%)", one["answer"]), one["claim"]


def test_the_page_numbers_the_mistakes_and_links_their_cells():
    sections = re.split(r"^## ", mistakes.page(ROOT), flags=re.MULTILINE)[1:]
    assert [int(one.split(".")[0]) for one in sections] == list(range(1, len(MISTAKES) + 1))
    assert all(one.count("](notebooks/") == 1 for one in sections)


# --------------------------------------------------------------------------------------------- headlines


def shown(label: str, *, record: str = "triton/race", day: str = "2026-11-22") -> list:
    """The outputs of a cell that replays a record and shows a headline figure from it."""
    origin = {"record": "triton/race", "mode": "replayed", "gpu": "NVIDIA H200", "date": day, "text": "…"}
    headline = {"label": label, "value": "1,234 µs", "source": "replayed, NVIDIA H200", "record": record}
    return [
        nbformat.v4.new_output("display_data", data={records.PROVENANCE_MIME: origin}),
        nbformat.v4.new_output("display_data", data={records.HEADLINE_MIME: headline}),
    ]


def lesson(**cells: list) -> nbformat.NotebookNode:
    """An executed lesson with these cells: {name: outputs}."""
    return nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("…", id=name, outputs=outputs) for name, outputs in cells.items()]
    )


def test_a_headline_has_its_gpu_its_day_and_its_cell():
    notebook = lesson(result=shown("square | 10,000 × 10,000"))
    page = headlines.page({"01_profiling": Entry("notebooks/01_profiling.ipynb", "01", None, "", notebook)})
    (row,) = [line for line in page.splitlines() if "1,234 µs" in line]
    assert "[Lesson 01](notebooks/01_profiling.ipynb#cell-id=result)" in row
    assert row.endswith(
        '| square \\| 10,000 × 10,000 | 1,234 µs | NVIDIA H200 | <span class="kw-day">2026-11-22</span> |'
    )


def test_a_real_lesson_s_headline_is_read(monkeypatch):
    """The page reads what `records` displays; the test doesn't assume its form."""
    import IPython.display

    bundles = []
    monkeypatch.setattr(IPython.display, "publish_display_data", lambda data, **_: bundles.append(data))
    three = records.stored("profiling/three-timers")
    records.headline("three timers", f"{three['trace'][0]:.1f} µs", of="profiling/three-timers")
    outputs = [nbformat.v4.new_output("display_data", data=data) for data in bundles]
    (found,) = headlines.headlines("01_profiling", lesson(result=outputs))
    assert (found.label, found.mode) == ("three timers", "replayed")
    assert (found.gpu, found.day) == (three.attrs["provenance"].gpu["name"], three.attrs["provenance"].date)


def test_each_headline_has_the_day_of_its_own_record():
    other = shown("other", record="triton/curve", day="2026-11-21")
    other[0].data[records.PROVENANCE_MIME]["record"] = "triton/curve"
    found = headlines.headlines("01_profiling", lesson(first=shown("first"), second=other))
    assert [one.day for one in found] == ["2026-11-22", "2026-11-21"]
    assert headlines.page({}) == ""


def fold(source: str, *tags: str) -> str:
    return fold_title(nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)}))


def test_a_fold_says_what_it_holds():
    assert fold('predict.ask("a", "How many?")') == "a question to predict"
    assert fold('x = 1\npredict.reveal("a", x)') == "the answer to a prediction"
    assert fold("# Draw the timeline\nplot()", "hide-input") == "Draw the timeline"
    assert fold("plot()") == ""

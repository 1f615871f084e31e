"""How many minutes a lesson takes is computed from what a reader meets in it."""

from __future__ import annotations

import nbformat.v4 as nbf
import pytest

from workbook.form import minutes
from workbook.form.canonical import stated_minutes


def lesson(*cells):
    return nbf.new_notebook(cells=list(cells))


def code(source, *outputs, tags=(), seconds=0.0):
    cell = nbf.new_code_cell(source, outputs=list(outputs))
    cell.metadata = {"tags": list(tags), "papermill": {"duration": seconds}}
    return cell


def printed(text):
    return nbf.new_output("stream", text=text)


def test_each_thing_that_a_reader_meets_takes_its_time():
    words = "word " * 180
    figure = nbf.new_output(
        "display_data", data={"application/vnd.plotly.v1+json": {}, "text/plain": "Figure"}
    )
    found = minutes.parts(
        lesson(
            nbf.new_markdown_cell("## 1. Begin\n\n" + words),
            code("x = 1\n" * 12, printed("word " * 400), seconds=60),
            code("y = 2", figure),
            code("def f():\n    ...", tags=["exercise"]),
            nbf.new_markdown_cell("**Try it.** Again."),
            code('predict.ask("key", "One two three?")', printed("word " * 4000)),
            code(f'predict.reveal("key", x, because="""{words}""")'),
        )
    )
    (part,) = found
    assert (part.questions, part.figures, part.tries, part.exercises, part.code_lines) == (1, 1, 1, 1, 15)
    expected = (180 + 1 + 3 + 3 + 180) / 180 + 400 / 400 + 15 / 12 + 1 + 0.75 + 3 + 5 + 1
    assert part.minutes == pytest.approx(expected, abs=0.1)


def test_folded_code_takes_no_time_but_what_it_prints_does():
    hidden = code("for i in range(3):\n    print(i)", printed("word " * 400), tags=["hide-input"])
    (part,) = minutes.parts(lesson(nbf.new_markdown_cell("## 1. Begin"), hidden))
    assert part.code_lines == 0 and part.minutes == pytest.approx(1, abs=0.05)


def test_sections_belong_to_the_part_of_their_letter():
    found = minutes.parts(
        lesson(
            nbf.new_markdown_cell("# Title"),
            nbf.new_markdown_cell("## A1. One"),
            nbf.new_markdown_cell("## A2. Two"),
            nbf.new_markdown_cell("## B1. Three"),
            code("x = 1"),
            nbf.new_markdown_cell("## Optional: Four"),
        )
    )
    assert [(part.name, part.cells) for part in found] == [("A", 3), ("B", 2), ("optional", 1)]
    assert minutes.rounded({"01_x": found}) == {"01_x": {"A": 5, "B": 5}}


def test_the_title_states_the_computed_minutes():
    title = "**Part A, about 99 minutes:** one.\n**Part B, about 99 minutes:** two."
    assert stated_minutes(title, {"A": 35, "B": 40}).count("35") == 1
    assert "Part B, about 40 minutes" in stated_minutes(title, {"A": 35, "B": 40})
    assert stated_minutes("It takes about 10 minutes.", {"": 45}) == "It takes about 45 minutes."
    assert stated_minutes(title, {}) == title

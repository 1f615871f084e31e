"""What every lesson gives its reader: exercises, explained answers, and honest minutes."""

from __future__ import annotations

import json
import re
import subprocess

import nbformat
import pytest
from commands import LESSONS, ROOT, command

from workbook.form import minutes, questions

TWO_PARTS = ("01", "02", "03", "04", "05", "06", "11", "12", "13")
FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)

by_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def read(path):
    return nbformat.read(path, as_version=4)


@by_lesson
def test_every_part_has_two_exercises(path):
    found = {part.name: part.exercises for part in minutes.parts(read(path)) if part.name != minutes.OPTIONAL}
    assert list(found) == (["A", "B"] if path.name.startswith(TWO_PARTS) else [""])
    assert min(found.values()) >= 2, found


@by_lesson
def test_every_answer_comes_with_its_explanation(path):
    for call in questions.calls(read(path)):
        if call.name == "reveal":
            assert any(keyword.arg == "because" for keyword in call.node.keywords), call.key


@by_lesson
def test_every_invitation_has_its_answer(path):
    cells = read(path).cells
    for cell, following in zip(cells, [*cells[1:], None], strict=True):
        if "**Try it" in cell.source:
            below = cell.source + (following.source if following else "")
            assert FOLDED.search(below[below.index("**Try it") :]), cell.id


@by_lesson
def test_at_most_a_fifth_of_the_code_measures_or_draws(path):
    parts = minutes.parts(read(path))
    measuring, lines = (
        sum(getattr(part, name) for part in parts) for name in ("measuring_lines", "code_lines")
    )
    assert measuring <= lines / 5, f"{measuring} of {lines} lines"


def test_the_stated_minutes_are_those_of_a_run(tmp_path):
    subprocess.run(command("run", *LESSONS, "--out", tmp_path / "course"), check=True)
    stored = json.loads((ROOT / "notebooks" / "minutes.json").read_text("utf-8"))
    for lesson, parts in minutes.read(tmp_path / "course").items():
        for part in parts:
            if part.name == minutes.OPTIONAL:
                continue
            most = 40 if lesson.startswith(TWO_PARTS) else 45
            assert stored[lesson][part.name] <= most, (lesson, part.name)
            assert part.minutes == pytest.approx(stored[lesson][part.name], rel=0.2, abs=2.5), lesson

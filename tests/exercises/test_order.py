"""The order and the number of hidden calls tell a function nothing about the answers.

The answers that count are the attacks on the grader; here the learner's own check runs them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import seeds
from lab_answers import judged
from lab_attempts import solution_cells

from helpers import exercises
from helpers.exercises.attempt import attempt

FOLDER = Path(__file__).parents[1] / "attacks" / "answers"
COUNTING = sorted(FOLDER.glob("counted_*.py"))


def defined(lab: str, source: str) -> dict:
    """The names that a cell defines, after the first cells of its lab."""
    names: dict = {"__name__": "lab"}
    exec(compile("from helpers import device\n" + solution_cells(lab)["begin"], "begin", "exec"), names)
    exec(compile(source, "cell", "exec"), names)
    return names


@pytest.mark.seeded
@pytest.mark.parametrize("path", COUNTING, ids=lambda path: path.stem)
def test_an_answer_that_counts_its_calls_fails_and_the_solution_passes(path):
    text = path.read_text()
    lab, id = (re.search(rf"^{what}: (.*)$", text, re.MULTILINE)[1] for what in ("lab", "exercise"))
    exercise = exercises.get(id)
    cells = solution_cells(lab)
    before = cells["cold-timer"] + "\n" + cells["warm-timer"] if id == "refuse-to-time" else ""
    for seed in seeds.several(5):
        counts = defined(lab, text)[exercise.name]
        assert not attempt(exercise, counts, seed).passed, seed
        right = defined(lab, f"{before}\n{cells[id]}")[exercise.name]
        verdict = judged(id, right, seed)
        assert verdict.passed, verdict


@pytest.mark.parametrize("id", ["catch-wrong-kernels", "refuse-wrong-tensors"])
def test_the_simplest_case_is_still_reported_first(id):
    exercise = exercises.get(id)

    def answer(*args):
        return None

    assert len({attempt(exercise, answer, seed).case for seed in range(3)}) == 1


def test_all_cases_are_called_and_some_of_them_twice():
    exercise = exercises.get("does-it-stand")
    called = {}

    def answer(claim):
        called[seed] = called.get(seed, 0) + 1
        return []

    for seed in range(8):
        attempt(exercise, answer, seed)
    assert len(set(called.values())) > 2 and min(called.values()) >= 24

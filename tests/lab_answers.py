"""Answers that are given to a lab's checks in the tests' own process: what the tests of labs 01, 02, 04 and 05 share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import seeds
from lab_attempts import solution_cells

from helpers import exercises
from helpers.exercises import Verdict
from helpers.exercises.attempt import attempt
from helpers.exercises.consistency import WriteUpJudge


def judged(id: str, answer: Any, seed: int = 0) -> Verdict:
    """The verdict on an answer; a refusal names the exercise, is a whole sentence and has a hint."""
    verdict = attempt(exercises.get(id), answer, seed)
    if not verdict.passed and verdict.mistake != "to-do":
        assert verdict.sentence.startswith(id), verdict
        assert verdict.sentence.endswith((".", ":")), verdict
        assert verdict.hint, verdict
    return verdict


def mistakes(id: str, answer: Any, draws: Iterable[int] = seeds.several(5)) -> set[str]:
    """The mistakes that the check names, over several draws of hidden cases; "" where it accepts."""
    return {judged(id, answer, seed).mistake for seed in draws}


def with_right_answers(lab: str) -> list[exercises.Exercise]:
    """A lab's exercises but for the free one, where it has one: that has no single right answer."""
    return [one for one in exercises.of_lab(lab) if not isinstance(one.judge, WriteUpJudge)]


def solution(lab: str, folder: Path, first: str = "") -> dict[str, Any]:
    """The names that the exercise cells of a lab's solution define, but for the free one's (test_free.py).

    Args:
        lab: such as "04_ptx".
        folder: for the source, as Triton reads a kernel's text from its file.
        first: the text of what the cells need.
    """
    cells = solution_cells(lab)
    source = "\n\n".join([first, *(cells[exercise.id] for exercise in with_right_answers(lab))])
    path = folder / "solution.py"
    path.write_text(source)
    names: dict[str, Any] = {"__name__": "solution"}
    exec(compile(source, str(path), "exec"), names)
    return names

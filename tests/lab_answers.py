"""Gives answers to the checks of a lab in the tests' own process."""

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
    """The verdict on an answer; every refusal names the exercise and has a sentence and a hint."""
    verdict = attempt(exercises.get(id), answer, seed)
    if not verdict.passed and verdict.mistake != "to-do":
        assert verdict.sentence.startswith(id), verdict
        assert verdict.sentence.endswith((".", ":")), verdict
        assert verdict.hint, verdict
    return verdict


def mistakes(id: str, answer: Any, draws: Iterable[int] = seeds.several(5)) -> set[str]:
    """The mistakes that the check finds over several draws of hidden cases; "" if it accepts."""
    return {judged(id, answer, seed).mistake for seed in draws}


def with_right_answers(lab: str) -> list[exercises.Exercise]:
    """A lab's exercises without the free one, which has no single right answer."""
    return [one for one in exercises.of_lab(lab) if not isinstance(one.judge, WriteUpJudge)]


def solution(lab: str, folder: Path, first: str = "") -> dict[str, Any]:
    """The names that the exercise cells of a lab's solution define, without the free exercise's.

    Args:
        lab: such as "04_ptx".
        folder: for the source, because Triton reads a kernel's source from its file.
        first: source code that the cells need.
    """
    cells = solution_cells(lab)
    source = "\n\n".join([first, *(cells[exercise.id] for exercise in with_right_answers(lab))])
    path = folder / "solution.py"
    path.write_text(source)
    names: dict[str, Any] = {"__name__": "solution"}
    exec(compile(source, str(path), "exec"), names)
    return names

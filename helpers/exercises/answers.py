"""Judge answers that are not kernels: numbers, texts, tuples, lists, dicts, tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from helpers.exercises import errors
from helpers.exercises.mistakes import Facts, Table, seen_answer
from helpers.exercises.model import Case, Outcome, Verdict
from helpers.exercises.portable import portable


@dataclass(frozen=True)
class AnswerJudge:
    """Compares an outcome with what the case expects.

    Attributes:
        exercise, name: the exercise's id, and the name of the learner's function.
        mistakes: the table of mistakes in which a wrong answer is looked up.
        facts: makes facts about a case for the table (`mistakes.seen_answer`).
        tolerance: relative, for floats.
    """

    exercise: str
    name: str
    tolerance: float
    mistakes: Table
    facts: Facts | None = None

    def __call__(self, case: Case, outcome: Outcome) -> Verdict | None:
        if outcome.error:
            return errors.judge_error(self.exercise, self.name, case, outcome)
        got, expected = outcome.value, portable(case.expected)
        at = difference(got, expected, self.tolerance)
        if at is None:
            return None
        seen = seen_answer(case, got, self.facts, self.tolerance)
        mistake, _, hint = self.mistakes.first_match(seen) or ("wrong-answer", "", "")
        what = f"{self.name} returned {brief(got)}, but the right answer is {brief(expected)}{at}"
        sentence = f"{self.exercise}, {case.label}: {what}."
        return Verdict(self.exercise, False, sentence, case.label, mistake, hint)


def difference(got: Any, expected: Any, tolerance: float = 0, where: str = "") -> str | None:
    """Where `got` differs from `expected`, as the end of a sentence ("" for the whole); None if they are
    equal.
    """
    import torch

    here = f" (at {where})" if where else ""
    if isinstance(expected, torch.Tensor) or isinstance(got, torch.Tensor):
        if isinstance(got, torch.Tensor) and got.numel() == 1 and not isinstance(expected, torch.Tensor):
            return difference(got.item(), expected, tolerance, where)
        if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor):
            same = got.shape == expected.shape and torch.allclose(
                got.double().cpu(), expected.double().cpu(), rtol=tolerance, atol=0, equal_nan=True
            )
            return None if same else here
        return difference(_plain(got), _plain(expected), tolerance, where)
    if isinstance(expected, bool) or isinstance(got, bool):
        return None if type(got) is type(expected) and got == expected else here
    if isinstance(expected, int | float) and isinstance(got, int | float):
        if isinstance(expected, float) and math.isnan(expected):
            return None if math.isnan(got) else here
        close = got == expected or (
            (isinstance(expected, float) or tolerance)
            and math.isclose(got, expected, rel_tol=max(tolerance, 1e-9), abs_tol=0)
        )
        return None if close else here
    if isinstance(expected, str) and isinstance(got, str):
        return None if got.strip() == expected.strip() else here
    if isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        if len(got) != len(expected):
            return f" ({where or 'it'} has {len(got)} values instead of {len(expected)})"
        for i, (a, b) in enumerate(zip(got, expected, strict=True)):
            at = difference(a, b, tolerance, f"{where}[{i}]")
            if at is not None:
                return at
        return None
    if isinstance(expected, dict) and isinstance(got, dict):
        if missing := [key for key in expected if key not in got]:
            return f" ({missing[0]!r} is missing{' in ' + where if where else ''})"
        if extra := [key for key in got if key not in expected]:
            return f" ({extra[0]!r} should not be there)"
        for key, value in expected.items():
            at = difference(got[key], value, tolerance, f"{where}[{key!r}]")
            if at is not None:
                return at
        return None
    return None if type(got) is type(expected) and got == expected else here


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def brief(value: Any, width: int = 160) -> str:
    """A value's text, cut to one short line."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an int with more digits than Python converts to text
        text = f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= width else f"{text[: width - 1]}…"

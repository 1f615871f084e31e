"""What the labs' judges share: a verdict on a wrong answer, on a call that raised, what is a number, and counts in words."""

from __future__ import annotations

from typing import Any

from helpers.exercises.errors import judge_error
from helpers.exercises.model import Case, Outcome, Verdict


def wrong(exercise: str, case: Case, sentence: str, mistake: str, hint: str, details: str = "") -> Verdict:
    """The verdict on a wrong answer.

    Args:
        exercise: its id.
        case: the one that failed.
        sentence: what came out and what should have; "on <the case's label>" may stand in front.
        mistake: its kind, a key.
        hint: one sentence that fits the mistake.
        details: the first wrong elements, a line each.
    """
    said = sentence.removeprefix(f"on {case.label}")
    where = exercise if said == sentence else f"{exercise}, {case.label}"
    said = f"{where}: {said.lstrip(':, ')}"
    said = said if said.endswith(".") else f"{said}."
    return Verdict(exercise, False, said, case=case.label, mistake=mistake, hint=hint, details=details)


def raised(exercise: str, name: str, case: Case, outcome: Outcome) -> Verdict | None:
    """The verdict on a call that raised, or on what could not be called; None where neither happened."""
    return judge_error(exercise, name, case, outcome) if outcome.error else None


def is_number(value: Any) -> bool:
    """Whether it is an int or a float; True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def counted(n: int, what: str) -> str:
    """ "1 element", "1,024 elements"."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"

"""What the labs' judges share: verdicts on wrong answers and on exceptions, and numbers in words."""

from __future__ import annotations

from typing import Any

from helpers.exercises.errors import judge_error
from helpers.exercises.model import Case, Outcome, Verdict


def wrong(exercise: str, case: Case, sentence: str, mistake: str, hint: str, details: str = "") -> Verdict:
    """The verdict on a wrong answer.

    Args:
        exercise: its id.
        case: the one that failed.
        sentence: what the answer is and what it should be; it may start with "on <the case's label>".
        mistake: its kind, a key.
        hint: advice that fits the mistake.
        details: the first wrong elements, one per line.
    """
    text = sentence.removeprefix(f"on {case.label}")
    where = exercise if text == sentence else f"{exercise}, {case.label}"
    text = f"{where}: {text.lstrip(':, ')}"
    text = text if text.endswith(".") else f"{text}."
    return Verdict(exercise, False, text, case=case.label, mistake=mistake, hint=hint, details=details)


def raised(exercise: str, name: str, case: Case, outcome: Outcome) -> Verdict | None:
    """The verdict on a call that raised, or on an object that couldn't be called; None if neither
    happened.
    """
    return judge_error(exercise, name, case, outcome) if outcome.error else None


def is_number(value: Any) -> bool:
    """Whether it is an int or a float, but not True or False."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def counted(n: int, what: str) -> str:
    """ "1 element", "1,024 elements"."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"

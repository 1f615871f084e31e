"""A learner's outcome, checked and copied."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from helpers.exercises.model import Outcome
from workbook.sandbox.messages import Plain


def outcome_of(raw: Any) -> Outcome:
    """An outcome from what the learner's process sent.

    Raises:
        ValueError: It is no outcome: it has another shape or type, or is larger than an answer can be.
    """
    if type(raw) is not dict or set(raw) != {field.name for field in fields(Outcome)}:
        raise ValueError("it is no outcome")
    plain = Plain()
    values = {name: plain.copy(value) for name, value in raw.items()}
    expected = {"error": str, "error_type": str, "args_after": tuple, "facts": dict, "line": int}
    for name, kind in expected.items():
        if type(values[name]) is not kind:
            raise ValueError(f"its {name} is a {type(values[name]).__name__}")
    values["error"] = values["error"][:4000]
    return Outcome(**values)

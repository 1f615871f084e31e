"""The answer to a free exercise: a finding, the figures behind it, a change, and a few sentences.

It has the same form in every lab and contains no answers, so a learner's process makes it. `consistency`
compares it with the data.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from helpers.exercises.portable import portable

__all__ = ["MOST", "WriteUp", "as_plain", "as_text", "cleaned", "from_text", "is_write_up", "readable"]

MOST = 3000  # characters of a learner's words that are stored
_MOST_NAME, _MOST_LISTED = 80, 20
_FORM = "a write-up"  # marks the form among plain values


@dataclass(frozen=True)
class WriteUp:
    """Your answer to an exercise without a single right answer. The task lists the names that you can use.

    The check compares finding, figures, change and `undecided` with the data. Only your teacher judges
    `words`: the check just makes sure that they are there and that they mention one of your figures.

    Attributes:
        finding: what you found, one of the task's names.
        figures: your evidence, name to number, in the unit that the name ends with: {"copy_us": 42_000}.
        change: what you would change, or what follows, one of the task's names.
        words: at least three sentences for a colleague: what you saw, what you conclude, what you don't know.
        undecided: questions of the task that the data leave open, by name.
        work: anything else that the task asks for, such as a kernel's text.
    """

    finding: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    change: str = ""
    words: str = ""
    undecided: tuple[str, ...] = ()
    work: Any = None

    def __repr__(self) -> str:
        return readable(as_plain(self))


def as_plain(answer: Any) -> dict[str, Any]:
    """A write-up as plain values; for anything else its type, under "of type"."""
    if not isinstance(answer, WriteUp):
        return {"of type": type(answer).__name__}
    return {"form": _FORM} | {one.name: portable(getattr(answer, one.name)) for one in fields(WriteUp)}


def is_write_up(value: Any) -> bool:
    """Whether plain values have the fields of a write-up, whatever is in them."""
    return isinstance(value, dict) and set(value) == {"form", *(one.name for one in fields(WriteUp))}


def as_text(answer: Any) -> str:
    """A write-up as JSON, for answers that are sent as text (`Exercise.text`)."""
    return json.dumps(as_plain(answer), default=repr)


def from_text(text: str) -> dict[str, Any]:
    """The result of `as_plain`, from its JSON."""
    return json.loads(text)


def cleaned(text: str, most: int = MOST) -> str:
    """A learner's text for a report: paragraphs without control or direction characters, at most `most`
    characters.
    """
    text = "".join(
        one
        for one in unicodedata.normalize("NFC", text[: 4 * most])
        if one in "\n\t" or unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Co", "Cn")
    )
    text = "\n\n".join(" ".join(part.split()) for part in re.split(r"\n[ \t]*\n\s*", text.strip()))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def readable(write_up: Mapping[str, Any]) -> str:
    """A write-up from `as_plain` as text for a reader, without empty fields."""

    def short(value: Any) -> str:
        return " ".join(
            cleaned(value if isinstance(value, str) else f"({type(value).__name__})", _MOST_NAME).split()
        )

    figures, undecided = write_up["figures"], write_up["undecided"]
    listed = list(figures.items())[:_MOST_LISTED] if isinstance(figures, Mapping) else [("?", figures)]
    undecided = undecided[:_MOST_LISTED] if isinstance(undecided, (list, tuple)) else [undecided]
    lines = {
        "Finding": short(write_up["finding"]),
        "Figures": ", ".join(f"{short(name)} = {_number(value)}" for name, value in listed),
        "Change": short(write_up["change"]),
        "Left open": ", ".join(map(short, undecided)),
    }
    form = "\n".join(f"{name}: {text}" for name, text in lines.items() if text)
    words = cleaned(write_up["words"]) if isinstance(write_up["words"], str) else ""
    return "\n\n".join(part for part in (form, words) if part)


def _number(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300:
        return f"{value:,.6g}"
    return f"({type(value).__name__})"

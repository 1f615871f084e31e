"""What may be asked, how an answer is read, and how it compares with what came out."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

# An answer: one of the choices, a number, or the two ends of a range.
Answer = str | float | tuple[float, float]

_KEY = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}([ ,'_\u00a0\u202f]\d{3})+(\.\d+)?")
_NEAR = 0.01  # what is no whole number is right within one per cent


class Misasked(ValueError):
    """What a notebook's author got wrong in a question or its answer; the message is one sentence."""


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        key: its name, unique in the course.
        text: what is asked.
        choices: the possible answers, or None where a number is asked for.
        unit: of the number.
        measured: the answer is a range, since nobody can know a measured value.
        guess: nothing above it says the answer.
    """

    key: str
    text: str
    choices: tuple[str, ...] | None = None
    unit: str = ""
    measured: bool = False
    guess: bool = False

    def require(self) -> None:
        """Check that it can be asked.

        Raises:
            Misasked: it cannot.
        """
        if not isinstance(self.key, str) or not _KEY.fullmatch(self.key):
            raise Misasked(f"The key {self.key!r} is not made of words, such as 'sectors-16x16'.")
        if not isinstance(self.text, str) or not self.text.strip():
            raise Misasked(f"{self.key}: there is no question.")
        if self.choices is None:
            return
        if len(self.choices) < 2 or len(set(self.choices)) < len(self.choices):
            raise Misasked(f"{self.key}: give at least two choices, each once.")
        if self.measured or self.unit:
            raise Misasked(f"{self.key}: choices have neither a unit nor a range.")

    def fits(self, answer: Any) -> bool:
        """Whether an answer is of this question's kind."""
        if self.choices is not None:
            return isinstance(answer, str) and answer in self.choices
        if self.measured:
            return isinstance(answer, tuple) and len(answer) == 2 and all(map(_is_number, answer))
        return _is_number(answer)

    def truth(self, value: Any) -> str | float:
        """What came out, as plain text or a plain number.

        Raises:
            Misasked: it is of another kind, or none of the choices.
        """
        if callable(item := getattr(value, "item", None)):  # a number of numpy or torch
            try:
                value = item()
            except (RuntimeError, ValueError):
                raise Misasked(f"{self.key}: the answer is more than one number.") from None
        if self.choices is not None:
            if value not in self.choices:
                raise Misasked(f"{self.key}: {value!r} is none of the choices ({', '.join(self.choices)}).")
            return value
        if not _is_number(value):
            raise Misasked(f"{self.key}: the answer {str(value)[:80]!r} is no number.")
        return value

    def hit(self, answer: Answer, truth: str | float) -> bool:
        """Whether the answer is right: the same, or the range holds the truth."""
        if isinstance(answer, tuple):
            return answer[0] <= truth <= answer[1]
        if isinstance(answer, str) or isinstance(truth, str):
            return answer == truth
        if float(truth).is_integer():
            return answer == truth
        return math.isclose(answer, truth, rel_tol=_NEAR)

    def words(self, answer: Answer) -> str:
        """An answer or the truth as it is shown, with its unit."""
        if isinstance(answer, str):
            return answer
        if isinstance(answer, tuple):
            low, high = map(number_words, answer)
            return _with_unit(low if low == high else f"{low} to {high}", self.unit)
        text = number_words(answer)
        return _with_unit(text, _singular(self.unit) if text == "1" else self.unit)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 <= value <= 1e300


def number_words(value: float) -> str:
    """A number as it is shown: whole ones exactly, others with three significant digits; commas between thousands."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    if not 1e-4 <= abs(value) < 1e15:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    rounded = float(f"{value:.3g}")
    text = f"{rounded:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _with_unit(text: str, unit: str) -> str:
    return f"{text} {unit}" if unit else text


def _singular(unit: str) -> str:
    """ "sector" for "sectors"; symbols such as "ms" stay."""
    if len(unit) < 4 or not (unit.isascii() and unit.isalpha()) or not unit.endswith("s"):
        return unit
    return unit[:-2] if re.search(r"(ch|sh|ss|x)es$", unit) else unit[:-1]


def read_number(text: str, unit: str = "") -> float | None:
    """The number that somebody typed, with or without its unit and thousands separators; None where it is none."""
    text = text.strip().replace("\u2212", "-")
    if unit:
        for name in (unit, _singular(unit)):
            text = text.removesuffix(name)
    text = text.strip().rstrip("%×x").strip()
    if _THOUSANDS.fullmatch(text):
        text = re.sub(r"[ ,'_\u00a0\u202f]", "", text)
    elif text.count(",") == 1 and "." not in text:  # a decimal comma
        text = text.replace(",", ".")
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 1e15 else value

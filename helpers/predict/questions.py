"""The questions: what can be asked, how an answer is parsed, and how it is checked against the truth."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# An answer: one of the choices, a number, or the two ends of a range.
Answer = str | float | tuple[float, float]

_KEY = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}([ ,'_\u00a0\u202f]\d{3})+(\.\d+)?")
_NEAR = 0.01  # an answer to a non-integer truth may be off by 1%


class InvalidQuestion(ValueError):
    """An author's mistake in a question or its answer; the message is one sentence."""


class NotAnAnswer(ValueError):
    """What a learner typed isn't an answer to the question; the message is one sentence."""


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        key: its name, which is unique in the course.
        text: the question itself.
        choices: the possible answers, or None if the answer is a number.
        unit: the number's unit.
        measured: whether the answer is a range, because nobody can know a measured value exactly.
        guess: whether the answer cannot be derived from the text before the question.
    """

    key: str
    text: str
    choices: tuple[str, ...] | None = None
    unit: str = ""
    measured: bool = False
    guess: bool = False

    def require(self) -> None:
        """Checks that the question is valid.

        Raises:
            InvalidQuestion: the question is not valid.
        """
        if not isinstance(self.key, str) or not _KEY.fullmatch(self.key):
            raise InvalidQuestion(
                f"The key {self.key!r} is not made of words; write it like 'sectors-16x16'."
            )
        if not isinstance(self.text, str) or not self.text.strip():
            raise InvalidQuestion(f"{self.key}: the question has no text.")
        if self.choices is None:
            return
        if len(self.choices) < 2 or len(set(self.choices)) < len(self.choices):
            raise InvalidQuestion(f"{self.key}: pass at least two choices, all different.")
        if self.measured or self.unit:
            raise InvalidQuestion(f"{self.key}: a question with choices has neither a unit nor a range.")

    def fits(self, answer: Any) -> bool:
        """Whether an answer has the right type for this question."""
        if self.choices is not None:
            return isinstance(answer, str) and answer in self.choices
        if self.measured:
            return isinstance(answer, tuple) and len(answer) == 2 and all(map(_is_number, answer))
        return _is_number(answer)

    def read(self, typed: Sequence[str]) -> Answer:
        """Parses what the learner chose or typed.

        Args:
            typed: the chosen text, the number, or the two ends of the range; a field may be empty.

        Raises:
            NotAnAnswer: something is missing, or is not a number.
        """
        if self.choices is not None:
            if len(typed) == 1 and typed[0] in self.choices:
                return typed[0]
            raise NotAnAnswer("nothing is chosen.")
        numbers = [read_number(text, self.unit) for text in typed]
        if wrong := [text for text, n in zip(typed, numbers, strict=True) if text.strip() and n is None]:
            raise NotAnAnswer(f"“{wrong[0].strip()[:40]}” is not a number. Write it as 1,024 or 0.5.")
        if None in numbers or len(numbers) != (2 if self.measured else 1):
            raise NotAnAnswer("a range needs both ends." if self.measured else "the field is empty.")
        return tuple(sorted(numbers)) if self.measured else numbers[0]

    def typed(self, answer: Answer | None) -> list[str]:
        """Returns what `read` parses back into this answer; empty fields for None."""
        if answer is None:
            return [] if self.choices else ["", ""] if self.measured else [""]
        if isinstance(answer, str):
            return [answer]
        return [f"{number:,}" for number in (answer if isinstance(answer, tuple) else (answer,))]

    def truth(self, value: Any) -> str | float:
        """Returns the truth as a plain string or number.

        Raises:
            InvalidQuestion: the value has the wrong type, or is not one of the choices.
        """
        if callable(item := getattr(value, "item", None)):  # a NumPy or PyTorch scalar
            try:
                value = item()
            except (RuntimeError, ValueError):
                raise InvalidQuestion(f"{self.key}: the answer is more than one number.") from None
        if self.choices is not None:
            if value not in self.choices:
                raise InvalidQuestion(
                    f"{self.key}: {value!r} is not one of the choices ({', '.join(self.choices)})."
                )
            return value
        if not _is_number(value):
            raise InvalidQuestion(f"{self.key}: the answer {str(value)[:80]!r} is not a number.")
        return value

    def hit(self, answer: Answer, truth: str | float) -> bool:
        """Whether the answer is right: it equals the truth, or the range contains the truth."""
        if isinstance(answer, tuple):
            return answer[0] <= truth <= answer[1]
        if isinstance(answer, str) or isinstance(truth, str):
            return answer == truth
        if float(truth).is_integer():
            return answer == truth
        return math.isclose(answer, truth, rel_tol=_NEAR)

    def words(self, answer: Answer) -> str:
        """Returns an answer or the truth as text, with its unit."""
        if isinstance(answer, str):
            return answer
        if isinstance(answer, tuple):
            low, high = map(number_words, answer)
            return _with_unit(low if low == high else f"{low} to {high}", self.unit)
        text = number_words(answer)
        return _with_unit(text, singular(self.unit) if text == "1" else self.unit)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 <= value <= 1e300


def number_words(value: float) -> str:
    """Returns a number as text, with commas between thousands.

    Integers are exact, and other numbers have three significant digits.
    """
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


def singular(unit: str) -> str:
    """Returns "sector" for "sectors"; symbols such as "ms" are returned unchanged."""
    if len(unit) < 4 or not (unit.isascii() and unit.isalpha()) or not unit.endswith("s"):
        return unit
    return unit[:-2] if re.search(r"(ch|sh|ss|x)es$", unit) else unit[:-1]


def read_number(text: str, unit: str = "") -> float | None:
    """Parses a number with or without its unit and thousands separators; None if it is not a number."""
    text = text.strip().replace("\u2212", "-")
    if unit:
        for name in (unit, singular(unit)):
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

"""What a learner predicted in a lesson, counted and in a table: for the review, the lab's progress and the teacher."""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helpers.predict import answers
from helpers.predict.answers import Kept
from helpers.predict.questions import Question
from helpers.predict.views import outcome

MIME = "application/vnd.kernel-workbook.predictions+json"
HEAD = ("question", "you said", "it is", "")
# What a stored notebook may claim: more is left out.
_MOST_ENTRIES, _MOST_CHOICES, _LONGEST = 40, 20, 300


@dataclass(frozen=True)
class Summary:
    """A lesson's questions and the learner's answers.

    Attributes:
        n_asked: how many questions there are.
        questions: those whose text is known, in order.
        answered: what was answered, by key.
    """

    n_asked: int
    questions: tuple[Question, ...]
    answered: Mapping[str, Kept]

    def sentences(self) -> list[str]:
        """How well the learner predicted, in words that suit the learner and the teacher."""
        if not self.answered:
            return [
                "You have predicted nothing yet: a question counts once you wrote an answer before you saw it."
            ]
        seen = [kept for kept in self.answered.values() if kept.truth is not None]
        exact = [kept for kept in seen if not kept.question.measured and not kept.question.guess]
        ranges = [kept for kept in seen if kept.question.measured]
        says = [f"Answered: {len(self.answered)} of {_count(self.n_asked, 'question')}."]
        if exact:
            right = sum(kept.hit for kept in exact)
            says.append(f"Right: {right} of {len(exact)} with one answer that can be worked out.")
        if ranges:
            inside = sum(kept.hit for kept in ranges)
            says.append(
                f"The truth inside the range: {inside} of {len(ranges)}; of ranges that one is 90 % sure of, 9 in 10 hold it."
            )
        return says

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Question, answer, truth, and how they compare. What was not revealed has no truth here."""
        found = []
        for question in self.questions:
            kept = self.answered.get(question.key)
            asked = question.text + (" (a guess)" if question.guess else "")
            if kept is None:
                found.append((asked, "", "", ""))
            elif kept.truth is None:
                found.append((asked, question.words(kept.answer), "", "not revealed yet"))
            else:
                said, is_now = question.words(kept.answer), question.words(kept.truth)
                found.append((asked, said, is_now, outcome(kept, kept.truth)))
        return found

    def table_text(self) -> str:
        """The rows under their head, for a terminal."""
        table = [HEAD, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        )

    def table_html(self) -> str:
        """The rows under their head."""
        left = 'style="text-align: left"'
        head = "".join(f"<th {left}>{name}</th>" for name in HEAD)
        body = "".join(
            "<tr>" + "".join(f"<td {left}>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows()
        )
        return f"<table><tr>{head}</tr>{body}</table>"

    def data(self) -> dict[str, Any]:
        """What `parse` reads."""
        return {
            "asked": self.n_asked,
            "answers": {key: answers.entry_of(kept) for key, kept in self.answered.items()},
        }


def of_lesson(lesson: str) -> Summary:
    """What is kept of a lesson."""
    return _summary(answers.keys_by_lesson().get(lesson, ()), {})


def of_session(asked: Mapping[str, Question]) -> Summary:
    """What is kept of the lesson that this kernel asked from; of what it asked, where that is no lesson of the course."""
    lessons = answers.keys_by_lesson()
    lesson = next((keys for keys in lessons.values() if any(key in keys for key in asked)), ())
    return _summary(tuple(dict.fromkeys((*lesson, *asked))), asked)


def _summary(keys: tuple[str, ...], asked: Mapping[str, Question]) -> Summary:
    kept = answers.read_all()
    # An answer to a question that is another one by now does not count.
    answered = {
        key: kept[key]
        for key in keys
        if key in kept and asked.get(key, kept[key].question) == kept[key].question
    }
    known = {**{key: one.question for key, one in answered.items()}, **asked}
    return Summary(len(keys), tuple(known[key] for key in keys if key in known), answered)


def parse(data: Any) -> Summary | None:
    """A summary from what a notebook claims; None where it holds none. What is too long or broken is left out."""
    if not isinstance(data, dict) or not isinstance(data.get("answers"), dict):
        return None
    answered = {}
    for key, entry in itertools.islice(data["answers"].items(), _MOST_ENTRIES):
        kept = answers.parse(key, entry)
        if kept is not None and _is_short(kept):
            answered[key] = kept
    if not answered:
        return None
    n_asked = data.get("asked")
    plausible = type(n_asked) is int and len(answered) <= n_asked <= _MOST_ENTRIES
    questions = tuple(kept.question for kept in answered.values())
    return Summary(n_asked if plausible else len(answered), questions, answered)


def _is_short(kept: Kept) -> bool:
    question = kept.question
    choices = question.choices or ()
    texts = (question.key, question.text, question.unit, kept.revealed, *choices)
    return len(choices) <= _MOST_CHOICES and all(len(text) <= _LONGEST for text in texts)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"

"""Counts and tables of a lesson's answers, for the review, the lab progress and the teacher."""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helpers.predict import answers
from helpers.predict.answers import StoredAnswer
from helpers.predict.questions import Question
from helpers.predict.views import outcome

MIME = "application/vnd.kernel-workbook.predictions+json"
HEAD = ("question", "you said", "it is", "")
# Limits for the data in a stored notebook; anything beyond them is left out.
_MOST_ENTRIES, _MOST_CHOICES, _LONGEST = 40, 20, 300


@dataclass(frozen=True)
class Summary:
    """A lesson's questions and the learner's answers.

    Attributes:
        n_asked: the number of questions.
        questions: the questions whose text is known, in order.
        answered: the answers by key.
    """

    n_asked: int
    questions: tuple[Question, ...]
    answered: Mapping[str, StoredAnswer]

    def sentences(self) -> list[str]:
        """Returns sentences about how well the learner predicted, for the learner and the teacher."""
        if not self.answered:
            return [
                "You haven't answered any question yet. An answer counts if you give it before you see the "
                "solution."
            ]
        revealed = [stored for stored in self.answered.values() if stored.truth is not None]
        exact = [stored for stored in revealed if not stored.question.measured and not stored.question.guess]
        ranges = [stored for stored in revealed if stored.question.measured]
        sentences = [f"Answered: {len(self.answered)} of {_count(self.n_asked, 'question')}."]
        if exact:
            right = sum(stored.hit for stored in exact)
            sentences.append(f"Right: {right} of {len(exact)} answers that you could work out.")
        if ranges:
            inside = sum(stored.hit for stored in ranges)
            sentences.append(
                f"Ranges that contained the measured value: {inside} of {len(ranges)}. If you are 90 % sure "
                "of each range, about 9 in 10 should."
            )
        return sentences

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Returns the rows (question, answer, truth, comparison).

        A question that has not been revealed has no truth here.
        """
        found = []
        for question in self.questions:
            stored = self.answered.get(question.key)
            asked = question.text + (" (a guess)" if question.guess else "")
            if stored is None:
                found.append((asked, "", "", ""))
            elif stored.truth is None:
                found.append((asked, question.words(stored.answer), "", "not revealed yet"))
            else:
                answer, truth = question.words(stored.answer), question.words(stored.truth)
                found.append((asked, answer, truth, outcome(stored, stored.truth)))
        return found

    def table_text(self) -> str:
        """Returns the rows as a plain-text table with a header."""
        table = [HEAD, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        )

    def table_html(self) -> str:
        """Returns the rows as an HTML table with a header."""
        left = 'style="text-align: left"'
        head = "".join(f"<th {left}>{name}</th>" for name in HEAD)
        body = "".join(
            "<tr>" + "".join(f"<td {left}>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows()
        )
        return f"<table><tr>{head}</tr>{body}</table>"

    def data(self) -> dict[str, Any]:
        """Returns data that `parse` can read."""
        return {
            "asked": self.n_asked,
            "answers": {key: answers.entry_of(stored) for key, stored in self.answered.items()},
        }


def of_lesson(lesson: str) -> Summary:
    """Returns the summary of a lesson from the stored answers."""
    return _summary(answers.keys_by_lesson().get(lesson, ()), {})


def of_session(asked: Mapping[str, Question]) -> Summary:
    """Returns the summary of the lesson whose questions this kernel asked.

    If the questions don't belong to a lesson of the course, the summary covers only these questions.
    """
    lessons = answers.keys_by_lesson()
    lesson = next((keys for keys in lessons.values() if any(key in keys for key in asked)), ())
    return _summary(tuple(dict.fromkeys((*lesson, *asked))), asked)


def _summary(keys: tuple[str, ...], asked: Mapping[str, Question]) -> Summary:
    stored = answers.read_all()
    # Answers to questions that have changed since then do not count.
    answered = {
        key: stored[key]
        for key in keys
        if key in stored and asked.get(key, stored[key].question) == stored[key].question
    }
    known = {**{key: one.question for key, one in answered.items()}, **asked}
    return Summary(len(keys), tuple(known[key] for key in keys if key in known), answered)


def parse(data: Any) -> Summary | None:
    """Returns a summary from the data in a notebook, or None if there is none.

    Entries that are too long or broken are left out.
    """
    if not isinstance(data, dict) or not isinstance(data.get("answers"), dict):
        return None
    answered = {}
    for key, entry in itertools.islice(data["answers"].items(), _MOST_ENTRIES):
        stored = answers.parse(key, entry)
        if stored is not None and _is_short(stored):
            answered[key] = stored
    if not answered:
        return None
    n_asked = data.get("asked")
    plausible = type(n_asked) is int and len(answered) <= n_asked <= _MOST_ENTRIES
    questions = tuple(stored.question for stored in answered.values())
    return Summary(n_asked if plausible else len(answered), questions, answered)


def _is_short(stored: StoredAnswer) -> bool:
    question = stored.question
    choices = question.choices or ()
    texts = (question.key, question.text, question.unit, stored.revealed, *choices)
    return len(choices) <= _MOST_CHOICES and all(len(text) <= _LONGEST for text in texts)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"

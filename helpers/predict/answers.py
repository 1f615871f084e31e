"""Store the learner's answers next to the lab progress.

The first answer that existed when the truth was revealed is the one that counts.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import progress
from helpers.predict.questions import Answer, Question

FILE = "predictions"
LESSONS = Path(__file__).with_name("lessons.json")  # `workbook form` writes it


@dataclass(frozen=True)
class StoredAnswer:
    """The stored state of one question.

    Attributes:
        question: the question as it was asked.
        answer: the learner's answer.
        revealed: when the truth was first shown, or "".
        truth: the truth at that time, or None if it has not been shown yet.
    """

    question: Question
    answer: Answer
    revealed: str = ""
    truth: str | float | None = None

    @property
    def hit(self) -> bool:
        """Whether the answer was right. False until the truth is known."""
        return self.truth is not None and self.question.hit(self.answer, self.truth)


@functools.cache
def keys_by_lesson() -> Mapping[str, tuple[str, ...]]:
    """Returns the keys of each lesson's questions, in order."""
    try:
        return {lesson: tuple(keys) for lesson, keys in json.loads(LESSONS.read_text("utf-8")).items()}
    except (OSError, ValueError):
        return {}


def read(key: str) -> StoredAnswer | None:
    """Returns the stored state of a question, or None if it was never answered."""
    return parse(key, progress.read(FILE).get(key))


def read_for(question: Question) -> StoredAnswer | None:
    """Returns the stored answer to exactly this question, or None."""
    stored = read(question.key)
    return stored if stored is not None and stored.question == question else None


def read_all() -> dict[str, StoredAnswer]:
    """Returns all stored answers by key."""
    found = {key: parse(key, entry) for key, entry in progress.read(FILE).items()}
    return {key: stored for key, stored in found.items() if stored is not None}


def parse(key: str, entry: Any) -> StoredAnswer | None:
    """Parses an entry of the file. Returns None if it is broken or not an answer."""
    try:
        choices = entry["choices"]
        question = Question(
            str(key),
            str(entry["question"]),
            None if choices is None else tuple(map(str, choices)),
            str(entry["unit"]),
            entry["measured"] is True,
            entry["guess"] is True,
        )
        answer = tuple(entry["answer"]) if isinstance(entry["answer"], list) else entry["answer"]
        question.require()
        truth = None if entry.get("truth") is None else question.truth(entry["truth"])
    except (TypeError, KeyError, ValueError):
        return None
    return (
        StoredAnswer(question, answer, str(entry.get("revealed", "")), truth)
        if question.fits(answer)
        else None
    )


def entry_of(stored: StoredAnswer) -> dict[str, Any]:
    """Returns an entry that `parse` can read."""
    question = stored.question
    return {
        "question": question.text,
        "choices": question.choices,
        "unit": question.unit,
        "measured": question.measured,
        "guess": question.guess,
        "answer": stored.answer,
        "revealed": stored.revealed,
        "truth": stored.truth,
    }


def store(question: Question, answer: Answer) -> str:
    """Stores an answer, unless an answer to the same question has already been revealed.

    Returns "", or the reason why the answer could not be stored.
    """

    def change(entry: dict) -> dict:
        stored = parse(question.key, entry)
        if stored is not None and stored.revealed and stored.question == question:
            return entry
        return entry_of(StoredAnswer(question, answer))

    return progress.update(FILE, question.key, change)


def restore(question: Question, entry: Any) -> StoredAnswer | None:
    """Stores an answer that the browser kept from an earlier kernel, unless there is one already.

    Args:
        question: the question that is asked now.
        entry: what the browser sent; it should be what `entry_of` returned.

    Returns:
        The answer that counts, or None if there is none to this question.
    """
    kept = parse(question.key, entry)
    if kept is not None and kept.question == question and read_for(question) is None:
        progress.update(FILE, question.key, lambda _: entry_of(kept))
    return read_for(question)


def note_reveal(question: Question, truth: str | float) -> None:
    """Stores when the truth was first shown and what it was, if the learner had answered."""

    def change(entry: dict) -> dict:
        stored = parse(question.key, entry)
        if stored is None or stored.revealed:
            return entry
        return entry_of(StoredAnswer(stored.question, stored.answer, time.strftime("%Y-%m-%d %H:%M"), truth))

    progress.update(FILE, question.key, change)  # if storing fails, this session still shows both

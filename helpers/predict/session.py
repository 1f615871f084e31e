"""`ask`, `reveal` and `review`, and the questions that this kernel has asked so far.

If answers cannot be saved (in Colab, in batch runs, on web pages, or without ipywidgets), the questions
appear as plain HTML and each answer in a collapsible section. Nothing here makes a notebook fail: a mistake
is reported in a sentence. If WORKBOOK_STRICT is set, as in tests and in `workbook form --execute`, an
author's mistake raises an exception instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from helpers.predict import answers, summary, views
from helpers.predict.field import Field, works
from helpers.predict.questions import Answer, InvalidQuestion, Question
from helpers.widgets.shown import Shown


@dataclass
class _OpenQuestion:
    """A question that this kernel has asked.

    Attributes:
        question: the question.
        field: the newest interactive field, or None.
        revealed: whether the truth was shown after the question was asked, to a learner who had not answered.
    """

    question: Question
    field: Field | None = None
    revealed: bool = False

    def save(self, answer: Answer) -> str:
        """Saves an answer from the field. Returns "" or the reason why it could not be saved."""
        if self.revealed:
            return "the answer has been shown. Run this cell again if you still want to predict."
        problem = answers.store(self.question, answer)
        return f"{problem}." if problem else ""


_asked: dict[str, _OpenQuestion] = {}


def ask(
    key: str,
    question: str,
    *,
    choices: Sequence[str] | None = None,
    unit: str = "",
    measured: bool = False,
    guess: bool = False,
) -> None:
    """Shows a question with a field for the answer, which is saved when you leave the field.

    Args:
        key: the question's name, which you also pass to `reveal`.
        question: the question itself.
        choices: the possible answers; without them the answer is a number.
        unit: the number's unit.
        measured: whether the answer is a measured value, for which you give a range that you are 90% sure of.
        guess: whether the answer cannot be derived from the text before the question.
    """
    new_question = Question(key, question, None if choices is None else tuple(choices), unit, measured, guess)
    try:
        new_question.require()
        earlier = _asked.get(key)
        if earlier is not None and earlier.question != new_question:
            raise InvalidQuestion(f"{key} is the key of two questions; give each question its own key.")
    except InvalidQuestion as error:
        _show_error(error)
        return
    asked = _asked[key] = _OpenQuestion(new_question)
    if _live():
        stored = answers.read(key)
        same = stored if stored is not None and stored.question == new_question else None
        asked.field = Field(new_question, same, asked.save)
    _show(Shown(views.question_text(new_question), views.question_html(new_question), asked.field))


def reveal(key: str, value: Any) -> None:
    """Shows the answer next to what you predicted.

    Args:
        key: the question's name.
        value: the answer: one of the choices, or a number.
    """
    asked = _asked.get(key)
    stored = answers.read(key) if _live() else None
    try:
        if asked is not None:
            question = asked.question
        elif stored is not None:  # it was asked before the kernel was restarted
            question = stored.question
        else:
            raise InvalidQuestion(f"{key} was not asked before it was revealed.")
        truth = question.truth(value)
    except InvalidQuestion as error:
        if asked is None and not _strict():  # the cell that asks was not run: show the value anyway
            _show(Shown(str(value), views.problem(f"It is {value}.")))
            return
        _show_error(error)
        return
    if not _live():
        _show(Shown(views.reveal_text(question, None, truth), views.reveal_fold(question, truth)))
        return
    if stored is not None and stored.question != question:
        stored = None
    if stored is not None:
        answers.note_reveal(question, truth)
        if asked is not None and asked.field is not None:
            asked.field.close(stored)
    elif asked is not None:
        asked.revealed = True
    _show(Shown(views.reveal_text(question, stored, truth), views.reveal_html(question, stored, truth)))


def review() -> None:
    """Shows how well you predicted in this lesson: each question with your prediction and the answer."""
    if not _live():
        text = "In JupyterLab this cell shows how well you predicted."
        _show(Shown(text, views.boxed(text)))
        return
    if not _asked:
        text = "No question was asked since the kernel started: run the lesson's cells first."
        _show(Shown(text, views.boxed(text)))
        return
    found = summary.of_session({key: asked.question for key, asked in _asked.items()})
    text, html = "\n".join(found.sentences()), views.boxed(*found.sentences())
    if found.answered:
        text, html = f"{text}\n{found.table_text()}", html + found.table_html()
    _show(Shown(text, html))


def _live() -> bool:
    """Whether this environment can show an interactive field and save its answer."""
    return "google.colab" not in sys.modules and os.environ.get("WORKBOOK_WIDGETS") != "plain" and works()


def _strict() -> bool:
    return bool(os.environ.get("WORKBOOK_STRICT"))


def _show_error(error: InvalidQuestion) -> None:
    """Shows what is wrong, or raises the error if an author should see it."""
    if _strict():
        raise error
    _show(Shown(str(error), views.problem(str(error))))


def _show(output: Shown) -> None:
    from IPython.display import display

    display(output)

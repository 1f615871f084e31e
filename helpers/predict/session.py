"""`ask`, `reveal` and `review`, and what this kernel has asked so far.

Where answers cannot be kept (Colab, batches, pages, no ipywidgets) the same questions stand there as plain HTML, and each
answer in a fold. Nothing here fails a notebook: what is wrong is told in a sentence. Where WORKBOOK_STRICT is set, as in
tests and in `workbook form --execute`, an author's mistake raises instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from helpers.predict import answers, summary, views
from helpers.predict.field import Field, works
from helpers.predict.questions import Answer, Misasked, Question
from helpers.widgets.shown import Shown


@dataclass
class _Asked:
    """A question of this kernel.

    Attributes:
        question: what was asked.
        field: the newest live field, or None.
        shown: whether the truth was shown since it was asked, to a learner who had not answered.
    """

    question: Question
    field: Field | None = None
    shown: bool = False

    def keep(self, answer: Answer) -> str:
        """Keep an answer from the field; why it is not kept, or ""."""
        if self.shown:
            return "the answer has been shown. Run this cell again to predict all the same."
        problem = answers.keep(self.question, answer)
        return f"{problem}." if problem else ""


_asked: dict[str, _Asked] = {}


def ask(
    key: str,
    question: str,
    *,
    choices: Sequence[str] | None = None,
    unit: str = "",
    measured: bool = False,
    guess: bool = False,
) -> None:
    """Show a question with a field for the answer, which is kept when you leave the field.

    Args:
        key: the question's name; `reveal` takes it.
        question: what is asked.
        choices: the possible answers; without them the answer is a number.
        unit: of the number.
        measured: a measured value is asked for: the answer is a range that you are 90 % sure of.
        guess: nothing before it says the answer.
    """
    made = Question(key, question, None if choices is None else tuple(choices), unit, measured, guess)
    try:
        made.require()
        earlier = _asked.get(key)
        if earlier is not None and earlier.question != made:
            raise Misasked(f"{key} is the key of two questions; give each its own.")
    except Misasked as error:
        _tell(error)
        return
    asked = _asked[key] = _Asked(made)
    if _live():
        kept = answers.read(key)
        same = kept if kept is not None and kept.question == made else None
        asked.field = Field(made, same, asked.keep)
    _show(Shown(views.question_text(made), views.question_html(made), asked.field))


def reveal(key: str, value: Any) -> None:
    """Show what came out beside what you predicted.

    Args:
        key: of the question.
        value: the answer: one of the choices, or a number.
    """
    asked = _asked.get(key)
    kept = answers.read(key) if _live() else None
    try:
        if asked is not None:
            question = asked.question
        elif kept is not None:  # asked before the kernel was restarted
            question = kept.question
        else:
            raise Misasked(f"{key} was not asked before its answer.")
        truth = question.truth(value)
    except Misasked as error:
        if asked is None and not _strict():  # its cell was not run: show the value all the same
            _show(Shown(str(value), views.problem(f"It is {value}.")))
            return
        _tell(error)
        return
    if not _live():
        _show(Shown(views.reveal_text(question, None, truth), views.reveal_fold(question, truth)))
        return
    if kept is not None and kept.question != question:
        kept = None
    if kept is not None:
        answers.note_reveal(question, truth)
        if asked is not None and asked.field is not None:
            asked.field.close(kept)
    elif asked is not None:
        asked.shown = True
    _show(Shown(views.reveal_text(question, kept, truth), views.reveal_html(question, kept, truth)))


def review() -> None:
    """Show how well you predicted in this lesson: each question with your answer and what came out."""
    if not _live():
        text = "In JupyterLab this cell shows how well you predicted."
        _show(Shown(text, views.boxed(text)))
        return
    if not _asked:
        text = "Nothing was asked since the kernel started: run the lesson's cells first."
        _show(Shown(text, views.boxed(text)))
        return
    found = summary.of_session({key: asked.question for key, asked in _asked.items()})
    text, html = "\n".join(found.sentences()), views.boxed(*found.sentences())
    if found.answered:
        text, html = f"{text}\n{found.table_text()}", html + found.table_html()
    _show(Shown(text, html))


def _live() -> bool:
    """Whether a field can be filled in here and its answer kept."""
    return "google.colab" not in sys.modules and os.environ.get("WORKBOOK_WIDGETS") != "plain" and works()


def _strict() -> bool:
    return bool(os.environ.get("WORKBOOK_STRICT"))


def _tell(error: Misasked) -> None:
    """Say what is wrong; raise it where an author should see it."""
    if _strict():
        raise error
    _show(Shown(str(error), views.problem(str(error))))


def _show(shown: Shown) -> None:
    from IPython.display import display

    display(shown)

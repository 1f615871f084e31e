"""`ask`, `reveal` and `review`, and the questions that this kernel has asked so far.

If answers cannot be saved (in batch runs, on web pages, or without anywidget), the questions appear as plain
HTML. An answer is folded until the learner has answered. Nothing here makes a notebook fail: a mistake is
reported in a sentence. If WORKBOOK_STRICT is set, as in tests and in `workbook form --execute`, an author's
mistake raises an exception instead.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers.predict import answers, summary, views
from helpers.predict.questions import InvalidQuestion, Question

if TYPE_CHECKING:
    from helpers.predict.field import Field


@dataclass(frozen=True, repr=False)
class Output:
    """What a cell shows: the field if the frontend has widgets, otherwise HTML or text."""

    text: str
    html: str
    field: Field | None = None

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict, dict]:
        # In Colab, anywidget's metadata names the widget manager.
        data, metadata = self.field._repr_mimebundle_() if self.field is not None else ({}, {})
        return {**data, "text/plain": self.text, "text/html": self.html}, metadata


@dataclass
class _Asked:
    """A question that this kernel has asked.

    Attributes:
        question: the question.
        field: the newest interactive field, or None.
        folded: the truth, its explanation and the display that shows both folded, until the learner answers.
    """

    question: Question
    field: Field | None = None
    folded: tuple[str | float, str, Any] | None = None

    def reveal(self, truth: str | float, because: str) -> Output:
        """Returns the truth as it is shown now, and makes the answer final if there is one."""
        if answers.read_for(self.question) is not None:
            answers.note_reveal(self.question, truth)
        stored = answers.read_for(self.question)
        text = views.reveal_text(self.question, stored, truth, because)
        if stored is None:
            return Output(text, views.reveal_fold(self.question, truth, because, "You haven't answered yet."))
        if self.field is not None:
            self.field.show_stored()
        return Output(text, views.reveal_html(self.question, stored, truth, because))

    def answered(self) -> None:
        """Unfolds the truth, if its cell has already run."""
        if self.folded is not None:
            truth, because, display = self.folded
            self.folded = None
            display.update(self.reveal(truth, because))


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
    """Shows a question with a field for the answer, which is saved when you leave the field.

    Args:
        key: the question's name, which you also pass to `reveal`.
        question: the question itself; `code` in backticks is formatted.
        choices: the possible answers; without them the answer is a number.
        unit: the number's unit.
        measured: whether the answer is a measured value, for which you give a range that you are 90% sure of.
        guess: whether the answer cannot be derived from the text before the question.
    """
    new_question = Question(key, question, None if choices is None else tuple(choices), unit, measured, guess)
    earlier = _asked.get(key)
    try:
        new_question.require()
        if earlier is not None and earlier.question != new_question:
            raise InvalidQuestion(f"{key} is the key of two questions; give each question its own key.")
    except InvalidQuestion as error:
        _show_error(error)
        return
    asked = _asked[key] = earlier or _Asked(new_question)
    asked.field = _new_field(asked) if _live() else None
    _show(Output(views.question_text(new_question), views.question_html(new_question), asked.field))


def reveal(key: str, value: Any, because: str = "") -> None:
    """Shows the answer next to what you predicted, and why it is right. It is folded until you answer.

    Args:
        key: the question's name.
        value: the answer: one of the choices, or a number.
        because: the explanation: paragraphs with a blank line between them, and `code` in backticks.
    """
    stored = answers.read(key) if _live() else None
    asked = _asked.get(key) or (_Asked(stored.question) if stored is not None else None)
    try:
        if not isinstance(because, str):
            raise InvalidQuestion(f"{key}: the explanation is not text.")
        if asked is None:
            raise InvalidQuestion(f"{key} was not asked before it was revealed.")
        truth = asked.question.truth(value)
    except InvalidQuestion as error:
        if asked is None and not _strict() and isinstance(because, str):
            _show(Output(f"It is {value}.", views.unasked(str(value), because)))
        else:
            _show_error(error)
        return
    if not _live():
        text = views.reveal_text(asked.question, None, truth, because)
        _show(Output(text, views.reveal_fold(asked.question, truth, because)))
        return
    display = _show(asked.reveal(truth, because))
    is_folded = display is not None and answers.read_for(asked.question) is None
    asked.folded = (truth, because, display) if is_folded else None


def review() -> None:
    """Shows how well you predicted in this lesson: each question with your prediction and the answer."""
    if not _live():
        text = "In JupyterLab and Colab this cell shows how well you predicted."
        _show(Output(text, views.boxed(text)))
        return
    if not _asked:
        text = "No question has been asked since the kernel started. Run the lesson's cells first."
        _show(Output(text, views.boxed(text)))
        return
    found = summary.of_session({key: asked.question for key, asked in _asked.items()})
    text, html = "\n".join(found.sentences()), views.boxed(*found.sentences())
    if found.answered:
        text, html = f"{text}\n{found.table_text()}", html + found.table_html()
    _show(Output(text, html))


def _live() -> bool:
    """Whether this environment can show a field and save its answer."""
    if os.environ.get("WORKBOOK_WIDGETS") == "plain":
        return False
    try:
        import anywidget  # noqa: F401
    except ImportError:
        return False
    return True


def _new_field(asked: _Asked) -> Field:
    from helpers.predict.field import Field

    return Field(asked.question, asked.answered)


def _strict() -> bool:
    return bool(os.environ.get("WORKBOOK_STRICT"))


def _show_error(error: InvalidQuestion) -> None:
    """Shows what is wrong, or raises the error if an author should see it."""
    if _strict():
        raise error
    _show(Output(str(error), views.problem(str(error))))


def _show(output: Output) -> Any:
    """Displays an output. Returns a handle that replaces it, or None outside of a notebook."""
    from IPython.display import display

    return display(output, display_id=True)

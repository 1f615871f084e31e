"""The field in which a learner answers a question, a widget for JupyterLab, Notebook 7 and Colab."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from helpers.predict import answers, views
from helpers.predict.answers import StoredAnswer
from helpers.predict.questions import NotAnAnswer, Question


class Field(anywidget.AnyWidget):
    """An input for one question: radio buttons, a number, or the two ends of a range.

    The browser sends `{"typed": [...]}` when the learner leaves the field, presses Enter or presses Save, and
    `{"kept": {...}}` if it still has an answer that this kernel doesn't know.

    Attributes:
        key: the question's key, under which the browser keeps the answer.
        html: the field's markup.
        typed: the text in each input.
        entry: the stored answer as `answers.entry_of` returns it; empty if there is none.
        status: the line below the inputs.
    """

    _esm = Path(__file__).with_name("question.js")
    key = traitlets.Unicode().tag(sync=True)
    html = traitlets.Unicode().tag(sync=True)
    typed = traitlets.List(traitlets.Unicode()).tag(sync=True)
    entry = traitlets.Dict().tag(sync=True)
    status = traitlets.Unicode().tag(sync=True)

    def __init__(self, question: Question, on_answer: Callable[[], None]) -> None:
        """Creates the field with the stored answer, if there is one.

        Args:
            question: the question.
            on_answer: called after an answer was stored.
        """
        self.question, self._on_answer = question, on_answer
        super().__init__(key=question.key, html=views.question_html(question))
        self.show_stored()
        self.on_msg(lambda _, content, buffers: self.receive(content))

    def show_stored(self) -> None:
        """Shows the stored answer, and locks the field if the truth was revealed."""
        stored = answers.read_for(self.question)
        with self.hold_sync():  # the browser gets everything at once
            self.typed = self.question.typed(stored.answer if stored else None)
            self.entry = answers.entry_of(stored) if stored else {}
            self.status = self._said(stored) if stored else ""

    def receive(self, content: dict[str, Any]) -> None:
        """Stores what the browser sent, and reports the result."""
        if "kept" in content:
            problem, is_stored = "", answers.restore(self.question, content["kept"]) is not None
        else:
            problem = self._store(content.get("typed", []))
            is_stored = not problem
        if problem:
            self.status = problem
        if is_stored:
            self.show_stored()
            self._on_answer()
        self.send({})

    def _said(self, stored: StoredAnswer) -> str:
        words = self.question.words(stored.answer)
        if stored.revealed:
            return f"You said {words} before you saw the answer, so this is the answer that counts."
        return f"saved: {words}. You can change it until the answer is shown."

    def _store(self, typed: list[str]) -> str:
        """Stores an answer. Returns "" or what was wrong with it."""
        try:
            problem = answers.store(self.question, self.question.read(typed))
        except NotAnAnswer as error:
            stored = answers.read_for(self.question)
            last = f" Your last answer is still: {self.question.words(stored.answer)}." if stored else ""
            return f"not saved: {error}{last}"
        return f"not saved: {problem}" if problem else ""

"""The input field of a question, made with ipywidgets.

The answer is saved when the learner leaves the field or presses Save.
"""

from __future__ import annotations

import html
from collections.abc import Callable

from helpers.predict.answers import StoredAnswer
from helpers.predict.questions import Answer, Question, number_words, read_number
from helpers.predict.views import heading


class Field:
    """An input for one question: radio buttons, a number, or the two ends of a range.

    Attributes:
        box: the whole field as one widget.
        inputs: the widgets that take the answer.
        state: the line below the inputs that shows what has been saved.
    """

    def __init__(
        self, question: Question, stored: StoredAnswer | None, save: Callable[[Answer], str]
    ) -> None:
        """Creates the field.

        Args:
            question: the question.
            stored: the stored answer, or None.
            save: saves an answer, and returns "" or the reason why it could not be saved.
        """
        import ipywidgets as w

        self.question, self._save = question, save
        self._last = stored.answer if stored else None
        self.state = w.HTML()
        self.button = w.Button(description="Save", layout={"width": "6em"})
        self.button.on_click(lambda button: self._answered())
        if question.choices:
            self.inputs = [
                w.RadioButtons(
                    options=list(question.choices),
                    value=stored.answer if stored else None,
                    layout={"width": "max-content", "max_width": "100%"},
                )
            ]
            row = self.inputs
        else:
            ends = stored.answer if stored and question.measured else [stored.answer] if stored else ["", ""]
            names = ("low", "high") if question.measured else ("your answer",)
            self.inputs = [
                w.Text(
                    value=number_words(end) if stored else "",
                    placeholder=name,
                    continuous_update=False,
                    layout={"width": "9em"},
                )
                for name, end in zip(names, ends, strict=False)
            ]
            row = [self.inputs[0]]
            if question.measured:
                row += [w.HTML("to"), self.inputs[1]]
            row += [w.HTML(html.escape(question.unit)), self.button]
        for one in self.inputs:
            one.observe(lambda change: self._answered(), "value")
        layout = {"align_items": "center", "grid_gap": "8px"}
        self.box = w.VBox([w.HTML(heading(question)), w.HBox(row, layout=layout), self.state])
        if stored and stored.revealed:
            self.close(stored)
        elif stored:
            self._show_status(
                f"saved: {question.words(stored.answer)}. You can change it until the answer is shown."
            )

    def read(self) -> Answer | None:
        """Returns the answer in the field, or None if there is none yet."""
        if self.question.choices:
            return self.inputs[0].value
        numbers = [read_number(one.value, self.question.unit) for one in self.inputs]
        if None in numbers:
            return None
        return tuple(sorted(numbers)) if self.question.measured else numbers[0]

    def _answered(self) -> None:
        answer = self.read()
        if answer is not None:
            problem = self._save(answer)
            if not problem:
                self._last = answer
            words = self.question.words(answer)
            self._show_status(
                f"not saved: {problem}"
                if problem
                else f"saved: {words}. You can change it until the answer is shown."
            )
            return
        reminder = (
            "" if self._last is None else (f" Your last answer is still: {self.question.words(self._last)}.")
        )
        wrong = [
            one.value
            for one in self.inputs
            if one.value and one.value.strip() and read_number(one.value, self.question.unit) is None
        ]
        if wrong:
            self._show_status(
                f"not saved: “{wrong[0].strip()[:40]}” is not a number. Write it as 1,024 or 0.5.{reminder}"
            )
        elif self.question.measured:
            self._show_status(f"not saved yet: a range needs both ends.{reminder}")
        else:
            self._show_status(f"not saved: the field is empty.{reminder}")

    def close(self, stored: StoredAnswer) -> None:
        """Locks the field after the truth was shown, and displays a message that says so."""
        for one in (*self.inputs, self.button):
            one.disabled = True
        self._show_status(
            f"You said {self.question.words(stored.answer)} before you saw the answer, and that is the one "
            "that "
            "counts."
        )

    def _show_status(self, text: str) -> None:
        self.state.value = f'<div role="status"><small>{html.escape(text)}</small></div>'


def works() -> bool:
    """Whether ipywidgets is installed."""
    try:
        import ipywidgets  # noqa: F401
    except ImportError:
        return False
    return True

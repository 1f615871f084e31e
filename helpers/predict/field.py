"""The field of a question, with ipywidgets: what is written into it is kept when the learner leaves it or presses Keep."""

from __future__ import annotations

import html
from collections.abc import Callable

from helpers.predict.answers import Kept
from helpers.predict.questions import Answer, Question, number_words, read_number
from helpers.predict.views import heading


class Field:
    """Radio buttons, a number, or the two ends of a range; below it what is kept.

    Attributes:
        box: all of it as one widget.
        inputs: the widgets that take the answer.
        state: the line that says what is kept.
    """

    def __init__(self, question: Question, kept: Kept | None, keep: Callable[[Answer], str]) -> None:
        """Args:
        question: what is asked.
        kept: what was answered before.
        keep: takes an answer; says why it is not kept, or "".
        """
        import ipywidgets as w

        self.question, self._keep = question, keep
        self._last = kept.answer if kept else None
        self.state = w.HTML()
        self.button = w.Button(description="Keep", layout={"width": "6em"})
        self.button.on_click(lambda button: self._answered())
        if question.choices:
            self.inputs = [
                w.RadioButtons(
                    options=list(question.choices),
                    value=kept.answer if kept else None,
                    layout={"width": "max-content", "max_width": "100%"},
                )
            ]
            row = self.inputs
        else:
            ends = kept.answer if kept and question.measured else [kept.answer] if kept else ["", ""]
            names = ("low", "high") if question.measured else ("your answer",)
            self.inputs = [
                w.Text(
                    value=number_words(end) if kept else "",
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
        if kept and kept.revealed:
            self.close(kept)
        elif kept:
            self._say(f"kept: {question.words(kept.answer)}. You may change it until the answer is shown.")

    def read(self) -> Answer | None:
        """The answer that stands in the field; None where there is none yet."""
        if self.question.choices:
            return self.inputs[0].value
        numbers = [read_number(one.value, self.question.unit) for one in self.inputs]
        if None in numbers:
            return None
        return tuple(sorted(numbers)) if self.question.measured else numbers[0]

    def _answered(self) -> None:
        answer = self.read()
        if answer is not None:
            problem = self._keep(answer)
            if not problem:
                self._last = answer
            words = self.question.words(answer)
            self._say(
                f"not kept: {problem}"
                if problem
                else f"kept: {words}. You may change it until the answer is shown."
            )
            return
        stays = "" if self._last is None else f" Your last answer stays: {self.question.words(self._last)}."
        wrong = [
            one.value
            for one in self.inputs
            if one.value and one.value.strip() and read_number(one.value, self.question.unit) is None
        ]
        if wrong:
            self._say(f"not kept: “{wrong[0].strip()[:40]}” is no number. Write it as 1,024 or 0.5.{stays}")
        elif self.question.measured:
            self._say(f"not kept yet: a range needs both ends.{stays}")
        else:
            self._say(f"not kept: nothing is written.{stays}")

    def close(self, kept: Kept) -> None:
        """The truth was shown: the answer stays as it is, and the field says so."""
        for one in (*self.inputs, self.button):
            one.disabled = True
        self._say(
            f"You said {self.question.words(kept.answer)} before you saw the answer; that is the one that counts."
        )

    def _say(self, text: str) -> None:
        self.state.value = f'<div role="status"><small>{html.escape(text)}</small></div>'


def works() -> bool:
    """Whether ipywidgets is here."""
    try:
        import ipywidgets  # noqa: F401
    except ImportError:
        return False
    return True

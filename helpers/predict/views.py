"""Questions and answers as HTML and as text.

The HTML uses the page's own colors, so that it is readable in light and dark themes.
"""

from __future__ import annotations

import html

from helpers.predict.answers import StoredAnswer
from helpers.predict.questions import Question

_BOX = (
    "border-left: 4px solid #0072B2; padding: 2px 0 2px 12px; margin: 4px 0; max-width: 60em; "
    "line-height: 1.5"
)
# JupyterLab uses keys to move between cells; an element with this attribute handles its own keys.
_KEEP_KEYS = 'data-lm-suppress-shortcuts="true"'
RANGE_HINT = "a range that you are 90 % sure of"


def heading(question: Question) -> str:
    """Returns the question as HTML, with a hint about the kind of answer."""
    guess = " <i>(a guess: the text above does not give the answer)</i>" if question.guess else ""
    range_hint = f" <i>Give {RANGE_HINT}.</i>" if question.measured else ""
    return f"<b>Predict.</b> {html.escape(question.text)}{range_hint}{guess}"


def boxed(*parts: str) -> str:
    """Returns the parts as lines in a box with a bar on the left."""
    return f'<div style="{_BOX}">{"".join(f"<div>{part}</div>" for part in parts)}</div>'


def question_text(question: Question) -> str:
    """Returns the question as plain text."""
    expected = ", ".join(question.choices) if question.choices else question.unit
    range_hint = f" ({RANGE_HINT})" if question.measured else ""
    return f"Predict. {question.text}{range_hint}" + (f" [{expected}]" if expected else "")


def question_html(question: Question) -> str:
    """Returns the question with plain HTML input fields, for pages on which answers cannot be saved."""
    if question.choices:
        name = f"kw-predict-{html.escape(question.key)}"
        fields = "".join(
            f'<label style="display: block"><input type="radio" name="{name}" {_KEEP_KEYS}> '
            f"{html.escape(choice)}</label>"
            for choice in question.choices
        )
    else:
        names = ("low", "high") if question.measured else ("your answer",)
        fields = " to ".join(
            f'<input type="text" inputmode="decimal" size="8" aria-label="{name}" placeholder="{name}" '
            f"{_KEEP_KEYS}>"
            for name in names
        )
        fields += f" {html.escape(question.unit)}"
    return boxed(
        heading(question), fields, "<small>Decide before you continue; your answer is not saved here.</small>"
    )


def outcome(stored: StoredAnswer, truth: str | float) -> str:
    """Returns how the answer compares with the truth, or "" if it is simply wrong."""
    hit = stored.question.hit(stored.answer, truth)
    if stored.question.measured:
        return "✓ inside the range" if hit else "outside the range"
    return "✓ right" if hit else ""


def reveal_text(question: Question, stored: StoredAnswer | None, truth: str | float) -> str:
    """Returns the answer as plain text, such as "You said 8; it is 4"."""
    truth_sentence = f"It is {question.words(truth)}."
    if stored is None:
        return truth_sentence
    result = outcome(stored, truth)
    ending = f": {result}" if result else ""
    return f"You said {question.words(stored.answer)}; it is {question.words(truth)}{ending}."


def reveal_html(question: Question, stored: StoredAnswer | None, truth: str | float) -> str:
    """Returns the answer as HTML, for notebooks that save answers."""
    value = f"<b>{html.escape(question.words(truth))}</b>"
    asked = f"<small>{html.escape(question.text)}</small>"
    if stored is None:
        return boxed(asked, f"It is {value}.")
    result = outcome(stored, truth)
    ending = f": {result}" if result else ""
    answer = f"<b>{html.escape(question.words(stored.answer))}</b>"
    return boxed(asked, f"You said {answer}; it is {value}{ending}.")


def reveal_fold(question: Question, truth: str | float) -> str:
    """Returns the answer in a collapsible section, for pages without the learner's prediction."""
    asked = f": {html.escape(question.text)}" if question.text else ""
    return boxed(
        f'<details><summary style="cursor: pointer"><b>The answer</b>{asked}</summary>'
        f"It is <b>{html.escape(question.words(truth))}</b>.</details>"
    )


def problem(sentence: str) -> str:
    """Returns a sentence about a problem in a box."""
    return boxed(f"<b>Predict.</b> {html.escape(sentence)}")

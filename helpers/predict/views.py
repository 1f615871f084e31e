"""Questions and answers as HTML and as text. Colours are the page's own, so that both themes can be read."""

from __future__ import annotations

import html

from helpers.predict.answers import Kept
from helpers.predict.questions import Question

_BOX = "border-left: 4px solid #0072B2; padding: 2px 0 2px 12px; margin: 4px 0; max-width: 60em; line-height: 1.5"
# JupyterLab takes keys for moves between cells; an element with this attribute keeps its own.
_KEEP_KEYS = 'data-lm-suppress-shortcuts="true"'
SURE = "a range that you are 90 % sure of"


def heading(question: Question) -> str:
    """The question with what kind of answer it wants."""
    guess = " <i>(a guess: nothing above says it)</i>" if question.guess else ""
    sure = f" <i>Give {SURE}.</i>" if question.measured else ""
    return f"<b>Predict.</b> {html.escape(question.text)}{sure}{guess}"


def boxed(*parts: str) -> str:
    """Lines in a box with a bar on its left."""
    return f'<div style="{_BOX}">{"".join(f"<div>{part}</div>" for part in parts)}</div>'


def question_text(question: Question) -> str:
    """The question for a terminal."""
    wants = ", ".join(question.choices) if question.choices else question.unit
    sure = f" ({SURE})" if question.measured else ""
    return f"Predict. {question.text}{sure}" + (f" [{wants}]" if wants else "")


def question_html(question: Question) -> str:
    """The question where nothing can be kept: fields to write into, and no more."""
    if question.choices:
        name = f"kw-predict-{html.escape(question.key)}"
        fields = "".join(
            f'<label style="display: block"><input type="radio" name="{name}" {_KEEP_KEYS}> {html.escape(choice)}</label>'
            for choice in question.choices
        )
    else:
        names = ("low", "high") if question.measured else ("your answer",)
        fields = " to ".join(
            f'<input type="text" inputmode="decimal" size="8" aria-label="{name}" placeholder="{name}" {_KEEP_KEYS}>'
            for name in names
        )
        fields += f" {html.escape(question.unit)}"
    return boxed(heading(question), fields, "<small>Decide before you go on; here it is not kept.</small>")


def outcome(kept: Kept, truth: str | float) -> str:
    """How the answer compares; nothing where it is simply another one."""
    hit = kept.question.hit(kept.answer, truth)
    if kept.question.measured:
        return "✓ inside the range" if hit else "outside the range"
    return "✓ right" if hit else ""


def reveal_text(question: Question, kept: Kept | None, truth: str | float) -> str:
    """The answer for a terminal: "you said 8; it is 4"."""
    is_now = f"It is {question.words(truth)}."
    if kept is None:
        return is_now
    says = outcome(kept, truth)
    ending = f": {says}" if says else ""
    return f"You said {question.words(kept.answer)}; it is {question.words(truth)}{ending}."


def reveal_html(question: Question, kept: Kept | None, truth: str | float) -> str:
    """The same for a notebook in which answers are kept."""
    value = f"<b>{html.escape(question.words(truth))}</b>"
    asked = f"<small>{html.escape(question.text)}</small>"
    if kept is None:
        return boxed(asked, f"It is {value}.")
    says = outcome(kept, truth)
    ending = f": {says}" if says else ""
    said = f"<b>{html.escape(question.words(kept.answer))}</b>"
    return boxed(asked, f"You said {said}; it is {value}{ending}.")


def reveal_fold(question: Question, truth: str | float) -> str:
    """The answer in a fold, for a page and wherever the learner's own is not known."""
    asked = f": {html.escape(question.text)}" if question.text else ""
    return boxed(
        f'<details><summary style="cursor: pointer"><b>The answer</b>{asked}</summary>'
        f"It is <b>{html.escape(question.words(truth))}</b>.</details>"
    )


def problem(sentence: str) -> str:
    """What went wrong, in a box."""
    return boxed(f"<b>Predict.</b> {html.escape(sentence)}")

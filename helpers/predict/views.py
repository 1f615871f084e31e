"""Questions and answers as HTML and as text.

The HTML uses the page's own colors, so that it is readable in light and dark themes. In the book,
`workbook/book/assets/questions.js` finds questions and answers by their classes and their data.
"""

from __future__ import annotations

import html
import inspect
import json
import re

from helpers.predict.answers import StoredAnswer
from helpers.predict.questions import Question, singular

_BOX = (
    "border-left: 4px solid #0072B2; padding: 2px 0 2px 12px; margin: 4px 0; max-width: 60em; "
    "line-height: 1.5"
)
_INPUT = (
    "font: inherit; color: inherit; background: transparent; border: 1px solid; border-radius: 3px; "
    "padding: 1px 6px; margin: 4px 0"
)
# JupyterLab uses keys to move between cells, unless the focused element itself has this attribute.
_KEEP_KEYS = 'data-lm-suppress-shortcuts="true"'
RANGE_HINT = "a range that you are 90 % sure of"


def heading(question: Question) -> str:
    """Returns the question as HTML, with a hint about the kind of answer."""
    guess = " <i>(a guess: the text above does not give the answer)</i>" if question.guess else ""
    range_hint = f" <i>Give {RANGE_HINT}.</i>" if question.measured else ""
    return f"<b>Predict.</b> {inline(question.text)}{range_hint}{guess}"


def inline(text: str) -> str:
    """Returns a line of text as HTML; only `code` in backticks is formatted."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def paragraphs(text: str) -> str:
    """Returns text as HTML paragraphs, which blank lines separate."""
    parts = re.split(r"\n\s*\n", inspect.cleandoc(text).strip())
    return "".join(f'<p style="margin: 6px 0">{inline(part)}</p>' for part in parts if part)


def boxed(*parts: str, kind: str = "", data: dict | None = None) -> str:
    """Returns the parts as lines in a box with a bar on the left.

    Args:
        parts: HTML, one for each line; empty ones are left out.
        kind: the class of the box.
        data: what the book's script has to know.
    """
    attributes = f' class="{kind}" data-kw="{html.escape(json.dumps(data))}"' if kind else ""
    lines = "".join(f"<div>{part}</div>" for part in parts if part)
    return f'<div{attributes} style="{_BOX}">{lines}</div>'


def question_text(question: Question) -> str:
    """Returns the question as plain text."""
    expected = ", ".join(question.choices) if question.choices else question.unit
    range_hint = f" ({RANGE_HINT})" if question.measured else ""
    return f"Predict. {question.text}{range_hint}" + (f" [{expected}]" if expected else "")


def question_html(question: Question) -> str:
    """Returns the question with its input fields. Without a script, nothing saves what is typed there."""
    if question.choices:
        fields = "".join(
            f'<label style="display: block"><input type="radio" {_KEEP_KEYS} '
            f'name="{html.escape(question.key)}" '
            f'value="{html.escape(choice)}"> {html.escape(choice)}</label>'
            for choice in question.choices
        )
    else:
        unit = html.escape(question.unit)
        fields = " to ".join(
            f'<input type="text" {_KEEP_KEYS} inputmode="decimal" size="9" autocomplete="off" '
            f'style="{_INPUT}" aria-label="{name}{", in " if unit else ""}{unit}">'
            for name in (("from", "to") if question.measured else ("your answer",))
        )
        fields = f"<span>{'from ' if question.measured else ''}{fields} {unit}</span> "
    return boxed(
        f'<fieldset style="border: 0; padding: 0; margin: 0">'
        f'<legend style="padding: 0; font: inherit; color: inherit">{heading(question)}</legend>{fields}'
        "</fieldset>",
        '<small role="status">Decide before you continue; your answer is not saved here.</small>',
        kind="kw-ask",
        data={"key": question.key, "units": [singular(question.unit), question.unit]},
    )


def outcome(stored: StoredAnswer, truth: str | float) -> str:
    """Returns how the answer compares with the truth, or "" if it is simply wrong."""
    hit = stored.question.hit(stored.answer, truth)
    if stored.question.measured:
        return "✓ inside the range" if hit else "outside the range"
    return "✓ right" if hit else ""


def reveal_text(question: Question, stored: StoredAnswer | None, truth: str | float, because: str) -> str:
    """Returns the answer as plain text, such as "You said 8; it is 4", and the explanation below it."""
    sentence = f"It is {question.words(truth)}."
    if stored is not None:
        result = outcome(stored, truth)
        ending = f": {result}" if result else ""
        sentence = f"You said {question.words(stored.answer)}; it is {question.words(truth)}{ending}."
    return "\n\n".join(filter(None, [sentence, inspect.cleandoc(because).strip()]))


def reveal_html(question: Question, stored: StoredAnswer, truth: str | float, because: str) -> str:
    """Returns the answer and its explanation as HTML, next to what the learner said."""
    said, value = (f"<b>{html.escape(question.words(one))}</b>" for one in (stored.answer, truth))
    result = outcome(stored, truth)
    ending = f": {result}" if result else ""
    sentence = f"You said {said}; it is {value}{ending}."
    return boxed(f"<small>{inline(question.text)}</small>", sentence, paragraphs(because))


def reveal_fold(question: Question, truth: str | float, because: str = "", unanswered: str = "") -> str:
    """Returns the answer and its explanation as HTML in a collapsible section.

    Args:
        question: the question.
        truth: the answer.
        because: the explanation, or "".
        unanswered: a sentence above the section, for a learner who could have answered.
    """
    fold = _fold(question.words(truth), because, f": {inline(question.text)}")
    data = {"key": question.key, "truth": truth, "measured": question.measured}
    return boxed(unanswered, fold, kind="kw-reveal", data=data)


def unasked(value: str, because: str) -> str:
    """Returns the answer to a question whose cell was not run, in a collapsible section."""
    return boxed("The cell with this question was not run.", _fold(value, because))


def _fold(value: str, because: str, asked: str = "") -> str:
    holds = "The answer and why" if because else "The answer"
    return (
        f'<details><summary style="cursor: pointer"><b>{holds}</b>{asked}</summary>'
        f'<div class="kw-verdict">It is <b>{html.escape(value)}</b>.</div>{paragraphs(because)}</details>'
    )


def problem(sentence: str) -> str:
    """Returns a sentence about a problem in a box."""
    return boxed(f"<b>Predict.</b> {html.escape(sentence)}")

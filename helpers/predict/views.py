"""Questions, answers and the review as HTML and as text. Colours are the page's own, so that both themes can be read."""

from __future__ import annotations

import html
from collections.abc import Sequence

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


def _outcome(kept: Kept, truth: str | float) -> tuple[str, str]:
    """How the answer compares, with a mark for it."""
    question = kept.question
    hit = question.hit(kept.answer, truth)
    if question.measured:
        return ("✓ ", "inside your range") if hit else ("", "outside your range")
    return ("✓ ", "right") if hit else ("", "")


def reveal_text(question: Question, kept: Kept | None, truth: str | float) -> str:
    """The answer for a terminal: "you said 8; it is 4"."""
    is_now = f"It is {question.words(truth)}."
    if kept is None:
        return is_now
    mark, says = _outcome(kept, truth)
    ending = f": {says}" if says else ""
    return f"{mark}You said {question.words(kept.answer)}; it is {question.words(truth)}{ending}."


def reveal_html(question: Question, kept: Kept | None, truth: str | float) -> str:
    """The same for a notebook in which answers are kept."""
    value = f"<b>{html.escape(question.words(truth))}</b>"
    asked = f"<small>{html.escape(question.text)}</small>"
    if kept is None:
        return boxed(asked, f"It is {value}.")
    mark, says = _outcome(kept, truth)
    ending = f": {says}" if says else ""
    said = f"<b>{html.escape(question.words(kept.answer))}</b>"
    return boxed(asked, f"{mark}You said {said}; it is {value}{ending}.")


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


# ------------------------------------------------------------------------------------------------ the review


def summary(asked: int, answered: Sequence[Kept]) -> list[str]:
    """How well the learner predicted, in sentences."""
    if not answered:
        return [
            "You have predicted nothing yet: a question counts once you wrote an answer before you saw it."
        ]
    seen = [kept for kept in answered if kept.truth is not None]
    exact = [kept for kept in seen if not kept.question.measured and not kept.question.guess]
    ranges = [kept for kept in seen if kept.question.measured]
    says = [f"You answered {len(answered)} of {_count(asked, 'question')}."]
    if exact:
        says.append(f"Of {len(exact)} with one right answer, {sum(k.hit for k in exact)} were right.")
    if ranges:
        inside = sum(k.hit for k in ranges)
        says.append(
            f"The truth lay in {inside} of your {_count(len(ranges), 'range')}; "
            "who is 90 % sure and knows it is right 9 times in 10."
        )
    return says


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


HEAD = ("question", "you said", "it is", "")


def rows(questions: Sequence[Question], answered: dict[str, Kept]) -> list[tuple[str, str, str, str]]:
    """A table's rows: question, answer, truth, and how they compare. An answer that was not revealed has no truth here."""
    found = []
    for question in questions:
        kept = answered.get(question.key)
        asked = question.text + (" (a guess)" if question.guess else "")
        if kept is None:
            found.append((asked, "", "", ""))
        elif kept.truth is None:
            found.append((asked, question.words(kept.answer), "", "not revealed yet"))
        else:
            mark, says = _outcome(kept, kept.truth)
            found.append(
                (asked, question.words(kept.answer), question.words(kept.truth), (mark + says).strip())
            )
    return found


def table_text(lines: Sequence[Sequence[str]]) -> str:
    """The rows under their head, for a terminal."""
    table = [HEAD, *lines]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def table_html(lines: Sequence[Sequence[str]]) -> str:
    """The rows under their head."""
    left = 'style="text-align: left"'
    head = "".join(f"<th {left}>{name}</th>" for name in HEAD)
    body = "".join(
        "<tr>" + "".join(f"<td {left}>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in lines
    )
    return f"<table><tr>{head}</tr>{body}</table>"

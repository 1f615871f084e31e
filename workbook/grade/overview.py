"""index.html: the class at a glance, where most fail, what they predicted, and what a teacher may want to
look at.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from workbook.grade import advice, starters
from workbook.grade.marks import UNSAFE, Graded, Grades, Mark
from workbook.grade.seeds import said
from workbook.page import document, escaped, made_with

ADVICE = (
    "Advice, no verdict: it changes no mark, is easy to evade, and may name somebody who did nothing wrong."
)
STYLE = (Path(__file__).parent / "grades.css").read_text("utf-8")
_MOST_QUESTIONS, _MOST_PAIRS, _MOST_NAMED = 60, 50, 12
_SHOWN = 600  # characters of a learner's words on the class's page; the learner's own has them all
_SIGNS = {"passed": "✓", "failed": "✗", "to do": "…", "not reached": "–"}
_WORDS = {"to do": "not written yet"}  # on pages; the gradebooks keep the verdict
_MEANS = {
    "passed": "all hidden cases agree",
    "failed": "a hidden case does not agree, and what kind of mistake it is; timed out: it took longer than "
    "--time-limit",
    "to do": "as the starter has it",
    "not reached": "it could not be checked",
}


def page(grades: Grades, pages: Mapping[str, str]) -> str:
    """The page of the class.

    Args:
        grades: The batch.
        pages: Each learner's page, by name.
    """
    n_exercises = sum(len(one.exercises) for one in grades.graded)
    n_passed = sum(one.n_passed for one in grades.graded)
    says = [
        f"{_count(len(pages), 'learner')}, {_count(len(grades.graded), 'notebook')}",
        *([f"{grades.n_not_graded} not graded"] if grades.n_not_graded else []),
        f"{n_passed} of {n_exercises} exercises passed",
        *(["interrupted"] if grades.interrupted else []),
        f"{grades.seconds:.0f} s",
        f"{datetime.now():%Y-%m-%d %H:%M}",
        f"seed {said(grades.seed)}",
        escaped(grades.tiers),
    ]
    body = [
        "<h1>Grades</h1>",
        *banner(grades.graded),
        f"<p>{' · '.join(says)}</p>",
        *made_with(),
        '<p><a href="grades.csv">grades.csv</a> · for gradebooks: <a href="canvas.csv">canvas.csv</a>, '
        '<a href="nbgrader.csv">nbgrader.csv</a></p>',
        *(f"<p>{escaped(note)}</p>" for note in grades.notes),
    ]
    labs: dict[str, list[Graded]] = {}
    for one in grades.graded:
        if one.exercises:
            labs.setdefault(one.lab, []).append(one)
    if labs:
        means = (f"<span>{badge(verdict)} <small>{says}</small></span>" for verdict, says in _MEANS.items())
        body += ['<div class="legend">', *means, "</div>"]
    for lab in sorted(labs):
        body += [*_glance(lab, labs[lab], pages), *_hard(labs[lab]), *_class_predictions(labs[lab])]
        body += _class_words(labs[lab], pages)
    body += [*_not_graded(grades, pages), *_worth_a_look(grades, pages)]
    return document("Grades", body, STYLE)


def banner(graded: Iterable[Graded]) -> list[str]:
    """What a reader has to know first where learners' code ran without a sandbox."""
    return [f'<p class="banner">{escaped(UNSAFE)}.</p>'] if any(one.tier == UNSAFE for one in graded) else []


def class_of(verdict: str) -> str:
    """A verdict as a class of the style."""
    return verdict.replace(" ", "-")


def _said(verdict: str) -> str:
    return f"{_SIGNS.get(verdict, '')} {escaped(_WORDS.get(verdict, verdict))}"


def badge(verdict: str) -> str:
    """A verdict as a sign and words on its color."""
    return f'<span class="badge {class_of(verdict)}">{_said(verdict)}</span>'


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table that scrolls inside itself.

    Args:
        columns: Their titles; "#" comes before the title of one that holds numbers.
        rows: Their cells as HTML.
    """
    classes = [' class="number"' if column.startswith("#") else "" for column in columns]

    def row(tag: str, cells: Sequence[object]) -> str:
        made = (f"<{tag}{of}>{cell}</{tag}>" for of, cell in zip(classes, cells, strict=True))
        return f"<tr>{''.join(made)}</tr>"

    head = row("th", [column.lstrip("#") for column in columns])
    lines = ['<div class="wide"><table>', head, *(row("td", cells) for cells in rows), "</table></div>"]
    return "\n".join(lines)


def items(entries: Iterable[str]) -> list[str]:
    """A list of HTML."""
    return ["<ul>", *(f"<li>{entry}</li>" for entry in entries), "</ul>"]


def _glance(lab: str, graded: Sequence[Graded], pages: Mapping[str, str]) -> list[str]:
    """A table of learners and exercises."""
    exercises = graded[0].exercises
    predicted = any(one.predictions for one in graded)
    body = [
        f"<h2>{escaped(lab)}</h2>",
        '<div class="glance"><table><thead><tr><th>Learner</th>',
        '<th class="number">Passed</th><th class="number">Seconds</th>',
        *(f"<th>{escaped(title)}</th>" for _, title in exercises),
        '<th class="number">Predicted right</th>' if predicted else "",
        "</tr></thead><tbody>",
    ]
    of: dict[str, list[str]] = {}
    for one in graded:
        of.setdefault(one.learner, []).append(one.notebook)
    for one in graded:
        marks = {mark.exercise: mark for mark in one.marks}
        cells = [_cell(one, marks.get(name), pages) for name, _ in exercises]
        if one.problem:
            says = f"<b>not graded</b><small>{escaped(one.problem)}</small>"
            cells = [f'<td class="not-graded" colspan="{len(exercises)}">{says}</td>']
        slow = f"<br><small>{one.timed_out}</small>" if one.timed_out else ""
        body.append(
            f"<tr><th>{_link(one.learner, pages)}{_which(one.notebook, of[one.learner])}</th>"
            f'<td class="number">{one.n_passed} of {len(exercises)}</td>'
            f'<td class="number">{one.seconds:.0f}{slow}</td>{"".join(cells)}'
            + (f'<td class="number">{_right(one)}</td></tr>' if predicted else "</tr>")
        )
    return [*body, "</tbody></table></div>"]


def _which(notebook: str, several: Sequence[str]) -> str:
    """Which of a learner's notebooks it is, as far as their paths differ."""
    if len(several) == 1:
        return ""
    with contextlib.suppress(ValueError):  # some are absolute, some relative
        notebook = os.path.relpath(notebook, os.path.commonpath([os.path.dirname(one) for one in several]))
    return f"<br><small>{escaped(notebook)}</small>"


def _cell(one: Graded, mark: Mark | None, pages: Mapping[str, str]) -> str:
    if mark is None:
        return "<td></td>"
    more = {"passed": mark.speed, "failed": mark.kind}.get(mark.verdict, "")
    more = "by the teacher" if mark.computed else more
    small = f"<small>{escaped(more)}</small>" if more else ""
    to = f"{escaped(pages[one.learner])}#{escaped(one.lab)}-{escaped(mark.exercise)}"
    of = class_of(mark.verdict)
    link = f'<a href="{to}" class="{of}" style="text-decoration: none">{_said(mark.verdict)}</a>'
    return f'<td class="{of}" title="{escaped(mark.sentence)}"><b>{link}</b>{small}</td>'


def _right(one: Graded) -> str:
    """How many of the predictions that a notebook claims were right."""
    kept = [k for k in one.predictions.answered.values() if k.truth is not None] if one.predictions else []
    return f"{sum(k.hit for k in kept)} of {len(kept)}" if kept else ""


def _hard(graded: Sequence[Graded]) -> list[str]:
    """Where most fail: the exercises that fewest passed first, with the mistakes and the hints that learners
    got.
    """
    rows = []
    for name, title in graded[0].exercises:
        of = [mark for one in graded for mark in one.marks if mark.exercise == name]
        failed = [mark for mark in of if mark.verdict == "failed"]
        rest = Counter(mark.verdict for mark in of if mark.verdict not in ("passed", "failed"))
        mistakes = Counter(mark.kind for mark in failed if mark.kind).most_common(3)
        hints = Counter(mark.hint for mark in failed if mark.hint).most_common(2)
        others = ", ".join(f"{n} {_WORDS.get(verdict, verdict)}" for verdict, n in rest.items())
        part = f'<span class="part"><i style="width: {100 * len(failed) / max(len(of), 1):.0f}%"></i></span>'
        cells = (
            f"{escaped(title)}<br><small>{escaped(name)}</small>",
            f'<span style="white-space: nowrap">{part} {len(failed)} of {len(of)}</span>'
            f"{f'<br><small>{others}</small>' if others else ''}",
            ", ".join(f"{n} × {escaped(mistake)}" for mistake, n in mistakes),
            "<br>".join(f"{n} × {escaped(hint)}" for hint, n in hints),
        )
        if failed or others:
            rows.append((-len(failed), cells))
    if not rows:
        return []
    rows.sort(key=lambda one: one[0])
    columns = ("Exercise", "Failed", "Mistakes", "The hint they got")
    return ["<h3>Where most fail</h3>", table(columns, [cells for _, cells in rows])]


def _class_predictions(graded: Sequence[Graded]) -> list[str]:
    """How the class predicted: for each question of the lesson who answered, and whose answer was right."""
    by_question: dict[str, list[bool]] = {}
    for one in graded:
        for kept in one.predictions.answered.values() if one.predictions else ():
            by_question.setdefault(kept.question.text, []).append(kept.hit)
    # The texts are the notebooks' own words: what only one of them says, where there are many, is at the end.
    often = sorted(by_question.items(), key=lambda item: -len(item[1]))[:_MOST_QUESTIONS]
    if not often:
        return []
    return [
        "<h3>What learners predicted in the lesson</h3>",
        '<p class="soft">From the notebooks\' stored outputs; not part of the grades, and not checked.</p>',
        table(
            ("Question", "#Answered", "#Right"),
            [(escaped(text), len(hits), sum(hits)) for text, hits in often],
        ),
    ]


def words_of(mark: Mark, most: int = 0) -> list[str]:
    """What a learner wrote in a free exercise, in the learner's words; nothing where that is nothing.

    Args:
        mark: Of the exercise.
        most: Characters that are shown; 0 shows all that were kept.
    """
    if not mark.words.strip():
        return []
    said = mark.words if not most or len(mark.words) <= most else f"{mark.words[: most - 1]}…"
    about = (
        "The learner's own words: figures and names were held against the data, the sentences are yours "
        "to judge."
    )
    return [*([] if most else [f'<p class="soft">{about}</p>']), f"<blockquote>{escaped(said)}</blockquote>"]


def _class_words(graded: Sequence[Graded], pages: Mapping[str, str]) -> list[str]:
    """What the class wrote in the lab's free exercises, learner by learner."""
    body: list[str] = []
    for name, title in graded[0].exercises:
        rows = []
        for one in graded:
            for mark in one.marks:
                if mark.exercise == name and mark.words.strip():
                    to = f"{escaped(pages[one.learner])}#{escaped(one.lab)}-{escaped(name)}"
                    who = f'<a href="{to}">{escaped(one.learner)}</a><br>{badge(mark.verdict)}'
                    rows.append((who, "".join(words_of(mark, _SHOWN))))
        if rows:
            body += [
                f"<h3>What learners wrote: {escaped(title)}</h3>",
                '<p class="soft">Their own words. A check held figures and names against the data; nobody '
                "judged the sentences.</p>",
                f"<details open><summary>{_count(len(rows), 'answer')}</summary>",
                table(("Learner", "Words"), rows),
                "</details>",
            ]
    return body


def _not_graded(grades: Grades, pages: Mapping[str, str]) -> list[str]:
    broken = [
        f"{_link(one.learner, pages)}: {escaped(one.problem)} <small>{escaped(one.notebook)}</small>"
        for one in grades.graded
        if one.problem
    ]
    return ["<h2>Not graded</h2>", *items(broken)] if broken else []


def _worth_a_look(grades: Grades, pages: Mapping[str, str]) -> list[str]:
    """What looks like reaching for the grader, and whose code is alike."""
    found = [one for one in grades.graded if one.reaching]
    given = itertools.chain(*starters.cells().values())
    compared = advice.alike([one for one in grades.graded if one.marks], given)
    body = []
    if found:
        body += ["<h3>What looks like reaching for the grader</h3>"]
        body += items(
            f"{_link(one.learner, pages)}: {escaped('; '.join(one.reaching[:3]))}{_more(one.reaching, 3)}"
            for one in found
        )
    if compared.groups:
        body += [
            "<h3>Whose code is alike</h3>",
            '<p class="soft">Without comments, spaces, names and numbers; lines of the starters and lines '
            "that most have do not count.</p>",
            table(
                ("Lab", "Learners", "#Alike", "#Lines"),
                [
                    (
                        escaped(one.lab),
                        _links(one.learners, pages),
                        "the same" if one.share == 1 else f"{one.share:.0%}",
                        one.n_lines,
                    )
                    for one in compared.groups[:_MOST_PAIRS]
                ],
            ),
        ]
        if len(compared.groups) > _MOST_PAIRS:
            body.append(f'<p class="soft">And {len(compared.groups) - _MOST_PAIRS} more.</p>')
    if compared.cut:
        says = "The search for code that is alike read only the first 40,000 characters of:"
        body.append(f"<p>{says} {_links(compared.cut, pages)}.</p>")
    if compared.left_out:
        says = "The search for code that is alike left out these learners, because the class is so large:"
        body.append(f"<p>{says} {_links(compared.left_out, pages)}.</p>")
    return ["<h2>Worth a look</h2>", f'<p class="soft">{ADVICE}</p>', *body] if body else []


def _links(learners: Sequence[str], pages: Mapping[str, str]) -> str:
    return ", ".join(_link(one, pages) for one in learners[:_MOST_NAMED]) + _more(learners, _MOST_NAMED)


def _more(several: Sequence[object], shown: int) -> str:
    return f" and {len(several) - shown} more" if len(several) > shown else ""


def _link(learner: str, pages: Mapping[str, str]) -> str:
    return f'<a href="{escaped(pages[learner])}">{escaped(learner)}</a>'


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"

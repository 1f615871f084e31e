"""index.html: the class at a glance, where most fail, what they predicted, and what a teacher may want to
look at.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from helpers.lab import STARTERS
from workbook.grade import advice
from workbook.grade.marks import Graded, Grades, Mark
from workbook.grade.seeds import said
from workbook.page import document, escaped, made_with

ADVICE = (
    "Advice, no verdict: it changes no mark, is easy to evade, and may name somebody who did nothing wrong."
)
STYLE = """
:root { --on-good: #dafbe1; --on-bad: #ffe2df; --on-wait: #fff3c4; --on-none: #eef1f4; }
@media (prefers-color-scheme: dark) { :root { --on-good: #12361f; --on-bad: #4a1a17; --on-wait: #3c2f08;
--on-none: #1d242c; } }
.passed { color: var(--good); } .to-do, .not-reached { color: var(--wait); } .not-graded {
color: var(--bad); }
.badge { display: inline-block; font-size: 13px; font-weight: 600; line-height: 1.3; white-space: nowrap;
padding: 2px 8px;
  border-radius: 10px; background: var(--on-none); } h3 .badge { margin-left: 10px; vertical-align: 2px; }
.badge.passed { background: var(--on-good); } .badge.failed { background: var(--on-bad); }
.badge.to-do, .badge.not-reached { background: var(--on-wait); }
.legend { margin: 12px 0; display: flex; flex-wrap: wrap; gap: 6px 14px; }
.glance { max-height: 85vh; overflow: auto; } .glance table { border-collapse: separate; border-spacing: 0; }
.glance th, .glance td { padding: 7px 10px; } .glance tr > :first-child { padding-left: 2px; }
.glance thead th { position: sticky; top: 0; background: var(--back); vertical-align: bottom; z-index: 1;
min-width: 92px; }
.glance th:first-child { position: sticky; left: 0; background: var(--back); text-align: left;
min-width: 84px; max-width: 170px;
  overflow-wrap: anywhere; color: var(--ink); font-size: 15px; font-weight: 400; }
.glance thead th:first-child { z-index: 2; color: var(--soft); font-size: 13px; font-weight: 600; }
.glance td.passed, .glance td.failed, .glance td.to-do, .glance td.not-reached {
border-left: 3px solid var(--back);
  border-right: 3px solid var(--back); white-space: nowrap; }
.glance td.passed { background: var(--on-good); } .glance td.failed { background: var(--on-bad); }
.glance td.to-do, .glance td.not-reached { background: var(--on-wait); }
.glance td b { display: block; font-size: 14px; } .glance td small { color: var(--ink); opacity: .8; }
pre.wrapped { white-space: pre-wrap; } blockquote { margin: 8px 0; padding: 2px 12px;
border-left: 3px solid var(--line); white-space: pre-wrap; overflow-wrap: anywhere; }
.part { display: inline-block; width: 120px; height: 9px; border-radius: 5px; background: var(--on-none);
overflow: hidden; }
.part i { display: block; height: 100%; background: var(--bad); }
h3 { font-size: 16px; margin: 28px 0 4px; }
.beside { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); gap: 20px; } .beside pre {
margin-top: 4px; }
@media (max-width: 800px) { .beside { grid-template-columns: minmax(0, 1fr); } }
details { margin: 8px 0; } summary { cursor: pointer; color: var(--link); } .hint {
border-left: 3px solid var(--line); padding-left: 10px; }
li { margin: 4px 0; overflow-wrap: anywhere; } p { overflow-wrap: anywhere; }"""
_MOST_QUESTIONS, _MOST_PAIRS, _MOST_NAMED = 60, 50, 12
_SHOWN = 600  # characters of a learner's words on the class's page; the learner's own has them all
_SIGNS = {"passed": "✓", "failed": "✗", "to do": "…", "not reached": "–"}
_MEANS = {
    "passed": "all hidden cases agree",
    "failed": "a hidden case does not agree, and what kind of mistake it is",
    "to do": "as the starter has it",
    "not reached": "it could not be checked",
}


def page(grades: Grades, pages: Mapping[str, str]) -> str:
    """The page of the class.

    Args:
        grades: The batch.
        pages: Each learner's page, by name.
    """
    n_marks = sum(len(one.marks) for one in grades.graded)
    n_passed = sum(one.n_passed for one in grades.graded)
    body = [
        "<h1>Grades</h1>",
        f"<p>{_count(len(pages), 'learner')}, {_count(len(grades.graded), 'notebook')} · {n_passed} of "
        f"{n_marks} exercises "
        f"passed{' · interrupted' if grades.interrupted else ''} · {grades.seconds:.0f} s · "
        f"{datetime.now():%Y-%m-%d %H:%M} · seed {said(grades.seed)} · {escaped(grades.tiers)}</p>",
        *made_with(),
        '<p><a href="grades.csv">grades.csv</a> · for gradebooks: <a href="canvas.csv">canvas.csv</a>, '
        '<a href="nbgrader.csv">nbgrader.csv</a></p>',
        *(f"<p>{escaped(note)}</p>" for note in grades.notes),
    ]
    labs: dict[str, list[Graded]] = {}
    for one in grades.graded:
        if not one.problem:
            labs.setdefault(one.lab, []).append(one)
    if labs:
        body.append('<div class="legend">')
        body += [f"<span>{badge(verdict)} <small>{means}</small></span>" for verdict, means in _MEANS.items()]
        body.append("</div>")
    for lab in sorted(labs):
        body += [*_glance(lab, labs[lab], pages), *_hard(labs[lab]), *_class_predictions(labs[lab])]
        body += _class_words(labs[lab], pages)
    body += [*_not_graded(grades, pages), *_worth_a_look(grades, pages)]
    return document("Grades", body, STYLE)


def class_of(verdict: str) -> str:
    """A verdict as a class of the style."""
    return verdict.replace(" ", "-")


def badge(verdict: str) -> str:
    """A verdict as a sign and a word on its colour."""
    return f'<span class="badge {class_of(verdict)}">{_SIGNS.get(verdict, "")} {escaped(verdict)}</span>'


def _glance(lab: str, graded: Sequence[Graded], pages: Mapping[str, str]) -> list[str]:
    """A table of learners and exercises."""
    exercises = graded[0].exercises
    predicted = any(one.predictions for one in graded)
    body = [
        f"<h2>{escaped(lab)}</h2>",
        '<div class="glance"><table><thead><tr><th>Learner</th>',
        *(f"<th>{escaped(title)}</th>" for _, title in exercises),
        '<th class="number">Passed</th>',
        '<th class="number">Predicted right</th>' if predicted else "",
        '<th class="number">Seconds</th></tr></thead><tbody>',
    ]
    many = Counter(one.learner for one in graded)
    for one in graded:
        marks = {mark.exercise: mark for mark in one.marks}
        which = f"<br><small>{escaped(Path(one.notebook).name)}</small>" if many[one.learner] > 1 else ""
        body.append(
            f"<tr><th>{_link(one.learner, pages)}{which}</th>"
            + "".join(_cell(one, marks.get(name), pages) for name, _ in exercises)
            + f'<td class="number">{one.n_passed} of {len(exercises)}</td>'
            + (f'<td class="number">{_right(one)}</td>' if predicted else "")
            + f'<td class="number">{one.seconds:.0f}</td></tr>'
        )
    return [*body, "</tbody></table></div>"]


def _cell(one: Graded, mark: Mark | None, pages: Mapping[str, str]) -> str:
    if mark is None:
        return "<td></td>"
    beside = {"passed": mark.speed, "failed": mark.mistake.replace("-", " ")}.get(mark.verdict, "")
    beside = "by the teacher" if mark.computed else beside
    small = f"<small>{escaped(beside)}</small>" if beside else ""
    to = f"{escaped(pages[one.learner])}#{escaped(one.lab)}-{escaped(mark.exercise)}"
    return (
        f'<td class="{class_of(mark.verdict)}" title="{escaped(mark.sentence)}"><b><a href="{to}" '
        f'class="{class_of(mark.verdict)}" '
        f'style="text-decoration: none">{_SIGNS.get(mark.verdict, "")} '
        f"{escaped(mark.verdict)}</a></b>{small}</td>"
    )


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
        mistakes = Counter(mark.mistake.replace("-", " ") for mark in failed if mark.mistake).most_common(3)
        hints = Counter(mark.hint for mark in failed if mark.hint).most_common(2)
        hinted = "<br>".join(f"{n} × {escaped(hint)}" for hint, n in hints)
        others = ", ".join(f"{n} {verdict}" for verdict, n in rest.items())
        made = ", ".join(f"{n} × {escaped(mistake)}" for mistake, n in mistakes)
        share = 100 * len(failed) / max(len(of), 1)
        row = (
            f'<tr><td>{escaped(title)}<br><small>{escaped(name)}</small></td><td style="white-space: nowrap">'
            f'<span class="part"><i style="width: {share:.0f}%"></i></span> {len(failed)} of {len(of)}'
            f"{f'<br><small>{others}</small>' if others else ''}</td>"
            f"<td>{made}</td><td>{hinted}</td></tr>"
        )
        if failed or others:
            rows.append((-len(failed), row))
    if not rows:
        return []
    return [
        "<h3>Where most fail</h3>",
        '<div class="wide"><table><tr><th>Exercise</th><th>Failed</th><th>Mistakes</th><th>The hint they '
        "got</th></tr>",
        *(row for _, row in sorted(rows, key=lambda one: one[0])),
        "</table></div>",
    ]


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
    rows = "".join(
        f'<tr><td>{escaped(text)}</td><td class="number">{len(hits)}</td><td '
        f'class="number">{sum(hits)}</td></tr>'
        for text, hits in often
    )
    return [
        "<h3>What learners predicted in the lesson</h3>",
        '<p class="soft">From the notebooks\' stored outputs; not part of the grades, and not checked.</p>',
        '<div class="wide"><table><tr><th>Question</th><th class="number">Answered</th>'
        f'<th class="number">Right</th></tr>{rows}</table></div>',
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
                    rows.append(f"<tr><td>{who}</td><td>{''.join(words_of(mark, _SHOWN))}</td></tr>")
        if rows:
            body += [
                f"<h3>What learners wrote: {escaped(title)}</h3>",
                '<p class="soft">Their own words. A check held figures and names against the data; nobody '
                "judged the sentences.</p>",
                f'<details open><summary>{_count(len(rows), "answer")}</summary><div class="wide"><table>'
                f"<tr><th>Learner</th><th>Words</th></tr>{''.join(rows)}</table></div></details>",
            ]
    return body


def _not_graded(grades: Grades, pages: Mapping[str, str]) -> list[str]:
    broken = [one for one in grades.graded if one.problem]
    if not broken:
        return []
    items = [
        f"<li>{_link(one.learner, pages)}: {escaped(one.problem)} <small>{escaped(one.notebook)}</small></li>"
        for one in broken
    ]
    return ["<h2>Not graded</h2>", "<ul>", *items, "</ul>"]


def _worth_a_look(grades: Grades, pages: Mapping[str, str]) -> list[str]:
    """What looks like reaching for the grader, and whose code is alike."""
    found = [one for one in grades.graded if one.reaching]
    told = json.loads(STARTERS.read_text("utf-8")).values()
    given = [text for exercise in told for text in exercise.get("cells", {}).values()]
    groups = advice.alike([one for one in grades.graded if one.marks], given)
    if not found and not groups:
        return []
    body = ["<h2>Worth a look</h2>", f'<p class="soft">{ADVICE}</p>']
    if found:
        body += ["<h3>What looks like reaching for the grader</h3>", "<ul>"]
        for one in found:
            more = f" and {len(one.reaching) - 3} more" if len(one.reaching) > 3 else ""
            body.append(f"<li>{_link(one.learner, pages)}: {escaped('; '.join(one.reaching[:3]))}{more}</li>")
        body.append("</ul>")
    if groups:
        body += [
            "<h3>Whose code is alike</h3>",
            '<p class="soft">Without comments, spaces, names and numbers; lines of the starters and lines '
            "that most have do not count.</p>",
            '<div class="wide"><table><tr><th>Lab</th><th>Learners</th><th class="number">Alike</th><th '
            'class="number">Lines</th></tr>',
        ]
        for one in groups[:_MOST_PAIRS]:
            named = ", ".join(_link(learner, pages) for learner in one.learners[:_MOST_NAMED])
            more = f" and {len(one.learners) - _MOST_NAMED} more" if len(one.learners) > _MOST_NAMED else ""
            says = "the same" if one.share == 1 else f"{one.share:.0%}"
            body.append(
                f'<tr><td>{escaped(one.lab)}</td><td>{named}{more}</td><td class="number">{says}</td>'
                f'<td class="number">{one.n_lines}</td></tr>'
            )
        body.append("</table></div>")
        if len(groups) > _MOST_PAIRS:
            body.append(f'<p class="soft">And {len(groups) - _MOST_PAIRS} more.</p>')
    return body


def _link(learner: str, pages: Mapping[str, str]) -> str:
    return f'<a href="{escaped(pages[learner])}">{escaped(learner)}</a>'


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"

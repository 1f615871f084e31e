"""What `workbook grade` leaves: grades.csv, a page for each learner, and index.html with the whole class.

Everything that comes from a notebook (names, code, errors) is escaped, and the pages need no network.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from datetime import datetime
from pathlib import Path

from helpers.predict.summary import Summary
from helpers.workshop.grade.marks import Graded, Grades, Mark
from helpers.workshop.grade.seeds import said
from helpers.workshop.grade.texts import clean
from helpers.workshop.outputs import replace
from helpers.workshop.page import document, escaped, made_with

COLUMNS = (
    "learner", "notebook", "lab", "exercise", "verdict", "failing case", "mistake", "sentence", "speed", "seconds", "seed", "remark", "computed verdict", "tier",
)  # fmt: skip
_MORE_STYLE = """
.passed { color: var(--good); } .to-do, .not-reached { color: var(--wait); } .not-graded { color: var(--bad); }
td.mark, th.mark { text-align: center; white-space: nowrap; padding: 8px 10px; }
th.mark { white-space: normal; vertical-align: bottom; }
td.mark small { display: block; }
h3 { font-size: 16px; margin: 28px 0 4px; } h3 .status { margin-left: 10px; }
details { margin: 8px 0; } summary { cursor: pointer; color: var(--link); } .hint { border-left: 3px solid var(--line); padding-left: 10px; }
li { margin: 4px 0; }"""
_MOST_QUESTIONS = 60  # of a lab's class table
_SIGNS = {"passed": "✓", "failed": "✗", "to do": "to do", "not reached": "not reached"}


def write(grades: Grades) -> None:
    """Write all files of a batch, each whole."""
    pages = page_names(grades)
    replace(grades.out / "grades.csv", clean(csv_text(grades)))
    for learner, page in pages.items():
        replace(grades.out / page, _guarded(learner, grades))
    replace(grades.out / "index.html", clean(_index_html(grades, pages)))


def _guarded(learner: str, grades: Grades) -> str:
    """A learner's page; where something in it cannot be shown, a page that says so, so that the others are written."""
    try:
        page = _learner_html(learner, grades)
        page.encode()
        return page
    except Exception as error:
        says = f"This page could not be made ({type(error).__name__}). The marks are in grades.csv."
        return document("Grades", [f"<h1>{escaped(learner)}</h1>", f"<p>{escaped(says)}</p>"], _MORE_STYLE)


def csv_text(grades: Grades) -> str:
    """One row for a learner and exercise; one for a notebook that could not be graded."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in grades.graded:
        about = {
            "learner": one.learner,
            "notebook": one.notebook,
            "lab": one.lab,
            "seed": one.seed,
            "tier": one.tier,
        }
        if one.problem:
            says = {"verdict": "not graded", "sentence": one.problem, "seconds": f"{one.seconds:.1f}"}
            writer.writerow(_row(about | says))
            continue
        for m in one.marks:
            says = {
                "exercise": m.exercise,
                "verdict": m.verdict,
                "failing case": m.case,
                "mistake": m.mistake,
                "sentence": m.sentence,
                "speed": m.speed,
                "seconds": f"{m.seconds:.1f}",
                "remark": m.remark,
                "computed verdict": m.computed,
            }
            writer.writerow(_row(about | says))
    return buffer.getvalue()


def _row(values: dict[str, object]) -> list[str]:
    return [_cell(values.get(column, "")) for column in COLUMNS]


def _cell(value: object) -> str:
    """A value as a spreadsheet may read it: in one line, and never a formula."""
    text = re.sub(r"[\x00-\x1f\x7f\u2028\u2029]+", " ", str(value)).strip()
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def page_names(grades: Grades) -> dict[str, str]:
    """Each learner's page, by name; names that differ only in odd characters get pages of their own."""
    pages: dict[str, str] = {}
    taken = {"index.html"}
    for learner in dict.fromkeys(one.learner for one in grades.graded):
        base = (re.sub(r"[^\w.-]+", "_", learner).strip("._") or "learner")[:100]
        page, n = f"{base}.html", 1
        while page.lower() in taken:
            n += 1
            page = f"{base}-{n}.html"
        taken.add(page.lower())
        pages[learner] = page
    return pages


def _class(verdict: str) -> str:
    return verdict.replace(" ", "-")


# ------------------------------------------------------------------------------------------------ the class


def _index_html(grades: Grades, pages: dict[str, str]) -> str:
    n_marks = sum(len(one.marks) for one in grades.graded)
    n_passed = sum(one.n_passed for one in grades.graded)
    body = [
        "<h1>Grades</h1>",
        f"<p>{_count(len(pages), 'learner')}, {_count(len(grades.graded), 'notebook')} · {n_passed} of {n_marks} exercises "
        f"passed{' · interrupted' if grades.interrupted else ''} · {grades.seconds:.0f} s · "
        f"{datetime.now():%Y-%m-%d %H:%M} · seed {said(grades.seed)} · {escaped(grades.tiers)}</p>",
        *made_with(),
        '<p><a href="grades.csv">grades.csv</a></p>',
        *(f"<p>{escaped(note)}</p>" for note in grades.notes),
    ]
    labs: dict[str, list[Graded]] = {}
    for one in grades.graded:
        if not one.problem:
            labs.setdefault(one.lab, []).append(one)
    for lab in sorted(labs):
        body += _lab_table(lab, labs[lab], pages)
    broken = [one for one in grades.graded if one.problem]
    if broken:
        body += ["<h2>Not graded</h2>", "<ul>"]
        body += [
            f'<li><a href="{escaped(pages[one.learner])}">{escaped(one.learner)}</a>: {escaped(one.problem)} '
            f"<small>{escaped(one.notebook)}</small></li>"
            for one in broken
        ]
        body.append("</ul>")
    return document("Grades", body, _MORE_STYLE)


def _lab_table(lab: str, graded: list[Graded], pages: dict[str, str]) -> list[str]:
    exercises = graded[0].exercises
    body = [
        f"<h2>{escaped(lab)}</h2>",
        '<div class="wide"><table><tr><th>Learner</th>',
        *(
            f'<th class="mark">{escaped(title)}<br><small>{escaped(name)}</small></th>'
            for name, title in exercises
        ),
        '<th class="number">Passed</th><th class="number">Seconds</th></tr>',
    ]
    for one in graded:
        marks = {mark.exercise: mark for mark in one.marks}
        many = sum(other.learner == one.learner for other in graded) > 1
        which = f"<br><small>{escaped(Path(one.notebook).name)}</small>" if many else ""
        body.append(
            f'<tr><td><a href="{escaped(pages[one.learner])}">{escaped(one.learner)}</a>{which}</td>'
            + "".join(_mark_cell(marks.get(name)) for name, _ in exercises)
            + f'<td class="number">{one.n_passed} of {len(exercises)}</td><td class="number">{one.seconds:.0f}</td></tr>'
        )
    body.append("<tr><td>passed, and what went wrong most</td>")
    for name, _ in exercises:
        of = [mark for one in graded for mark in one.marks if mark.exercise == name]
        mistakes = Counter(mark.mistake for mark in of if mark.verdict == "failed" and mark.mistake)
        wrong = mistakes.most_common(1)
        often = f"<small>{wrong[0][1]} × {escaped(wrong[0][0])}</small>" if wrong else ""
        body.append(
            f'<td class="mark soft">{sum(m.verdict == "passed" for m in of)} of {len(of)}{often}</td>'
        )
    return [*body, "<td></td><td></td></tr>", "</table></div>", *_class_predictions(graded)]


def _class_predictions(graded: list[Graded]) -> list[str]:
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
        f'<tr><td>{escaped(text)}</td><td class="number">{len(hits)}</td><td class="number">{sum(hits)}</td></tr>'
        for text, hits in often
    )
    return [
        "<h3>What learners predicted in the lesson</h3>",
        '<p class="soft">From the notebooks\' stored outputs; not part of the grades, and not checked.</p>',
        '<div class="wide"><table><tr><th>Question</th><th class="number">Answered</th>'
        f'<th class="number">Right</th></tr>{rows}</table></div>',
    ]


def _mark_cell(mark: Mark | None) -> str:
    if mark is None:
        return '<td class="mark"></td>'
    beside = {"passed": mark.speed, "failed": mark.mistake}.get(mark.verdict, "")
    beside = "by the teacher" if mark.computed else beside
    small = f"<small>{escaped(beside)}</small>" if beside else ""
    return f'<td class="mark"><span class="status {_class(mark.verdict)}" title="{escaped(mark.sentence)}">{_SIGNS[mark.verdict]}</span>{small}</td>'


# ------------------------------------------------------------------------------------------------ a learner


def _learner_html(learner: str, grades: Grades) -> str:
    body = [f"<h1>{escaped(learner)}</h1>", '<p><a href="index.html">All learners</a></p>']
    for one in grades.graded:
        if one.learner == learner:
            body += _notebook(one)
    return document(f"{learner}: grades", body, _MORE_STYLE)


def _notebook(one: Graded) -> list[str]:
    body = [
        f"<h2>{escaped(one.lab or Path(one.notebook).name)}</h2>",
        f'<p class="soft">{escaped(one.notebook)}</p>',
    ]
    if one.problem:
        return [*body, f'<p class="status not-graded">Not graded: {escaped(one.problem)}.</p>']
    body += [
        f"<p>{one.n_passed} of {len(one.marks)} exercises passed · {one.seconds:.0f} s · hidden cases with seed {one.seed} · {escaped(one.tier)}</p>",
        '<div class="wide"><table><tr><th>Exercise</th><th>Verdict</th><th>Failing case</th><th>Speed</th>'
        '<th class="number">Cases that agreed</th><th class="number">Seconds</th></tr>',
    ]
    for m in one.marks:
        body.append(
            f'<tr><td><a href="#{escaped(one.lab)}-{escaped(m.exercise)}">{escaped(m.title)}</a><br><small>{escaped(m.exercise)}</small></td>'
            f'<td class="status {_class(m.verdict)}">{m.verdict}{_by_teacher(m)}</td><td>{escaped(m.case)}</td><td>{escaped(m.speed)}</td>'
            f'<td class="number">{m.n_cases}</td><td class="number">{m.seconds:.1f}</td></tr>'
        )
    body.append("</table></div>")
    for m in one.marks:
        body += _exercise(one.lab, m)
    if one.predictions:
        body += _predictions(one.predictions)
    if one.raised:
        body += ["<h3>What its cells raised</h3>", "<ul>"]
        for raised in one.raised:
            at = f", line {raised.line}" if raised.line else ""
            called = (
                raised.cell if raised.cell.startswith("cell ") else f"<code>{escaped(raised.cell)}</code>"
            )
            log = _details("The end of what it printed", raised.log) if raised.log.strip() else ""
            where = f"{called}{at}: " if raised.cell else ""
            body.append(f"<li>{where}{escaped(raised.error)}{log}</li>")
        body.append("</ul>")
    return body


def _by_teacher(m: Mark) -> str:
    return f"<br><small>{escaped(m.by_teacher)}</small>" if m.computed else ""


def _predictions(summary: Summary) -> list[str]:
    """What the learner predicted in the lesson, in the learner's words: nothing of it was checked."""
    rows = "".join(
        "<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in row) + "</tr>" for row in summary.rows()
    )
    return [
        "<h3>What the learner predicted in the lesson</h3>",
        '<p class="soft">From the notebook\'s stored output; not part of the grade, and not checked.</p>',
        *(f"<p>{escaped(says)}</p>" for says in summary.sentences()),
        f'<div class="wide"><table><tr><th>Question</th><th>Said</th><th>It was</th><th></th></tr>{rows}</table></div>',
    ]


def _exercise(lab: str, m: Mark) -> list[str]:
    body = [
        f'<h3 id="{escaped(lab)}-{escaped(m.exercise)}">{escaped(m.title)}<span class="status {_class(m.verdict)}">{m.verdict}</span></h3>',
        *([f"<p>{escaped(m.by_teacher[:1].upper() + m.by_teacher[1:])}.</p>"] if m.computed else []),
        *([f'<p class="hint">The teacher: {escaped(m.remark)}</p>'] if m.remark else []),
        f"<p>{escaped(m.sentence)}</p>",
    ]
    if m.details.strip():
        body.append(f"<pre>{escaped(m.details)}</pre>")
    if m.hint:
        body.append(f'<p class="hint">Hint: {escaped(m.hint)}</p>')
    if m.code.strip():
        body.append(_details("The learner's code", m.code, shown=m.verdict == "failed"))
    return body


def _details(summary: str, text: str, *, shown: bool = False) -> str:
    return f"<details{' open' if shown else ''}><summary>{escaped(summary)}</summary><pre>{escaped(text)}</pre></details>"


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"

"""What `workbook grade` leaves: CSV files, a page for each learner, and index.html with the whole class.

Everything that comes from a notebook (names, code, errors) is escaped, and the pages need no network.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from helpers.predict.summary import Summary
from workbook.grade import gradebook, overview
from workbook.grade.marks import Graded, Grades, Mark
from workbook.grade.texts import clean
from workbook.outputs import replace
from workbook.page import document, escaped


def write(grades: Grades) -> None:
    """Write all files of a batch, each whole."""
    pages = page_names(grades)
    for name, text in (
        ("grades.csv", gradebook.grades_csv(grades)),
        ("canvas.csv", gradebook.canvas_csv(grades)),
        ("nbgrader.csv", gradebook.nbgrader_csv(grades)),
    ):
        replace(grades.out / name, clean(text))
    for learner, page in pages.items():
        replace(grades.out / page, _guarded(learner, partial(_learner_html, learner, grades)))
    replace(grades.out / "index.html", _guarded("Grades", lambda: clean(overview.page(grades, pages))))


def _guarded(title: str, make: Callable[[], str]) -> str:
    """A page; where something in it cannot be shown, a page that says so, so that the others are written."""
    try:
        page = make()
        page.encode()
        return page
    except Exception as error:
        says = f"This page could not be made ({type(error).__name__}). The marks are in grades.csv."
        return document("Grades", [f"<h1>{escaped(title)}</h1>", f"<p>{escaped(says)}</p>"], overview.STYLE)


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


# ------------------------------------------------------------------------------------------------ a learner


def _learner_html(learner: str, grades: Grades) -> str:
    body = [f"<h1>{escaped(learner)}</h1>", '<p><a href="index.html">All learners</a></p>']
    for one in grades.graded:
        if one.learner == learner:
            body += _notebook(one)
    return document(f"{learner}: grades", body, overview.STYLE)


def _notebook(one: Graded) -> list[str]:
    body = [
        f"<h2>{escaped(one.lab or Path(one.notebook).name)}</h2>",
        f'<p class="soft">{escaped(one.notebook)}</p>',
    ]
    if one.problem:
        return [*body, f'<p class="status not-graded">Not graded: {escaped(one.problem)}.</p>']
    body += [
        f"<p>{one.n_passed} of {len(one.marks)} exercises passed · {one.seconds:.0f} s · hidden cases with "
        f"seed {one.seed} · {escaped(one.tier)}</p>",
        '<div class="wide"><table><tr><th>Exercise</th><th>Verdict</th><th>Failing case</th><th>Speed</th>'
        '<th class="number">Cases that agreed</th><th class="number">Seconds</th></tr>',
    ]
    for m in one.marks:
        body.append(
            "<tr><td><a "
            f'href="#{escaped(one.lab)}-{escaped(m.exercise)}">{escaped(m.title)}</a><br><small>{escaped(m.exercise)}</small></td>'
            f"<td>{overview.badge(m.verdict)}{_by_teacher(m)}</td><td>{escaped(m.case)}</td><td>{escaped(m.speed)}</td>"
            f'<td class="number">{m.n_cases}</td><td class="number">{m.seconds:.1f}</td></tr>'
        )
    body.append("</table></div>")
    for m in one.marks:
        body += _exercise(one.lab, m)
    if one.predictions:
        body += _predictions(one.predictions)
    if one.reaching:
        body += [
            "<h3>What looks like reaching for the grader</h3>",
            f'<p class="soft">{overview.ADVICE}</p>',
            "<ul>",
        ]
        body += [*(f"<li>{escaped(says)}</li>" for says in one.reaching), "</ul>"]
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
        '<div class="wide"><table><tr><th>Question</th><th>Said</th><th>It '
        f"was</th><th></th></tr>{rows}</table></div>",
    ]


def _exercise(lab: str, m: Mark) -> list[str]:
    """One exercise: what the check says, beside the code where it failed."""
    head = f'<h3 id="{escaped(lab)}-{escaped(m.exercise)}">{escaped(m.title)}{overview.badge(m.verdict)}</h3>'
    wrapped = ' class="wrapped"' if m.words else ""  # whole sentences, not rows of a table
    says = [
        *([f"<p>{escaped(m.by_teacher[:1].upper() + m.by_teacher[1:])}.</p>"] if m.computed else []),
        *([f'<p class="hint">The teacher: {escaped(m.remark)}</p>'] if m.remark else []),
        *([f'<p class="soft">Failing case: {escaped(m.case)}</p>'] if m.case else []),
        f"<p>{escaped(m.sentence)}</p>",
        *([f"<pre{wrapped}>{escaped(m.details)}</pre>"] if m.details.strip() else []),
        *([f'<p class="hint">Hint: {escaped(m.hint)}</p>'] if m.hint else []),
        *overview.words_of(m),
    ]
    if not m.code.strip():
        return [head, *says]
    if m.verdict == "failed":
        code = f"<pre>{escaped(m.code)}</pre>"
        return [
            head,
            '<div class="beside"><div>',
            *says,
            f'</div><div><p class="soft">The learner\'s code</p>{code}</div></div>',
        ]
    return [head, *says, _details("The learner's code", m.code)]


def _details(summary: str, text: str) -> str:
    return f"<details><summary>{escaped(summary)}</summary><pre>{escaped(text)}</pre></details>"

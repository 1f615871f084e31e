"""What `workbook grade` leaves: CSV files, a page for each learner, and index.html with the whole class.

Everything that comes from a notebook (names, code, errors) is escaped, and the pages need no network.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import partial
from pathlib import Path

from helpers.predict.summary import Summary
from workbook.grade import gradebook, overview
from workbook.grade.marks import Graded, Grades, Mark, Raised
from workbook.outputs import replace
from workbook.page import document, escaped
from workbook.sandbox.texts import clean
from workbook.usage import UsageError

_LONGEST = 150  # bytes of a page's name; file systems allow 255, and a temporary name is longer


def write(grades: Grades) -> None:
    """Write all files of a batch, each whole.

    Raises:
        UsageError: One cannot be written; `results.jsonl` has all that was graded.
    """
    try:
        _write(grades)
    except OSError as error:
        says = f"The reports cannot be written into {grades.out} ({error.strerror})."
        raise UsageError(f"{says} The marks are in results.jsonl: go on with --resume.") from error


def _write(grades: Grades) -> None:
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
    """Each learner's page, by name; two names never share a page, whatever the file system."""
    pages: dict[str, str] = {}
    taken = {"index.html"}
    for learner in dict.fromkeys(one.learner for one in grades.graded):
        base = re.sub(r"[^\w.-]+", "_", learner).encode()[:_LONGEST].decode(errors="ignore").strip("._")
        base = base or "learner"
        page, n = f"{base}.html", 1
        while _folded(page) in taken:
            n += 1
            page = f"{base}-{n}.html"
        taken.add(_folded(page))
        pages[learner] = page
    return pages


def _folded(page: str) -> str:
    """The same for names that some file systems take for one."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", page).casefold())


# ------------------------------------------------------------------------------------------------ a learner


def _learner_html(learner: str, grades: Grades) -> str:
    body = [f"<h1>{escaped(learner)}</h1>", '<p><a href="index.html">All learners</a></p>']
    of = [one for one in grades.graded if one.learner == learner]
    body += overview.banner(of)
    for one in of:
        body += _notebook(one)
    return document(f"{learner}: grades", body, overview.STYLE)


def _notebook(one: Graded) -> list[str]:
    body = [
        f"<h2>{escaped(one.lab or Path(one.notebook).name)}</h2>",
        f'<p class="soft">{escaped(one.notebook)}</p>',
    ]
    if one.problem:
        return [*body, f'<p class="not-graded">Not graded: {escaped(one.problem)}.</p>']
    body += [
        f"<p>{one.n_passed} of {len(one.marks)} exercises passed · {one.seconds:.0f} s · "
        f"{f'{one.timed_out} · ' if one.timed_out else ''}hidden cases with seed {one.seed} · "
        f"{escaped(one.tier)}</p>",
        overview.table(
            ("Exercise", "Verdict", "Failing case", "Speed", "#Cases that agreed", "#Seconds"),
            [_row(one.lab, m) for m in one.marks],
        ),
    ]
    for m in one.marks:
        body += _exercise(one.lab, m)
    if one.predictions:
        body += _predictions(one.predictions)
    if one.reaching:
        body += ["<h3>What looks like reaching for the grader</h3>", f'<p class="soft">{overview.ADVICE}</p>']
        body += overview.items(map(escaped, one.reaching))
    if one.raised:
        body += ["<h3>What its cells raised</h3>", *overview.items(map(_raised, one.raised))]
    return body


def _row(lab: str, m: Mark) -> tuple[object, ...]:
    link = f'<a href="#{escaped(lab)}-{escaped(m.exercise)}">{escaped(m.title)}</a>'
    return (
        f"{link}<br><small>{escaped(m.exercise)}</small>",
        overview.badge(m.verdict) + _by_teacher(m),
        escaped(m.case),
        escaped(m.speed),
        m.n_cases,
        f"{m.seconds:.1f}",
    )


def _raised(raised: Raised) -> str:
    at = f", line {raised.line}" if raised.line else ""
    called = raised.cell if raised.cell.startswith("cell ") else f"<code>{escaped(raised.cell)}</code>"
    log = _details("The end of what it printed", raised.log) if raised.log.strip() else ""
    return f"{f'{called}{at}: ' if raised.cell else ''}{escaped(raised.error)}{log}"


def _by_teacher(m: Mark) -> str:
    return f"<br><small>{escaped(m.by_teacher)}</small>" if m.computed else ""


def _predictions(summary: Summary) -> list[str]:
    """What the learner predicted in the lesson, in the learner's words: nothing of it was checked."""
    return [
        "<h3>What the learner predicted in the lesson</h3>",
        '<p class="soft">From the notebook\'s stored output; not part of the grade, and not checked.</p>',
        *(f"<p>{escaped(says)}</p>" for says in summary.sentences()),
        overview.table(("Question", "Said", "It was", ""), [map(escaped, row) for row in summary.rows()]),
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

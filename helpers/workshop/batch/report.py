"""What a batch leaves beside its notebooks: `index.html` for people, `report.json` for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime
from urllib.parse import quote

from helpers.workshop.batch.results import NotebookRun, RunReport, in_words
from helpers.workshop.outputs import replace
from helpers.workshop.page import document, escaped, made_with


def write_index(report: RunReport) -> None:
    """Write `index.html` and `report.json` of a batch, finished or not, each whole."""
    replace(report.out / "index.html", index_html(report))
    replace(report.out / "report.json", json.dumps(report.as_dict(), indent=1, ensure_ascii=False) + "\n")


def index_html(report: RunReport) -> str:
    """The batch's page: one file that needs nothing else, light and dark."""
    counts: dict[str, int] = {}
    for run in report.runs:
        counts[run.status] = counts.get(run.status, 0) + 1
    says = ", ".join(f"{n} {status}" for status, n in counts.items())
    started = datetime.fromisoformat(report.started)
    body = [
        "<h1>Kernel Workbook</h1>",
        f"<p>{escaped(says)}{' · interrupted' if report.interrupted else ''} · "
        f"{report.seconds:.0f} s in all · {started:%Y-%m-%d %H:%M}</p>",
        *made_with(),
        '<div class="wide"><table><tr><th>Notebook</th><th>Status</th><th class="number">Seconds</th>'
        "<th>Slowest cell</th><th>Figures</th></tr>",
        *(_row(run) for run in report.runs),
        "</table></div>",
        *_headlines(report.runs),
        *_failures(report.runs),
    ]
    return document(f"Kernel Workbook, {started:%Y-%m-%d}", body)


def _row(run: NotebookRun) -> str:
    name, href = escaped(run.name), quote(run.name)
    linked = run.written and not run.page_error
    title = f'<a href="{href}.html">{escaped(run.title)}</a>' if linked else escaped(run.title)
    files = f' · <a href="{href}.ipynb">executed notebook</a>' if run.written else ""
    files += f" · {escaped(run.page_error)}" if run.page_error else ""
    given = f"<br><small>{escaped(in_words(run.parameters))}</small>" if run.parameters else ""
    since = f"<br><small>{escaped(run.date[:16].replace('T', ' '))}</small>" if run.status == "kept" else ""
    slow = f"<code>{escaped(run.slowest[0])}</code> {run.slowest[1]:.1f}&nbsp;s" if run.slowest else ""
    memory = f"<br><small>peak {run.peak_mb / 1000:.1f} GB</small>" if run.peak_mb else ""
    gpu = ""
    if run.gpu:
        beside = "no other point of the batch on it" if run.gpu_alone else "shared with other points"
        gpu = f"<br><small>{escaped(run.gpu)}, {beside}</small>"
    return (
        f"<tr><td>{title}<br><small>{name}{files}</small>{given}</td>"
        f'<td class="status {run.status.replace(" ", "-")}">{_status(run)}{since}</td>'
        f'<td class="number">{f"{run.seconds:.1f}" if run.seconds else ""}</td>'
        f"<td>{slow}{memory}</td><td>{_unbroken_dates(run.where)}{gpu}</td></tr>"
    )


def _status(run: NotebookRun) -> str:
    return "failed (start)" if run.failure and run.failure.kind == "start" else run.status


def _unbroken_dates(text: str) -> str:
    """HTML in which a date is not broken at its hyphens."""
    return re.sub(r"\d{4}-\d\d-\d\d", r'<span style="white-space: nowrap">\g<0></span>', escaped(text))


def _headlines(runs: Iterable[NotebookRun]) -> list[str]:
    rows = [
        f"<tr><td>{escaped(h.get('label', ''))}</td><td>{escaped(h.get('value', ''))}</td>"
        f"<td>{escaped(h.get('source', ''))}</td>"
        f'<td><a href="{quote(run.name)}.html">{escaped(run.name)}</a></td></tr>'
        for run in runs
        for h in run.headlines
    ]
    if not rows:
        return []
    head = "<tr><th>What</th><th>Figure</th><th>Where</th><th>Notebook</th></tr>"
    return ["<h2>Headline figures</h2>", '<div class="wide"><table>', head, *rows, "</table></div>"]


def _failures(runs: Iterable[NotebookRun]) -> list[str]:
    found = []
    for run in runs:
        if run.failure:
            anchor = f"#cell-id={quote(run.failure.cell)}" if run.failure.cell else ""
            name = escaped(run.name)
            if run.written and not run.page_error:
                name = f'<a href="{quote(run.name)}.html{anchor}">{name}</a>'
            found.append(f"<p>{name}: {escaped(run.failure)}</p><pre>{escaped(run.failure.traceback)}</pre>")
    return ["<h2>What failed</h2>", *found] if found else []

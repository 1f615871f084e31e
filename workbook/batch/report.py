"""Write the report of a batch: `index.html` for people, `report.json` and `results.csv` for programs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from helpers.plots import axis_title
from workbook.batch import table
from workbook.batch.drawings import drawings
from workbook.batch.notebook_runs import (
    Failure,
    NotebookRun,
    RunReport,
    by_failure,
    in_minutes,
    in_time,
    in_words,
)
from workbook.batch.pages import copy_plotly
from workbook.batch.point import RUNNING
from workbook.batch.table import Group
from workbook.outputs import replace
from workbook.page import document, escaped, made_with
from workbook.project import find_root

_RELOAD_S = 4  # at least between two reloads of the page of a running batch
_STALE_S = 180  # without a new page, after which the old one says that the batch may have ended
_STYLE = """
.figures { display: grid; gap: 8px 24px;
  grid-template-columns: repeat(auto-fill, minmax(min(480px, 100%), 1fr)); }
.figure { min-height: 360px; min-width: 0; }
ol.contents { list-style: none; padding: 0; font-size: 18px; line-height: 1.7; }
h3 { font-size: 16px; margin: 20px 0 4px; }
.progress { display: flex; height: 10px; border-radius: 5px; overflow: hidden; background: var(--line);
  margin: 10px 0 6px; }
.progress .done { background: var(--good); } .progress .bad { background: var(--bad); }
.progress .now { background: var(--link); }
.running { color: var(--link); }"""
# The page opens before Plotly's five megabytes are loaded, and draws a figure when it scrolls into view.
_DRAW = """<script>
addEventListener("load", () => {
  const plotly = document.createElement("script");
  plotly.src = "assets/plotly.min.js";
  plotly.onload = () => {
    const seen = new IntersectionObserver(entries => entries.filter(e => e.isIntersecting).forEach(e => {
      seen.unobserve(e.target);
      Plotly.newPlot(e.target, JSON.parse(e.target.nextElementSibling.textContent))
        .then(() => window.drawnMs = performance.now());
    }), {rootMargin: "400px"});
    document.querySelectorAll(".figure").forEach(place => seen.observe(place));
  };
  document.body.append(plotly);
});
</script>"""
# A page that was opened from disk may not use fetch, so it reloads itself: not in the background, nor while
# the reader drags or selects something, and only after its figures were visible for eight times as long as it
# took to draw them.
_RELOAD = """<script>
{
  const key = "scroll " + location.pathname, written = %d;
  let held = false;
  addEventListener("pointerdown", () => held = true);
  addEventListener("pointerup", () => held = false);
  const before = sessionStorage.getItem(key);
  if (before !== null) addEventListener("load", () => scrollTo(0, Number(before)));
  setInterval(() => {
    if (Date.now() / 1000 - written > %d)
      document.getElementById("stale").hidden = false;
    const drawnMs = document.querySelector(".figure") ? window.drawnMs || Infinity : 0;
    const rests = performance.now() < Math.max(%d, Math.min(8 * drawnMs, 30000));
    if (rests || document.hidden || held || String(getSelection())) return;
    sessionStorage.setItem(key, scrollY);
    location.reload();
  }, 500);
}
</script>"""


def write_index(report: RunReport) -> None:
    """Write `index.html`, `results.csv` and `report.json` of a batch, finished or not, each atomically."""
    replace(report.out / "index.html", index_html(report))
    replace(report.out / "results.csv", table.csv_text(report.runs))
    replace(report.out / "report.json", json.dumps(report.as_dict(), indent=1, ensure_ascii=False) + "\n")


def index_html(report: RunReport) -> str:
    """The page of a batch. Its figures are drawn by the copy of plotly.min.js in the same folder."""
    started = datetime.fromisoformat(report.started)
    found = _figures(report)
    headlines, failures = _headlines(report.runs), _failures(report.runs)
    sections = [("found", "What the points found", found), ("headlines", "Headline figures", headlines)]
    sections.append(("failed", "What failed", failures))
    links = [f'<a href="#{name}">{title}</a>' for name, title, lines in sections if lines]
    title, origins = _title(report.runs), any(run.where or run.gpu for run in report.runs)
    body = [
        f"<h1>{escaped(title)}</h1>",
        *_contents(report),
        *_progress(report, started),
        f'<p class="soft">{" · ".join([*links, _link("results.csv"), _link("report.json")])}</p>',
        *made_with(),
        *_section(*sections[0]),
        "<h2>Notebooks</h2>" if found else "",
        '<div class="wide"><table><tr><th>Notebook</th><th>Status</th><th class="number">Seconds</th>'
        f"<th>Slowest cell</th>{'<th>Figures</th>' if origins else ''}</tr>",
        *(_row(run, report, origins) for run in report.runs),
        "</table></div>",
        *_section(*sections[1]),
        *_section(*sections[2]),
    ]
    drawn = any('class="figure"' in line for line in found)
    if drawn:
        copy_plotly(report.out / "assets")
        body.append(_DRAW)
    if report.running is not None:
        body.append(_RELOAD % (datetime.now().timestamp(), _STALE_S, _RELOAD_S * 1000))
    return document(f"{title}, {started:%Y-%m-%d}", body, _STYLE)


def _contents(report: RunReport) -> list[str]:
    """Links to the pages to read, if every notebook is there once; what follows is about the run."""
    runs = report.runs
    if len(runs) < 2 or len({run.source for run in runs}) < len(runs) or report.running is not None:
        return []
    items = [
        f'<li><a href="{quote(run.name)}.html">{escaped(run.title)}</a></li>'
        for run in runs
        if run.written and not run.page_error
    ]
    return ['<ol class="contents">', *items, "</ol>", "<h2>About this run</h2>"] if items else []


def _title(runs: Sequence[NotebookRun]) -> str:
    """The only notebook's title, the course's name, or how many notebooks of which folder these are."""
    sources = {run.source for run in runs}
    if len(sources) == 1:
        return runs[0].title
    folder = os.path.commonpath([Path(source).parent for source in sources])
    try:
        find_root(Path(folder))
    except RuntimeError:
        return f"{len(sources)} notebooks in {Path(folder).name or folder}"
    return "Kernel Workbook"


def _progress(report: RunReport, started: datetime) -> list[str]:
    """How many points have which status, and the time left; while the batch runs, also as a bar."""
    running = report.running or {}
    counts: dict[str, int] = {}
    for run in report.runs:
        status = "running" if run.name in running else run.status
        counts[status] = counts.get(status, 0) + 1
    summary = ", ".join(f"{n} {status}" for status, n in counts.items())
    duration = f"{in_time(report.seconds)}{'' if report.running is not None else ' in all'}"
    left = f" · about {in_time(report.left_s)} left" if report.left_s is not None else ""
    ending = (
        " · interrupted" if report.interrupted else " · stopped at the first failure" if report.halted else ""
    )
    lines = [f"<p>{escaped(summary)}{ending} · {duration}{left} · {started:%Y-%m-%d %H:%M}</p>"]
    if report.running is None:
        return lines
    share = 100 / max(1, len(report.runs))
    parts = [
        ("done", counts.get("ok", 0) + counts.get("kept", 0)),
        ("bad", counts.get("failed", 0)),
        ("now", counts.get("running", 0)),
    ]
    bar = "".join(f'<span class="{name}" style="width:{n * share:.3f}%"></span>' for name, n in parts)
    now = f"{datetime.now():%H:%M:%S}"
    return [
        f'<div class="progress" role="img" aria-label="{escaped(summary)}">{bar}</div>',
        *lines,
        f'<p class="soft">Running. This page was written at {now} and reloads itself.'
        f' <b id="stale" class="failed" hidden>Nothing new since {now}: the command may have ended. '
        "Continue it with --resume.</b></p>",
    ]


def _link(name: str) -> str:
    return f'<a href="{name}">{name}</a>'


def _section(name: str, title: str, lines: Sequence[str]) -> list[str]:
    return [f'<h2 id="{name}">{title}</h2>', *lines] if lines else []


def _row(run: NotebookRun, report: RunReport, origins: bool) -> str:
    name, href = escaped(run.name), quote(run.name)
    linked = run.written and not run.page_error
    title = f'<a href="{href}.html">{escaped(run.title)}</a>' if linked else escaped(run.title)
    files = f' · <a href="{href}.ipynb">executed notebook</a>' if run.written else ""
    if (report.out / f"{run.name}.log").is_file():
        files += f' · <a href="{href}.log">log</a>'
    files += "".join(f" · {escaped(error)}" for error in (run.page_error, run.log_error) if error)
    given = f"<br><small>{escaped(in_words(run.parameters))}</small>" if run.parameters else ""
    ended = in_minutes(run.ended or run.date)
    since = f"<br><small>finished {escaped(ended)}</small>" if run.status == "kept" else ""
    slow = f"<code>{escaped(run.slowest[0])}</code> {run.slowest[1]:.1f}&nbsp;s" if run.slowest else ""
    memory = f"<br><small>peak {run.peak_mb / 1000:.1f} GB</small>" if run.peak_mb else ""
    label, status = _status(run), run.status
    if (cell := (report.running or {}).get(run.name)) is not None:
        label = status = "running"
        slow = escaped(cell)
        if (report.out / RUNNING / f"{run.name}.ipynb").is_file():
            files += f' · <a href="{RUNNING}/{href}.ipynb">what it has put out so far</a>'
    origin = f"<td>{_unbroken_dates(run.where)}{_gpu(run)}</td>" if origins else ""
    return (
        f"<tr><td>{title}<br><small>{name}{files}</small>{given}</td>"
        f'<td class="status {status.replace(" ", "-")}">{label}{since}</td>'
        f'<td class="number">{f"{run.seconds:.1f}" if run.seconds else ""}</td>'
        f"<td>{slow}{memory}</td>{origin}</tr>"
    )


def _gpu(run: NotebookRun) -> str:
    if not run.gpu:
        return ""
    shared = "no other point of the batch on it" if run.gpu_alone else "shared with other points"
    return f"<br><small>{escaped(run.gpu)}, {shared}</small>"


def _status(run: NotebookRun) -> str:
    return "failed (start)" if run.failure and run.failure.kind == "start" else run.status


def _unbroken_dates(text: str) -> str:
    """Escape a text for HTML, and keep each of its dates on one line."""
    return re.sub(r"\d{4}-\d\d-\d\d", r'<span style="white-space: nowrap">\g<0></span>', escaped(text))


def _figures(report: RunReport) -> list[str]:
    """For each notebook with several points, its figures: drawn over their axes, or as a table."""
    lines: list[str] = []
    for group in table.groups(report.runs):
        if len(group.runs) < 2 or not (group.names or group.fixed):
            continue
        lines.append(f"<h3>{escaped(group.runs[0].title)}, {len(group.runs)} points</h3>")
        drawn = drawings(group)
        lines += ['<div class="figures">'] if drawn else []
        for title, figure in drawn:
            text = figure.replace("</", "<\\/")  # a name may contain </script>
            lines.append(
                f'<div><div class="figure" role="img" aria-label="{escaped(title)}"></div>'
                f'<script type="application/json">{text}</script></div>'
            )
        lines += ["</div>"] if drawn else []
        words = [n for n in group.names if not any(isinstance(v, (int, float)) for v in group.values(n))]
        if names := words if drawn else group.names:
            lines += _table(group, names)
        for figure in group.fixed:
            lines.append(f'<p class="soft">{escaped(table.fixed_in_words(group, figure))}.</p>')
    return lines


def _table(group: Group, names: Sequence[str]) -> list[str]:
    header_cells = "".join(f'<th class="number">{escaped(axis_title(name))}</th>' for name in names)
    axes = "".join(f"<th>{escaped(axis)}</th>" for axis in group.axes or ("point",))
    values = {name: group.values(name) for name in names}
    rows = []
    for i, run in enumerate(group.runs):
        at = [repr(run.parameters.get(axis)) for axis in group.axes] or [run.name]
        if run.written and not run.page_error:
            at[0] = f'<a href="{quote(run.name)}.html">{escaped(at[0])}</a>'
            at[1:] = map(escaped, at[1:])
        else:
            at = [escaped(text) for text in at]
        cells = "".join(f"<td>{text}</td>" for text in at)
        cells += f'<td class="status {run.status.replace(" ", "-")}">{_status(run)}</td>'
        cells += "".join(f'<td class="number">{_value(values[name][i])}</td>' for name in names)
        rows.append(f"<tr>{cells}</tr>")
    return [f'<div class="wide"><table><tr>{axes}<th>Status</th>{header_cells}</tr>', *rows, "</table></div>"]


def _value(value: Any) -> str:
    return escaped(table.in_short(value)) or "–"


def _headlines(runs: Sequence[NotebookRun]) -> list[str]:
    """The headlines of notebooks with one point, and of those with several the headlines without a number."""
    rows = []
    for group in table.groups(runs):
        points = [run for run in group.runs if table.finished(run) or len(group.runs) == 1]
        with_numbers = {f.label for run in points for f in run.figures} if len(group.runs) > 1 else set()
        by_text: dict[tuple[str, str, str], list[NotebookRun]] = {}
        for run in points:
            for h in run.headlines:
                if h.get("label") not in with_numbers:
                    text = h.get("label", ""), h.get("value", ""), h.get("source", "")
                    by_text.setdefault(text, []).append(run)
        for text, found in by_text.items():
            where = f'<a href="{quote(found[0].name)}.html">{escaped(found[0].name)}</a>'
            if len(found) > 1:
                where = f"the same at {len(found)} points of {escaped(found[0].title)}"
            rows.append("<tr>" + "".join(f"<td>{escaped(t)}</td>" for t in text) + f"<td>{where}</td></tr>")
    if not rows:
        return []
    head = "<tr><th>What</th><th>Figure</th><th>Where</th><th>Notebook</th></tr>"
    return ['<div class="wide"><table>', head, *rows, "</table></div>"]


def _failures(runs: Iterable[NotebookRun]) -> list[str]:
    found = []
    for failure, failed in by_failure(runs).items():
        names = ", ".join(_failed_name(run, failure) for run in failed)
        found.append(f"<p>{names}: {escaped(failure)}</p><pre>{escaped(failure.traceback)}</pre>")
    return found


def _failed_name(run: NotebookRun, failure: Failure) -> str:
    """A notebook's name, as a link to the cell that failed if it has a page."""
    if not run.written or run.page_error:
        return escaped(run.name)
    anchor = f"#cell-id={quote(failure.cell)}" if failure.cell else ""
    return f'<a href="{quote(run.name)}.html{anchor}">{escaped(run.name)}</a>'

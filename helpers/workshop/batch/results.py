"""What happened to a batch's notebooks, and what is left of it: a table, `index.html`, `report.json`.

Headlines and provenance are read from the outputs that `helpers.records` writes.
"""

from __future__ import annotations

import html
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from helpers.workshop.batch.plan import Job

HEADLINE = "application/vnd.kernel-workbook.headline+json"
PROVENANCE = "application/vnd.kernel-workbook.provenance+json"
PACKAGES = ("kernel-workbook", "torch", "triton", "plotly", "papermill", "nbclient", "ncu-report")


@dataclass(frozen=True)
class Failure:
    """Why a notebook ended early.

    Attributes:
        kind: "error", "timeout", "died" (the kernel), or "start" (it never began).
        cell: The cell's id, or None where no cell had begun.
        line: The line in that cell, from 1, where its traceback tells.
        source_line: That line's text.
        message: One line without a period.
        traceback: The traceback, or the kernel's last words.
    """

    kind: str
    cell: str | None
    line: int | None
    source_line: str | None
    message: str
    traceback: str

    def __str__(self) -> str:
        at = f" (line {self.line}: {self.source_line})" if self.line else ""
        return f"{self.message}{at}"


@dataclass(frozen=True)
class NotebookRun:
    """What happened to one notebook of a batch.

    Attributes:
        name: The outputs' name without a suffix.
        source: The notebook's path.
        title: Its first heading.
        status: "ok", "failed", "kept" (finished earlier, by --resume), "not run", or "waiting" while a batch runs.
        parameters: What was injected.
        date: When its batch began, ISO 8601.
        seconds: Wall time with the kernel's start and end.
        cells: Cell id to seconds, in order.
        peak_mb: The most memory its kernel process held, in MB; 0 where unknown.
        failure: Why it ended early, or None.
        page_error: Why it has no page, or "".
        headlines: The headline figures it showed: label, value, source.
        provenance: Where its figures come from: record, mode ("live", "replayed"), gpu, date, text.
    """

    name: str
    source: str
    title: str
    status: str
    parameters: dict[str, Any]
    date: str = ""
    seconds: float = 0.0
    cells: dict[str, float] | None = None
    peak_mb: float = 0.0
    failure: Failure | None = None
    page_error: str = ""
    headlines: tuple[dict[str, str], ...] = ()
    provenance: tuple[dict[str, str], ...] = ()

    @classmethod
    def not_run(cls, job: Job, *, waiting: bool) -> NotebookRun:
        """A notebook that has not run, or not yet."""
        return cls(job.name, str(job.source), job.title, "waiting" if waiting else "not run", job.parameters)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NotebookRun:
        """The inverse of `as_dict`."""
        failure = values.get("failure")
        return cls(
            **{
                **values,
                "failure": Failure(**failure) if failure else None,
                "headlines": tuple(map(dict, values["headlines"])),
                "provenance": tuple(map(dict, values["provenance"])),
            }
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    @property
    def slowest(self) -> tuple[str, float] | None:
        """The slowest cell's id and seconds."""
        return max((self.cells or {}).items(), key=lambda item: item[1], default=None)

    @property
    def where(self) -> str:
        """Where its figures come from, in words."""
        live = sorted({p["gpu"] for p in self.provenance if p["mode"] == "live"})
        replayed: dict[str, str] = {}
        for p in self.provenance:
            if p["mode"] == "replayed":
                replayed[p["gpu"]] = max(p["date"], replayed.get(p["gpu"], ""))
        parts = [f"live on {gpu}" for gpu in live]
        parts += [f"replayed from {gpu}, {date}" for gpu, date in sorted(replayed.items())]
        if not parts and self.status in ("waiting", "not run"):
            return ""
        return " and ".join(parts) or "no GPU figures"


@dataclass(frozen=True)
class RunReport:
    """A whole batch. `exit_status` is 0, 1 where a notebook failed, 130 after an interrupt."""

    out: Path
    started: str
    seconds: float
    runs: tuple[NotebookRun, ...]
    interrupted: bool = False

    @property
    def ok(self) -> bool:
        """Every notebook ran to its end and has its page."""
        return all(run.status in ("ok", "kept") and not run.page_error for run in self.runs)

    @property
    def exit_status(self) -> int:
        """The command's exit status."""
        return 130 if self.interrupted else int(not self.ok)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for report.json."""
        return {
            "started": self.started,
            "seconds": self.seconds,
            "interrupted": self.interrupted,
            "machine": machine(),
            "versions": versions(),
            "notebooks": [
                {**run.as_dict(), "where": run.where, "slowest_cell": run.slowest} for run in self.runs
            ],
        }

    def __repr__(self) -> str:
        rows = [("notebook", "status", "seconds", "slowest cell", "figures")]
        for run in self.runs:
            slow = f"{run.slowest[0]} ({run.slowest[1]:.1f} s)" if run.slowest else ""
            took = f"{run.seconds:.1f}" if run.seconds else ""
            rows.append((run.name, run.status, took, slow, run.where))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = [
            "  ".join(
                text.rjust(w) if i == 2 else text.ljust(w)
                for i, (text, w) in enumerate(zip(row, [*widths, 0], strict=True))
            ).rstrip()
            for row in rows
        ]
        for run in self.runs:
            if run.page_error:
                lines += ["", f"{run.name}: {run.page_error}"]
            if run.failure:
                lines += ["", f"{run.name}: {run.failure}", *_indented(run.failure.traceback)]
        if self.interrupted:
            lines += ["", "Interrupted: finished notebooks are whole, the others are marked as not run."]
        lines += ["", f"{self.seconds:.0f} s. Open {self.out / 'index.html'}"]
        return "\n".join(lines)


def line(run: NotebookRun) -> str:
    """One line for the terminal when a notebook ends."""
    if run.failure:
        return f"{run.name}: failed, {run.failure}"
    return f"{run.name}: {'kept, finished earlier' if run.status == 'kept' else f'ok, {run.seconds:.1f} s'}"


def summarise(
    job: Job,
    notebook: NotebookNode,
    failure: Failure | None,
    seconds: float,
    cells: Mapping[str, float],
    peak_mb: float,
    started: datetime,
) -> NotebookRun:
    """Read an executed notebook's headlines and provenance from its outputs."""
    bundles = [
        output.data
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.output_type in ("display_data", "execute_result")
    ]
    return NotebookRun(
        name=job.name,
        source=str(job.source),
        title=job.title,
        status="failed" if failure else "ok",
        parameters=job.parameters,
        date=started.isoformat(timespec="seconds"),
        seconds=round(seconds, 2),
        cells={name: round(s, 3) for name, s in cells.items()},
        peak_mb=round(peak_mb, 1),
        failure=failure,
        headlines=tuple(dict(b[HEADLINE]) for b in bundles if HEADLINE in b),
        provenance=tuple(dict(b[PROVENANCE]) for b in bundles if PROVENANCE in b),
    )


def replace(path: Path, text: str) -> None:
    """Write a file whole: beside it first, then in its place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, "utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


_STYLE = """\
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --back: #fff; --tint: #f6f8fa;
  --link: #0b62b8; --good: #1a7f37; --bad: #b3261e; --wait: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --back: #0d1117;
  --tint: #151b23; --link: #58a6ff; --good: #3fb950; --bad: #ff7b72; --wait: #d29922; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 1100px;
  margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 36px 0 8px; }
a { color: var(--link); } p { margin: 4px 0; } .soft, small { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 15px; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 13px; }
th, td { padding: 8px 12px 8px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.ok, .kept { color: var(--good); } .failed { color: var(--bad); } .not-run, .waiting { color: var(--wait); }
.status { font-weight: 600; white-space: nowrap; }
pre { background: var(--tint); border: 1px solid var(--line); border-radius: 6px; padding: 12px; overflow-x: auto;
  font-size: 13px; line-height: 1.45; }
code { font-size: 0.92em; }"""


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
        f"<p>{html.escape(says)}{' · interrupted' if report.interrupted else ''} · "
        f"{report.seconds:.0f} s in all · {started:%Y-%m-%d %H:%M}</p>",
        f'<p class="soft">{html.escape(machine())}</p>',
        f'<p class="soft">{html.escape(" · ".join(f"{name} {v}" for name, v in versions().items()))}</p>',
        '<div class="wide"><table><tr><th>Notebook</th><th>Status</th><th class="number">Seconds</th>'
        "<th>Slowest cell</th><th>Figures</th></tr>",
        *(_row(run, report.out) for run in report.runs),
        "</table></div>",
        *_headlines(report.runs),
        *_failures(report.runs),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Kernel Workbook, {started:%Y-%m-%d}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _row(run: NotebookRun, out: Path) -> str:
    name = html.escape(run.name)
    ran = run.status in ("ok", "failed", "kept")
    linked = ran and not run.page_error
    title = f'<a href="{name}.html">{html.escape(run.title)}</a>' if linked else html.escape(run.title)
    files = f' · <a href="{name}.ipynb">executed notebook</a>' if ran else ""
    files += f" · {html.escape(run.page_error)}" if run.page_error else ""
    given = f"<br><small>{html.escape(in_words(run.parameters))}</small>" if run.parameters else ""
    since = (
        f"<br><small>{html.escape(run.date[:16].replace('T', ' '))}</small>" if run.status == "kept" else ""
    )
    slow = f"<code>{html.escape(run.slowest[0])}</code> {run.slowest[1]:.1f}&nbsp;s" if run.slowest else ""
    memory = f"<br><small>peak {run.peak_mb / 1000:.1f} GB</small>" if run.peak_mb else ""
    return (
        f"<tr><td>{title}<br><small>{name}{files}</small>{given}</td>"
        f'<td class="status {run.status.replace(" ", "-")}">{run.status}{since}</td>'
        f'<td class="number">{f"{run.seconds:.1f}" if run.seconds else ""}</td>'
        f"<td>{slow}{memory}</td><td>{_unbroken_dates(run.where)}</td></tr>"
    )


def _unbroken_dates(text: str) -> str:
    """HTML in which a date is not broken at its hyphens."""
    return re.sub(r"\d{4}-\d\d-\d\d", r'<span style="white-space: nowrap">\g<0></span>', html.escape(text))


def _headlines(runs: Iterable[NotebookRun]) -> list[str]:
    rows = [
        f"<tr><td>{html.escape(str(h.get('label', '')))}</td><td>{html.escape(str(h.get('value', '')))}</td>"
        f"<td>{html.escape(str(h.get('source', '')))}</td>"
        f'<td><a href="{html.escape(run.name)}.html">{html.escape(run.name)}</a></td></tr>'
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
            anchor = f"#cell-id={run.failure.cell}" if run.failure.cell else ""
            found.append(
                f'<p><a href="{html.escape(run.name + ".html" + anchor)}">{html.escape(run.name)}</a>: '
                f"{html.escape(str(run.failure))}</p><pre>{html.escape(run.failure.traceback)}</pre>"
            )
    return ["<h2>What failed</h2>", *found] if found else []


def in_words(parameters: Mapping[str, Any]) -> str:
    """Parameters as `name = value, …`."""
    return ", ".join(f"{name} = {value!r}" for name, value in parameters.items())


def _indented(text: str) -> list[str]:
    return [f"    {part}" for part in text.splitlines()]


@cache
def machine() -> str:
    """This machine in a line: processor, cores, memory, system, GPU. No name and no address of it."""
    parts = [_processor(), f"{os.cpu_count()} cores"]
    if hasattr(os, "sysconf"):
        parts.append(f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB")
    parts += [f"{platform.system()} {platform.machine()}", f"Python {platform.python_version()}", _gpus()]
    return " · ".join(part for part in parts if part)


def _processor() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else platform.processor()


def _gpus() -> str:
    # nvidia-smi and not torch: a report must not cost torch's import.
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return "no NVIDIA GPU"
    names = listed.split("\n")[:-1] or ["no NVIDIA GPU"]
    return ", ".join(f"{names.count(n)} × {n}" if names.count(n) > 1 else n for n in dict.fromkeys(names))


@cache
def versions() -> dict[str, str]:
    """The versions of what a batch's figures depend on."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

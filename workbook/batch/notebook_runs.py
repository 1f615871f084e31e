"""What happened to the notebooks of a batch: `NotebookRun` for one, `RunReport`, which prints as a table,
for all.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from workbook.batch.findings import HEADLINE, PROVENANCE, Figure, bundles, figures_of
from workbook.batch.parameters import default_values, for_json
from workbook.batch.plan import Job, PlannedPoint
from workbook.batch.point import Point
from workbook.page import machine, versions


@dataclass(frozen=True)
class Failure:
    """Why a notebook ended early.

    Attributes:
        kind: "error", "timeout", "memory" (it exceeded its limit), "died" (the kernel, or the process that
            ran it), "start" (it never began), or "write" (the executed notebook could not be written).
        message: One line without a period.
        traceback: The traceback, or the last lines that the kernel printed.
        cell: The cell's id, or None if no cell had begun.
        line: The line in that cell, counted from 1, if the traceback names it.
        source_line: The text of that line.
    """

    kind: str
    message: str
    traceback: str
    cell: str | None = None
    line: int | None = None
    source_line: str | None = None

    def __str__(self) -> str:
        at = f" (line {self.line}: {self.source_line})" if self.line else ""
        return f"{self.message}{at}"


@dataclass(frozen=True)
class Execution:
    """One notebook that a kernel has run, completely or not.

    Attributes:
        notebook: The notebook with its outputs.
        failure: What ended it early, or None.
        seconds: Wall time, including the kernel's start and end.
        cells: Cell to seconds, in order, as in `NotebookRun`.
        peak_mb: The most memory that its kernel process used, in MB (10^6 bytes); 0 if unknown.
        log_error: Why its log is missing or incomplete, or "".
    """

    notebook: NotebookNode
    failure: Failure | None
    seconds: float
    cells: Mapping[str, float]
    peak_mb: float
    log_error: str = ""


@dataclass(frozen=True)
class NotebookRun:
    """What happened to one notebook of a batch.

    Attributes:
        name: What its outputs are called, without a suffix.
        source: The notebook's path.
        title: Its first heading.
        status: "ok", "failed", "kept" (an earlier batch finished it, and --resume kept it), "not run", or
            "waiting" while a batch runs.
        parameters: What was injected.
        defaults: The other parameters of its parameters cell, with their defaults.
        date: When its batch began, ISO 8601.
        ended: When it ended, ISO 8601, or "".
        seconds: Wall time, including the kernel's start and end.
        cells: Cell to seconds, in order. A cell is named by its id if that consists of words, otherwise by
            its number and its id.
        peak_mb: The most memory that its kernel process used, in MB (10^6 bytes); 0 if unknown.
        failure: Why it ended early, or None.
        page_error: Why it has no page, or "".
        log_error: Why its log is missing or incomplete, or "".
        headlines: The headline figures that it displayed: label, value, source.
        figures: The numbers of the headlines, and the scraps of foreign notebooks.
        provenance: Where its figures come from: record, mode ("live", "replayed"), gpu, date, text.
        written: Whether its executed notebook was written.
        gpu: The UUID of the GPU that it was given, or "".
        gpu_alone: Whether no other point of the batch used this GPU at the same time; None without `gpu`.
        host: The machine that ran it.
        attempts: How often it was begun: more than once if its kernel or worker died.
    """

    name: str
    source: str
    title: str
    status: str
    parameters: dict[str, Any]
    defaults: dict[str, Any] = field(default_factory=dict)
    date: str = ""
    ended: str = ""
    seconds: float = 0.0
    cells: dict[str, float] | None = None
    peak_mb: float = 0.0
    failure: Failure | None = None
    page_error: str = ""
    log_error: str = ""
    headlines: tuple[dict[str, Any], ...] = ()
    figures: tuple[Figure, ...] = ()
    provenance: tuple[dict[str, str], ...] = ()
    written: bool = False
    gpu: str = ""
    gpu_alone: bool | None = None
    host: str = ""
    attempts: int = 1

    @classmethod
    def not_run(cls, job: Job | PlannedPoint, *, waiting: bool) -> NotebookRun:
        """A notebook that has not run, or not yet."""
        return cls(job.name, str(job.source), job.title, "waiting" if waiting else "not run", job.parameters)

    @classmethod
    def failed(cls, job: Job | PlannedPoint, failure: Failure) -> NotebookRun:
        """A notebook that could not be run at all."""
        return cls(job.name, str(job.source), job.title, "failed", job.parameters, failure=failure)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NotebookRun:
        """The inverse of `as_dict`; ignores keys that it doesn't know, so it also reads `report.json`."""
        failure = values.get("failure")
        known = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        return cls(
            **{
                **known,
                "failure": Failure(**failure) if failure else None,
                "headlines": tuple(map(dict, values["headlines"])),
                "figures": tuple(Figure(**figure) for figure in values.get("figures", ())),
                "provenance": tuple(map(dict, values["provenance"])),
            }
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return for_json(asdict(self))

    @property
    def slowest(self) -> tuple[str, float] | None:
        """The slowest cell and its seconds."""
        return max((self.cells or {}).items(), key=lambda item: item[1], default=None)

    @property
    def where(self) -> str:
        """Which GPUs its figures come from, in words; "" if it shows none of a GPU."""
        live = sorted({p["gpu"] for p in self.provenance if p["mode"] == "live"})
        replayed: dict[str, str] = {}
        for p in self.provenance:
            if p["mode"] == "replayed":
                replayed[p["gpu"]] = max(p["date"], replayed.get(p["gpu"], ""))
        parts = [f"live on {gpu}" for gpu in live]
        parts += [f"replayed from {gpu}, {date}" for gpu, date in sorted(replayed.items())]
        return " and ".join(parts)


@dataclass(frozen=True)
class RunReport:
    """A whole batch. `exit_status` is 0, 1 if a notebook failed, or 130 after an interrupt.

    Attributes:
        out: The folder of the outputs.
        started: When it began, ISO 8601.
        seconds: How long it has run.
        runs: A row for each point.
        interrupted: Whether Ctrl-C or SIGTERM ended it.
        index_error: Why the index could not be written, or "".
        lost: A sentence if the scheduler that ran the points is gone, or "".
        shard: Its part of the batch, such as "3/8", which has no index of its own; or "".
        halted: Whether nothing more was begun after a failure.
        running: While it runs: the name of each running point to the cell that it is in. None when it has
            ended.
        left_s: While it runs: the estimated number of seconds left, or None if unknown.
    """

    out: Path
    started: str
    seconds: float
    runs: tuple[NotebookRun, ...]
    interrupted: bool = False
    index_error: str = ""
    lost: str = ""
    shard: str = ""
    halted: bool = False
    running: Mapping[str, str] | None = None
    left_s: float | None = None

    @property
    def ok(self) -> bool:
        """Whether every notebook ran to its end and has its page, and the index was written."""
        return not (self.index_error or self.lost) and all(
            run.status in ("ok", "kept") and not run.page_error and not run.log_error for run in self.runs
        )

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
            "running": self.running is not None,
            "machine": machine(),
            "versions": versions(),
            "notebooks": [
                {**run.as_dict(), "where": run.where, "slowest_cell": run.slowest} for run in self.runs
            ],
        }

    def __repr__(self) -> str:
        return "\n".join([*self._table(), *self._errors(), *self._ending()])

    def _table(self) -> list[str]:
        figures = "figures" if any(run.where for run in self.runs) else ""
        rows = [("notebook", "status", "seconds", "slowest cell", figures)]
        for run in self.runs:
            slow = f"{run.slowest[0]} ({run.slowest[1]:.1f} s)" if run.slowest else ""
            seconds = f"{run.seconds:.1f}" if run.seconds else ""
            rows.append((run.name, run.status, seconds, slow, run.where))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return [
            "  ".join(
                text.rjust(w) if i == 2 else text.ljust(w)
                for i, (text, w) in enumerate(zip(row, [*widths, 0], strict=True))
            ).rstrip()
            for row in rows
        ]

    def _errors(self) -> list[str]:
        lines: list[str] = []
        for run in self.runs:
            for error in filter(None, (run.page_error, run.log_error)):
                lines += ["", f"{run.name}: {error}"]
        for failure, runs in by_failure(self.runs).items():
            names = ", ".join(run.name for run in runs)
            lines += ["", f"{names}: {failure}", *_indented(failure.traceback)]
        return lines

    def _ending(self) -> list[str]:
        lines: list[str] = []
        if self.interrupted:
            lines += ["", "Interrupted. Finished notebooks are complete; the others are marked as not run."]
        if self.lost:
            lines += ["", self.lost]
        if self.halted:
            left = sum(run.status == "not run" for run in self.runs)
            of = f"{left} of {len(self.runs)} were not run"
            lines += ["", f"Stopped at the first failure (--fail-fast): {of}."]
        report = f"Open {self.out}/index.html"
        readable = [run for run in self.runs if run.written and not run.page_error]
        if len(readable) > 1 and readable == list(self.runs) and not any(run.failure for run in self.runs):
            report = (
                f"Read {self.out}/{readable[0].name}.html first; {self.out}/index.html lists all notebooks"
            )
        if self.shard:
            report = f"This was shard {self.shard}: workbook index {self.out} writes the report of all shards"
        return [*lines, "", f"{self.seconds:.0f} s. {self.index_error or report}"]


def by_failure(runs: Iterable[NotebookRun]) -> dict[Failure, list[NotebookRun]]:
    """The rows that failed, grouped by their failure, so that a report shows each traceback once."""
    found: dict[Failure, list[NotebookRun]] = {}
    for run in runs:
        if run.failure:
            found.setdefault(run.failure, []).append(run)
    return found


def line(run: NotebookRun) -> str:
    """One line for the terminal when a notebook ends."""
    if run.failure:
        return f"{run.name}: failed{' (start)' if run.failure.kind == 'start' else ''}, {run.failure}"
    if run.status == "kept":
        return f"{run.name}: kept, finished {in_minutes(run.ended or run.date)}"
    return f"{run.name}: ok, {run.seconds:.1f} s"


def summarize(point: Point, execution: Execution) -> NotebookRun:
    """The row of one point; what it found is read from the outputs of the executed notebook."""
    displayed, job = bundles(execution.notebook), point.job
    defaults = default_values(execution.notebook)
    return NotebookRun(
        name=job.name,
        source=str(job.source),
        title=job.title,
        status="failed" if execution.failure else "ok",
        parameters=job.parameters,
        defaults={name: value for name, value in defaults.items() if name not in job.parameters},
        date=point.started,
        ended=datetime.now().astimezone().isoformat(timespec="seconds"),
        seconds=round(execution.seconds, 2),
        cells={name: round(s, 3) for name, s in execution.cells.items()},
        peak_mb=round(execution.peak_mb, 1),
        failure=execution.failure,
        log_error=execution.log_error,
        headlines=tuple(dict(b[HEADLINE]) for b in displayed if HEADLINE in b),
        figures=figures_of(displayed),
        provenance=tuple(dict(b[PROVENANCE]) for b in displayed if PROVENANCE in b),
        written=True,
        gpu=point.gpu,
        gpu_alone=point.gpu_alone,
        host=platform.node(),
        attempts=point.attempt,
    )


def in_minutes(moment: str) -> str:
    """An ISO 8601 date and time without seconds and time zone: 2026-11-22 10:15."""
    return moment[:16].replace("T", " ")


def in_time(seconds: float) -> str:
    """A duration: 42 s, 3 min 20 s, 2 h 05 min."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02} min"


def in_words(parameters: Mapping[str, Any]) -> str:
    """Parameters as `name = value, …`."""
    return ", ".join(f"{name} = {value!r}" for name, value in parameters.items())


def _indented(text: str) -> list[str]:
    return [f"    {part}" for part in text.splitlines()]

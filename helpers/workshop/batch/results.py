"""What happened to a batch's notebooks: `NotebookRun` for one, `RunReport` for all, which prints as a table."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from helpers.workshop.batch.figures import HEADLINE, PROVENANCE, Figure, bundles, figures_of
from helpers.workshop.batch.parameters import for_json
from helpers.workshop.batch.plan import Job
from helpers.workshop.batch.point import Point
from helpers.workshop.page import machine, versions


@dataclass(frozen=True)
class Failure:
    """Why a notebook ended early.

    Attributes:
        kind: "error", "timeout", "memory" (above its limit), "died" (the kernel or the process above it), "start" (it never began), or "write" (the
            executed notebook could not be written).
        message: One line without a period.
        traceback: The traceback, or the kernel's last words.
        cell: The cell's id, or None where no cell had begun.
        line: The line in that cell, from 1, where its traceback tells.
        source_line: That line's text.
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
    """One notebook that a kernel has run, to its end or not.

    Attributes:
        notebook: The notebook with its outputs.
        failure: What ended it early, or None.
        seconds: Wall time with the kernel's start and end.
        cells: Cell to seconds, in order, as in `NotebookRun`.
        peak_mb: The most memory that its kernel process held, in MB (10^6 bytes); 0 where unknown.
        log_error: Why its log is missing or not whole, or "".
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
        name: The outputs' name without a suffix.
        source: The notebook's path.
        title: Its first heading.
        status: "ok", "failed", "kept" (finished earlier, by --resume), "not run", or "waiting" while a batch runs.
        parameters: What was injected.
        date: When its batch began, ISO 8601.
        seconds: Wall time with the kernel's start and end.
        cells: Cell to seconds, in order: its id where that is words, or else its number with the id.
        peak_mb: The most memory its kernel process held, in MB; 0 where unknown.
        failure: Why it ended early, or None.
        page_error: Why it has no page, or "".
        log_error: Why its log is missing or not whole, or "".
        headlines: The headline figures it showed: label, value, source.
        figures: The numbers of the headlines, and the scraps of foreign notebooks.
        provenance: Where its figures come from: record, mode ("live", "replayed"), gpu, date, text.
        written: Whether its executed notebook is there.
        gpu: The UUID of the GPU that it was given, or "".
        gpu_alone: Whether no other point of the batch was given this GPU at the same time; None without `gpu`.
        host: The machine that ran it.
        attempts: How often it was begun: more than once where its kernel or worker had died.
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
    def not_run(cls, job: Job, *, waiting: bool) -> NotebookRun:
        """A notebook that has not run, or not yet."""
        return cls(job.name, str(job.source), job.title, "waiting" if waiting else "not run", job.parameters)

    @classmethod
    def failed(cls, job: Job, failure: Failure) -> NotebookRun:
        """A notebook that could not be run at all."""
        return cls(job.name, str(job.source), job.title, "failed", job.parameters, failure=failure)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NotebookRun:
        """The inverse of `as_dict`; what it does not know is left out, as in a row of `report.json`."""
        failure = values.get("failure")
        known = {field.name: values[field.name] for field in fields(cls) if field.name in values}
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
    """A whole batch. `exit_status` is 0, 1 where a notebook failed, 130 after an interrupt.

    Attributes:
        out: The folder of the outputs.
        started: When it began, ISO 8601.
        seconds: How long it has run.
        runs: A row for each point.
        interrupted: Whether Ctrl-C or SIGTERM ended it.
        index_error: Why the index is not there, or "".
        lost: A sentence where what ran the points is gone, or "".
        shard: Its part, as "3/8", where it has no index.
        halted: Whether nothing more was begun after a failure.
        running: While it runs: the name of each running point to the cell that it is in. None when it has ended.
        left_s: While it runs: how many seconds are left at the pace so far; None where that is not known.
        address: Where the outputs have been copied to, where that is no folder, or "".
        copy_error: What could not be copied there, and why, or "".
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
    address: str = ""
    copy_error: str = ""

    @property
    def ok(self) -> bool:
        """Every notebook ran to its end and has its page, and the index is there."""
        return not (self.index_error or self.lost or self.copy_error) and all(
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
            for error in filter(None, (run.page_error, run.log_error)):
                lines += ["", f"{run.name}: {error}"]
            if run.failure:
                lines += ["", f"{run.name}: {run.failure}", *_indented(run.failure.traceback)]
        if self.interrupted:
            lines += ["", "Interrupted: finished notebooks are whole, the others are marked as not run."]
        if self.lost:
            lines += ["", self.lost]
        if self.halted:
            left = sum(run.status == "not run" for run in self.runs)
            lines += [
                "",
                f"Stopped at the first failure (--fail-fast): {left} of {len(self.runs)} were not run.",
            ]
        merge = f"This was shard {self.shard}: workbook merge {self.out} writes the report of all"
        opens = f"Open {self.address or self.out}/index.html"
        ends = self.index_error or self.copy_error or (merge if self.shard else opens)
        lines += ["", f"{self.seconds:.0f} s. {ends}"]
        return "\n".join(lines)


def line(run: NotebookRun) -> str:
    """One line for the terminal when a notebook ends."""
    if run.failure:
        return f"{run.name}: failed{' (start)' if run.failure.kind == 'start' else ''}, {run.failure}"
    if run.status == "kept":
        return f"{run.name}: kept, finished earlier"
    return f"{run.name}: ok, {run.seconds:.1f} s"


def summarise(point: Point, execution: Execution) -> NotebookRun:
    """What happened to one point; what it found is read from the executed notebook's outputs."""
    shown, job = bundles(execution.notebook), point.job
    return NotebookRun(
        name=job.name,
        source=str(job.source),
        title=job.title,
        status="failed" if execution.failure else "ok",
        parameters=job.parameters,
        date=point.started,
        seconds=round(execution.seconds, 2),
        cells={name: round(s, 3) for name, s in execution.cells.items()},
        peak_mb=round(execution.peak_mb, 1),
        failure=execution.failure,
        log_error=execution.log_error,
        headlines=tuple(dict(b[HEADLINE]) for b in shown if HEADLINE in b),
        figures=figures_of(shown),
        provenance=tuple(dict(b[PROVENANCE]) for b in shown if PROVENANCE in b),
        written=True,
        gpu=point.gpu,
        gpu_alone=point.gpu_alone,
        host=platform.node(),
        attempts=point.attempt,
    )


def in_time(seconds: float) -> str:
    """A time as people say it: 42 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def in_words(parameters: Mapping[str, Any]) -> str:
    """Parameters as `name = value, …`."""
    return ", ".join(f"{name} = {value!r}" for name, value in parameters.items())


def _indented(text: str) -> list[str]:
    return [f"    {part}" for part in text.splitlines()]

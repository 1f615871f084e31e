"""The messages that a worker sends to its runner."""

from __future__ import annotations

from dataclasses import dataclass

from workbook.batch.notebook_runs import NotebookRun


@dataclass(frozen=True)
class Ready:
    """The worker takes points. SIGTERM to `pid` stops the point that is running."""

    pid: int


@dataclass(frozen=True)
class CellBegins:
    """A cell begins: number `index`, counted from 0, of `total`."""

    index: int
    total: int
    cell: str


@dataclass(frozen=True)
class Done:
    """A point has ended. `run` is None if it was stopped; `error` is an error of the worker itself, or ""."""

    run: NotebookRun | None
    error: str = ""

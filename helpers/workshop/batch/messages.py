"""What a worker tells its runner."""

from __future__ import annotations

from dataclasses import dataclass

from helpers.workshop.batch.results import NotebookRun


@dataclass(frozen=True)
class Ready:
    """The worker can be given points; SIGTERM to `pid` stops the one that runs."""

    pid: int


@dataclass(frozen=True)
class CellBegins:
    """Cell `index` of `total` begins."""

    index: int
    total: int
    cell: str


@dataclass(frozen=True)
class Done:
    """A point has ended; `run` is None where it was stopped, `error` what the worker itself met, `held` who else has it."""

    run: NotebookRun | None
    error: str = ""
    held: str = ""

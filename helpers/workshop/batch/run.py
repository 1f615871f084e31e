"""Run a batch: its points in processes, a line and a bar for each, and a report whatever happens.

A notebook runs in its own folder, as in Jupyter. What it wrote appears under its name only when it is complete: the
file is written beside it and put in place by `os.replace`. A cell that fails, hangs or kills its kernel ends its own
notebook and no other. This process plans, hands points to an executor and gathers rows: it holds no executed notebook.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future, as_completed
from datetime import datetime
from pathlib import Path
from typing import Any

from tqdm import tqdm

from helpers.workshop.batch import gpus as machine_gpus
from helpers.workshop.batch import report, results
from helpers.workshop.batch.executor import LocalExecutor
from helpers.workshop.batch.messages import CellBegins
from helpers.workshop.batch.plan import Job, plan
from helpers.workshop.batch.point import Point, Stopped
from helpers.workshop.batch.results import Failure, NotebookRun, RunReport
from helpers.workshop.interrupts import ignore, interruptible
from helpers.workshop.outputs import require_writable
from helpers.workshop.usage import UsageError, first_line

_INDEX_S = 1.0  # between two index pages while the batch runs
_INDEX_SHARE = 20  # of the time between them that writing one may take: 1/20


def run_course(
    notebooks: Sequence[Path | str],
    out: Path | str,
    parameters: Mapping[str, Any] | None = None,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    cell_timeout: float | None = 900,
    jobs: int | None = None,
    resume: bool = False,
    gpus: str = "",
    sweep: Sequence[Mapping[str, Any]] = (),
    defaults: Mapping[str, Any] | None = None,
) -> RunReport:
    """Run notebooks and write each one executed, a page of each, `index.html` and `report.json` into `out`.

    Args:
        notebooks: Notebook files, or folders of them.
        out: The folder for the outputs; made if missing.
        parameters: Name to value, given to those notebooks that have the name; a text is parsed by its type there.
        grid: Name to values; notebooks that have the name run once at every point of the product.
        cell_timeout: Seconds after which a cell is stopped and its notebook has failed; None for no limit.
        jobs: How many notebooks run at the same time; by default one, or as many as `gpus` names. More than one on a GPU
            disturb every timing.
        resume: Keep outputs that are finished, from the same source and with the same parameters.
        gpus: "all", or numbers and UUIDs with commas between: each running notebook sees one of these GPUs and no other.
        sweep: Points as name to value; notebooks that have the names run once at each.
        defaults: Name to value, where neither `parameters` nor a point gives one.

    Returns:
        What happened to each notebook. An interrupt (Ctrl-C) does not raise: the report says so.

    Raises:
        UsageError: Nothing was run or written: a wrong notebook, parameter, value, or an `out` that cannot be
            written.
    """
    todo = plan([Path(n) for n in notebooks], parameters or {}, grid, sweep, defaults)
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs is {jobs}; give 1 or more.")
    if cell_timeout is not None and cell_timeout <= 0:
        raise UsageError(f"--cell-timeout is {cell_timeout:g} s; give a positive number of seconds.")
    chosen = machine_gpus.choose(gpus) if gpus else ()
    if "://" in str(out) or re.match(r"[a-z][a-z0-9+]+:/(?!/)", str(out)):  # Path drops one of two slashes
        address = re.sub(r":/+", "://", str(out), count=1)
        raise UsageError(f"--out {address} is an address; give a folder of this machine, and copy it there.")
    out = Path(out).resolve()
    _require_not_over_sources(out, todo)
    require_writable(out)
    return _Batch(todo, out, cell_timeout, jobs or len(chosen) or 1, resume, chosen).run()


class _Batch:
    """One call of `run_course`: the jobs, what runs them, what became of each."""

    def __init__(
        self,
        todo: Sequence[Job],
        out: Path,
        cell_timeout: float | None,
        workers: int,
        resume: bool,
        gpus: Sequence[str],
    ) -> None:
        self.todo, self.out = list(todo), out
        self.interrupted, self.index_error = False, ""
        self.results: dict[str, NotebookRun] = {}
        pages = {(job.source.parent, job.source.name): f"{job.name}.html" for job in reversed(self.todo)}
        started = datetime.now().astimezone().isoformat(timespec="seconds")
        self.started, self.clock = started, time.monotonic()
        self.points = [Point(job, out, started, cell_timeout, resume, pages) for job in self.todo]
        self.bars = _Bars()
        self.executor = LocalExecutor(min(workers, len(self.todo)), gpus, self.bars.show)
        self.next_index = 0.0

    def run(self) -> RunReport:
        running: list[Future] = []
        with interruptible(), tqdm(
            total=len(self.todo), desc="Notebooks", unit="notebook", position=0, disable=None
        ) as bar, self.executor:  # fmt: skip

            def take(future: Future[NotebookRun]) -> None:
                run = future.result()
                if run.name not in self.results:
                    self.results[run.name] = run
                    bar.update()
                    with bar.external_write_mode(file=sys.stderr):
                        print(results.line(run), file=sys.stderr, flush=True)

            try:
                self._write_index(running=True)
                running = [
                    _refused(point) if point.job.refusal else self.executor.submit(point)
                    for point in self.points
                ]
                for future in as_completed(running):
                    take(future)
                    if time.monotonic() >= self.next_index:
                        self._write_index(running=True)
            except KeyboardInterrupt:
                ignore()
                self.interrupted = True
                self.executor.stop()
                for future in running:
                    # A notebook that finished while the interrupt came is finished; a stopped one is not.
                    with contextlib.suppress(Stopped, CancelledError):
                        take(future)
            ignore()  # what is finished closes whole
            self._write_index(running=False)
        return self.report(running=False)

    def report(self, *, running: bool) -> RunReport:
        runs = tuple(
            self.results.get(job.name) or NotebookRun.not_run(job, waiting=running) for job in self.todo
        )
        return RunReport(
            out=self.out,
            started=self.started,
            seconds=round(time.monotonic() - self.clock, 1),
            runs=runs,
            interrupted=self.interrupted,
            index_error=self.index_error,
        )

    def _write_index(self, *, running: bool) -> None:
        """Write the index; a disk that is full must not end the batch."""
        begin = time.monotonic()
        try:
            report.write_index(self.report(running=running))
            self.index_error = ""
        except OSError as error:
            self.index_error = f"index.html could not be written ({error.strerror or first_line(error)})."
        now = time.monotonic()
        self.next_index = now + max(_INDEX_S, _INDEX_SHARE * (now - begin))


class _Bars:
    """A line of the terminal for each notebook that runs, with its cells."""

    def __init__(self) -> None:
        self._bars: dict[int, tqdm] = {}
        self._lock = threading.Lock()

    def show(self, slot: int, point: Point, cell: CellBegins | None) -> None:
        """A cell begins, or the point has ended."""
        with self._lock:
            bar = self._bars.get(slot)
            if cell is None:
                if bar is not None:
                    self._bars.pop(slot).close()
                return
            if bar is None:
                bar = self._bars[slot] = tqdm(
                    total=cell.total, desc=point.job.name, position=slot + 1, leave=False, disable=None
                )
            if not bar.disable:
                bar.n = cell.index
                bar.set_postfix_str(cell.cell)


def _refused(point: Point) -> Future[NotebookRun]:
    future: Future[NotebookRun] = Future()
    future.set_result(NotebookRun.failed(point.job, Failure("start", point.job.refusal, "")))
    return future


def _require_not_over_sources(out: Path, todo: Sequence[Job]) -> None:
    sources = {path for job in todo for path in (job.source, job.source.resolve())}
    for job in todo:
        if (target := out / f"{job.name}.ipynb") in sources or target.resolve() in sources:
            raise UsageError(f"--out {out} is the folder of {job.source.name} itself; choose another folder.")

"""Run a batch: plan it, run its points in other processes, write what they return, report.

A notebook runs in its own folder, as in Jupyter. Each file is written under a temporary name and then moved,
so that a reader only sees complete files. A cell that fails, hangs or kills its kernel ends its own notebook
and no other. This process holds no executed notebook: it hands points to an executor and collects small rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import platform
import queue
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from workbook import gpus
from workbook.batch import notebook_runs, output_folder, report, shards
from workbook.batch.executor import LocalExecutor
from workbook.batch.notebook_runs import Failure, NotebookRun, RunReport
from workbook.batch.plan import Job, plan
from workbook.batch.point import Point, SchedulerLost, Stopped
from workbook.batch.progress import Progress, counted
from workbook.batch.shards import Shard
from workbook.interrupts import ignore, interruptible
from workbook.options import RunOptions
from workbook.outputs import require_writable
from workbook.usage import UsageError, first_line

_NO_LOCKS = "{out} is on a file system without locks: make sure that no other run writes there meanwhile."
_NEWS_S = 15.0  # between two index pages while no point ends
_INDEX_S = 1.0  # between two index pages while the batch runs
_INDEX_SHARE = 20  # of the time between them that writing one may take: 1/20


def run_course(
    notebooks: Sequence[Path | str],
    out: Path | str,
    parameters: Mapping[str, Any] | None = None,
    **options: Any,
) -> RunReport:
    """Run notebooks; write each one executed, a page of each, and `index.html`, `results.csv` and
    `report.json` into one folder.

    Args:
        notebooks: Notebook files, or folders with notebooks.
        out: The folder for the outputs; created if missing. No other run may be writing into it.
        parameters: Name to value, given to the notebooks that have the name. A text is parsed by the type
            that the notebook declares.
        options: The other fields of `workbook.options.RunOptions`, such as `grid={"n_rows": [8, 64]}`.

    Returns:
        What happened to each notebook. An interrupt (Ctrl-C) does not raise; the report says so.

    Raises:
        UsageError: Nothing was run or written: a notebook, a parameter or another option is wrong, `out`
            can't be written, or another run is writing into it.
    """
    return run_batch(notebooks, RunOptions(out, parameters or {}, **options))


def run_batch(notebooks: Sequence[Path | str], options: RunOptions) -> RunReport:
    """Run notebooks as `run_course` does, with its options in one object."""
    jobs, shard = plan(notebooks, options), shards.parse(options.shard)
    chosen = gpus.choose(options.gpus) if options.gpus else ()
    out = Path(options.out).resolve()
    _require_not_over_sources(out, jobs)
    require_writable(out)
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    progress = Progress()
    executor = _executor(options, out, jobs, chosen, progress)
    batch = _Batch(shard.part(jobs), shard, _point(options, out, jobs, started), executor, progress)
    with interruptible(), executor, contextlib.ExitStack() as stack:
        try:
            locked = stack.enter_context(output_folder.own_folder(out, shard, jobs, started))
        except OSError as error:
            raise UsageError(f"--out {out} can't be written ({error.strerror}); choose another.") from error
        if not locked:
            print(_NO_LOCKS.format(out=out), file=sys.stderr)
        return batch.run(fail_fast=options.fail_fast)


class Executor(Protocol):
    """What runs points: on this machine, or on others."""

    @property
    def at_once(self) -> int:
        """How many points it runs at a time."""

    def submit(self, point: Point) -> Future[NotebookRun]:
        """Run a point. If there is no row, the future raises `Stopped` or `SchedulerLost`."""

    def stop(self) -> None:
        """Stop what runs, and begin nothing more."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *exception: object) -> None: ...


def _executor(
    options: RunOptions, out: Path, jobs: Sequence[Job], chosen: Sequence[str], progress: Progress
) -> Executor:
    if not options.scheduler:
        workers = min(options.jobs or len(chosen) or 1, len(jobs))
        return LocalExecutor(workers, chosen, progress.show)
    try:
        from workbook.batch.cluster import ClusterExecutor
    except ImportError as error:
        raise UsageError(
            f"--scheduler needs Dask ({error}); install it with: pip install distributed"
        ) from error
    return ClusterExecutor(options.scheduler, out, jobs)


def _point(options: RunOptions, out: Path, jobs: Sequence[Job], started: str) -> Point:
    """What all points of the batch have in common; each has its own job."""
    return Point(
        jobs[0],
        out,
        started,
        cell_timeout=options.cell_timeout or 0,
        resume=options.resume,
        pages={(job.source.parent, job.source.name): f"{job.name}.html" for job in reversed(jobs)},
        run=f"{platform.node()}-{uuid.uuid4().hex}",
        retries=int(bool(options.scheduler)) if options.retries is None else options.retries,
        notebook_timeout=options.notebook_timeout or 0,
        start_timeout=options.start_timeout,
        memory_limit=options.memory_limit or 0,
        log_output=options.log_output,
    )


class _Batch:
    """The points of one run: what is to come, what is running, and what became of the others."""

    def __init__(
        self, jobs: Sequence[Job], shard: Shard, template: Point, executor: Executor, progress: Progress
    ) -> None:
        self.jobs, self.shard, self.template = jobs, shard, template
        self.executor, self.progress = executor, progress
        self.remaining_jobs, self.results = iter(jobs), dict[str, NotebookRun]()
        self.running: dict[Future[NotebookRun], Point] = {}
        self.finished: queue.SimpleQueue[Future[NotebookRun]] = queue.SimpleQueue()
        self.interrupted, self.halted, self.lost, self.index_error = False, False, "", ""
        self.clock, self.next_index = time.monotonic(), 0.0
        progress.at_once = executor.at_once

    def run(self, *, fail_fast: bool) -> RunReport:
        """Run the points and write the index; while they run, too."""
        with self.progress.for_batch(len(self.jobs)) as self.bar:
            try:
                self._write_index(running=True)
                self._run_points(fail_fast)
            except (KeyboardInterrupt, SchedulerLost) as error:
                ignore()
                self.interrupted = isinstance(error, KeyboardInterrupt)
                self.lost = "" if self.interrupted else str(error)
                self._stop()
            ignore()  # a second Ctrl-C must not interrupt the last index
            self._write_index(running=False)
        return self.report(running=False)

    def _run_points(self, fail_fast: bool) -> None:
        # An executor begins the next point before anybody sees that one has failed. With --fail-fast it
        # therefore gets only as many as it runs at a time.
        for job in itertools.islice(self.remaining_jobs, self.executor.at_once if fail_fast else None):
            self._begin(dataclasses.replace(self.template, job=job))
        while self.running:
            with contextlib.suppress(queue.Empty):
                future = self.finished.get(timeout=_NEWS_S)
                self._finish(self.running.pop(future), future)
                self.halted = fail_fast and any(run.failure for run in self.results.values())
                if not self.halted and (job := next(self.remaining_jobs, None)):
                    self._begin(dataclasses.replace(self.template, job=job))
            if time.monotonic() >= self.next_index:
                self._write_index(running=True)

    def _begin(self, point: Point) -> None:
        future = _refused(point) if point.job.refusal else self.executor.submit(point)
        self.running[future] = point
        future.add_done_callback(self.finished.put)

    def _finish(self, point: Point, future: Future[NotebookRun], *, retry: bool = True) -> None:
        """A point has ended: store its row, or run it again."""
        run = future.result()
        run = dataclasses.replace(run, attempts=max(run.attempts, point.attempt))
        died = run.failure and run.failure.kind in ("died", "start") and not point.job.refusal
        if died and retry and run.attempts <= point.retries:
            self._print(f"{notebook_runs.line(run)}; it is run again")
            self._begin(dataclasses.replace(point, attempt=run.attempts + 1))
            return
        self.results[run.name] = run
        self.bar.update()
        self._print(notebook_runs.line(run))
        rows, left_s = tuple(self.results.values()), self._left_s()
        left = "" if left_s is None else notebook_runs.in_time(left_s)
        self.bar.set_postfix_str(counted(rows, len(self.progress.running), left))

    def _stop(self) -> None:
        """Stop what runs; a notebook that finished meanwhile is finished, a stopped one is not."""
        self.executor.stop()
        for future, point in self.running.items():
            with contextlib.suppress(Stopped, CancelledError, SchedulerLost):
                self._finish(point, future, retry=False)

    def _print(self, line: str) -> None:
        with self.bar.external_write_mode(file=sys.stderr):
            print(line, file=sys.stderr, flush=True)

    def _left_s(self) -> float | None:
        return self.progress.left_s(tuple(self.results.values()), len(self.jobs))

    def report(self, *, running: bool) -> RunReport:
        """What has happened so far."""
        runs = (self.results.get(job.name) or NotebookRun.not_run(job, waiting=running) for job in self.jobs)
        return RunReport(
            out=self.template.out,
            started=self.template.started,
            seconds=round(time.monotonic() - self.clock, 1),
            runs=tuple(runs),
            interrupted=self.interrupted,
            index_error=self.index_error,
            lost=self.lost,
            shard="" if self.shard.of == 1 else str(self.shard),
            halted=self.halted,
            running=self.progress.running if running else None,
            left_s=self._left_s() if running else None,
        )

    def _write_index(self, *, running: bool) -> None:
        """Write the index, unless this is one shard of several. A full disk does not end the batch."""
        if self.shard.of > 1:
            return
        begin = time.monotonic()
        try:
            report.write_index(self.report(running=running))
            self.index_error = ""
        except OSError as error:
            self.index_error = f"index.html could not be written ({error.strerror or first_line(error)})."
        now = time.monotonic()
        self.next_index = now + max(_INDEX_S, _INDEX_SHARE * (now - begin))


def _refused(point: Point) -> Future[NotebookRun]:
    future: Future[NotebookRun] = Future()
    future.set_result(NotebookRun.failed(point.job, Failure("start", point.job.refusal, "")))
    return future


def _require_not_over_sources(out: Path, jobs: Sequence[Job]) -> None:
    sources = {path for job in jobs for path in (job.source, job.source.resolve())}
    for job in jobs:
        if (target := out / f"{job.name}.ipynb") in sources or target.resolve() in sources:
            raise UsageError(f"--out {out} is the folder of {job.source.name} itself; choose another folder.")

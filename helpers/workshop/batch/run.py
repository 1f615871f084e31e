"""Run a batch: its points in processes, a line and a bar for each, and a report whatever happens.

A notebook runs in its own folder, as in Jupyter. What it wrote appears under its name only when it is complete: the
file is written beside it and put in place by `os.replace`. A cell that fails, hangs or kills its kernel ends its own
notebook and no other. This process plans, hands points to an executor and gathers rows: it holds no executed notebook.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import queue
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from helpers.workshop import gpus as machine_gpus
from helpers.workshop import locks
from helpers.workshop.batch import folder, report, results, shards
from helpers.workshop.batch.executor import LocalExecutor
from helpers.workshop.batch.mirror import Mirror, address_of
from helpers.workshop.batch.plan import Job, plan
from helpers.workshop.batch.point import Held, Lost, Point, Stopped
from helpers.workshop.batch.progress import Progress, counted
from helpers.workshop.batch.results import Failure, NotebookRun, RunReport
from helpers.workshop.batch.shards import Shard
from helpers.workshop.interrupts import ignore, interruptible
from helpers.workshop.outputs import require_writable
from helpers.workshop.usage import UsageError, first_line

_NO_LOCKS = "{out} is on a file system without locks: let no other run write there at the same time."
_NEWS_S = 15.0  # between two index pages while no point ends
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
    shard: str = "",
    retries: int | None = None,
    scheduler: str = "",
    notebook_timeout: float | None = None,
    start_timeout: float = 120,
    memory_limit: float | None = None,
    log_output: bool = False,
    fail_fast: bool = False,
    kernel: str = "",
    cwd: Path | str | None = None,
    recursive: bool = False,
    exclude: Sequence[str] = (),
) -> RunReport:
    """Run notebooks and write each one executed, a page of each, `index.html` and `report.json` into `out`.

    Other runs may write into the same folder at the same time: a point that one of them has is not begun, but waited for and
    kept, and the index shows the points of all.

    Args:
        notebooks: Notebook files, or folders of them.
        out: The folder for the outputs, made if missing; or an address that fsspec knows, such as s3://bucket/runs, to which
            they are copied as they come.
        parameters: Name to value, given to those notebooks that have the name; a text is parsed by its type there.
        grid: Name to values; notebooks that have the name run once at every point of the product.
        cell_timeout: Seconds after which a cell is stopped and its notebook has failed; None for no limit.
        jobs: How many notebooks run at the same time; by default one, or as many as `gpus` names. More than one on a GPU
            disturb every timing.
        resume: Keep outputs that are finished, from the same source and with the same parameters.
        gpus: "all", or numbers and UUIDs with commas between: each running notebook sees one of these GPUs and no other.
        sweep: Points as name to value; notebooks that have the names run once at each.
        defaults: Name to value, where neither `parameters` nor a point gives one.
        shard: "K/N" runs the K-th of N parts, and leaves the report to `merge.merge`.
        retries: How often a point is run again whose kernel, or the process above it, died or never started; by default 1
            on a cluster and 0 on this machine.
        scheduler: The Dask scheduler whose workers run the points, as tcp://host:8786 or scheduler.json; "" for this
            machine.
        notebook_timeout: Seconds after which a notebook is stopped and has failed; None for no limit.
        start_timeout: Seconds within which a kernel has to answer first.
        memory_limit: MB (10^6 bytes) that a notebook's processes may hold together; above it has failed. None for no limit.
        log_output: Whether each notebook gets a log of what its cells put out, `NAME.log`.
        fail_fast: Whether nothing more begins after the first point that failed.
        kernel: The kernelspec that runs all of them, instead of the one that each names.
        cwd: The folder that all of them run in, instead of each one's own.
        recursive: Whether a folder's subfolders are searched too, but for hidden ones.
        exclude: Patterns of names, or of paths from the folder that was given; such notebooks of a folder are left out.

    Returns:
        What happened to each notebook. An interrupt (Ctrl-C) does not raise: the report says so.

    Raises:
        UsageError: Nothing was run or written: a wrong notebook, parameter, value, or an `out` that cannot be
            written.
    """
    planned = plan(
        [Path(n) for n in notebooks], parameters or {}, grid, sweep, defaults,
        kernel=kernel, cwd=Path(cwd) if cwd else None, recursive=recursive, exclude=exclude, out=Path(out),
    )  # fmt: skip
    part = shards.parse(shard)
    retries = int(bool(scheduler)) if retries is None else retries
    if retries < 0:
        raise UsageError(f"--retries is {retries}; give 0 or more.")
    if scheduler and (jobs is not None or gpus):
        raise UsageError(
            "--jobs and --gpus are for this machine: with --scheduler the workers say how much they run at a time "
            '(dask worker --nthreads 1 --resources "GPU=1").'
        )
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs is {jobs}; give 1 or more.")
    for option, limit, unit in [
        ("--cell-timeout", cell_timeout, "s"),
        ("--notebook-timeout", notebook_timeout, "s"),
        ("--start-timeout", start_timeout, "s"),
        ("--memory-limit", memory_limit, "MB"),
    ]:
        if limit is not None and not limit > 0:
            of = "seconds" if unit == "s" else "MB"
            raise UsageError(f"{option} is {limit:g} {unit}; give a positive number of {of}.")
    chosen = machine_gpus.choose(gpus) if gpus else ()
    mirror = None
    if address := address_of(out):
        if part.of > 1 or scheduler:
            raise UsageError(
                f"--out {address} is an address: --shard and --scheduler need a folder that all machines see."
            )
        mirror = Mirror(address, fetch=resume)
        out = mirror.folder
    out = Path(out).resolve()
    _require_not_over_sources(out, planned)
    require_writable(out)
    point = Point(
        planned[0], out, "", cell_timeout, resume, retries=retries, notebook_timeout=notebook_timeout,
        start_timeout=start_timeout, memory_limit=memory_limit, log_output=log_output,
    )  # fmt: skip
    progress = Progress()
    if scheduler:
        executor: Executor = _on_cluster(scheduler, out, planned)
    else:
        workers = min(jobs or len(chosen) or 1, len(planned))
        executor = LocalExecutor(workers, chosen, progress.show)
    return _Batch(planned, part, point, executor, progress, fail_fast, mirror).run()


class Executor(Protocol):
    """What runs points: on this machine, or on others."""

    @property
    def at_once(self) -> int:
        """How many points it runs at a time."""

    def submit(self, point: Point) -> Future[NotebookRun]:
        """Run a point. The future raises `Stopped`, `Held` or `Lost` where there is no row."""

    def stop(self) -> None:
        """Stop what runs, and begin nothing more."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *exception: object) -> None: ...


class _Batch:
    """One call of `run_course`: the jobs, what runs them, what became of each."""

    def __init__(
        self,
        planned: Sequence[Job],
        shard: Shard,
        like: Point,
        executor: Executor,
        progress: Progress,
        fail_fast: bool,
        mirror: Mirror | None,
    ) -> None:
        self.mirror, self.copy_error = mirror, ""
        self.planned, self.shard, self.out = planned, shard, like.out
        self.todo = shard.part(planned)
        self.interrupted, self.index_error, self.lost = False, "", ""
        self.fail_fast, self.halted = fail_fast, False
        # An executor begins the next point before anybody sees that one has failed: then it is given none in advance.
        self.to_come, progress.at_once = iter(self.todo), executor.at_once
        self.ahead = progress.at_once if fail_fast else len(self.todo)
        self.results: dict[str, NotebookRun] = {}
        started = datetime.now().astimezone().isoformat(timespec="seconds")
        self.started, self.clock = started, time.monotonic()
        pages = {(job.source.parent, job.source.name): f"{job.name}.html" for job in reversed(planned)}
        self.like = dataclasses.replace(like, started=started, pages=pages)
        self.executor, self.progress = executor, progress
        self.next_index = 0.0
        self.running: dict[Future[NotebookRun], Point] = {}
        self.ended: queue.SimpleQueue[Future[NotebookRun]] = queue.SimpleQueue()
        self.held: list[Point] = []

    def run(self) -> RunReport:
        with interruptible(), contextlib.ExitStack() as stack:
            stack.enter_context(self.executor)
            try:
                self._open()
                stack.callback(self.rows.close)
            except OSError as error:
                raise UsageError(
                    f"--out {self.out} cannot be written ({error.strerror}); choose another folder."
                ) from error
            self.bar = stack.enter_context(self.progress.whole(len(self.todo)))
            try:
                self._write_index(running=True)
                for job in itertools.islice(self.to_come, self.ahead):
                    self._begin(dataclasses.replace(self.like, job=job))
                while self.running:
                    with contextlib.suppress(queue.Empty):
                        future = self.ended.get(timeout=_NEWS_S)
                        self._take(self.running.pop(future), future)
                        if not self.halted and (job := next(self.to_come, None)):
                            self._begin(dataclasses.replace(self.like, job=job))
                    if time.monotonic() >= self.next_index:
                        self._write_index(running=True)
                    if not self.running:
                        for point in self.held:
                            self._begin(dataclasses.replace(point, wait=True))
                        self.held = []
            except (KeyboardInterrupt, Lost) as ended:
                ignore()
                self.interrupted = isinstance(ended, KeyboardInterrupt)
                self.lost = "" if self.interrupted else str(ended)
                self.executor.stop()
                for future, point in list(self.running.items()):
                    # A notebook that finished while the interrupt came is finished; a stopped one is not.
                    with contextlib.suppress(Stopped, CancelledError, Lost):
                        self._take(point, future, again=False)
            ignore()  # what is finished closes whole
            self._write_index(running=False)
            if self.mirror and not self.copy_error:
                self.mirror.remove()
        return self.report(running=False)

    def _open(self) -> None:
        """Begin the file of rows; remove what killed runs had begun."""
        with locks.hold(folder.index_lock(self.out)):
            folder.sweep(self.out)
            self.rows = folder.Rows(self.out, self.planned, self.shard, self.started)
            runs = folder.past_runs(self.out)
            near = {run.run for run in folder.beside(self.rows, runs)}
            self.earlier = {run.run for run in runs} - near - {self.rows.run}
        if not self.rows.locked:
            print(_NO_LOCKS.format(out=self.out), file=sys.stderr)
        self.like = dataclasses.replace(self.like, run=self.rows.run, since_ns=self.rows.began_ns)

    def _begin(self, point: Point) -> None:
        future = _refused(point) if point.job.refusal else self.executor.submit(point)
        self.running[future] = point
        future.add_done_callback(self.ended.put)

    def _take(self, point: Point, future: Future[NotebookRun], *, again: bool = True) -> None:
        """A point has ended: its row is kept, or it is begun again later."""
        try:
            run = future.result()
        except Held as held:
            if self.halted:
                return
            self._say(f"{point.job.name}: {held}; it comes later")
            self.held.append(point)
            return
        run = dataclasses.replace(run, attempts=max(run.attempts, point.attempt))
        died = not point.job.refusal and run.failure and run.failure.kind in ("died", "start")
        if died and again and run.attempts <= point.retries:
            self._say(f"{results.line(run)}; it is run again")
            self._begin(dataclasses.replace(point, attempt=run.attempts + 1))
            return
        self.results[run.name] = run
        self.bar.update()
        self._say(results.line(run))
        ended = tuple(self.results.values())
        left = self.progress.left_s(ended, len(self.todo))
        words = "" if left is None else results.in_time(left)
        self.bar.set_postfix_str(counted(ended, len(self.progress.running), words))
        if self.fail_fast and run.failure and not self.halted:
            self.halted, self.held = True, []
        try:
            self.rows.add(run)
        except OSError as error:
            self._say(f"{run.name}: its row could not be written ({error.strerror}); the next index has it")

    def _say(self, line: str) -> None:
        with self.bar.external_write_mode(file=sys.stderr):
            print(line, file=sys.stderr, flush=True)

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
            lost=self.lost,
            halted=self.halted,
            address=self.mirror.address if self.mirror else "",
            copy_error=self.copy_error,
            running=self.progress.running if running else None,
            left_s=self.progress.left_s(tuple(self.results.values()), len(self.todo)) if running else None,
            shard="" if self.shard.of == 1 else str(self.shard),
        )

    def _write_index(self, *, running: bool) -> None:
        """Write the index; a disk that is full must not end the batch."""
        begin = time.monotonic()
        try:
            if self.shard.of > 1 and running:
                return
            path = folder.index_lock(self.out)
            # While it runs, another's turn is as good.
            if (lock := locks.take(path) if running else locks.wait(path)) is None:
                return
            with contextlib.closing(lock):
                if self.shard.of == 1:
                    others = folder.past_runs(self.out, {self.rows.run, *self.earlier})
                    report.write_index(folder.with_others(self.report(running=running), self.rows, others))
                if not (running or self.interrupted or self.lost):
                    folder.drop_repeated(self.rows)
            self.index_error = ""
        except OSError as error:
            self.index_error = f"index.html could not be written ({error.strerror or first_line(error)})."
        if self.mirror:
            try:
                self.mirror.push()
                self.copy_error = ""
            except OSError as error:
                self.copy_error = f"{first_line(error)}; what was written lies in {self.out}."
        now = time.monotonic()
        self.next_index = now + max(_INDEX_S, _INDEX_SHARE * (now - begin))


def _on_cluster(scheduler: str, out: Path, planned: Sequence[Job]) -> Executor:
    try:
        from helpers.workshop.batch.cluster import ClusterExecutor
    except ImportError as error:
        raise UsageError(f"--scheduler needs Dask ({error}); get it with: pip install distributed") from error
    return ClusterExecutor(scheduler, out, planned)


def _refused(point: Point) -> Future[NotebookRun]:
    future: Future[NotebookRun] = Future()
    future.set_result(NotebookRun.failed(point.job, Failure("start", point.job.refusal, "")))
    return future


def _require_not_over_sources(out: Path, todo: Sequence[Job]) -> None:
    sources = {path for job in todo for path in (job.source, job.source.resolve())}
    for job in todo:
        if (target := out / f"{job.name}.ipynb") in sources or target.resolve() in sources:
            raise UsageError(f"--out {out} is the folder of {job.source.name} itself; choose another folder.")

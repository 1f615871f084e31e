"""Run notebooks with papermill: one kernel process each, whole outputs, and a report whatever happens.

A notebook runs in its own folder, as in Jupyter. What it wrote appears under its name only when it is complete: the
file is written beside it and put in place by `os.replace`. A cell that fails, hangs or kills its kernel ends its own
notebook and no other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from helpers.workshop.batch import pages, report, results
from helpers.workshop.batch.engine import Stopped, Watch, execute
from helpers.workshop.batch.plan import Job, plan
from helpers.workshop.batch.results import NotebookRun, RunReport
from helpers.workshop.interrupts import ignore, interruptible
from helpers.workshop.outputs import replace, require_writable
from helpers.workshop.usage import UsageError, first_line

METADATA = "kernel_workbook"  # the key in an output's metadata by which --resume knows it


def run_course(
    notebooks: Sequence[Path | str],
    out: Path | str,
    parameters: Mapping[str, Any] | None = None,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    cell_timeout: float | None = 900,
    jobs: int = 1,
    resume: bool = False,
) -> RunReport:
    """Run notebooks and write each one executed, a page of each, `index.html` and `report.json` into `out`.

    Args:
        notebooks: Notebook files, or folders of them.
        out: The folder for the outputs; made if missing.
        parameters: Name to value, given to those notebooks that have the name; a text is parsed by its type there.
        grid: Name to values; notebooks that have the name run once at every point of the product.
        cell_timeout: Seconds after which a cell is stopped and its notebook has failed; None for no limit.
        jobs: How many notebooks run at the same time. On one GPU more than 1 disturbs every timing.
        resume: Keep outputs that are finished, from the same source and with the same parameters.

    Returns:
        What happened to each notebook. An interrupt (Ctrl-C) does not raise: the report says so.

    Raises:
        UsageError: Nothing was run or written: a wrong notebook, parameter, value, or an `out` that cannot be
            written.
    """
    todo = plan([Path(n) for n in notebooks], parameters or {}, grid)
    if jobs < 1:
        raise UsageError(f"--jobs is {jobs}; give 1 or more.")
    if cell_timeout is not None and cell_timeout <= 0:
        raise UsageError(f"--cell-timeout is {cell_timeout:g} s; give a positive number of seconds.")
    out = Path(out).resolve()
    _require_not_over_sources(out, todo)
    require_writable(out)
    return _Batch(todo, out, cell_timeout, jobs, resume).run()


class _Batch:
    """One call of `run_course`: the jobs, the threads that wait for kernels, what became of each."""

    def __init__(
        self, todo: Sequence[Job], out: Path, cell_timeout: float | None, workers: int, resume: bool
    ) -> None:
        self.todo, self.out, self.cell_timeout, self.resume = list(todo), out, cell_timeout, resume
        self.workers = min(workers, len(self.todo))
        self.stop = threading.Event()
        self.watches: set[Watch] = set()
        self.results: dict[str, NotebookRun] = {}
        self.pages = {(job.source.parent, job.source.name): f"{job.name}.html" for job in reversed(self.todo)}
        self.started = datetime.now().astimezone()
        self.clock = time.monotonic()
        self.slots = list(range(1, self.workers + 1))
        self.lock = threading.Lock()

    def run(self) -> RunReport:
        from tqdm import tqdm

        bar = tqdm(total=len(self.todo), desc="Notebooks", unit="notebook", position=0, disable=None)
        with (
            interruptible(),
            bar,
            ThreadPoolExecutor(self.workers, "notebook") as runners,
            # Pages are made while the next notebook's kernel works.
            ThreadPoolExecutor(1, "page") as page_maker,
        ):
            published: list[Future] = []
            running: list[Future] = []

            def take(future: Future) -> None:
                run, notebook = future.result()
                if run.name not in self.results:
                    self.results[run.name] = run
                    bar.update()
                    with bar.external_write_mode(file=sys.stderr):
                        print(results.line(run), file=sys.stderr, flush=True)
                    published.append(page_maker.submit(self._publish, run, notebook))

            try:
                self._write_index()
                running = [runners.submit(self._run, job) for job in self.todo]
                for future in as_completed(running):
                    take(future)
                for page in published:
                    page.result()
            except KeyboardInterrupt:
                ignore()
                self.stop.set()
                runners.shutdown(wait=False, cancel_futures=True)
                for watch in tuple(self.watches):
                    watch.kill()
                for future in running:
                    # A notebook that finished while the interrupt came is finished; a stopped one is not.
                    with contextlib.suppress(Stopped, CancelledError):
                        take(future)
                for page in published:
                    page.result()
        final = self.report(running=False)
        report.write_index(final)
        return final

    def report(self, *, running: bool) -> RunReport:
        runs = tuple(
            self.results.get(job.name) or NotebookRun.not_run(job, waiting=running) for job in self.todo
        )
        return RunReport(
            out=self.out,
            started=self.started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - self.clock, 1),
            runs=runs,
            interrupted=self.stop.is_set(),
        )

    def _write_index(self) -> None:
        report.write_index(self.report(running=True))

    def _publish(self, run: NotebookRun, notebook: NotebookNode) -> None:
        """The page of one finished notebook, and the index that links it."""
        page = self.out / f"{run.name}.html"
        if run.status != "kept" or not page.exists():
            try:
                pages.write_page(notebook, run, page, self.pages)
            except Exception as error:
                # nbconvert's, of any kind: the executed notebook is there all the same.
                says = f"its page could not be made ({type(error).__name__}: {first_line(error)})"
                print(f"{run.name}: {says}", file=sys.stderr)
                self.results[run.name] = dataclasses.replace(run, page_error=says)
        self._write_index()

    def _run(self, job: Job) -> tuple[NotebookRun, NotebookNode]:
        target = self.out / f"{job.name}.ipynb"
        if self.resume and (kept := _finished(target, job)):
            return kept
        with self.lock:
            slot = self.slots.pop(0)
        watch = Watch(self.cell_timeout, self.stop)
        self.watches.add(watch)
        try:
            execution = execute(job, watch, slot)
        finally:
            self.watches.discard(watch)
            with self.lock:
                self.slots.append(slot)
        run, notebook = results.summarise(job, execution, self.started), execution.notebook
        notebook.metadata[METADATA] = {"work": job.same_work, "run": run.as_dict()}
        replace(target, nbformat.writes(notebook, version=4) + "\n")
        return run, notebook


def _finished(target: Path, job: Job) -> tuple[NotebookRun, NotebookNode] | None:
    """The output of an earlier batch if it is this job's and complete."""
    if not target.is_file():
        return None
    try:
        notebook = nbformat.reads(target.read_text("utf-8"), as_version=4)
        kept = notebook.metadata.get(METADATA, {})
        if kept.get("work") != job.same_work or kept["run"]["status"] not in ("ok", "kept"):
            return None
        return NotebookRun.from_dict({**kept["run"], "status": "kept"}), notebook
    except (ValueError, KeyError, TypeError, nbformat.reader.NotJSONError):
        return None  # not an output of ours: it is made anew


def _require_not_over_sources(out: Path, todo: Sequence[Job]) -> None:
    sources = {job.source for job in todo}
    for job in todo:
        if out / f"{job.name}.ipynb" in sources:
            raise UsageError(f"--out {out} is the folder of {job.source.name} itself; choose another folder.")

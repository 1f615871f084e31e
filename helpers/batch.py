"""Run notebooks with papermill: one kernel process each, whole outputs, and a report whatever happens.

A notebook runs in its own folder, as in Jupyter. What it wrote appears under its name only when it is complete: the
file is written beside it and put in place by `os.replace`. A cell that fails, hangs or kills its kernel ends its own
notebook and no other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.log import logger as papermill_logger
from papermill.parameterize import parameterize_notebook

from helpers import pages, report
from helpers.plan import Job, UsageError, choose_kernel, plan, read_notebook
from helpers.report import Failure, NotebookRun, RunReport

METADATA = "kernel_workbook"  # the key in an output's metadata by which --resume knows it
_GRACE_S = 5.0  # between a hanging cell's interrupt, which shows where it hung, and its kernel's end
# A kernel that crashes in C++ says in which Python line it was, on the stderr that ipykernel keeps for its own log.
_FAULTHANDLER = (
    "--IPKernelApp.exec_lines=__import__('faulthandler')"
    ".enable(getattr(__import__('sys').stderr, '_original_stdstream_copy', 2))"
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Stopped(Exception):
    """The batch was interrupted while this notebook ran."""


class _Watch:
    """What one running notebook is doing: its kernel's process, its cell, its times; and the means to end it."""

    def __init__(self, cell_timeout: float | None, stop: threading.Event) -> None:
        self.cell_timeout, self.stop = cell_timeout, stop
        self.pid: int | None = None
        self.cell: NotebookNode | None = None
        self.seconds: dict[str, float] = {}
        self.peak_mb = 0.0
        self.timed_out = False
        self.status = ""  # how the kernel ended, where it died
        self.gentle = True  # whether SIGINT means anything to this kernel
        self.leads = False  # whether it leads a process group of its own, as Jupyter starts it
        self._timers: list[threading.Timer] = []
        self._since = 0.0

    def enter(self, cell: NotebookNode) -> None:
        if self.stop.is_set():
            raise Stopped
        self.cell, self._since = cell, time.monotonic()
        if self.cell_timeout and cell.cell_type == "code":
            self._timers = [
                threading.Timer(self.cell_timeout, self._interrupt),
                threading.Timer(self.cell_timeout + _GRACE_S, self.kill),
            ]
            for timer in self._timers:
                timer.daemon = True
                timer.start()

    def leave(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = []
        if self.cell is not None and self.cell.cell_type == "code":
            self.seconds[self.cell["id"]] = time.monotonic() - self._since
            self.peak_mb = max(self.peak_mb, _peak_mb(self.pid))

    def _interrupt(self) -> None:
        self.timed_out = True
        self._signal(signal.SIGINT if self.gentle else signal.SIGKILL)

    def kill(self) -> None:
        """End the kernel and every process it started."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        # A kernel leads its own process group, so that a compiler it started ends with it.
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if self.leads else os.kill)(self.pid, number)


class _Client(PapermillNotebookClient):
    """papermill's client, telling a `_Watch` what happens and never interrupting by itself."""

    watch: _Watch

    def papermill_execute_cells(self) -> None:
        self.watch.pid = getattr(self.km.provisioner, "pid", None)
        self.watch.leads = bool(self.watch.pid) and os.getpgid(self.watch.pid) == self.watch.pid
        self.watch.gentle = self.km.kernel_spec.interrupt_mode == "signal"
        for index, cell in enumerate(self.nb.cells):
            self.watch.enter(cell)
            if self.nb_man.pbar is not None:
                self.nb_man.pbar.set_postfix_str(cell["id"])
            try:
                self.nb_man.cell_start(cell, index)
                self.execute_cell(cell, index)
                if self.watch.timed_out:  # it swallowed the interrupt, or may raise what it likes
                    raise CellExecutionError("", "KeyboardInterrupt", "")
            except CellExecutionError as error:
                if error.ename == "SystemExit" and error.evalue in ("", "0", "None"):
                    return
                self.nb_man.cell_exception(self.nb.cells[index], cell_index=index, exception=error)
                raise
            except DeadKernelError:
                self.watch.status = _exit_status(self.km)
                raise
            finally:
                self.watch.leave()
                self.nb_man.cell_complete(self.nb.cells[index], cell_index=index)


class _Engine(NBClientEngine):
    """papermill's own engine with our client."""

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, *, watch, folder, log, **kwargs):
        client = _Client(
            nb_man,
            kernel_name=kernel_name,
            timeout=None,
            startup_timeout=120,
            iopub_timeout=120,  # four seconds, the default, fails a cell that shows megabytes on a slow machine
            store_widget_state=False,  # a FigureWidget's state is 5 MB that a page without a kernel cannot use
            resources={"metadata": {"path": str(folder)}},
            log=papermill_logger,
        )
        client.watch = watch
        client.create_kernel_manager()
        client.owns_km = True
        if "ipykernel_launcher" in client.km.kernel_spec.argv:
            client.extra_arguments = [_FAULTHANDLER]
        try:
            return client.execute(stdout=log, stderr=log, env=_environment())
        finally:
            watch.kill()


papermill_engines.register("kernel-workbook", _Engine)


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
    _require_writable(out, todo)
    papermill_logger.setLevel("CRITICAL")  # what it would log is in the report
    return _Batch(todo, out, cell_timeout, jobs, resume).run()


class _Batch:
    """One call of `run_course`: the jobs, the threads that wait for kernels, what became of each."""

    def __init__(
        self, todo: Sequence[Job], out: Path, cell_timeout: float | None, workers: int, resume: bool
    ) -> None:
        self.todo, self.out, self.cell_timeout, self.resume = list(todo), out, cell_timeout, resume
        self.workers = min(workers, len(self.todo))
        self.stop = threading.Event()
        self.watches: set[_Watch] = set()
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
            _interruptible(),
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
                        print(report.line(run), file=sys.stderr, flush=True)
                    published.append(page_maker.submit(self._publish, run, notebook))

            try:
                self._write_index()
                running = [runners.submit(self._run, job) for job in self.todo]
                for future in as_completed(running):
                    take(future)
                for page in published:
                    page.result()
            except KeyboardInterrupt:
                _ignore_interrupts()  # a second Ctrl-C must not halve what closes now
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
            except (
                Exception
            ) as error:  # nbconvert's, of any kind: the executed notebook is there all the same
                says = f"its page could not be made ({type(error).__name__}: {_first(error)})"
                print(f"{run.name}: {says}", file=sys.stderr)
                self.results[run.name] = dataclasses.replace(run, page_error=says)
        self._write_index()

    def _run(self, job: Job) -> tuple[NotebookRun, NotebookNode]:
        target = self.out / f"{job.name}.ipynb"
        if self.resume and (kept := _finished(target, job)):
            return kept
        with self.lock:
            slot = self.slots.pop(0)
        watch = _Watch(self.cell_timeout, self.stop)
        self.watches.add(watch)
        try:
            notebook, failure, seconds = _execute(job, watch, slot)
        finally:
            self.watches.discard(watch)
            with self.lock:
                self.slots.append(slot)
        run = report.summarise(job, notebook, failure, seconds, watch.seconds, watch.peak_mb, self.started)
        notebook.metadata[METADATA] = {"work": job.same_work, "run": run.as_dict()}
        report.replace(target, nbformat.writes(notebook, version=4) + "\n")
        return run, notebook


def _execute(job: Job, watch: _Watch, slot: int) -> tuple[NotebookNode, Failure | None, float]:
    """Run one job in a fresh kernel: the notebook with its outputs, what ended it early, the seconds it took."""
    begin = time.monotonic()
    notebook = read_notebook(job.source)
    choose_kernel(notebook, job.source.name)  # fills in the metadata that papermill and nbconvert need
    if job.parameters:
        notebook = parameterize_notebook(notebook, job.parameters)
        _name_injected_cell(notebook)
    failure = None
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            papermill_engines.execute_notebook_with_engine(
                "kernel-workbook",
                notebook,
                kernel_name=job.kernel,
                progress_bar={"desc": job.name, "position": slot, "leave": False, "disable": None},
                autosave_cell_every=0,
                watch=watch,
                folder=job.source.parent,
                log=log,
            )
        except Exception as error:  # whatever ends a notebook must end only this one
            if watch.stop.is_set():
                raise Stopped from None
            log.seek(0)
            failure = _failure(error, watch, log.read())
            _mark(watch.cell, failure)
    return notebook, failure, time.monotonic() - begin


def _failure(error: Exception, watch: _Watch, log: str) -> Failure:
    """Name the cell, the line and the reason."""
    if watch.cell is None:
        return Failure("start", None, None, None, f"The kernel did not start: {_first(error)}", _tail(log))
    cell = watch.cell
    said = next((o for o in reversed(cell.get("outputs", [])) if o.output_type == "error"), None)
    traceback = _ANSI.sub("", "\n".join(said.traceback)) if said else ""
    line = _line(traceback, cell.get("execution_count"), cell.source)
    source_line = cell.source.splitlines()[line - 1].strip() if line else None
    where = f"cell {cell['id']}"
    if watch.timed_out:
        message = f"{where} was stopped: it ran longer than {watch.cell_timeout:g} s"
        return Failure("timeout", cell["id"], line, source_line, message, traceback or _tail(log))
    if isinstance(error, DeadKernelError):
        return Failure(
            "died", cell["id"], None, None, f"the kernel died in {where}{watch.status}", _tail(log)
        )
    if isinstance(error, CellExecutionError):
        value = error.evalue.splitlines()[0] if error.evalue else ""
        message = f"{where}: {error.ename}" + (f": {value}" if value else "")
        return Failure("error", cell["id"], line, source_line, message, traceback)
    return Failure(
        "error", cell["id"], None, None, f"{where}: {type(error).__name__}: {_first(error)}", _tail(log)
    )


def _mark(cell: NotebookNode | None, failure: Failure) -> None:
    """Say in the cell's own outputs what ended it, where the kernel could not say it itself."""
    if cell is not None and cell.cell_type == "code" and failure.kind in ("timeout", "died"):
        text = f"{failure.message}.\n"
        cell.outputs.append(nbformat.v4.new_output("stream", name="stderr", text=text))


def _exit_status(manager) -> str:
    """How a dead kernel ended, such as " (SIGSEGV)"; empty where its process does not tell."""
    process = getattr(manager.provisioner, "process", None)
    status = process.poll() if process is not None else None
    if status is None:
        return ""
    if status >= 0:
        return f" (exit status {status})"
    name = signal.Signals(-status).name
    return f" ({name}: was there memory enough?)" if name == "SIGKILL" else f" ({name})"


def _line(traceback: str, count: int | None, source: str) -> int | None:
    """The line of the failing cell that IPython's traceback names, counted from 1."""
    lines = [int(n) for c, n in re.findall(r"Cell In\[(\d+)\], line (\d+)", traceback) if int(c) == count]
    return lines[-1] if lines and lines[-1] <= len(source.splitlines()) else None


def _tail(log: str, lines: int = 30) -> str:
    """The kernel's last words, without ipykernel's remark on its transport."""
    kept = [line for line in log.splitlines() if "Kernel is running over TCP" not in line]
    return "\n".join(kept[-lines:])


def _first(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _name_injected_cell(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell["id"] = "injected-parameters"


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


def _require_writable(out: Path, todo: Sequence[Job]) -> None:
    for job in todo:
        if (out / f"{job.name}.ipynb") in {j.source for j in todo}:
            raise UsageError(f"--out {out} is the folder of {job.source.name} itself; choose another folder.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UsageError(
            f"--out {out} cannot be written ({error.strerror}); choose another folder."
        ) from error


def _environment() -> dict[str, str]:
    """The kernels' environment: this environment's tools (ninja) come first, and Plotly shows figures as data."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PLOTLY_RENDERER": "plotly_mimetype", **os.environ, "PATH": path}


def _peak_mb(pid: int | None) -> float:
    """The most memory that a process has held, in MB (10^6 bytes); 0 where the system does not tell."""
    try:
        match = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(match[1]) * 1024 / 1e6 if match else 0.0


def _ignore_interrupts() -> None:
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Take SIGTERM like Ctrl-C while a batch runs, and put the handlers back after it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

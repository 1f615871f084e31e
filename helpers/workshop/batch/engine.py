"""One notebook in one kernel, through papermill, and why it ended early."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.log import logger as papermill_logger
from papermill.parameterize import parameterize_notebook

from helpers.workshop.batch.parameters import for_json
from helpers.workshop.batch.plan import choose_kernel, parse_notebook
from helpers.workshop.batch.point import Point, Stopped
from helpers.workshop.batch.results import Execution, Failure
from helpers.workshop.batch.trail import Trail, without_remarks
from helpers.workshop.batch.watch import Watch, cell_name
from helpers.workshop.usage import first_line

# A kernel that crashes in C++ says in which Python line it was, on the stderr that ipykernel keeps for its own log.
_FAULTHANDLER = (
    "--IPKernelApp.exec_lines=__import__('faulthandler')"
    ".enable(getattr(__import__('sys').stderr, '_original_stdstream_copy', 2), all_threads=False)"
)
_LONGEST_SOCKET = 90  # characters: Linux has 107 for a socket's path, and its name comes behind the folder's
_MESSAGE, _TRACEBACK = 500, 20_000  # characters of a failure
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class _Client(PapermillNotebookClient):
    """papermill's client, telling a `Watch` what happens and never interrupting by itself."""

    watch: Watch
    trail: Trail

    def process_message(self, *args, **kwargs):
        output = super().process_message(*args, **kwargs)
        self.trail.put_out(output)
        return output

    def papermill_execute_cells(self) -> None:
        self.watch.pid = getattr(self.km.provisioner, "pid", None)
        self.watch.leads = bool(self.watch.pid) and os.getpgid(self.watch.pid) == self.watch.pid
        self.watch.gentle = self.km.kernel_spec.interrupt_mode == "signal"
        for index, cell in enumerate(self.nb.cells):
            self.watch.enter(cell, index, len(self.nb.cells))
            self.trail.enter(cell_name(cell, index + 1), index + 1, len(self.nb.cells))
            try:
                self.nb_man.cell_start(cell, index)
                self.execute_cell(cell, index)
                if self.watch.over:  # it swallowed the interrupt, or may raise what it likes
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
    def execute_managed_notebook(
        cls, nb_man, kernel_name, *, watch, trail, folder, log, environment, sockets, **kwargs
    ):
        client = _Client(
            nb_man,
            kernel_name=kernel_name,
            timeout=None,
            startup_timeout=_start_timeout(watch.point),
            iopub_timeout=120,  # four seconds, the default, fails a cell that shows megabytes on a slow machine
            resources={"metadata": {"path": str(folder)}},
            log=papermill_logger,
        )
        client.watch, client.trail = watch, trail
        client.create_kernel_manager()
        client.owns_km = True
        if "ipykernel_launcher" in client.km.kernel_spec.argv:
            client.extra_arguments = [_FAULTHANDLER]
            if len(os.fsencode(sockets)) <= _LONGEST_SOCKET:
                # jupyter_client looks for free TCP ports and lets go of them before the kernel takes them: of 500 notebooks,
                # four at a time, two met another one's. Kernels in other languages may know no other transport.
                client.km.transport, client.km.ip = "ipc", os.path.join(sockets, "kernel")
        try:
            return client.execute(stdout=log, stderr=log, env=environment)
        finally:
            client.set_widgets_metadata()  # nbclient's own comes only after the last cell
            watch.kill()
            watch.pid = None  # its number may become another process's


def _start_timeout(point: Point) -> float:
    return min(point.start_timeout, point.notebook_timeout or point.start_timeout)


papermill_engines.register("kernel-workbook", _Engine)


def execute(point: Point, watch: Watch) -> Execution:
    """Run one point in a fresh kernel.

    Args:
        point: What to run.
        watch: Told what happens while it runs.

    Raises:
        Stopped: The batch was interrupted.
    """
    if watch.stop.is_set():
        raise Stopped
    begin, job = time.monotonic(), point.job
    notebook = parse_notebook(job.content, job.source)
    choose_kernel(
        notebook, job.source.name, job.kernel
    )  # fills in the metadata that papermill and nbconvert need
    if job.parameters:
        notebook = parameterize_notebook(notebook, job.parameters)
        notebook.metadata.papermill["parameters"] = for_json(job.parameters)  # nan is no JSON
        _name_injected_cell(notebook)
    failure = None
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log,
        tempfile.TemporaryDirectory(prefix="workbook-progress-", ignore_cleanup_errors=True) as progress,
        Trail(point, notebook, log) as trail,
        watch.notebook(),
    ):
        try:
            papermill_engines.execute_notebook_with_engine(
                "kernel-workbook",
                notebook,
                kernel_name=job.kernel,
                progress_bar=False,
                autosave_cell_every=0,
                watch=watch,
                trail=trail,
                folder=job.cwd or job.source.parent,
                log=log,
                environment=_environment(progress, point.gpu),
                sockets=progress,
            )
        except Exception as error:  # whatever ends a notebook must end only this one
            if watch.stop.is_set():
                raise Stopped from None
            log.seek(0)
            failure = _failure(error, watch, log.read())
            _mark(watch.cell, failure)
        trail.end(failure)
    return Execution(notebook, failure, time.monotonic() - begin, watch.seconds, watch.peak_mb, trail.error)


def _failure(error: Exception, watch: Watch, log: str) -> Failure:
    """Name the cell, the line and the reason."""
    cell = watch.cell
    if cell is None:
        why = f": {first_line(error)}"
        if isinstance(error, RuntimeError) and "didn't respond" in str(error):
            why = f" within {_start_timeout(watch.point):g} s"
        return Failure("start", f"The kernel did not start{why}", _tail(log))
    where = f"cell {cell_name(cell, watch.number)}"
    said = next((o for o in reversed(cell.get("outputs", [])) if o.output_type == "error"), None)
    traceback = _short(_ANSI.sub("", "\n".join(said.traceback)), _TRACEBACK) if said else ""
    line = _line(traceback, cell.get("execution_count"))
    if watch.over:
        kind, message = watch.over[0], f"{where} was stopped: {watch.over[1]}"
        traceback = traceback or _tail(log)
    elif isinstance(error, DeadKernelError):
        kind, message = "died", f"the kernel died in {where}{watch.status}"
        line, traceback = _crash(log)
    elif isinstance(error, CellExecutionError):
        value = _short(error.evalue.splitlines()[0], _MESSAGE) if error.evalue.strip() else ""
        name = error.ename or "an error without a name"
        kind, message = "error", f"{where}: {name}" + (f": {value}" if value else "")
    else:
        kind, message = "error", f"{where}: {type(error).__name__}: {first_line(error)}"
        line, traceback = None, _tail(log)
    lines = cell.source.splitlines()
    if line is not None:
        # IPython runs a cell without its leading blank lines, and counts without them.
        line += next((i for i, text in enumerate(lines) if text.strip()), 0)
        line = line if line <= len(lines) else None
    source_line = lines[line - 1].strip() if line else None
    return Failure(kind, message, traceback, cell["id"], line, source_line)


def _mark(cell: NotebookNode | None, failure: Failure) -> None:
    """Say in the cell's own outputs what ended it, where the kernel could not say it itself."""
    if cell is not None and cell.cell_type == "code" and failure.kind in ("timeout", "memory", "died"):
        text = f"{failure.message}.\n"
        cell.outputs.append(nbformat.v4.new_output("stream", name="stderr", text=text))


def _crash(log: str) -> tuple[int | None, str]:
    """The line of the cell that crashed, where faulthandler wrote it, and the kernel's last words up to that line."""
    frames = list(re.finditer(r'File "[^"]*ipykernel_\d+/\d+\.py", line (\d+) in .*', log))
    if not frames:
        return None, _tail(log)
    # The innermost call comes first; the cell itself is the last of its frames.
    return int(frames[-1][1]), _tail(log[: frames[-1].end()])


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


def _line(traceback: str, count: int | None) -> int | None:
    """The line of the failing cell that IPython's traceback names, counted from 1 in what IPython ran."""
    lines = [int(n) for c, n in re.findall(r"Cell In\[(\d+)\], line (\d+)", traceback) if int(c) == count]
    return lines[-1] if lines else None


def _short(text: str, most: int) -> str:
    """A text whose middle is left out where it is longer: a row is small, and the executed notebook has it whole."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} [… {len(text) - most:,} characters …] {text[-(most // 2) :]}"


def _tail(log: str, lines: int = 30) -> str:
    """The kernel's last words."""
    return _short("\n".join(without_remarks(log).splitlines()[-lines:]), _TRACEBACK)


def _name_injected_cell(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell["id"] = "injected-parameters"


def _environment(progress: str, gpu: str) -> dict[str, str]:
    """The kernel's environment: the point's GPU and no other, if it has one. This environment's tools (ninja) come first,
    Plotly shows figures as data, and sliders are the figures' own, since nobody can move a widget whose kernel has ended.
    What a learner did before counts for nothing, and nothing is added to it: progress and predictions are kept in a
    folder of this run.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    defaults = {"PLOTLY_RENDERER": "plotly_mimetype", "WORKBOOK_WIDGETS": "plain"}
    leased = {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}
    return {**defaults, **os.environ, **leased, "PATH": path, "WORKBOOK_PROGRESS": progress}

"""Run one notebook in one kernel with papermill, and find out why it ended early."""

from __future__ import annotations

import math
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
from papermill.engines import NBClientEngine, papermill_engines
from papermill.log import logger as papermill_logger
from papermill.parameterize import parameterize_notebook

from workbook.batch.kernel_client import KernelClient
from workbook.batch.live_output import LiveOutput, without_remarks
from workbook.batch.notebook_runs import Execution, Failure
from workbook.batch.parameters import for_json
from workbook.batch.point import Point, Stopped
from workbook.batch.sources import choose_kernel, parse_notebook
from workbook.batch.watch import Watch, cell_name
from workbook.usage import first_line

_MESSAGE, _TRACEBACK = 500, 20_000  # the most characters of a failure's
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class _Client(KernelClient):
    """Reports to a `Watch` and a `LiveOutput` what happens, and never interrupts a cell by itself."""

    watch: Watch
    live: LiveOutput

    def process_message(self, *args, **kwargs):
        output = super().process_message(*args, **kwargs)
        self.live.add(output)
        return output

    def papermill_execute_cells(self) -> None:
        self.watch.pid = getattr(self.km.provisioner, "pid", None)
        self.watch.leads = bool(self.watch.pid) and os.getpgid(self.watch.pid) == self.watch.pid
        self.watch.interruptible = self.km.kernel_spec.interrupt_mode == "signal"
        for index, cell in enumerate(self.nb.cells):
            self.watch.enter(cell, index, len(self.nb.cells))
            self.live.enter(cell_name(cell, index + 1), index + 1, len(self.nb.cells))
            try:
                self.nb_man.cell_start(cell, index)
                self.execute_cell(cell, index)
                if self.watch.exceeded:  # the cell caught the interrupt
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
    """papermill's engine with our client."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man, kernel_name, *, watch, live, folder, log, environment, **kwargs
    ):
        client = _Client(
            nb_man,
            kernel_name=kernel_name,
            timeout=None,
            startup_timeout=_start_timeout(watch.point),
            # How long a client may need to read what is queued when a cell has ended. A cell that sends
            # 100,000 messages on a busy machine needs minutes; the default is 4 s.
            iopub_timeout=600,
            resources={"metadata": {"path": str(folder)}},
            log=papermill_logger,
        )
        client.watch, client.live = watch, live
        client.create_kernel_manager()
        try:
            return client.execute(stdout=log, stderr=log, env=environment)
        finally:
            client.set_widgets_metadata()  # nbclient does so only after the last cell
            watch.kill()
            watch.pid = None  # another process may get the same number


def _start_timeout(point: Point) -> int:
    """Seconds for the kernel to start; nbclient takes whole ones only."""
    return math.ceil(min(point.start_timeout, point.notebook_timeout or point.start_timeout))


papermill_engines.register("kernel-workbook", _Engine)


def execute(point: Point, watch: Watch) -> Execution:
    """Run one point in a fresh kernel.

    Args:
        point: What to run.
        watch: Follows the run and enforces its limits.

    Raises:
        Stopped: The batch was interrupted.
    """
    if watch.stop.is_set():
        raise Stopped
    begin, job = time.monotonic(), point.job
    notebook = parse_notebook(job.content, job.source)
    choose_kernel(notebook, job.source.name, job.kernel)  # completes metadata for papermill and nbconvert
    if job.parameters:
        notebook = parameterize_notebook(notebook, job.parameters)
        notebook.metadata.papermill["parameters"] = for_json(job.parameters)  # JSON has no nan
        _name_injected_cell(notebook)
    failure = None
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log,
        tempfile.TemporaryDirectory(prefix="workbook-progress-", ignore_cleanup_errors=True) as progress,
        LiveOutput(point, notebook, log) as live,
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
                live=live,
                folder=job.cwd or job.source.parent,
                log=log,
                environment=_environment(progress, point.gpu),
            )
        except Exception as error:  # no error of a notebook may end the batch
            if watch.stop.is_set():
                raise Stopped from None
            log.seek(0)
            failure = _failure(error, watch, log.read())
            _mark(watch.cell, failure)
        live.end(failure)
    return Execution(notebook, failure, time.monotonic() - begin, watch.seconds, watch.peak_mb, live.error)


def _failure(error: Exception, watch: Watch, log: str) -> Failure:
    """Name the cell, the line and the reason for a failure."""
    cell = watch.cell
    if cell is None:
        why = f": {first_line(error)}"
        if isinstance(error, RuntimeError) and "didn't respond" in str(error):
            why = f" within {_start_timeout(watch.point)} s"
        return Failure("start", f"The kernel did not start{why}", _tail(log))
    where = f"cell {cell_name(cell, watch.number)}"
    output = next((o for o in reversed(cell.get("outputs", [])) if o.output_type == "error"), None)
    traceback = _short(_ANSI.sub("", "\n".join(output.traceback)), _TRACEBACK) if output else ""
    line = _line(traceback, cell.get("execution_count"))
    if watch.exceeded:
        kind, message = watch.exceeded[0], f"{where} was stopped: {watch.exceeded[1]}"
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
        # IPython removes leading blank lines before it runs a cell, and counts lines without them.
        line += next((i for i, text in enumerate(lines) if text.strip()), 0)
        line = line if line <= len(lines) else None
    source_line = lines[line - 1].strip() if line else None
    return Failure(kind, message, traceback, cell["id"], line, source_line)


def _mark(cell: NotebookNode | None, failure: Failure) -> None:
    """Add the reason to the cell's outputs if the kernel could not report it itself."""
    if cell is not None and cell.cell_type == "code" and failure.kind in ("timeout", "memory", "died"):
        text = f"{failure.message}.\n"
        cell.outputs.append(nbformat.v4.new_output("stream", name="stderr", text=text))


def _crash(log: str) -> tuple[int | None, str]:
    """Read faulthandler's report of a crash.

    Returns:
        The line of the cell, or None without a report, and the end of the log up to it.
    """
    frames = list(re.finditer(r'File "[^"]*ipykernel_\d+/\d+\.py", line (\d+) in .*', log))
    if not frames:
        return None, _tail(log)
    # The innermost frame is listed first, so the cell's own frame is the last one.
    return int(frames[-1][1]), _tail(log[: frames[-1].end()])


def _exit_status(manager) -> str:
    """How a dead kernel ended, such as " (SIGSEGV)", or "" if unknown."""
    process = getattr(manager.provisioner, "process", None)
    status = process.poll() if process is not None else None
    if status is None:
        return ""
    if status >= 0:
        return f" (exit status {status})"
    name = signal.Signals(-status).name
    return f" ({name}: did it run out of memory?)" if name == "SIGKILL" else f" ({name})"


def _line(traceback: str, count: int | None) -> int | None:
    """The line of the failing cell in IPython's traceback, counted from 1 in the text that IPython ran."""
    lines = [int(n) for c, n in re.findall(r"Cell In\[(\d+)\], line (\d+)", traceback) if int(c) == count]
    return lines[-1] if lines else None


def _short(text: str, most: int) -> str:
    """Leave out the middle of a text that is longer than `most`; the executed notebook has all of it."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} [… {len(text) - most:,} characters …] {text[-(most // 2) :]}"


def _tail(log: str, lines: int = 30) -> str:
    """The last lines that the kernel itself wrote."""
    return _short("\n".join(without_remarks(log).splitlines()[-lines:]), _TRACEBACK)


def _name_injected_cell(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell["id"] = "injected-parameters"


def _environment(progress: str, gpu: str) -> dict[str, str]:
    """The environment variables of the kernel.

    The kernel sees only the point's GPU, if it has one, and finds the tools of this Python environment, such
    as ninja, first. Figures with sliders store all of their positions in the output, because nobody can ask a
    kernel that has ended. Progress and predictions go to `progress`, so that the run neither reads
    nor changes those of the learner.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    defaults = {"PLOTLY_RENDERER": "plotly_mimetype", "WORKBOOK_WIDGETS": "plain"}
    visible = {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}
    return {**defaults, **os.environ, **visible, "PATH": path, "WORKBOOK_PROGRESS": progress}

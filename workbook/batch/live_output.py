"""What a running notebook has put out so far: a copy in `OUT/running`, and with `--log-output` also the log
`OUT/NAME.log`.

`--resume` never mistakes the copy for a finished notebook, because it looks for metadata that are written
last.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from datetime import datetime
from typing import IO, Any

import nbformat
from nbformat import NotebookNode

from workbook.batch.notebook_runs import Failure
from workbook.batch.point import RUNNING, Point
from workbook.outputs import replace
from workbook.usage import first_line

_SAVE_S = 5.0  # at least between two copies
_SHARE = 20  # copying may take 1/20 of the time
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class LiveOutput:
    """The output of one running notebook; a context manager, which removes the copy at the end.

    Attributes:
        error: Why the log is missing or incomplete, or "".
    """

    def __init__(self, point: Point, notebook: NotebookNode, kernel_log: IO[str]) -> None:
        """Begin the log, if the point has one.

        Args:
            point: What runs.
            notebook: The notebook that is being executed.
            kernel_log: The file that gets the kernel's own stdout and stderr.
        """
        self.path = point.out / RUNNING / f"{point.job.name}.ipynb"
        self.error = ""
        self._notebook, self._kernel_log, self._copied = notebook, kernel_log, 0
        self._changed, self._ended = False, threading.Event()
        self._saver = threading.Thread(target=self._save_regularly, name="live output", daemon=True)
        self._log: IO[str] | None = None
        if point.log_output:
            with self._catch_errors():
                path = point.out / f"{point.job.name}.log"
                self._log = path.open("w", encoding="utf-8", errors="replace")
                parameters = "".join(f", {name} = {value!r}" for name, value in point.job.parameters.items())
                self._write(f"{_now()} {point.job.source.name}{parameters}\n")

    def __enter__(self) -> LiveOutput:
        self._saver.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._saver.join()
        if self._log is not None:
            with contextlib.suppress(OSError):
                self._log.close()
        self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty, or never made
            self.path.parent.rmdir()

    def enter(self, cell: str, number: int, total: int) -> None:
        """Record that a cell begins."""
        self._write(f"{_now()} cell {cell}, {number} of {total}\n")

    def add(self, output: Any) -> None:
        """Record an output, or None for a message that is none."""
        self._changed = True
        if output and self._log is not None:
            self._write(_text(output))

    def _save_regularly(self) -> None:
        wait = _SAVE_S
        while not self._ended.wait(wait):
            self._copy_kernel_log()
            if self._changed:
                self._changed, begin = False, time.monotonic()
                self._save()
                wait = max(_SAVE_S, _SHARE * (time.monotonic() - begin))

    def _save(self) -> None:
        try:
            text = nbformat.writes(self._notebook, version=4) + "\n"
            self.path.parent.mkdir(exist_ok=True)
            replace(self.path, text)
        except (RuntimeError, OSError):
            # An output arrived during the copy, or another notebook removed the folder: try again later. A
            # full disk is reported when the executed notebook is written.
            self._changed = True

    def end(self, failure: Failure | None) -> None:
        """Record that the notebook has ended."""
        self._ended.set()
        self._saver.join()
        self._copy_kernel_log()
        self._write(f"{_now()} {f'failed: {failure}' if failure else 'ok'}\n")

    def _copy_kernel_log(self) -> None:
        if self._log is not None:
            size = os.fstat(self._kernel_log.fileno()).st_size
            new = os.pread(self._kernel_log.fileno(), size - self._copied, self._copied)
            self._copied = size
            if text := without_remarks(new.decode(errors="replace")):
                self._write(f"{_now()} the kernel itself\n{text.rstrip()}\n")

    def _write(self, text: str) -> None:
        if self._log is not None:
            with self._catch_errors():
                self._log.write(text)
                self._log.flush()

    @contextlib.contextmanager
    def _catch_errors(self):
        """Give up the log if it can't be written, and keep the reason for the row."""
        try:
            yield
        except OSError as error:
            self.error = f"its log could not be written ({error.strerror or first_line(error)})"
            self._log = None


def without_remarks(log: str) -> str:
    """A kernel's own output without ipykernel's warning about unencrypted TCP."""
    return "".join(line for line in log.splitlines(keepends=True) if "Kernel is running over TCP" not in line)


def _text(output: NotebookNode) -> str:
    """The text of an output for the log."""
    if output.output_type == "stream":
        return "".join(output.text)
    if output.output_type == "error":
        return _ANSI.sub("", "\n".join(output.traceback)) + "\n"
    text = "".join(output.get("data", {}).get("text/plain", ""))
    return f"{text}\n" if text else ""


def _now() -> str:
    return f"[{datetime.now():%H:%M:%S}]"

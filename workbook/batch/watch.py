"""Follow a running notebook, and end it when a cell, the notebook or its memory exceeds a limit."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from nbformat import NotebookNode

from workbook.batch.point import Point, Stopped

_GRACE_S = 5.0  # between the interrupt, whose traceback shows where a cell hangs, and killing the kernel
_MEMORY_CHECK_S = 0.2
_WORDS = re.compile(r"[a-z]+([-_][a-z0-9]+)*")


class Watch:
    """Follows one running notebook: its kernel's process, its current cell, its times. It can also end it.

    Attributes:
        point: What runs.
        stop: Set when the batch is interrupted.
        exceeded: ("timeout" or "memory", which limit was exceeded, in words), or None.
    """

    def __init__(
        self,
        point: Point,
        stop: threading.Event,
        report: Callable[[int, int, str], None] = lambda index, total, cell: None,
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            point: What will run, with its limits.
            stop: Set when the batch is interrupted.
            report: Called when a cell begins, with its index, the number of cells and its name.
        """
        self.point, self.stop, self._report = point, stop, report
        self.pid: int | None = None
        self.cell: NotebookNode | None = None
        self.number = 0  # of the cell, from 1
        self.seconds: dict[str, float] = {}
        self.peak_mb = 0.0
        self.exceeded: tuple[str, str] | None = None
        self.status = ""  # how the kernel died
        self.interruptible = True  # whether SIGINT interrupts this kernel
        self.leads = False  # whether the kernel leads a process group, as it does if Jupyter started it
        self._of_cell: list[threading.Timer] = []
        self._of_notebook: list[threading.Timer] = []
        self._ended = threading.Event()
        self._since = 0.0

    @contextlib.contextmanager
    def notebook(self):
        """Enforce the limits of the notebook and its memory; a context manager."""
        if self.point.notebook_timeout:
            reason = f"the notebook ran longer than {self.point.notebook_timeout:g} s"
            self._of_notebook = self._limit(self.point.notebook_timeout, reason)
        if self.point.memory_limit:
            threading.Thread(target=self._check_memory, name="memory", daemon=True).start()
        try:
            yield
        finally:
            self._ended.set()
            for timer in self._of_notebook:
                timer.cancel()

    def enter(self, cell: NotebookNode, index: int, total: int) -> None:
        """Start the clock of cell `index` of `total`.

        Raises:
            Stopped: The batch was interrupted.
        """
        if self.stop.is_set():
            raise Stopped
        self.cell, self.number, self._since = cell, index + 1, time.monotonic()
        self._report(index, total, cell_name(cell, self.number))
        if self.point.cell_timeout and cell.cell_type == "code":
            reason = f"it ran longer than {self.point.cell_timeout:g} s"
            self._of_cell = self._limit(self.point.cell_timeout, reason)

    def leave(self) -> None:
        """Stop the clock of the cell."""
        for timer in self._of_cell:
            timer.cancel()
        self._of_cell = []
        if self.cell is not None and self.cell.cell_type == "code":
            self.seconds[cell_name(self.cell, self.number)] = time.monotonic() - self._since
            self.peak_mb = max(self.peak_mb, _peak_mb(self.pid))

    def _limit(self, seconds: float, reason: str) -> list[threading.Timer]:
        timers = [
            threading.Timer(seconds, self._interrupt, [reason]),
            threading.Timer(seconds + _GRACE_S, self.kill),
        ]
        for timer in timers:
            timer.daemon = True
            timer.start()
        return timers

    def _interrupt(self, reason: str) -> None:
        self.exceeded = self.exceeded or ("timeout", reason)
        self._signal(signal.SIGINT if self.interruptible else signal.SIGKILL)

    def _check_memory(self) -> None:
        """Kill the kernel when all processes below this one together use more memory than the limit."""
        limit = self.point.memory_limit
        while not self._ended.wait(_MEMORY_CHECK_S):
            # rss counts shared pages once per process. pss divides them, but takes longer to read.
            if _used_mb("rss") > limit and (used := _used_mb("pss")) > limit:
                reason = f"its processes used {used:,.0f} MB, and --memory-limit is {limit:g} MB"
                self.exceeded = ("memory", reason)
                self.kill()
                return

    def kill(self) -> None:
        """Kill the kernel and the processes in its group."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        # If the kernel leads a process group, signal the group, so that a compiler that it started ends too.
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                if self.leads:
                    os.killpg(self.pid, number)
                else:
                    os.kill(self.pid, number)


def cell_name(cell: NotebookNode, number: int) -> str:
    """How messages name a cell: by its id if that consists of words, else by its number and its id."""
    return cell["id"] if _WORDS.fullmatch(cell["id"]) else f"{number} (id {cell['id']})"


def _used_mb(what: str) -> float:
    """The memory of all processes below this one in MB (10^6 bytes), counted as "rss" or "pss"."""
    used = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            full = process.memory_full_info() if what == "pss" else process.memory_info()
            used += getattr(full, what, full.rss)  # only Linux has pss
    return used / 1e6


def _peak_mb(pid: int | None) -> float:
    """The peak memory of a process in MB (10^6 bytes); 0 if the system doesn't report it."""
    try:
        match = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(match[1]) * 1024 / 1e6 if match else 0.0

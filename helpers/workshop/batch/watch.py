"""What a running notebook is doing, and the limits that end it: of a cell, of the notebook, of its memory."""

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

from helpers.workshop.batch.point import Point, Stopped

_GRACE_S = 5.0  # between an interrupt, which shows where a cell hung, and its kernel's end
_LOOK_S = 0.2  # between two looks at the memory
_WORDS = re.compile(r"[a-z]+([-_][a-z0-9]+)*")


class Watch:
    """What one running notebook is doing: its kernel's process, its cell, its times; and the means to end it.

    Attributes:
        point: What runs.
        stop: Set where the batch is interrupted.
        over: ("timeout" or "memory", in words which limit it passed), or None.
    """

    def __init__(
        self,
        point: Point,
        stop: threading.Event,
        tell: Callable[[int, int, str], None] = lambda index, total, cell: None,
    ) -> None:
        """Watch nothing yet.

        Args:
            point: Its limits are kept.
            stop: Set where the batch is interrupted.
            tell: Called with a cell's index, their number and its name when it begins.
        """
        self.point, self.stop, self.tell = point, stop, tell
        self.pid: int | None = None
        self.cell: NotebookNode | None = None
        self.number = 0  # the cell's, from 1
        self.seconds: dict[str, float] = {}
        self.peak_mb = 0.0
        self.over: tuple[str, str] | None = None
        self.status = ""  # how the kernel ended, where it died
        self.gentle = True  # whether SIGINT means anything to this kernel
        self.leads = False  # whether it leads a process group of its own, as Jupyter starts it
        self._of_cell: list[threading.Timer] = []
        self._of_notebook: list[threading.Timer] = []
        self._ended = threading.Event()
        self._since = 0.0

    @contextlib.contextmanager
    def notebook(self):
        """The notebook's clock runs, and its memory is looked at."""
        if self.point.notebook_timeout:
            says = f"the notebook ran longer than {self.point.notebook_timeout:g} s"
            self._of_notebook = self._limit(self.point.notebook_timeout, says)
        if self.point.memory_limit:
            threading.Thread(target=self._look_at_memory, name="memory", daemon=True).start()
        try:
            yield
        finally:
            self._ended.set()
            for timer in self._of_notebook:
                timer.cancel()

    def enter(self, cell: NotebookNode, index: int, total: int) -> None:
        """Cell `index` of `total` begins: start its clock. Raises `Stopped` where the batch was interrupted."""
        if self.stop.is_set():
            raise Stopped
        self.cell, self.number, self._since = cell, index + 1, time.monotonic()
        self.tell(index, total, cell_name(cell, self.number))
        if self.point.cell_timeout and cell.cell_type == "code":
            says = f"it ran longer than {self.point.cell_timeout:g} s"
            self._of_cell = self._limit(self.point.cell_timeout, says)

    def leave(self) -> None:
        """The cell ended, one way or another."""
        for timer in self._of_cell:
            timer.cancel()
        self._of_cell = []
        if self.cell is not None and self.cell.cell_type == "code":
            self.seconds[cell_name(self.cell, self.number)] = time.monotonic() - self._since
            self.peak_mb = max(self.peak_mb, _peak_mb(self.pid))

    def _limit(self, seconds: float, says: str) -> list[threading.Timer]:
        timers = [
            threading.Timer(seconds, self._interrupt, [says]),
            threading.Timer(seconds + _GRACE_S, self.kill),
        ]
        for timer in timers:
            timer.daemon = True
            timer.start()
        return timers

    def _interrupt(self, says: str) -> None:
        self.over = self.over or ("timeout", says)
        self._signal(signal.SIGINT if self.gentle else signal.SIGKILL)

    def _look_at_memory(self) -> None:
        """End the kernel when it and all processes below this one hold more than the limit."""
        limit = self.point.memory_limit
        while not self._ended.wait(_LOOK_S):
            if (
                _held_mb("rss") > limit and (held := _held_mb("pss")) > limit
            ):  # the second is slow, and shares shared pages
                self.over = (
                    "memory",
                    f"its processes held {held:,.0f} MB, and --memory-limit is {limit:g} MB",
                )
                self.kill()
                return

    def kill(self) -> None:
        """End the kernel and every process it started."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        # To the whole group of a kernel that leads one, so that a compiler it started ends with it.
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                if self.leads:
                    os.killpg(self.pid, number)
                else:
                    os.kill(self.pid, number)


def cell_name(cell: NotebookNode, number: int) -> str:
    """What a person calls a cell: its id where that is words, or else its number, from 1, with the id."""
    return cell["id"] if _WORDS.fullmatch(cell["id"]) else f"{number} (id {cell['id']})"


def _held_mb(what: str) -> float:
    """The memory of all processes below this one, in MB (10^6 bytes): "rss", or "pss" with shared pages divided."""
    held = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            full = process.memory_full_info() if what == "pss" else process.memory_info()
            held += getattr(full, what, full.rss)  # other systems than Linux have no pss
    return held / 1e6


def _peak_mb(pid: int | None) -> float:
    """The most memory that a process has held, in MB (10^6 bytes); 0 where the system does not tell."""
    try:
        match = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(match[1]) * 1024 / 1e6 if match else 0.0

"""Progress bars in the terminal, one per running notebook and one for the batch, and the same facts for the
index page.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Sequence

from tqdm import tqdm

from workbook.batch.messages import CellBegins
from workbook.batch.notebook_runs import NotebookRun
from workbook.batch.point import Point

_FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"


class Progress:
    """The progress bars of a batch, and the cell that each running point is in.

    Attributes:
        at_once: How many points run at a time.
    """

    def __init__(self) -> None:
        self.at_once = 1
        self._bars: dict[int, tqdm] = {}
        self._now: dict[str, str] = {}
        self._lock = threading.Lock()

    def for_batch(self, total: int) -> tqdm:
        """The bar that counts finished points; a context manager."""
        return tqdm(total=total, desc="Notebooks", position=0, disable=None, bar_format=_FORMAT)

    def show(self, slot: int, point: Point, cell: CellBegins | None) -> None:
        """Show that a cell begins, or with None that the point has ended."""
        with self._lock:
            bar = self._bars.get(slot)
            if cell is None:
                self._now.pop(point.job.name, None)
                if bar is not None:
                    self._bars.pop(slot).close()
                return
            self._now[point.job.name] = f"cell {cell.index + 1} of {cell.total}, {cell.cell}"
            if bar is None:
                bar = self._bars[slot] = tqdm(
                    total=cell.total, desc=point.job.name, position=slot + 1, leave=False, disable=None
                )
            if not bar.disable:
                bar.n = cell.index
                bar.set_postfix_str(cell.cell)

    @property
    def running(self) -> dict[str, str]:
        """The running points, and the cell that each is in."""
        with self._lock:
            return dict(self._now)

    def left_s(self, ended: Sequence[NotebookRun], total: int) -> float | None:
        """Estimate the seconds left from the mean time of the points that have ended.

        Args:
            ended: The rows so far.
            total: How many points the batch has.

        Returns:
            The estimate, or None as long as no point has ended.
        """
        durations = [run.seconds for run in ended if run.status != "kept" and run.seconds]
        running = len(self.running)
        n_remaining = total - len(ended) - running / 2  # those that run are half done, on average
        return (
            statistics.fmean(durations) * n_remaining / self.at_once
            if durations and n_remaining > 0
            else None
        )


def counted(ended: Sequence[NotebookRun], running: int, left: str) -> str:
    """The text after the batch's progress bar.

    Args:
        ended: The rows so far.
        running: How many run.
        left: The estimated time left, or "".
    """
    failed = sum(run.status == "failed" for run in ended)
    parts = [f"{running} running"] if running else []
    parts += [f"{failed} failed"] if failed else []
    return ", ".join([*parts, *([f"about {left} left"] if left else [])])

"""What of a batch is running: a line of the terminal for each notebook and for the whole, and the same for the index."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Sequence

from tqdm import tqdm

from helpers.workshop.batch.messages import CellBegins
from helpers.workshop.batch.point import Point
from helpers.workshop.batch.results import NotebookRun

_FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"


class Progress:
    """The bars of a batch, and which points are in which cell.

    Attributes:
        at_once: How many points run at a time.
    """

    def __init__(self) -> None:
        self.at_once = 1
        self._bars: dict[int, tqdm] = {}
        self._now: dict[str, str] = {}
        self._lock = threading.Lock()

    def whole(self, total: int) -> tqdm:
        """The bar of all points, a context manager."""
        return tqdm(total=total, desc="Notebooks", position=0, disable=None, bar_format=_FORMAT)

    def show(self, slot: int, point: Point, cell: CellBegins | None) -> None:
        """A cell begins, or the point has ended."""
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
        """The points that run, to the cell that each is in."""
        with self._lock:
            return dict(self._now)

    def left_s(self, ended: Sequence[NotebookRun], total: int) -> float | None:
        """Seconds that are left, if the others take as long as those that have run; None before the first one has.

        Args:
            ended: The rows so far.
            total: How many points the batch has.
        """
        took = [run.seconds for run in ended if run.status != "kept" and run.seconds]
        running = len(self.running)
        to_come = total - len(ended) - running / 2  # those that run are half done, on average
        return statistics.fmean(took) * to_come / self.at_once if took and to_come > 0 else None


def counted(ended: Sequence[NotebookRun], running: int, left: str) -> str:
    """What stands behind the whole's bar.

    Args:
        ended: The rows so far.
        running: How many run.
        left: The time left in words, or "".
    """
    failed = sum(run.status == "failed" for run in ended)
    parts = [f"{running} running"] if running else []
    parts += [f"{failed} failed"] if failed else []
    return ", ".join([*parts, *([f"about {left} left"] if left else [])])

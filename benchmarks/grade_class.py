"""How long a class takes to grade, and how much memory:
`python benchmarks/grade_class.py --learners 30 --jobs 2`.

The class is made of lab 03: of three learners one hands in the solution, one the solution with mistakes in
it, one the starter as it is. Processor seconds are counted beside the wall's, since a machine may have other
work; memory is the peak of the resident sizes of the command and all below it, so that what processes share
counts more than once.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path

import nbformat
import psutil

from workbook.grade import grade

ROOT = Path(__file__).parent.parent
LAB = "03_triton"
# Exercise to mistakes that learners make: a text of the solution, and what stands there instead.
_MISTAKES = {
    "programs-and-elements": (
        ("triton.cdiv(n_elements, block_size)", "n_elements // block_size + 1"),
        ("max(0, min(block_size, n_elements - first))", "min(block_size, n_elements - first)"),
    ),
    "flip-rows": (
        ("from_cols * x_col_stride, mask=mask", "from_cols * x_col_stride"),
        ("row * x_row_stride + from_cols * x_col_stride", "row * n_cols + from_cols"),
    ),
    "square-any-shape": (
        ("x * x, mask=mask", "x + x, mask=mask"),
        ("element, x * x, mask=mask", "element, x * x"),
    ),
    "catch-wrong-kernels": (
        ("(5, 1000), ", ""),
        ("        with checks.poisoned():\n            first = kernel(x)", "        first = kernel(x)"),
    ),
    "rms-norm-rows": ((" / n_cols + eps", " / n_cols"), ("x * scale * weight", "x * scale")),
}


def write_class(folder: Path, n_learners: int) -> None:
    """A folder for each learner, with the lab's notebook."""
    solution = nbformat.read(ROOT / "labs" / "solutions" / f"{LAB}.ipynb", 4)
    starter = nbformat.read(ROOT / "labs" / f"{LAB}.ipynb", 4)
    for number in range(n_learners):
        notebook = starter if number % 3 == 2 else nbformat.from_dict(solution)
        if number % 3 == 1:
            notebook = nbformat.reads(nbformat.writes(solution), 4)
            _spoil(notebook, number // 3)
        path = folder / f"learner-{number:03}" / f"{LAB}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)


def _spoil(notebook: nbformat.NotebookNode, number: int) -> None:
    """Put mistakes into some of the exercises' cells: into others for another number."""
    for index, cell in enumerate(cell for cell in notebook.cells if cell.id in _MISTAKES):
        mistakes = _MISTAKES[cell.id]
        if (number >> index) % 2 == 0:
            old, new = mistakes[number % len(mistakes)]
            if old not in cell.source:
                raise SystemExit(f"benchmarks/grade_class.py: {cell.id} of {LAB} has no {old!r} any more.")
            cell.source = cell.source.replace(old, new)


class Watch:
    """Peak resident memory and processor time of this process and all below it, sampled four times a second.

    `getrusage` does not count the processes of a sandbox, because they end with it and nobody waits for them.
    """

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._cpu_s: dict[tuple[int, float], float] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.set()
        self._thread.join()

    @property
    def cpu_s(self) -> float:
        """Processor seconds of all processes seen so far."""
        return sum(self._cpu_s.values())

    def _look(self) -> None:
        while not self._end.wait(0.25):
            n_bytes = 0
            for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                try:
                    n_bytes += process.memory_info().rss
                    used = process.cpu_times()
                    self._cpu_s[process.pid, process.create_time()] = used.user + used.system
                except psutil.Error:
                    continue
            self.peak_mb = max(self.peak_mb, n_bytes / 1e6)


def main() -> None:
    """Make a class, grade it and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learners", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--unsafe", action="store_true", help="grade without the sandbox")
    parser.add_argument("--out", type=Path, default=None, help="keep the reports there")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_class(Path(folder) / "in", asked.learners)
        out = asked.out or Path(folder) / "out"
        begin = time.monotonic()
        with Watch() as watch:
            grades = grade([Path(folder) / "in"], out, jobs=asked.jobs, seed=3, unsafe=asked.unsafe)
        wall_s = time.monotonic() - begin
    n_passed = sum(one.n_passed for one in grades.graded)
    print(
        f"{asked.learners} notebooks of {LAB}, --jobs {asked.jobs}, {grades.tiers}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[1]:.1f}: "
        f"{wall_s:.0f} s, {wall_s / asked.learners:.1f} s a notebook; {watch.cpu_s / asked.learners:.1f} "
        "processor seconds a notebook; "
        f"peak {watch.peak_mb:.0f} MB; {n_passed} of {sum(len(one.marks) for one in grades.graded)} "
        "exercises passed"
    )


if __name__ == "__main__":
    main()

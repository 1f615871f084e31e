"""nbval runs every lesson and compares the outputs of the checked cells; broken copies of two lessons fail.

A lesson with a broken copy runs as a copy itself, so that only the breakage can make the other copy fail.

Each notebook is a pytest process of its own. On a machine without a GPU two of them run at a time, unless
several pytest workers share the machine. All of them are queued when the first test starts.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest
from commands import LESSONS, ROOT, environment, processes
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from helpers import device, records
from workbook.form import canonical


def nbval(
    notebook: Path, environ: dict[str, str], *options: str, replay: str | None = None
) -> subprocess.CompletedProcess:
    """Run every cell of a notebook and compare the checked ones; `replay` names the set of records."""
    arguments = [
        "--nbval-lax",
        "--nbval-current-env",
        "--nbval-cell-timeout=600",
        "-p",
        "no:cacheprovider",
        "-q",
    ]
    config = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(notebook.parent)]
    environ = {**environ, "PLOTLY_RENDERER": "plotly_mimetype"}
    if replay:
        environ["WORKBOOK_REPLAY"] = replay
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, *config, *options, str(notebook)],
        cwd=ROOT, env=environ, capture_output=True, text=True,
    )  # fmt: skip


def lesson(number: str) -> Path:
    return next(path for path in LESSONS if path.name.startswith(number))


def change(source: Path, target: Path, alter: Callable[[dict[str, nbformat.NotebookNode]], None]) -> Path:
    """A copy of a lesson with some cells changed, named after the lesson in a folder of its own."""
    notebook = nbformat.read(source, as_version=4)
    alter({cell["id"]: cell for cell in notebook.cells})
    nbformat.write(notebook, target)
    return target


def tagged(cells: dict[str, nbformat.NotebookNode], tag: str) -> nbformat.NotebookNode:
    return next(cell for cell in cells.values() if tag in canonical.tags(cell))


def break_kernel(cells: dict[str, nbformat.NotebookNode]) -> None:
    cell = tagged(cells, "kernel:square_rows_kernel")
    assert cell.source.count("x * x") == 1
    cell.source = cell.source.replace("x * x", "x * x * 1.001")


def break_reading(cells: dict[str, nbformat.NotebookNode]) -> None:
    # The reader takes every load for 8 bytes, although the lesson's first kernel has loads of 4.
    broken = "from helpers.ptx import read\n\nread.Instruction.n_bytes = property(lambda self: 8)"
    tagged(cells, "setup").source += f"\n\n{broken}"


# test_lesson replays the default set, which is the first one. A GPU replays nothing.
OTHER_SETS = [] if device.has_gpu() else records.sets()[1:]
BROKEN = {
    "broken-kernel-03": ("03", break_kernel),
    "broken-reading-04": ("04", break_reading),
}


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future]]:
    """Queue one nbval run for each selected test."""
    selected = {
        item.name.split("[")[-1].rstrip("]") for item in request.session.items if item.path == request.path
    }
    # Read here: pytest changes its own environment between tests, while these threads start processes.
    environ = environment()
    with ThreadPoolExecutor(processes()) as pool:
        started: dict[str, Future] = {}
        for path in LESSONS:
            if path.stem in selected:
                if any(path.name.startswith(number) for number, _ in BROKEN.values()):
                    path = change(path, tmp_path_factory.mktemp("unbroken") / path.name, lambda cells: None)
                started[path.stem] = pool.submit(nbval, path, environ)
            for gpu in OTHER_SETS:
                if f"{path.stem}-{gpu}" in selected:
                    copy = change(path, tmp_path_factory.mktemp(gpu) / path.name, lambda cells: None)
                    started[f"{path.stem}-{gpu}"] = pool.submit(nbval, copy, environ, replay=gpu)
        for name, (number, alter) in BROKEN.items():
            if name in selected:
                copy = change(lesson(number), tmp_path_factory.mktemp(name) / lesson(number).name, alter)
                started[name] = pool.submit(nbval, copy, environ, "--exitfirst")
        yield started


@pytest.mark.seeded
@pytest.mark.parametrize("name", [path.stem for path in LESSONS])
def test_lesson(name, results):
    result = results[name].result()
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    cells = [
        c
        for c in nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells
        if c.cell_type == "code"
    ]
    assert re.search(rf"\b{len(cells)} passed\b", result.stdout), result.stdout[-500:]


@pytest.mark.parametrize("name", [f"{path.stem}-{gpu}" for path in LESSONS for gpu in OTHER_SETS])
def test_a_lesson_prints_the_same_from_the_other_records(name, results):
    result = results[name].result()
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("broken-kernel-03", "Mismatch", id="broken-kernel-03"),
        pytest.param("broken-reading-04", "Cell outputs differ", id="broken-reading-04"),
    ],
)
def test_a_broken_copy_fails(name, expected, results):
    result = results[name].result()
    assert result.returncode == 1, result.stdout[-6000:] + result.stderr[-2000:]
    assert expected in result.stdout, result.stdout[-6000:]


def edit_kernel(cells: dict[str, nbformat.NotebookNode]) -> None:
    """Change the kernel as a learner might, without changing its result."""
    cell = tagged(cells, "kernel:square_rows_kernel")
    cell.source = cell.source.replace("x * x", "1.0 * x * x")


@pytest.mark.parametrize("edited", [True, False])
def test_an_edited_kernel_is_not_given_the_recorded_times(edited, tmp_path):
    """Lesson 03 without a GPU stops at its first measurement with one sentence instead of a traceback."""
    notebook = nbformat.read(lesson("03"), as_version=4)
    cells = {cell["id"]: cell for cell in notebook.cells}
    if edited:
        edit_kernel(cells)
    notebook.cells = notebook.cells[: list(cells).index("measure-warps") + 1]
    environ = {**environment(), "CUDA_VISIBLE_DEVICES": "", "WORKBOOK_PROGRESS": str(tmp_path)}
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    if not edited:
        client.execute(env=environ)
        assert any(records.PROVENANCE_MIME in output.get("data", {}) for output in notebook.cells[-1].outputs)
        return
    with pytest.raises(CellExecutionError):
        client.execute(env=environ)
    (failed,) = notebook.cells[-1].outputs
    (sentence,) = failed.traceback
    assert failed.ename == "KernelChanged" and "square_rows_kernel" in sentence and "\n" not in sentence

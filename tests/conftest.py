"""What the tests share: the checkout's folder, small notebooks made on the spot, the `workbook` command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what only a GPU can show where there is none: the closing line says so, and it never counts as passed."""
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu:
        from helpers import device

        if not device.has_gpu():
            config.hook.pytest_deselected(items=on_gpu)
            items[:] = [item for item in items if item not in on_gpu]


@pytest.fixture
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture
def make_notebook(tmp_path: Path) -> Callable[..., Path]:
    """Write a notebook into tmp_path/notebooks.

    Call it as `make_notebook("name", "code", ("code", "tag"), "# markdown"…, metadata={…})`: a text that begins with
    "# %md " is a markdown cell; a pair is code with tags. Cells are called cell-0, cell-1, ….
    """

    def make(
        name: str, *cells: str | tuple[str, ...], folder: str = "notebooks", metadata: dict | None = None
    ) -> Path:
        notebook = nbformat.v4.new_notebook(metadata=metadata or {})
        for i, cell in enumerate(cells):
            source, *tags = (cell,) if isinstance(cell, str) else cell
            if source.startswith("# %md "):
                made = nbformat.v4.new_markdown_cell(source.removeprefix("# %md "), id=f"cell-{i}")
            else:
                made = nbformat.v4.new_code_cell(source, id=f"cell-{i}")
            if tags:
                made.metadata["tags"] = tags
            notebook.cells.append(made)
        path = tmp_path / folder / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, path)
        return path

    return make


def command(*arguments: object) -> list[str]:
    """The `workbook` command of this environment as a list."""
    return [sys.executable, "-m", "helpers", *map(str, arguments)]


def environment() -> dict[str, str]:
    """This environment, with `helpers` importable from any folder and this Python's tools (ninja) first on PATH."""
    modules = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PYTHONPATH": modules, "PATH": tools, "COLUMNS": "200", "NO_COLOR": "1"}


@pytest.fixture
def workbook(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Run the `workbook` command in tmp_path (or `cwd`) and return what it said and its exit status."""

    def run(*arguments: object, cwd: Path | None = None, timeout: float = 120) -> subprocess.CompletedProcess:
        return subprocess.run(
            command(*arguments),
            cwd=cwd or tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run

"""What the tests share as fixtures: their seeds, small notebooks made on the spot, the `workbook` command."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
import seeds
from commands import ROOT, command, environment

# The files that take longest, in this order. They begin first, so that two workers end at about the same time.
LONGEST = (
    "exercises/test_wrong_kernels.py",
    "test_notebooks.py",
    "test_browser.py",
    "workshop/test_grade.py",
    "test_labs.py",
    "exercises/test_lab06.py",
    "exercises/test_lab02.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """The workers of `-n auto`: as many as cores, but none where there is a GPU: two tests would measure each other."""
    from helpers import device

    return 0 if device.has_gpu() else min(len(os.sched_getaffinity(0)), 4)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order and mark the tests, and deselect what only a GPU can show where there is none.

    The closing line names what was deselected, and it never counts as passed.
    """
    places = {str(ROOT / "tests" / name): place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(str(item.path), len(places)))
    for item in items:
        if "seed" in getattr(item, "fixturenames", ()):
            item.add_marker("seeded")
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu:
        from helpers import device

        if not device.has_gpu():
            config.hook.pytest_deselected(items=on_gpu)
            items[:] = [item for item in items if item not in on_gpu]


@pytest.fixture(autouse=True)
def sown(request: pytest.FixtureRequest) -> int:
    """`random`, numpy and torch begin with the test's own seed, which comes from its name and TEST_SEED."""
    seed = seeds.of(request.node.nodeid)
    seeds.sow(seed)
    return seed


@pytest.fixture
def seed(sown: int) -> int:
    """The test's own seed, for what takes one. A test that asks for it is `seeded`: `make soak` tries it with others."""
    return sown


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest) -> Iterator[None]:
    """A fixture that several tests share draws the same whichever of them comes first."""
    if fixturedef.scope != "function":
        seeds.sow(seeds.of(f"{fixturedef.baseid}::{fixturedef.argname} {getattr(request, 'param', '')}"))
    return (yield)


@pytest.fixture(scope="session", autouse=True)
def ipython(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels that the tests start, here or in child processes, begin with seeds, and without the user's own profile.

    Nor do they see the user's progress and predictions, and what an author got wrong in a prediction raises.
    """
    folder = tmp_path_factory.mktemp("ipython")
    startup = folder / "profile_default" / "startup" / "00-seed.py"
    startup.parent.mkdir(parents=True)
    startup.write_text(seeds.KERNEL_STARTUP.replace("{seed}", str(seeds.of("kernels"))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(folder))
        patch.setenv("WORKBOOK_PROGRESS", str(tmp_path_factory.mktemp("progress")))
        patch.setenv("WORKBOOK_STRICT", "1")
        yield


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


@pytest.fixture
def workbook(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Run the `workbook` command in tmp_path (or `cwd`) and return what it said and its exit status."""

    def run(*arguments: object, cwd: Path | None = None, timeout: float = 300) -> subprocess.CompletedProcess:
        return subprocess.run(
            command(*arguments),
            cwd=cwd or tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run

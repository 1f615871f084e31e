"""What all tests share: a clean environment, seeds, markers, small notebooks and the `workbook` command."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import debian
import nbformat
import pytest
import seeds
import slow
from commands import ROOT, command, environment

# No test depends on the user's settings. This runs before anything imports `helpers`, and child processes
# inherit it.
for name in [name for name in os.environ if name.startswith("WORKBOOK_")]:
    del os.environ[name]
# Tests run next to each other on all cores, where the threads of torch's small operators only wait for one
# another: with two threads per process, the attempts of lab 06 take three times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The files that take longest start first, so that all workers finish at about the same time.
LONGEST = (
    "workbook/test_verify_corpus.py",
    "workbook/test_verify_evasions.py",
    "workbook/test_grade_attacks.py",
    "test_notebooks.py",
    "exercises/test_wrong_kernels.py",
    "workbook/test_verify.py",
    "test_browser.py",
    "test_labs.py",
    "workbook/test_grade.py",
    "workbook/test_batch.py",
    "exercises/test_lab02.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """The number of workers of `-n auto`: one more than there are cores, because tests often wait for a
    process; but none on a machine with a GPU, where two tests at a time would disturb each other's
    measurements.
    """
    from helpers import device

    return 0 if device.has_gpu() else min(len(os.sched_getaffinity(0)) + 1, 5)


def pytest_collection_finish() -> None:
    """From here on, this process compiles what it imports anew.

    Python takes a compiled file for current if the source has the same size and the same second, but a test
    writes a file, imports it, and changes one character at once. The tests' own files are compiled by now.
    """
    sys.dont_write_bytecode = True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests, start the longest files first, and deselect GPU tests on a machine without a GPU.

    Deselected tests appear in pytest's last line and never count as passed.
    """
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(_file(item), len(order)))
    for item in items:
        names = {item.name, getattr(item, "originalname", item.name)}
        if "seed" in getattr(item, "fixturenames", ()):
            item.add_marker("seeded")
        for marker, table in slow.TABLES.items():
            if item.get_closest_marker(marker) or slow.listed(table, _file(item), names):
                item.add_marker(marker)
                break
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu:
        from helpers import device

        if not device.has_gpu():
            config.hook.pytest_deselected(items=on_gpu)
            items[:] = [item for item in items if item not in on_gpu]


def _file(item: pytest.Item) -> str:
    return Path(os.path.relpath(item.path, ROOT / "tests")).as_posix()


@pytest.fixture(autouse=True)
def sown(request: pytest.FixtureRequest) -> int:
    """Seed `random`, numpy and torch with the test's own seed, which depends on its name and on TEST_SEED."""
    seed = seeds.of(request.node.nodeid)
    seeds.sow(seed)
    return seed


@pytest.fixture
def seed(sown: int) -> int:
    """The test's own seed, for functions that take one. A test that requests it is marked `seeded`."""
    return sown


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest) -> Iterator[None]:
    """A shared fixture draws the same numbers, whichever test requests it first."""
    if fixturedef.scope != "function":
        seeds.sow(seeds.of(f"{fixturedef.baseid}::{fixturedef.argname} {getattr(request, 'param', '')}"))
    return (yield)


@pytest.fixture(scope="session", autouse=True)
def sandbox() -> None:
    """Install bubblewrap, with which submissions and candidates are sandboxed, if root runs the tests.

    Without it, the tests that need a sandbox fail, and say what to install.
    """
    with contextlib.suppress(RuntimeError):
        debian.program("bubblewrap", "bwrap", needed_by="The tests of sandboxes")


@pytest.fixture(scope="session", autouse=True)
def ipython(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Start every Jupyter kernel with a seed, without the user's IPython profile, progress or predictions.

    An author's mistake in a prediction raises an error.
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

    Call it as `make_notebook("name", "code", ("code", "tag"), "# markdown"…, metadata={…})`: a string that
    starts with "# %md " becomes a Markdown cell, and a tuple is code with tags. The cells' ids are cell-0,
    cell-1, ….
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
    """Run the `workbook` command in tmp_path (or `cwd`) and return its output and exit status."""

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

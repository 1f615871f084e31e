"""A small checkout for what forms and publishes notebooks; Ctrl-C and kernelspecs for what runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import debian
import pytest
from batches import wait_for
from commands import environment
from small_checkout import CUDA, GOOD_BADGE, KERNELS

from workbook.cli import app


@pytest.fixture(scope="module", autouse=True)
def bubblewrap(request: pytest.FixtureRequest) -> None:
    """What tests of the grader need beside .venv; root's tests install it."""
    if request.module.__name__.startswith("test_grade") and sys.platform == "linux":
        debian.program("bubblewrap", "bwrap", needed_by="The grader's tests")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a pyproject, two kernels and a README."""
    (tmp_path / "helpers" / "kernels").mkdir(parents=True)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "helpers" / "kernels" / "k.py").write_text(KERNELS)
    (tmp_path / "helpers" / "kernels" / "k.cu").write_text(CUDA)
    pyproject = (
        '[project]\nname = "kernel-workbook"\n[project.urls]\nRepository = "https://github.com/ada/kernels"\n'
    )
    (tmp_path / "pyproject.toml").write_text(pyproject)
    (tmp_path / "README.md").write_text(
        f"{GOOD_BADGE}\n`git clone https://github.com/ada/kernels`\ngithub.com/ada/kernels-old\n"
    )
    return tmp_path


@pytest.fixture
def cli(tmp_path: Path, monkeypatch, capsys) -> Callable[..., subprocess.CompletedProcess]:
    """Run a command that starts no process, in this process: `workbook` without Python's start."""

    def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess:
        monkeypatch.chdir(cwd or tmp_path)
        monkeypatch.setenv("COLUMNS", "200")
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            app([str(argument) for argument in arguments], prog_name="workbook")
        return subprocess.CompletedProcess(arguments, ended.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def refusal(cli) -> Callable[..., str]:
    """Run a command that must be refused with exit status 2, and return the one line that it prints."""

    def run(*arguments: object, cwd: Path | None = None) -> str:
        ended = cli(*arguments, cwd=cwd)
        assert (ended.returncode, ended.stdout) == (2, "")
        (line,) = ended.stderr.splitlines()
        return line

    return run


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen]]:
    """Start the command in the background; it is killed at the end of the test."""
    running: list[subprocess.Popen] = []

    def start(
        *arguments: object, python: Sequence[str] = ("-m", "workbook"), **variables: str
    ) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, *python, *map(str, arguments)],
            env={**environment(), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@dataclass(frozen=True)
class Ended:
    """An interrupted command: its exit status, its output, and the process id of the sleeping cell."""

    status: int
    stdout: str
    stderr: str
    sleeper: int


class Interrupter:
    """Interrupts a command while a cell of its notebook sleeps."""

    def __init__(self, folder: Path) -> None:
        self._sign = folder / "sleeping"
        self.cell = f"""\
import os
import pathlib
import time

pathlib.Path({str(self._sign)!r}).write_text(str(os.getpid()))
while True:  # not one long sleep: a signal just before its system call wouldn't end that
    time.sleep(0.1)"""

    def run(self, command: list[str], number: int) -> Ended:
        """Start a command in its own session and send it a signal once the cell is running."""
        process = subprocess.Popen(
            command,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        wait_for(lambda: self._sign.exists() and self._sign.read_text(), process)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=120)
        return Ended(process.returncode, stdout, stderr, int(self._sign.read_text()))


@pytest.fixture
def interrupter() -> Iterator[Interrupter]:
    """Interrupts a command at the right moment: put its `cell` into a notebook and `run` the command."""
    with tempfile.TemporaryDirectory(prefix="workbook-sign-") as folder:
        os.chmod(folder, 0o777)  # a graded notebook may run with another user's id
        yield Interrupter(Path(folder))


@pytest.fixture
def kernels(tmp_path, monkeypatch) -> Callable[..., None]:
    """Install a kernelspec under a name, with its argv and environment."""

    def install(name: str, *argv: str, **env: str) -> None:
        path = tmp_path / "jupyter" / "kernels" / name / "kernel.json"
        path.parent.mkdir(parents=True)
        spec = {"argv": list(argv), "display_name": name, "language": "python", "env": env}
        path.write_text(json.dumps(spec))
        monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))

    return install

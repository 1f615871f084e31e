"""`make soak` and the seeds: on a small folder of tests, one of which fails with some numbers only."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from commands import ROOT, environment
from nbclient import NotebookClient

TESTS = """
import os, time
import pytest

@pytest.mark.seeded
@pytest.mark.parametrize("name", ["it's even - or $odd"])
def test_third(name):
    assert os.environ["TEST_SEED"] != "3"

@pytest.mark.seeded
def test_right():
    time.sleep(100 if os.environ["TEST_SEED"] == "5" else 0)

def test_without_seeds():
    raise AssertionError("no business of the soak")
"""
DRAWS = """
import random
import numpy
import pytest
import torch

def drawn():
    return [random.random(), float(numpy.random.rand()), float(torch.rand(()))]

@pytest.fixture(scope="module")
def shared():
    return drawn()

@pytest.mark.parametrize("case", ["a", "b"])
def test_draws(case, shared, seed):
    print(case, *shared, *drawn(), seed)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of tests with the markers, and without a conftest."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = seeded: draws\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


def soak(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "tests" / "soak.py"), "--folder", "logs", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def test_a_soak_names_what_fails_and_how_to_repeat_it(folder):
    done = soak(folder, "--rounds", "2", "--first", "2", "--", "-k", "third or right")
    assert done.returncode == 1, done.stderr
    failed = re.findall(r"^failed with (\d+): (.+)\n  (.+)$", done.stdout, re.MULTILINE)
    test = "test_it.py::test_third[it's even - or $odd]"
    assert [(number, name) for number, name, _ in failed] == [("3", test)]
    makefile = folder / "Makefile"
    makefile.write_text("test:\n\t@printf '%s|' $(ARGS) $(SEED)\n")
    # `make test` runs this test: its own flags are not for the inner make
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    made = subprocess.run(failed[0][2], shell=True, cwd=folder, env=plain, capture_output=True, text=True)
    assert made.stdout == f"{test}|3|", made
    assert "numbers tried: 2; failures: 1; logs are in logs\n" in done.stdout
    assert "no business" not in done.stdout


def test_a_soak_without_failures_ends_with_0_when_its_time_is_over(folder):
    done = soak(folder, "--minutes", "0.1", "--first", "4")
    assert done.returncode == 0
    assert "numbers tried: 0; with 5 as far as the time went; failures: 0" in done.stdout


def test_a_soak_that_cannot_run_the_tests_says_why(folder):
    (folder / "test_it.py").write_text("import nothing_like_this")
    done = soak(folder)
    assert done.returncode == 2 and "nothing_like_this" in done.stderr


def test_a_run_is_the_same_every_time_and_another_number_makes_another(tmp_path):
    """With this folder's own conftest: whatever is selected, and whichever test comes first."""
    for name in ("commands.py", "conftest.py", "seeds.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    seeded: draws\n    gpu: none\npythonpath = .\n"
    )
    (tmp_path / "test_draws.py").write_text(DRAWS)

    def draws(*arguments: str, number: str = "0") -> dict[str, str]:
        command = [sys.executable, "-m", "pytest", "-q", "-s", *arguments]
        surroundings = {**environment(), "TEST_SEED": number}
        done = subprocess.run(command, cwd=tmp_path, env=surroundings, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(re.findall(r"^\.?([ab]) (.+)$", done.stdout, re.MULTILINE))

    both = draws()
    assert both["a"] != both["b"]
    assert draws("-k", "b") == {"b": both["b"]}
    other = draws("-m", "seeded", number="1")
    assert all(not set(other[case].split()) & set(both[case].split()) for case in "ab")


def test_kernels_that_tests_start_draw_the_same_every_time():
    """Also where torch comes later than the kernel's start; and nothing of it stands among the notebook's names."""
    source = [
        "import random",
        "import numpy, torch",
        "print(random.random(), torch.rand(()).item(), numpy.random.rand(), [n for n in dir() if 'sow' in n])",
    ]
    said = []
    for _ in range(2):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in source])
        NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
        said.append(notebook.cells[-1].outputs[0].text)
    assert said[0] == said[1] and said[0].endswith("[]\n")

"""What all tests rely on: repeatable random numbers, a clean environment and a valid list of slow tests."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
import slow
from commands import ROOT, environment
from nbclient import NotebookClient

DRAWS = """
import os
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
    assert "WORKBOOK_CACHE" not in os.environ and "WORKBOOK_REPLAY" not in os.environ
"""


def test_a_run_repeats_and_another_seed_draws_other_numbers(tmp_path):
    """With a copy of the real conftest, for any selection of tests and whatever the user's settings are."""
    for name in ("commands.py", "conftest.py", "debian.py", "seeds.py", "slow.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    seeded: draws\npythonpath = .\n")
    (tmp_path / "test_draws.py").write_text(DRAWS)

    def draws(*arguments: str, number: str = "0") -> dict[str, str]:
        command = [sys.executable, "-m", "pytest", "-q", "-s", *arguments]
        odd = {"WORKBOOK_CACHE": "/nowhere", "WORKBOOK_REPLAY": "none", "WORKBOOK_STRICT": "no"}
        surroundings = {**environment(), **odd, "TEST_SEED": number}
        done = subprocess.run(command, cwd=tmp_path, env=surroundings, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(re.findall(r"^\.?([ab]) (.+)$", done.stdout, re.MULTILINE))

    both = draws()
    assert both["a"] != both["b"]
    assert draws("-k", "b") == {"b": both["b"]}
    other = draws("-m", "seeded", number="1")
    assert all(not set(other[case].split()) & set(both[case].split()) for case in "ab")


def test_kernels_that_tests_start_are_seeded():
    """Although torch is imported after the kernel has started; the notebook sees no additional names."""
    source = [
        "import random",
        "import numpy, torch",
        "drawn = random.random(), torch.rand(()).item(), numpy.random.rand()",
        "print(drawn, [name for name in dir() if 'sow' in name])",
    ]
    printed = []
    for _ in range(2):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in source])
        NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
        printed.append(notebook.cells[-1].outputs[0].text)
    assert printed[0] == printed[1] and printed[0].endswith("[]\n")


@pytest.mark.parametrize("table", slow.TABLES.values(), ids=slow.TABLES)
def test_every_entry_names_a_test(table):
    for file, names in table.items():
        tree = ast.parse((ROOT / "tests" / file).read_text())
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert names == slow.ALL or {name.partition("[")[0] for name in names} <= defined, file

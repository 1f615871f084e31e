"""The `workbook` command as a whole: it is cheap to import, describes this machine, and has help texts."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import pytest
from commands import command, environment

from workbook.options import RunOptions


def test_importing_it_loads_nothing_heavy():
    code = (
        "import sys, json, helpers, workbook.cli; print(json.dumps(sorted(m for m in sys.modules if '.' "
        "not in m)))"
    )
    loaded = json.loads(
        subprocess.run(
            [sys.executable, "-c", code], env=environment(), capture_output=True, check=True
        ).stdout
    )
    assert not {"torch", "triton", "pandas", "numpy", "plotly", "nbformat", "papermill", "IPython"} & set(
        loaded
    )


def test_what_reads_notebooks_compiles_no_grammar():
    """It would take more than a second at every start of the command, and of every examiner."""
    code = (
        "import sys, workbook.batch, workbook.form.files; print('nbformat' in sys.modules, 'lark' in "
        "sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False"]


def test_doctor_says_what_is_here(workbook):
    result = workbook("doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    for name in ("Python", "torch", "triton", "c++", "ninja", "nvcc", "ncu"):
        assert name in result.stdout
    assert "All lessons can run." in result.stdout


def test_doctor_fails_where_a_lesson_could_not_run(tmp_path):
    without = {k: v for k, v in environment().items() if k not in ("CXX", "CUDA_HOME", "CUDA_PATH")}
    result = subprocess.run(
        command("doctor"), env={**without, "PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert "apt-get install g++" in result.stdout


@pytest.mark.parametrize(
    "name",
    [None, "run", "results", "index", "grade", "doctor", "records", "bench", "form", "publish", "book"],
)
def test_help(workbook, name):
    result = workbook(*([name] if name else []), "--help")
    assert result.returncode == 0 and "Usage" in result.stdout


@pytest.mark.parametrize("arguments", [["walk"], ["run", "--colour"], ["publish"]])
def test_what_does_not_exist(workbook, arguments):
    result = workbook(*arguments)
    assert result.returncode == 2 and "Traceback" not in result.stderr


def test_every_field_of_the_run_options_is_an_option_and_is_documented(workbook):
    shown = workbook("run", "--help").stdout
    for field in dataclasses.fields(RunOptions):
        flags = field.metadata["flags"] or (f"--{field.name.replace('_', '-')}",)
        assert all(flag in shown for flag in flags), flags
        assert f"{field.name}: {field.metadata['help']}" in RunOptions.__doc__


def test_run_without_a_notebook_outside_a_checkout(workbook):
    result = workbook("run")
    assert result.returncode == 2 and "is not inside a checkout" in result.stderr


def test_the_console_script_is_installed():
    script = os.path.join(os.path.dirname(sys.executable), "workbook")
    assert subprocess.run([script, "--help"], capture_output=True).returncode == 0

"""The `workbook` command as a whole: it is cheap to import, describes this machine, and has help texts."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest
import typer
from commands import command, environment

from workbook.cli import app
from workbook.options import RunOptions


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        ("helpers, workbook.cli", {"torch", "triton", "pandas", "numpy", "plotly", "nbformat", "IPython"}),
        # nbformat's grammar would take more than a second at every start.
        ("workbook.batch, workbook.form.files", {"lark"}),
    ],
)
def test_importing_it_loads_nothing_heavy(modules, unwanted):
    code = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, check=True)
    assert not unwanted & set(done.stdout.decode().split())


def test_doctor_lists_what_is_installed(workbook):
    result = workbook("doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    for name in ("Python", "torch", "triton", "c++", "ninja", "nvcc", "ncu"):
        assert name in result.stdout
    assert "All lessons can run." in result.stdout


def test_doctor_fails_if_a_lesson_cannot_run(tmp_path):
    without = {k: v for k, v in environment().items() if k not in ("CXX", "CUDA_HOME", "CUDA_PATH")}
    result = subprocess.run(
        command("doctor"), env={**without, "PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert "apt-get install g++" in result.stdout


@pytest.mark.parametrize("name", ["", *typer.main.get_command(app).commands])
def test_help(cli, name):
    result = cli(*name.split(), "--help")
    assert result.returncode == 0 and "Usage" in result.stdout


@pytest.mark.parametrize("arguments", [["walk"], ["run", "--colour"], ["publish"]])
def test_unknown_commands_and_options(cli, arguments):
    assert cli(*arguments).returncode == 2


def test_every_field_of_the_run_options_is_an_option_and_is_documented(cli):
    shown = cli("run", "--help").stdout
    for field in dataclasses.fields(RunOptions):
        flags = field.metadata["flags"] or (f"--{field.name.replace('_', '-')}",)
        assert all(flag in shown for flag in flags), flags
        assert f"{field.name}: {field.metadata['help']}" in RunOptions.__doc__


@pytest.mark.parametrize("command", ["run", "form"])
def test_outside_a_checkout(refusal, tmp_path, command):
    assert str(tmp_path) in refusal(command)


def test_the_console_script_is_installed():
    script = os.path.join(os.path.dirname(sys.executable), "workbook")
    assert subprocess.run([script, "--help"], capture_output=True).returncode == 0

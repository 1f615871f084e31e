"""`%%ncu`: what a cell takes along, and what it leaves behind."""

from __future__ import annotations

import linecache
import textwrap
from pathlib import Path

import pytest

from helpers import device, ncu, records
from helpers.kernels import square
from helpers.ncu import magic


def test_free_names():
    code = """
    import torch
    n = 3
    for i in range(n):
        x = torch.empty(i, width)
        kernel[(n,)](x, [z for z in sizes])
    def f(a, b=default):
        global counter
        counter = 0
        return helper(a) + tl.load(b) + counter
    class C(Base):
        y = width
    """
    assert magic.free_names(textwrap.dedent(code)) == [
        "Base",
        "default",
        "helper",
        "kernel",
        "sizes",
        "tl",
        "width",
    ]


NOTEBOOK = """
import math
from pathlib import Path as P

factor = 3
table = {"a": (1, 2.5)}
tensor = object()

def double(x):
    return 2 * x

def scaled(x):
    return double(x) * factor + math.floor(2.5)

def recursive(n):
    return n and recursive(n - 1)

def needs_tensor():
    return tensor
"""


@pytest.fixture
def notebook(tmp_path):
    """The namespace of a notebook whose cells Python can find, as IPython's are."""
    name = str(tmp_path / "cell-of-a-notebook.py")
    linecache.cache[name] = (len(NOTEBOOK), None, NOTEBOOK.splitlines(True), name)
    namespace = {"__name__": "__main__"}
    exec(compile(NOTEBOOK, name, "exec"), namespace)
    return namespace


def test_a_cell_brings_what_it_uses(notebook):
    brought = magic.bring("print(scaled(1), table, recursive(2), P)", notebook)
    space = {}
    exec(brought.text, space)
    assert space["scaled"](5) == 32 and space["recursive"](3) == 0 and space["table"] == {"a": (1, 2.5)}
    assert space["P"] is Path
    assert brought.values == {"factor": 3}  # what the measurement depends on
    assert sorted(brought.names) == ["P", "double", "factor", "math", "recursive", "scaled", "table"]


def test_a_triton_kernel_goes_along(monkeypatch):
    pytest.importorskip("triton")
    from helpers.kernels.square import square_flat_kernel

    brought = magic.bring("square_flat_kernel[(1,)]()", {"square_flat_kernel": square_flat_kernel})
    assert brought.text == "from helpers.kernels.square import square_flat_kernel as square_flat_kernel\n"
    assert brought.kernels == [square_flat_kernel]


@pytest.mark.parametrize(
    ("cell", "who"), [("tensor", "The cell uses tensor"), ("needs_tensor()", "needs_tensor uses tensor")]
)
def test_tensors_stay_behind(notebook, cell, who):
    with pytest.raises(ValueError, match=f"{who}, which is a object .* make tensor inside the cell"):
        magic.bring(cell, notebook)


def test_the_magic_profiles_a_cell(stand_in, notebook, monkeypatch, capsys):
    monkeypatch.setenv("WORKBOOK_CACHE", str(stand_in / "cache"))
    kept = stand_in / "kept.ncu-rep"
    cell = "import sys\nprint(scaled(5), sys._getframe().f_lineno)\n"
    found = magic.run_cell(f"--name mine --kernel sq --quiet --out {kept}", cell, notebook)
    assert notebook["mine"] is ncu.last() is found and len(found) == 5
    assert capsys.readouterr().out == "32 3\n"  # the magic's line is line 1, as in the notebook
    assert len(ncu.load_report(kept)) == 5


def test_last_needs_a_cell(monkeypatch):
    monkeypatch.setattr(magic, "_last", None)
    with pytest.raises(RuntimeError, match="No %%ncu cell has run"):
        ncu.last()


def test_the_magics_options_are_checked(notebook):
    with pytest.raises(ValueError, match="unrecognized arguments: --sett"):
        magic.run_cell("--sett full", "1", notebook)
    with pytest.raises(ValueError, match="needs the name of a variable"):
        magic.run_cell("--name 3d", "1", notebook)


def test_load_ext_in_a_shell(monkeypatch, capsys):
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setattr(device, "has_gpu", lambda: False)
    said = []
    monkeypatch.setattr("helpers.ncu.runner.terminal", said.append)
    shell = InteractiveShell()
    assert shell.run_cell("%load_ext helpers.ncu").success
    shell.run_cell_magic("ncu", "--help", "pass\n")
    assert "--record" in capsys.readouterr().out
    with pytest.raises(ncu.NcuError, match="this machine has none"):
        shell.run_cell_magic("ncu", "", "1\n")
    shell.run_line_magic("ncu", "--set full python train.py")
    assert said == ["--set full python train.py"]
    with pytest.raises(records.KernelChanged):
        shell.run_cell_magic("ncu", "--record ncu/five-grids --name report", "1\n")
    shell.user_ns["kernel"] = square.square_rows_kernel
    shell.run_cell_magic("ncu", "--record ncu/five-grids --name report", "kernel\n")
    assert len(shell.user_ns["report"]) == 5
    assert "Replayed, not measured here" in capsys.readouterr().out

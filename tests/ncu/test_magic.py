"""`%%ncu`: what a cell takes along, and what it leaves behind."""

from __future__ import annotations

import linecache
import textwrap
from pathlib import Path

import pytest
from commands import cells

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
    names = ["Base", "default", "helper", "kernel", "sizes", "tl", "width"]
    assert magic.free_names(textwrap.dedent(code)) == names


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


def test_cuda_text_is_a_source_and_not_a_parameter():
    """As a parameter it was a part of the record's file name, which became too long to be written."""
    text = "__global__ void kernel() {\n}\n"
    brought = magic.bring("print(text, word)", {"text": text, "word": "one"})
    assert brought.kernels == [text] and brought.values == {"word": "one"}


def test_a_triton_kernel_is_imported(monkeypatch):
    pytest.importorskip("triton")
    from helpers.kernels.square import square_flat_kernel

    brought = magic.bring("square_flat_kernel[(1,)]()", {"square_flat_kernel": square_flat_kernel})
    assert brought.text == "from helpers.kernels.square import square_flat_kernel as square_flat_kernel\n"
    assert brought.kernels == [square_flat_kernel]


@pytest.mark.parametrize(
    ("cell", "who"), [("tensor", "The cell uses tensor"), ("needs_tensor()", "needs_tensor uses tensor")]
)
def test_tensors_of_the_notebook_are_refused(notebook, cell, who):
    with pytest.raises(ValueError, match=f"{who}.*create tensor inside"):
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
    shell.user_ns["square_rows_kernel"] = square.square_rows_kernel
    shell.run_cell_magic("ncu", "--record ncu/five-grids --name report", LAUNCHES)
    assert len(shell.user_ns["report"]) == 5
    assert "Replayed, not measured here" in capsys.readouterr().out


LAUNCHES = cells("notebooks/05_ncu.ipynb")["five-grids"].partition("\n")[2]


@pytest.mark.parametrize(
    "cell",
    [
        LAUNCHES.replace("num_warps=8", "num_warps=4"),  # another launch of the same kernel
        LAUNCHES.replace("(1, 8, 64,", "(2, 16, 64,"),
        "1\n",
    ],
)
def test_an_edited_launch_gets_no_recorded_report(monkeypatch, cell):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    kernel = {"square_rows_kernel": square.square_rows_kernel}
    with pytest.raises(records.KernelChanged, match="has changed"):
        magic.run_cell("--record ncu/five-grids --quiet", cell, dict(kernel))
    # a lab's cell says that it reads the lesson's report, whatever it launches
    assert len(magic.run_cell("--record ncu/five-grids --any-launch --quiet", cell, dict(kernel))) == 5


def test_what_a_cell_brings_is_part_of_its_launches(notebook):
    """A table of sizes, or a wrapper with its launch line, in a cell above; a single value has a place of its
    own.
    """
    brought = magic.bring("print(scaled(1), table, factor)", notebook)
    assert brought.launching[-1] == "table = {'a': (1, 2.5)}" and len(brought.launching) == 3
    assert [text.split("(")[0] for text in brought.launching[:2]] == ["def double", "def scaled"]

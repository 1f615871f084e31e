"""Nsight Compute's counters become rows, and a kernel can be launched in another process to be counted."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from commands import ROOT, environment

from helpers import device, ncu, widgets
from helpers.widgets import counting
from helpers.widgets.own import Asked, own_space
from helpers.widgets.square import LAUNCH
from helpers.widgets.table import Table

GRIDS = ncu.load_report(ROOT / "helpers" / "records" / "h200" / "ncu" / "five-grids.ncu-rep")
MINE, RIVAL = "Triton rows", "torch.square"


@triton.jit
def double_kernel(y_ptr, x_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


def double(x, BLOCK_SIZE):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), BLOCK_SIZE),)](y, x, x.numel(), BLOCK_SIZE=BLOCK_SIZE)
    return y


def twice(x):
    return x + x


def test_a_reports_launches_become_the_rows_of_their_points():
    launched = [
        SimpleNamespace(nvtx=("counted", number), metrics=kernel.metrics)
        for number, kernel in zip(["0", "2", "2"], GRIDS, strict=False)
    ]
    one, none, two = counting.rows_of(launched, 3)
    assert none is None and (one["launches"], two["launches"]) == (1, 2)
    first, second = GRIDS[1].metrics, GRIDS[2].metrics
    read, time = "dram__bytes_read.sum", "gpu__time_duration.sum"
    assert two["read_bytes"] == pytest.approx(first[read] + second[read], rel=1e-3)
    share = first[time] / (first[time] + second[time])
    busy = counting.AVERAGED["dram_percent"]
    assert two["dram_percent"] == pytest.approx(share * first[busy] + (1 - share) * second[busy], rel=1e-3)


def test_the_stalls_of_a_report_are_its_largest_without_the_state_of_issuing():
    (reason, cycles), *others = counting.stalls(counting.row_of([GRIDS[4]]))
    assert reason == "long_scoreboard" and cycles == pytest.approx(84.6, abs=0.1)
    assert len(others) == 2 and "selected" not in dict(others) and cycles > others[0][1] > others[1][1]
    assert all(name in ncu.STALLS for name, _ in counting.stalls(counting.row_of([GRIDS[0]])))


def test_a_function_of_the_notebook_can_be_launched_in_a_process_of_its_own(tmp_path, monkeypatch):
    """What goes along is enough: kernel, launching function, rivals."""
    monkeypatch.setattr(double, "__module__", "__main__")
    monkeypatch.setattr(twice, "__module__", "__main__")
    monkeypatch.setattr(double_kernel.fn, "__module__", "__main__")
    rivals = {"twice": twice, "relu": torch.relu, "F.gelu": torch.nn.functional.gelu}
    space = own_space(double, Asked(against=rivals, reference=twice), {"BLOCK_SIZE": [256]}).space
    code, files = space.launching()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    check = (
        "import torch\nx = torch.arange(6.0).reshape(2, 3) - 2\n"
        "def run(name):\n    return candidates(name, {'BLOCK_SIZE': 256, 'n_cols': 3, 'dtype': "
        "'float32'}).run(x)\n"
        "assert torch.equal(run('double'), 2 * x) and torch.equal(run('twice'), 2 * x)\n"
        "assert torch.equal(run('relu'), x.relu()) and torch.equal(run('F.gelu'), "
        "torch.nn.functional.gelu(x))\n"
    )
    (tmp_path / "script.py").write_text(f"from helpers import device\ndevice.prepare()\n{code}\n{check}")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_what_cannot_go_along_is_refused_in_a_sentence():
    space = own_space(double, Asked(against={"own": lambda x: x}), {"BLOCK_SIZE": [256]}).space
    with pytest.raises(ValueError, match="`def`"):
        space.launching()
    odd = dataclasses.replace(LAUNCH, axes={**LAUNCH.axes, "odd": (object(),)})
    point = LAUNCH.start | {"odd": odd.axes["odd"][0]}
    with pytest.raises(ValueError, match="numbers"):
        counting.count(odd, [(MINE, point)])


@pytest.mark.gpu
def test_the_sliders_kernels_are_counted_on_this_gpu():
    if refusal := ncu.why_not():
        pytest.skip(str(refusal))
    rows = counting.count(LAUNCH, [(kernel, LAUNCH.start) for kernel in (MINE, RIVAL)])
    for row in rows:
        assert row["launches"] == 1 and row["read_bytes"] == pytest.approx(4096 * 4096 * 4, rel=0.05)
        assert 10 < row["dram_percent"] <= 100 and row["stalls"]


@pytest.mark.gpu
def test_what_this_gpu_measured_is_saved_with_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page, _ = widgets.explore(
        double, against=twice, BLOCK_SIZE=[1024], n_cols=[1024], dtype=["float32"]
    ).save("mine")
    assert f"Measured on {device.gpu_spec().name}" in page.read_text()


@pytest.mark.gpu
def test_an_own_kernel_is_counted_on_this_gpu():
    if refusal := ncu.why_not():
        pytest.skip(str(refusal))
    space = own_space(double, Asked(against=twice), {"BLOCK_SIZE": [1024]}).space
    mine, rival = counting.count(space, [("double", space.start), ("twice", space.start)])
    assert mine["load_sectors"] == pytest.approx(4096 * 4096 * 4 / 32, rel=1e-3)
    assert rival["load_sectors"] == pytest.approx(2 * mine["load_sectors"], rel=1e-3)  # x + x reads x twice


def test_an_error_of_nsight_compute_becomes_one_sentence(monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "widgets")
    widget = widgets.explore().widget
    sent = []
    widget.send = sent.append

    def refuse(*_: object) -> None:
        raise ncu.NcuError("Nsight Compute may not read the GPU's counters here.", reason="permission")

    monkeypatch.setattr(Table, "count", refuse)
    widget._hear(None, {"kind": "count", "at": widget.data["start"], "mapped": 0, "rival": 1}, None)
    (message,) = sent
    assert message == {
        "status": "",
        "error": "Not counted: Nsight Compute may not read the GPU's counters here.",
    }

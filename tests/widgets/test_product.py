"""Sliders over a kernel that arithmetic limits: TFLOP/s against the measured peak, or the compiled code."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import commands
import pandas as pd
import pytest
import torch
from slider_driver import Sliders, page_data

from helpers import capabilities, device, ptx, records, widgets
from helpers.widgets import explain, measure, peak, product
from helpers.widgets.product import TILES, TORCH
from helpers.widgets.space import FACTS
from helpers.widgets.table import load

H100 = device.GpuSpec("NVIDIA H100", (9, 0), 132, 32, 2048, 32, 65536, 233472, 1, 1, 3352.0, 3000.0)
START = product.SPACE.start
SMALL = dataclasses.replace(
    product.SPACE,
    axes={**product.SPACE.axes, "block_m": (64, 128), "num_stages": (3,), "group_m": (8,)},
)
LOOP = {"loop_instructions": 153, "loop_products": 4, "loop_opcode": "HGMMA"}


@pytest.fixture(autouse=True)
def as_on_a_laptop(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "widgets")
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    monkeypatch.setattr(device, "gpu_spec", lambda: None)


def made_up(space, kernel, point, **_):
    """A row as `measure.measure` returns it; positions that the space skips are not timed."""
    row = measure.empty_row(space, kernel, point) | dict.fromkeys(FACTS)
    if why := space.skipped(kernel, point):
        return row | {"verdict": "skipped", "reason": why, "median_us": None}
    us = point["n_cols"] / (100 if kernel == TORCH else point["block_n"])
    facts = dict(zip(FACTS, (256, 200, 0, 148_480, 0, 0), strict=True)) | LOOP if kernel == TILES else {}
    times = {"median_us": us, "ci_low_us": 0.99 * us, "ci_high_us": 1.01 * us, "gb_per_s": None}
    speeds = {"tflop_per_s": 2e4 / us, "peak_tflop_per_s": 766.0}
    return row | facts | times | speeds | {"verdict": "ok", "reason": ""}


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """A made-up record of `SMALL` in a folder of the test's own, made as `make record` makes it."""
    provenance = records.Provenance(
        H100.as_dict(), "580", "13.0", "2.11.0", "3.6.0", 1980, 2619, "2026-11-25"
    )
    with monkeypatch.context() as gpu:
        gpu.setenv("WORKBOOK_RECORD", "1")
        gpu.setattr(device, "has_gpu", lambda: True)
        gpu.setattr(device, "gpu_spec", lambda: H100)
        gpu.setattr(capabilities, "gpu_here", lambda: capabilities.GPUS["sm_90"])
        gpu.setattr("helpers.records.replay.live_provenance", lambda: provenance)
        gpu.setattr(measure, "measure", made_up)
        monkeypatch.setenv("WORKBOOK_RECORDS", str(tmp_path))
        load(SMALL)
    return tmp_path / "h100" / f"{SMALL.record}.json"


def test_the_sweep_is_small_enough_to_be_recorded():
    points = [(kernel, point) for kernel, point in product.SPACE.points() if kernel == TILES]
    timed = [point for kernel, point in points if not product.skipped(kernel, point)]
    assert len(points) / len(product.SPACE.axes["n_cols"]) <= 150
    assert set(product.SPACE.axes["n_cols"]) == {2048, 4096, 8192} and len(timed) > len(points) / 2
    assert not any(product.skipped(TORCH, point) for _, point in points)


def test_a_tile_that_cannot_stay_in_registers_is_not_timed(monkeypatch):
    """256 sums per thread spill, as the compiler says without a GPU, and 128 don't."""
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    point = {**START, "block_m": 256, "block_n": 256}
    row = measure.measure(product.SPACE, TILES, point)
    assert row["verdict"] == "skipped" and "256 sums" in row["reason"] and "255 registers" in row["reason"]
    assert not product.skipped(TILES, {**START, "block_n": 256})


def test_the_recorded_sweep_is_drawn_in_tflop_against_the_measured_peak(recorded):
    case = json.loads(recorded.read_text())["cases"][0]
    assert {"tflop_per_s", "peak_tflop_per_s", "loop_opcode"} <= set(case["columns"])
    sliders = Sliders(widgets.explore(SMALL, block_n=256))
    (gpu,) = sliders.data["gpus"]
    assert gpu["ceilings"] == [{"v": 766.0, "text": "torch.matmul's best: 766 TFLOP/s"}]
    assert "replayed: NVIDIA H100" in gpu["note"] and sliders.data["value_title"] == "speed (TFLOP/s)"
    drawn = sliders.row(TILES)
    assert drawn["v"] == 1250.0 and drawn["lo"] < drawn["v"] < drawn["hi"] and "shade" not in drawn
    assert drawn["text"] == "1,250 TFLOP/s, 163 % of torch.matmul's best"
    assert "4 HGMMA of 153 instructions per loop iteration" in drawn["line"]
    assert sliders.row(TORCH)["v"] == pytest.approx(488.3, abs=0.1)
    sliders.move(num_warps=4)
    assert sliders.row(TILES)["v"] is None and "spills" in sliders.row(TILES)["line"]
    best = sliders.shown.best(n_cols=8192)
    assert best.row["block_n"] == 256 and "TFLOP/s" in best.text


def test_a_page_of_the_record_has_every_position(recorded, monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "plain")
    shown = widgets.explore(SMALL)
    assert len(page_data(shown.html)["gpus"][0]["rows"]) == sum(1 for _ in SMALL.points())
    assert "TFLOP/s" in shown._repr_mimebundle_()["text/html"]


# As in a notebook without a GPU, where device.prepare turns the interpreter on before Triton is imported.
AS_IN_A_NOTEBOOK = """
import json, dataclasses
from helpers import device
device.prepare()
from helpers import widgets
from helpers.widgets import product
from slider_driver import Sliders
space = dataclasses.replace(product.SPACE, record="matmul/never-recorded")
sliders = Sliders(widgets.explore(space))
first = sliders.row(product.TILES)
sliders.move(block_n=256, num_warps=4)
print(json.dumps([sliders.data["gpus"][0]["note"], first, sliders.row(product.TILES)]))
"""


def test_without_gpu_and_record_every_position_is_compiled_and_none_has_a_bar():
    """A product of bfloat16 numbers for sm_90: four tensor-core instructions per step, or many spills."""
    environment = commands.environment()
    environment["PYTHONPATH"] = os.pathsep.join([str(commands.ROOT / "tests"), environment["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-c", AS_IN_A_NOTEBOOK], env=environment, capture_output=True, text=True, check=True
    )
    note, drawn, spilled = json.loads(done.stdout.splitlines()[-1])
    assert "not timed, since there is no GPU and no record yet" in note and "sm_90" in note
    assert drawn["v"] is None and drawn["text"] == "not measured: no GPU"
    assert 0 < drawn["shade"] < 100 and drawn["cell"] == str(drawn["shade"])
    assert "4 HGMMA of" in drawn["line"] and "bytes of shared memory" in drawn["line"]
    assert "none spilled" in drawn["line"] and drawn["line"].startswith("right on 3 × 160")
    assert spilled["v"] is None and spilled["text"] == spilled["verdict"] == "skipped"
    assert "has 256 sums and at most 255 registers" in spilled["line"] and "bytes spilled)" in spilled["line"]


def test_a_gpu_without_tensor_cores_in_triton_gets_the_record_or_a_sentence(recorded, monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    monkeypatch.setattr(capabilities, "gpu_here", lambda: capabilities.GPUS["sm_75"])
    assert not load(SMALL).live and load(SMALL).rows
    recorded.rename(recorded.with_name("other.json"))
    assert not load(SMALL).rows and "no record of 'matmul/tile-sweep'" in load(SMALL).refusal


def test_the_speed_of_a_measured_row_counts_operations(monkeypatch):
    found = {"median_us": 1000.0, "ci_low_us": 990.0, "ci_high_us": 1010.0, "gb_per_s": 1.0}
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    monkeypatch.setattr(measure, "inputs_of", lambda *_: (torch.empty(10, 20), torch.empty(20, 30)))
    monkeypatch.setattr(
        "helpers.timing.sweeps.sweep",
        lambda *_, **__: pd.DataFrame([found | {"verdict": "ok", "reason": ""}]),
    )
    monkeypatch.setattr(measure, "peak_tflop_per_s", lambda dtype: 766.04321)
    row = measure.measure(product.SPACE, TORCH, {"n_cols": 2048, "dtype": "bfloat16"})
    assert row["tflop_per_s"] == pytest.approx(2 * 10 * 20 * 30 / 1000 / 1e6) and row["gb_per_s"] is None
    assert row["peak_tflop_per_s"] == 766.04


def test_the_peak_is_the_fastest_of_several_sizes(monkeypatch):
    """Until a product takes long enough; a dtype without products has no peak."""
    monkeypatch.setattr(device, "require", lambda *_: None)
    monkeypatch.setattr(torch, "randn", lambda *size, device: torch.zeros(1))
    us = iter([1000.0, 2500.0, 30_000.0])
    monkeypatch.setattr("helpers.timing.time_gpu", lambda *_, **__: SimpleNamespace(median_us=next(us)))
    monkeypatch.setattr(torch, "matmul", lambda a, b: a)
    fastest = peak.peak_tflop_per_s.__wrapped__
    assert fastest("bfloat16") == pytest.approx(2 * 4096**3 / 2500 / 1e6)

    def refuses(a, b):
        raise RuntimeError('"addmm_cuda" not implemented for float8_e4m3fn')

    monkeypatch.setattr(torch, "matmul", refuses)
    assert fastest("float8_e4m3fn") is None


# ------------------------------------------------------------------------------------------- your own kernel


def squares(shape, generator, device, dtype):
    n = shape[1]
    return tuple(
        torch.randn(shape[0] if i == 0 else n, n, generator=generator, dtype=dtype) for i in range(2)
    )


def in_parts(a, b, n_parts):
    return torch.cat([a @ part for part in b.chunk(n_parts, dim=1)], dim=1)


def test_your_own_kernel_with_operations_is_drawn_in_tflop():
    arguments = {"against": torch.matmul, "make_inputs": squares, "n_parts": [1, 4], "n_cols": [64, 8192]}
    shown = widgets.explore(in_parts, n_flops=product.n_flops, dtype=["float32"], **arguments)
    data = Sliders(shown).data
    assert data["value_title"] == "speed (TFLOP/s)" and data["titles"]["1,0"].endswith(
        "8,192 × 8,192 float32"
    )
    assert "right on 3 × 64" in Sliders(shown).row("in_parts")["line"]
    with pytest.raises(ValueError, match="n_bytes or n_flops, not both"):
        widgets.explore(in_parts, n_flops=product.n_flops, n_bytes=3, **arguments)
    with pytest.raises(ValueError, match="n_flops is 100; pass a function"):
        widgets.explore(in_parts, n_flops=100, **arguments)


def test_a_kernel_without_a_loop_says_so():
    row = {"loop_opcode": "", "loop_products": 0, "loop_instructions": 0, "loads": 1, "load_bytes": 4}
    assert explain._work(row, "-byte") == "no loop that multiplies"
    assert explain._work({"loads": 1, "load_bytes": 4}, "-byte") == "1 × 4-byte loads"


def test_the_loop_of_a_cuda_kernel():
    text = """extern "C" __global__ void dot(const float* a, const float* b, float* c, int n) {
        float sum = 0;
        #pragma unroll 4
        for (int i = threadIdx.x; i < n; i += 32) sum += a[i] * b[i];
        c[threadIdx.x] = sum;
    }"""
    loop = ptx.cuda_stages(text, target="sm_90").product_loop
    assert (loop.opcode, loop.n_products) == ("FFMA", 4) and str(loop).startswith("4 FFMA of ")
    plain = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    assert ptx.cuda_stages(plain, target="sm_90").product_loop is None


@pytest.mark.gpu
def test_a_position_live():
    row = measure.measure(product.SPACE, TILES, {**START, "n_cols": 2048})
    assert row["verdict"] == "ok" and row["tflop_per_s"] > 1 and row["loop_products"] > 0, row["reason"]
    assert row["peak_tflop_per_s"] > 1

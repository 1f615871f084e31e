"""Sliders over attention: a problem with a mask and a head size, checked, compiled, and drawn in TFLOP/s."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys

import commands
import pytest
import torch
from slider_driver import Sliders

from helpers import check, device, ptx, widgets
from helpers.widgets import attention, measure
from helpers.widgets.attention import CUDNN, DESCRIPTORS, FLASH
from helpers.widgets.space import FACTS
from helpers.widgets.table import Table

H100 = device.GpuSpec("NVIDIA H100", (9, 0), 132, 32, 2048, 32, 65536, 233472, 1, 1, 3352.0, 3000.0)
START = attention.SPACE.start
TOKENS, BFLOAT16 = (160, 160), torch.bfloat16


def inputs(point, shape=TOKENS, dtype=torch.float32):
    return measure.inputs_of(attention.candidate(FLASH, point), shape, "cpu", dtype)


def test_the_sweep_is_small_enough_to_be_recorded():
    points = list(attention.SPACE.points())
    assert sum(kernel == DESCRIPTORS for kernel, _ in points) == 96 and len(points) == 96 + 2 * 4
    skipped = [point for kernel, point in points if attention.skipped(kernel, point)]
    assert len(skipped) == 4  # two numbers of stages, with and without a mask
    assert all(
        (p["block_m"], p["block_n"], p["head_size"], p["num_warps"]) == (128, 128, 128, 4) for p in skipped
    )


@pytest.mark.parametrize("causal", ["no", "yes"])
def test_the_reference_is_attention_and_a_mask_halves_the_operations(causal):
    q, k, v, is_causal = inputs({**START, "causal": causal}, dtype=torch.float64)
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal == "yes")
    assert torch.allclose(attention._reference(q, k, v, is_causal), right)
    assert attention.n_flops(q, k, v, is_causal) == 4 * 160 * 160 * 128 // (2 if causal == "yes" else 1)


@pytest.mark.parametrize("causal", ["no", "yes"])
def test_the_tolerance_admits_rounded_weights_and_finds_a_missing_tile(causal):
    """On the CPU and with one head of the recorded length, as a GPU rounds it."""

    def rounded(q, k, v, is_causal, n_keys=None):
        scores = q.float() @ k.float().mT * q.shape[3] ** -0.5
        if is_causal:
            scores = scores.masked_fill(torch.ones(scores.shape[2:], dtype=torch.bool).triu(1), -torch.inf)
        weights = torch.exp(scores - scores.amax(-1, keepdim=True)).to(BFLOAT16).float()
        return (weights[..., :n_keys] @ v.float()[:, :, :n_keys] / weights.sum(-1, keepdim=True)).to(BFLOAT16)

    candidate = attention.candidate(DESCRIPTORS, {**START, "causal": causal})
    how = {"shapes": [(1024, 1024)], "dtype": BFLOAT16, "device": "cpu", "tolerance": candidate.tolerance}
    how |= {"make_inputs": candidate.make_inputs}
    check.assert_matches(rounded, candidate.reference, **how)
    with pytest.raises(check.Mismatch):
        check.assert_matches(functools.partial(rounded, n_keys=-32), candidate.reference, **how)


def test_problems_have_titles_rows_of_torch_and_a_best_position():
    table = Table(attention.SPACE, H100, live=False, date="2026-11-27")
    for kernel, point in attention.SPACE.points():
        us = point["head_size"] * (5 if point["causal"] == "yes" else 9) - point.get("block_m", 0) / 8
        row = measure.empty_row(attention.SPACE, kernel, point) | dict.fromkeys(FACTS)
        row |= {"median_us": us, "ci_low_us": 0.99 * us, "ci_high_us": 1.01 * us, "gb_per_s": None}
        row |= {"tflop_per_s": 5e5 / us, "peak_tflop_per_s": 766.0, "verdict": "ok", "reason": ""}
        table.rows[attention.SPACE.key(kernel, point)] = row
    sliders = Sliders(widgets.explore(attention.SPACE, table=table))
    assert sliders.data["value_title"] == "speed (TFLOP/s)" and len(sliders.data["titles"]) == 4
    assert sliders.data["titles"]["0,0,1,0"] == (
        "attention in 64 heads of 4,096 tokens bfloat16, head size 128, causal mask no"
    )
    length = next(axis for axis in sliders.data["axes"] if axis["name"] == "n_cols")
    assert (length["label"], length["hint"]) == ("length", "length (tokens)")
    slow = sliders.row(FLASH)["v"]
    sliders.move(causal="yes")
    assert sliders.row(FLASH)["v"] > slow and sliders.row(CUDNN)["v"] == sliders.row(FLASH)["v"]
    best = sliders.shown.best(head_size=64, causal="no")
    assert best.row["median_us"] == 560.0 and best.row["block_m"] == 128 and best.n_points == 24
    assert "Fastest at 4,096 tokens bfloat16, head size 64, causal mask no" in best.text
    with pytest.raises(
        ValueError, match=r"best\(\) has no 'num_warps'; pass n_cols, dtype, head_size, causal"
    ):
        sliders.shown.best(num_warps=4)


# As in a notebook without a GPU, where device.prepare turns the interpreter on before Triton is imported.
AS_IN_A_NOTEBOOK = """
import json, dataclasses
from helpers import device
device.prepare()
from helpers import widgets
from helpers.widgets import attention
from slider_driver import Sliders
space = dataclasses.replace(attention.SPACE, record="attention/never-recorded")
sliders = Sliders(widgets.explore(space, causal="yes"))
rows = [sliders.row(attention.DESCRIPTORS)]
for move in ({"num_warps": 4}, {"block_n": 64, "num_stages": 2, "causal": "no"}):
    sliders.move(**move)
    rows.append(sliders.row(attention.DESCRIPTORS))
print(json.dumps([sliders.data["gpus"][0]["note"], *rows]))
"""


def test_without_gpu_and_record_every_position_is_checked_and_compiled(tmp_path):
    """The lesson's "Try it": a position that spills, and one of which two programs fit on an SM."""
    environment = commands.environment()
    environment["PYTHONPATH"] = os.pathsep.join([str(commands.ROOT / "tests"), environment["PYTHONPATH"]])
    environment |= {"WORKBOOK_WIDGETS": "widgets"}
    done = subprocess.run(
        [sys.executable, "-c", AS_IN_A_NOTEBOOK], env=environment, capture_output=True, text=True, check=True
    )
    note, large, spilled, two = json.loads(done.stdout.splitlines()[-1])
    assert "not timed, since there is no GPU and no record yet" in note and "sm_90" in note
    assert large["line"].startswith("right on 160 tokens in Triton's interpreter")
    assert "231,424 bytes of shared memory" in large["line"] and "1 block per SM" in large["line"]
    assert spilled["text"] == "skipped" and "has 256 sums and scores" in spilled["line"]
    assert "bytes spilled)" in spilled["line"]
    assert (
        "none spilled" in two["line"] and "99,360 bytes" in two["line"] and "2 blocks per SM" in two["line"]
    )


def test_a_launch_with_descriptors_is_compiled_for_another_gpu():
    candidate = attention.candidate(DESCRIPTORS, {**START, "block_n": 32})
    with ptx.launches(run=False) as seen:
        candidate.run(*inputs(START, dtype=BFLOAT16))
    (launch,) = seen
    assert launch._request(90)["signature"]["k"] == "tensordesc<bf16[1, 1, 32, 128]>"
    made = launch.stages("sm_90")
    assert "cp.async.bulk.tensor" in made.ptx and made.product_loop.opcode == "HGMMA"


@pytest.mark.gpu
def test_a_position_live():
    for kernel in (DESCRIPTORS, FLASH):
        row = measure.measure(attention.SPACE, kernel, {**START, "causal": "yes"})
        assert row["verdict"] == "ok" and row["tflop_per_s"] > 1, row["reason"]

"""The tables of lesson 06, and what its text says about the recorded H200."""

from __future__ import annotations

import json

import pytest
import torch
from commands import ROOT

from helpers import ncu, records
from helpers.kernels.softmax import softmax_online_kernel, softmax_rows_kernel
from helpers.lessons import fusion, fusion_runs, generated, traffic

RECORDS = ROOT / "helpers" / "records" / "h200" / "fusion"


def softmax_five(x):
    powers = (x - x.max(dim=1, keepdim=True).values).exp()
    return powers / powers.sum(dim=1, keepdim=True)


def test_dram_sees_the_bytes_that_were_counted():
    meta = torch.empty(16384, 8192, device="meta")
    counted, fused = (traffic.count_traffic(f, meta) for f in (softmax_five, fusion.torch_softmax))
    dram = fusion_runs.dram_table(ncu.load_report(RECORDS / "dram-8192-16384.ncu-rep"), counted, fused)
    assert list(dram["NVTX ranges"][:2]) == ["measured / 1 max", "measured / 2 subtract"]
    large = dram[dram["written, counted"] > 0.1]
    assert dram["read, DRAM"].tolist() == pytest.approx(dram["read, counted"].tolist(), rel=0.005)
    short = 1 - large["written, DRAM"] / large["written, counted"]
    assert short.between(0.02, 0.06).all()  # "a few percent"
    us = dram.set_index("launch")["µs"]
    assert us["torch.softmax"] / us["softmax_rows"] == pytest.approx(2, abs=0.25)  # "about twice as long"


def test_padding_costs_time_where_no_issue_slot_is_to_spare():
    padded = fusion_runs.padding_table(ncu.load_report(RECORDS / "padding.ncu-rep"))
    work, busy, rows = (
        padded[name] for name in ("instructions per element", "issue slots busy (%)", "rows per SM")
    )
    assert [work[1] / work[0], work[3] / work[2]] == pytest.approx([1.7, 1.7], abs=0.05)
    assert busy[1] > busy[0] + 15 and abs(busy[3] - busy[2]) < 2  # fp32 gets busier, bf16 can't
    assert f"{busy[2]:.0f}" == "68"  # "busy in 68 % of the cycles even without padding"
    assert list(rows) == [3, 2, 4, 2]
    fell = 1 - padded["GB/s"].values[1::2] / padded["GB/s"].values[::2]
    assert fell[0] < 0.05 and f"{1 / (1 - fell[1]):.1f}" == "1.6"  # "take about 1.6 times as long"


def test_the_widest_row_depends_on_the_registers_of_an_sm_and_not_on_the_warps():
    for warps, blocks in ((32, (16384, 32768, 65536)), (16, (32768, 65536))):
        held = fusion_runs.register_table(softmax_rows_kernel, warps, blocks)
        assert list(held["elements per thread"]) == [block // (32 * warps) for block in blocks]
        assert list(held["bytes spilled per thread"] > 0) == [block > 32768 for block in blocks]


def test_registers_threads_and_blocks_limit_the_programs_of_an_sm():
    h200 = records.stored_by_gpu("fusion/curve")["h200"].attrs["provenance"].gpu
    t4 = h200 | {"compute_capability": [7, 5], "max_threads_per_sm": 1024, "max_blocks_per_sm": 16}
    assert fusion_runs.programs_per_sm(softmax_online_kernel, 8, 4096, h200) == 4  # 57 registers
    assert fusion_runs.programs_per_sm(softmax_rows_kernel, 32, 16384, h200) == 2  # 2,048 threads
    assert fusion_runs.programs_per_sm(softmax_rows_kernel, 32, 16384, t4) == 1  # 1,024 threads
    assert fusion_runs.programs_per_sm(softmax_rows_kernel, 1, 32, h200) == 32  # 32 blocks
    assert fusion_runs.programs_per_sm(softmax_rows_kernel, 1, 32, t4) == 16  # 16 blocks


def test_few_rows_leave_sms_without_work():
    waves = fusion_runs.wave_table([(264, 8), (64, 8)], n_sms=132, per_sm=4)
    assert waves["SMs with work (%)"].tolist() == pytest.approx([100, 48.48], abs=0.01)
    assert waves["waves"].tolist() == pytest.approx([0.5, 64 / 528])


def test_the_cliff_of_one_block_is_where_the_optional_section_says():
    """One block in fp32 drops at 65,536 columns with 8 to 32 warps, and earlier with 4."""
    case = json.loads((RECORDS / "softmax-sweep.json").read_text())["cases"][0]
    rows = (
        dict(zip(case["columns"], row, strict=True)) if isinstance(row, list) else row for row in case["rows"]
    )
    speed = {
        (row["num_warps"], row["n_cols"]): row["gb_per_s"]
        for row in rows
        if row["kernel"] == "one block" and row["dtype"] == "float32"
    }
    for warps in (8, 16, 32):
        assert speed[warps, 65536] < 0.87 * speed[warps, 32768]
    assert speed[4, 32768] < 0.75 * speed[4, 16384] and speed[32, 256] < 0.2 * speed[1, 256]


def test_the_body_of_a_generated_kernel_keeps_every_pass():
    (kernel,) = generated.kernel_texts((RECORDS / "compiled-max.py").read_text())
    body = fusion_runs.body_of(kernel)
    assert generated.count_passes(body) == generated.count_passes(kernel) == (3, 1)
    assert "for r0_offset" in body and "xindex =" not in body

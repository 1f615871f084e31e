"""Lesson 04 sorts machine code by purpose: every instruction has exactly one."""

from __future__ import annotations

import pytest

from helpers import ptx
from helpers.exercises.lab04 import generated
from helpers.lessons import purposes
from helpers.ptx import Instruction


@pytest.mark.parametrize(
    ("opcode", "operands", "expected"),
    [
        ("LDG.E.128", ("R4", "desc[UR10][R2.64]"), "load"),
        ("STG.E", ("desc[UR10][R4.64]", "R7"), "store"),
        ("FMUL", ("R7", "R8", "R8"), "multiply"),
        ("ISETP.GE.AND", ("P3", "PT", "R2", "UR12", "PT"), "mask"),
        ("P2R", ("R14", "PR", "RZ", "0x40"), "mask"),
        ("CS2R", ("R10", "SRZ"), "zero"),
        ("IMAD.MOV.U32", ("R8", "RZ", "RZ", "RZ"), "zero"),
        ("IMAD.MOV.U32", ("R8", "RZ", "RZ", "R2"), "address"),
        ("MOV", ("R2", "UR7"), "address"),
        ("IMAD.WIDE.U32", ("R4", "R7", "0x4", "R2"), "address"),
        ("EXIT", (), "end"),
    ],
)
def test_the_purpose_of_an_instruction(opcode, operands, expected):
    assert purposes.purpose(Instruction(1, opcode, operands)) == expected


def test_counts_cover_every_instruction():
    kernels = {"narrow": generated.rows_stages(781), "wide": generated.rows_stages(1024)}
    table = purposes.counts(kernels, {"narrow": 8, "wide": 8})
    for label, stages in kernels.items():
        row = table.loc[label]
        assert row[list(purposes.PURPOSES)].sum() == row["all"] == len(stages.sass_reading.instructions)
        assert row["multiply"] == 8 and row["per element"] == row["all"] / 8
    assert table.load.to_list() == table.store.to_list() == [8, 2]
    drawn = purposes.draw(table, {"narrow": 8, "wide": 8})
    assert sum(bar.x[0] for bar in drawn.data) == pytest.approx(table["per element"]["wide"])


def test_the_maximum_of_a_row_uses_a_float_per_warp_of_shared_memory():
    """CUDA reserves another 1,024 bytes per block, which aren't the kernel's."""
    import triton
    import triton.language as tl

    @triton.jit
    def row_max_kernel(output_ptr, input_ptr, BLOCK_SIZE: tl.constexpr):
        cols = tl.arange(0, BLOCK_SIZE)
        tl.store(output_ptr, tl.max(tl.load(input_ptr + cols), axis=0))

    types = {"output_ptr": "*fp32", "input_ptr": "*fp32"}
    for warps in (4, 8):
        made = ptx.stages(
            row_max_kernel,
            signature=types,
            constexprs={"BLOCK_SIZE": 1024},
            target="sm_90",
            num_warps=warps,
        )
        assert made.metadata["shared"] == 4 * warps

"""What the picture says of each program, held against the kernels themselves in Triton's interpreter; and the
tables.
"""

from __future__ import annotations

import pandas as pd
import pytest
import torch

from helpers import device, ptx, records, trace
from helpers.kernels import square
from helpers.lessons import programs


def written_by_rows(n_rows: int, n_cols: int, block_size: int, stride: int) -> set[int]:
    """The elements that `square_rows_kernel` writes, in memory whose rows start `stride` elements apart."""
    memory = torch.full((n_rows * stride + block_size,), float("nan"))
    kernel = ptx.interpreted(square.square_rows_kernel)
    kernel[(n_rows,)](memory, torch.ones_like(memory), stride, stride, n_cols, BLOCK_SIZE=block_size)
    return set(torch.isfinite(memory).nonzero().flatten().tolist())


@pytest.mark.parametrize(
    ("n_rows", "n_cols", "block_size", "stride"), [(3, 5, 8, 7), (2, 10, 4, 10), (3, 8, 8, 8), (1, 1, 1, 1)]
)
def test_a_program_per_row_writes_what_the_picture_shows(n_rows, n_cols, block_size, stride):
    table = programs.programs_over_rows(n_rows, n_cols, block_size=block_size, row_stride=stride)
    squared = table[table.what == programs.SQUARED]
    assert set(squared.element) == written_by_rows(n_rows, n_cols, block_size, stride)
    left_out = table[table.what == programs.LEFT_OUT]
    assert len(squared) + len(left_out) == n_rows * n_cols
    assert len(table[table.what == programs.MASKED]) == n_rows * max(0, block_size - n_cols)


@pytest.mark.parametrize(("n_elements", "block_size"), [(15, 4), (16, 4), (1, 8)])
def test_a_flat_kernel_writes_what_the_picture_shows(n_elements, block_size):
    table = programs.programs_over_elements(n_elements, block_size=block_size)
    n_programs = int(table.program.max()) + 1
    y = torch.full((n_programs * block_size,), float("nan"))
    kernel = ptx.interpreted(square.square_flat_kernel)
    kernel[(n_programs,)](torch.ones_like(y), y, n_elements, BLOCK_SIZE=block_size)
    squared = set(table[table.what == programs.SQUARED].element)
    assert squared == set(torch.isfinite(y).nonzero().flatten().tolist()) == set(range(n_elements))
    assert len(table) == n_programs * block_size


def test_the_picture_has_a_lane_per_program():
    fixed = programs.programs_over_rows(2, 10, block_size=4)
    flat = programs.programs_over_elements(18, block_size=4)
    fig = programs.draw(fixed, flat, titles=("fixed", "flat"))
    named = [t.name for t in fig.data if t.showlegend]
    assert sorted(named) == sorted([programs.SQUARED, programs.LEFT_OUT, programs.MASKED])
    drawn = {(t.yaxis, x, y) for t in fig.data for x, y in zip(t.x, t.y, strict=True)}
    assert len(drawn) == len(fixed) + len(flat)
    assert {y for axis, _, y in drawn if axis == "y2"} == {f"program {i}" for i in range(5)}


def test_elements_per_thread_are_compared_at_the_same_launch():
    triton_sweep, cuda_sweep = (
        records.stored(name) for name in ("triton/launch-sweep", "load_inline/shape-sweep")
    )
    table = programs.by_elements_a_thread(triton_sweep, cuda_sweep, n_cols=8192)
    columns = ["Triton, 4 a thread", "Triton, 2 a thread", "Triton, 1 a thread", "CUDA, 1 a thread"]
    assert list(table.columns) == columns
    # 256 elements a block and one a thread: eight warps
    flat = triton_sweep[(triton_sweep.kernel == "Triton flat") & (triton_sweep.dtype == "float32")]
    (expected,) = flat.query("block_size == 256 and num_warps == 8 and n_cols == 8192").gb_per_s
    assert table.loc[256, "Triton, 1 a thread"] == expected
    (expected,) = cuda_sweep.query(
        "kernel == 'CUDA C++' and block_x == 256 and block_y == 1 and n_cols == 8192 and dtype == 'float32'"
    ).gb_per_s
    assert table.loc[256, "CUDA, 1 a thread"] == expected


def test_a_launch_is_read_from_the_trace(monkeypatch):
    found = pd.DataFrame(
        [
            {"kind": "kernel", "short": "square", "grid": [10, 2, 1], "block": [32, 4, 1], "registers": 18},
            {"kind": "memset", "short": "memset", "grid": None, "block": None, "registers": None},
        ]
    )
    monkeypatch.setattr(trace, "capture", lambda function, **options: options["path"])
    monkeypatch.setattr(trace, "load_trace", lambda path: path)
    monkeypatch.setattr(trace, "kernels", lambda loaded: found)
    row = programs.launch_of("mine", torch.square, torch.zeros(5120))
    assert (row["blocks"], row["threads a block"], row["elements a block"]) == (20, 128, 256)
    assert (row["elements a thread"], row["registers a thread"], row["kernel"]) == (2, 18, "square")
    monkeypatch.setattr(trace, "kernels", lambda loaded: pd.concat([found, found]))
    with pytest.raises(ValueError, match=r"mine .* 2 kernels"):
        programs.launch_of("mine", torch.square, torch.zeros(5120))


@pytest.mark.gpu
def test_a_real_launch_is_read():
    assert device.has_gpu()
    x = torch.randn(4096, 4096, device="cuda")
    square.square_flat(x)
    row = programs.launch_of("square_flat", square.square_flat, x)
    assert (row["blocks"], row["threads a block"], row["elements a block"]) == (16384, 128, 1024)

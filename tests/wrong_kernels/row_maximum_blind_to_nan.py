"""A comparison with NaN is false, so NaN never becomes the maximum."""

import torch
import triton
import triton.language as tl

EXERCISE = "row-maximum"
REASON = "nan-blind"


@triton.jit
def maximum_kernel(x_ptr, out_ptr, x_row, x_col, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    x = tl.load(x_ptr + row * x_row + cols * x_col, mask=cols < n_cols, other=-float("inf"))
    x = tl.where(x == x, x, -float("inf"))
    tl.store(out_ptr + row, tl.max(x, axis=0))


def row_maximum(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    maximum_kernel[(x.shape[0],)](
        x, out, x.stride(0), x.stride(1), x.shape[1], BLOCK_SIZE=triton.next_power_of_2(x.shape[1])
    )
    return out

"""The result overwrites the input."""

import torch
import triton
import triton.language as tl

EXERCISE = "softmax-one-block"
REASON = "in-place"


@triton.jit
def softmax_kernel(x_ptr, out_ptr, x_row, x_col, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_row + cols * x_col, mask=mask, other=-float("inf")).to(tl.float32)
    x = x - tl.max(x, axis=0)
    e = tl.exp(x)
    tl.store(out_ptr + row * n_cols + cols, e / tl.sum(e, axis=0), mask=mask)


def softmax(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    if x.numel():
        softmax_kernel[(n_rows,)](
            x, out, x.stride(0), x.stride(1), n_cols, BLOCK_SIZE=triton.next_power_of_2(n_cols)
        )
    x.copy_(out)
    return x

"""The maximum by comparing halves on the way; NaN wins every comparison."""

import torch
import triton
import triton.language as tl

EXERCISE = "row-maximum"


@triton.jit
def maximum_kernel(x_ptr, out_ptr, x_row, x_col, n_cols, CHUNK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    best = tl.full((CHUNK,), -float("inf"), tl.float32)
    strange = tl.zeros((CHUNK,), tl.int32)
    for start in range(0, n_cols, CHUNK):
        cols = (start + tl.arange(0, CHUNK)).to(tl.int64)
        x = tl.load(x_ptr + row * x_row + cols * x_col, mask=cols < n_cols, other=-float("inf"))
        strange += (x != x).to(tl.int32)
        best = tl.where(x > best, x, best)
    found = tl.max(best, axis=0)
    tl.store(out_ptr + row, tl.where(tl.sum(strange, axis=0) > 0, float("nan"), found))


def row_maximum(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    maximum_kernel[(x.shape[0],)](x, out, *x.stride(), x.shape[1], CHUNK=2048)
    return out

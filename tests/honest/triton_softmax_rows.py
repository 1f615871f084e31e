"""Two rows per program, read with the input's own strides.

problem: softmax
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel(x_ptr, y_ptr, n_rows, n_cols, row_stride, col_stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    x = tl.load(x_ptr + rows * row_stride + cols * col_stride, mask=mask, other=-float("inf"))
    x = tl.where(rows < n_rows, x, 0.0)
    powers = tl.exp(x - tl.max(x, axis=1)[:, None])
    tl.store(y_ptr + rows * n_cols + cols, powers / tl.sum(powers, axis=1)[:, None], mask=mask)


def softmax(x):
    n_rows, n_cols = x.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    cols = triton.next_power_of_2(n_cols)
    kernel[(triton.cdiv(n_rows, 2),)](x, y, n_rows, n_cols, *x.stride(), ROWS=2, COLS=cols, num_warps=16)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)


def custom_kernel(data):
    return softmax(*data)


def run(x):
    return softmax(x)

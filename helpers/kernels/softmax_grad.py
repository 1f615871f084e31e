"""The gradient of softmax over rows: dx = y * (g - sum(g * y)).

One kernel gives each program a tile of whole rows; for wide rows, the other one loops over the columns.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

ONE_BLOCK = 16384  # columns: the widest row that a program can hold in registers
_TILE = 2048  # elements: the size of a tile of several short rows


@triton.jit
def softmax_backward_kernel(
    dx_ptr, g_ptr, y_ptr, g_stride, y_stride, n_rows, n_cols, ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    g = tl.load(g_ptr + (rows * g_stride)[:, None] + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + (rows * y_stride)[:, None] + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    dx = y * (g - tl.sum(g * y, axis=1)[:, None])
    tl.store(dx_ptr + (rows * n_cols)[:, None] + cols[None, :], dx, mask=mask)


@triton.jit
def softmax_backward_wide_kernel(dx_ptr, g_ptr, y_ptr, g_stride, y_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    dot = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_SIZE):
        mask = start + cols < n_cols
        g = tl.load(g_ptr + row * g_stride + start + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * y_stride + start + cols, mask=mask, other=0.0).to(tl.float32)
        dot += g * y
    total = tl.sum(dot, axis=0)
    for start in range(0, n_cols, BLOCK_SIZE):
        mask = start + cols < n_cols
        g = tl.load(g_ptr + row * g_stride + start + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * y_stride + start + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * n_cols + start + cols, y * (g - total), mask=mask)


def softmax_backward_rows(g: torch.Tensor, y: torch.Tensor, dx: torch.Tensor) -> None:
    """Writes the gradient to `dx`.

    Args:
        g: The incoming gradient, (n_rows, n_cols), with contiguous columns and any row stride.
        y: The softmax itself, (n_rows, n_cols), with contiguous columns and any row stride.
        dx: (n_rows, n_cols), contiguous.
    """
    n_rows, n_cols = y.shape
    if n_rows == 0 or n_cols == 0:
        return
    if n_cols <= ONE_BLOCK:
        block = triton.next_power_of_2(n_cols)
        rows = max(1, _TILE // block)
        softmax_backward_kernel[(triton.cdiv(n_rows, rows),)](
            dx, g, y, g.stride(0), y.stride(0), n_rows, n_cols,
            ROWS=rows, BLOCK_SIZE=block, num_warps=max(4, min(16, block // 512)),
        )  # fmt: skip
    else:
        softmax_backward_wide_kernel[(n_rows,)](
            dx, g, y, g.stride(0), y.stride(0), n_cols, BLOCK_SIZE=8192, num_warps=16
        )

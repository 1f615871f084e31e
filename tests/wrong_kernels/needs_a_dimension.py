"""Asks a tensor without dimensions for its last stride."""

import torch
import triton
import triton.language as tl

EXERCISE = "square-any-shape"
REASON = "single-element"


@triton.jit
def square_kernel(x_ptr, out_ptr, x_row, x_col, out_row, out_col, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_row + cols * x_col, mask=mask)
    tl.store(out_ptr + row * out_row + cols * out_col, x * x, mask=mask)


def square_any(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        # tensors of other than two dimensions are copied into a matrix first
        m = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
        y = out.view(m.shape)
        n_rows, n_cols = m.shape
        square_kernel[(n_rows,)](
            m,
            y,
            m.stride(0),
            m.stride(1),
            y.stride(0),
            y.stride(1),
            n_cols,
            BLOCK_SIZE=triton.next_power_of_2(n_cols),
        )
    return out

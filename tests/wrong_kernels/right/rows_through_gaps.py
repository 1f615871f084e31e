"""One program a row with the strides as they are; the output has gaps between its rows, too."""

import torch
import triton
import triton.language as tl

EXERCISE = "square-any-shape"


@triton.jit
def square_kernel(x_ptr, out_ptr, x_row, x_col, out_row, out_col, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_row + cols * x_col, mask=mask)
    tl.store(out_ptr + row * out_row + cols * out_col, x * x, mask=mask)


def square_any(x):
    m = x if x.dim() == 2 else x.reshape(-1, x.shape[-1] if x.dim() else 1) if x.numel() else x.reshape(0, 1)
    n_rows, n_cols = m.shape
    out = torch.empty((n_rows, n_cols + 5), dtype=x.dtype, device=x.device)[:, :n_cols]
    if x.numel():
        square_kernel[(n_rows,)](
            m, out, *m.stride(), *out.stride(), n_cols, BLOCK_SIZE=triton.next_power_of_2(n_cols)
        )
    return out.reshape(x.shape) if x.dim() != 2 else out

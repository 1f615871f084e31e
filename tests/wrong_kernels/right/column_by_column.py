"""One program a column of the input's matrix, into an output of the same layout."""

import torch
import triton
import triton.language as tl

EXERCISE = "square-any-shape"


@triton.jit
def square_kernel(x_ptr, out_ptr, x_row, x_col, out_row, out_col, n_rows, CHUNK: tl.constexpr):
    col = tl.program_id(0).to(tl.int64)
    for start in range(0, n_rows, CHUNK):
        rows = (start + tl.arange(0, CHUNK)).to(tl.int64)
        mask = rows < n_rows
        x = tl.load(x_ptr + rows * x_row + col * x_col, mask=mask)
        tl.store(out_ptr + rows * out_row + col * out_col, x * x, mask=mask)


def square_any(x):
    n_cols = next(n for n in (8, 7, 5, 3, 2, 1) if x.numel() % n == 0)
    m = x.reshape(-1, n_cols)
    out = torch.empty_strided(m.shape, (1, m.shape[0]), dtype=x.dtype, device=x.device)
    if m.numel():
        square_kernel[(n_cols,)](m, out, *m.stride(), *out.stride(), m.shape[0], CHUNK=1024)
    return out.reshape(x.shape)

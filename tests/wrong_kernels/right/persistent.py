"""As many programs as a small chip has multiprocessors, each with one long stretch."""

import torch
import triton
import triton.language as tl

EXERCISE = "square-any-shape"


@triton.jit
def square_kernel(x_ptr, out_ptr, n_elements, per_program, BLOCK_SIZE: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * per_program
    last = tl.minimum(first + per_program, n_elements)
    for start in range(first, last, BLOCK_SIZE):
        offsets = start + tl.arange(0, BLOCK_SIZE)
        mask = offsets < last
        x = tl.load(x_ptr + offsets, mask=mask)
        tl.store(out_ptr + offsets, x * x, mask=mask)


def square_any(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    if n:
        square_kernel[(12,)](x, out, n, triton.cdiv(n, 12), BLOCK_SIZE=512)
    return out

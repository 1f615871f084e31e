"""Copies the input and squares the copy where it stands."""

import torch
import triton
import triton.language as tl

EXERCISE = "square-any-shape"


@triton.jit
def square_kernel(x_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * x, mask=mask)


def square_any(x):
    out = x.clone(memory_format=torch.contiguous_format)
    n = out.numel()
    if n:
        square_kernel[(triton.cdiv(n, 1024),)](out, out, n, BLOCK_SIZE=1024)
    return out

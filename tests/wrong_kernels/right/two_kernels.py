"""One kernel for whole blocks without a mask, another for the rest."""

import torch
import triton
import triton.language as tl

EXERCISE = "square-any-shape"


@triton.jit
def whole_blocks_kernel(x_ptr, out_ptr, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, x * x)


@triton.jit
def rest_kernel(x_ptr, out_ptr, first, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = first + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * x, mask=mask)


def square_any(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    whole = n // 1024
    if whole:
        whole_blocks_kernel[(whole,)](x, out, BLOCK_SIZE=1024)
    if n % 1024:
        rest_kernel[(1,)](x, out, whole * 1024, n, BLOCK_SIZE=1024)
    return out

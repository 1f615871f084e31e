"""Keeps scratch memory from call to call, and copies the result out of it."""

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


scratch = {}


def square_any(x):
    x = x.contiguous()
    n = x.numel()
    key = (x.dtype, x.device)
    if key not in scratch or scratch[key].numel() < n:
        scratch[key] = torch.zeros(2 * n, dtype=x.dtype, device=x.device)
    if n:
        square_kernel[(triton.cdiv(n, 1024),)](x, scratch[key], n, BLOCK_SIZE=1024)
    return scratch[key][:n].clone().view(x.shape)

"""The output is the front of a larger buffer, filled up to a whole block."""

import torch
import triton
import triton.language as tl

EXERCISE = "square-any-shape"


@triton.jit
def square_kernel(x_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets, mask=offsets < n_elements, other=0)
    tl.store(out_ptr + offsets, x * x)


def square_any(x):
    x = x.contiguous()
    n = x.numel()
    n_blocks = triton.cdiv(n, 1024)
    padded = torch.empty(n_blocks * 1024, dtype=x.dtype, device=x.device)
    if n:
        square_kernel[(n_blocks,)](x, padded, n, BLOCK_SIZE=1024)
    return padded[:n].view(x.shape)

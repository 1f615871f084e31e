"""Walks up to five dimensions by their own strides and copies nothing."""

import torch
import triton
import triton.language as tl

EXERCISE = "square-any-shape"


@triton.jit
def square_kernel(x_ptr, out_ptr, n, n1, n2, n3, n4, s0, s1, s2, s3, s4, BLOCK_SIZE: tl.constexpr):
    flat = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = flat < n
    at = flat % n4 * s4
    rest = flat // n4
    at += rest % n3 * s3
    rest = rest // n3
    at += rest % n2 * s2
    rest = rest // n2
    at += rest % n1 * s1 + rest // n1 * s0
    x = tl.load(x_ptr + at, mask=mask)
    tl.store(out_ptr + flat, x * x, mask=mask)


def square_any(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n = x.numel()
    if n:
        missing = 5 - x.dim()
        shape, strides = [1] * missing + list(x.shape), [0] * missing + list(x.stride())
        square_kernel[(triton.cdiv(n, 256),)](x, out, n, *shape[1:], *strides, BLOCK_SIZE=256)
    return out

"""The accumulator of a float16 product is float16."""

import torch
import triton
import triton.language as tl

EXERCISE = "any-product"
REASON = "half-accumulator"


@triton.jit
def product_kernel(
    c_ptr,
    a_ptr,
    b_ptr,
    m,
    n,
    k,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    inside_m, inside_n = (rows < m)[:, None], (cols < n)[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), c_ptr.dtype.element_ty)
    for start in range(0, k, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K).to(tl.int64)
        a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=inside_m & (ks < k)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=(ks < k)[:, None] & inside_n, other=0.0)
        sums += tl.dot(a, b, input_precision="ieee").to(c_ptr.dtype.element_ty)
    c_ptrs = c_ptr + rows[:, None] * n + cols[None, :]
    tl.store(c_ptrs, sums.to(c_ptr.dtype.element_ty), mask=inside_m & inside_n)


def matmul_any(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    if c.numel():
        sizes = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
        grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
        product_kernel[grid](c, a, b, m, n, k, *a.stride(), *b.stride(), **sizes)
    return c

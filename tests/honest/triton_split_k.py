"""Splits the inner dimension and adds partial products with atomics, in an order that changes.

problem: matmul
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, m, n, k, BLOCK_SIZE: tl.constexpr, INNER: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[:, None]
    cols = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]
    inner = tl.program_id(2) * INNER + tl.arange(0, INNER)
    i, j = inner[None, :], inner[:, None]
    a = tl.load(a_ptr + rows * k + i, mask=(rows < m) & (i < k), other=0.0)
    b = tl.load(b_ptr + j * n + cols, mask=(j < k) & (cols < n), other=0.0)
    partial = tl.dot(a, b, input_precision="ieee")
    tl.atomic_add(c_ptr + rows * n + cols, partial, mask=(rows < m) & (cols < n))


def matmul(a, b):
    a, b = a.contiguous(), b.contiguous()
    (m, k), n = a.shape, b.shape[1]
    c = torch.zeros((m, n), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 32), triton.cdiv(k, 64))
    kernel[grid](a, b, c, m, n, k, BLOCK_SIZE=32, INNER=64)
    return c


class ModelNew(nn.Module):
    def forward(self, a, b):
        return matmul(a, b)


def custom_kernel(data):
    return matmul(*data)


def run(a, b):
    return matmul(a, b)

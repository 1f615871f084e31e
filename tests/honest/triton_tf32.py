"""Rounds its factors to TF32, which this problem permits.

problem: matmul_tf32
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, m, n, k, BLOCK_SIZE: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[:, None]
    cols = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]
    inner = tl.arange(0, BLOCK_SIZE)
    total = tl.zeros((BLOCK_SIZE, BLOCK_SIZE), dtype=tl.float32)
    for first in range(0, k, BLOCK_SIZE):
        i, j = first + inner[None, :], first + inner[:, None]
        a = tl.load(a_ptr + rows * k + i, mask=(rows < m) & (i < k), other=0.0)
        b = tl.load(b_ptr + j * n + cols, mask=(j < k) & (cols < n), other=0.0)
        total = tl.dot(a, b, total, input_precision="tf32")
    tl.store(c_ptr + rows * n + cols, total, mask=(rows < m) & (cols < n))


def matmul(a, b):
    a, b = a.contiguous(), b.contiguous()
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, c, m, n, k, BLOCK_SIZE=32)
    return c


class ModelNew(nn.Module):
    def forward(self, a, b):
        return matmul(a, b)


def custom_kernel(data):
    return matmul(*data)


def run(a, b):
    return matmul(a, b)

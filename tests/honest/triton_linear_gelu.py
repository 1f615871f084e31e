"""A fused product, bias and exact GELU.

problem: linear_gelu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel(x_ptr, w_ptr, bias_ptr, y_ptr, m, n, k, BLOCK_SIZE: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[:, None]
    cols = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]
    inner = tl.arange(0, BLOCK_SIZE)
    total = tl.zeros((BLOCK_SIZE, BLOCK_SIZE), dtype=tl.float32)
    for first in range(0, k, BLOCK_SIZE):
        i, j = first + inner[None, :], first + inner[:, None]
        x = tl.load(x_ptr + rows * k + i, mask=(rows < m) & (i < k), other=0.0)
        w = tl.load(w_ptr + cols * k + j, mask=(cols < n) & (j < k), other=0.0)
        total += tl.dot(x, w, input_precision="ieee")
    total += tl.load(bias_ptr + cols, mask=cols < n)
    y = 0.5 * total * (1 + tl.erf(total * 0.7071067811865476))
    tl.store(y_ptr + rows * n + cols, y, mask=(rows < m) & (cols < n))


def linear_gelu(x, weight, bias):
    x, weight = x.contiguous(), weight.contiguous()
    (m, k), n = x.shape, weight.shape[0]
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](x, weight, bias, y, m, n, k, BLOCK_SIZE=32)
    return y


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features) * in_features**-0.5)
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x):
        return linear_gelu(x, self.weight, self.bias)


def custom_kernel(data):
    return linear_gelu(*data)


def run(x, weight, bias):
    return linear_gelu(x, weight, bias)

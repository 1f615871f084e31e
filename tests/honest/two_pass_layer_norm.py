"""Mean first, then the variance of the differences.

problem: layer_norm
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    centered = tl.where(mask, x - tl.sum(x, axis=0) / n_cols, 0.0)
    variance = tl.sum(centered * centered, axis=0) / n_cols
    weight = tl.load(weight_ptr + cols, mask=mask)
    bias = tl.load(bias_ptr + cols, mask=mask)
    tl.store(y_ptr + row * n_cols + cols, centered / tl.sqrt(variance + 1e-5) * weight + bias, mask=mask)


def layer_norm(x, weight, bias):
    x = x.contiguous()
    y = torch.empty_like(x)
    block_size = triton.next_power_of_2(x.shape[1])
    kernel[(x.shape[0],)](x, weight, bias, y, x.shape[1], BLOCK_SIZE=block_size)
    return y


class ModelNew(nn.Module):
    def __init__(self, n_cols):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_cols))
        self.bias = nn.Parameter(torch.zeros(n_cols))

    def forward(self, x):
        return layer_norm(x, self.weight, self.bias)


def custom_kernel(data):
    return layer_norm(*data)


def run(x, weight, bias):
    return layer_norm(x, weight, bias)

"""A float32 `tl.cumsum` over the whole row: additions in another order than PyTorch's.

problem: cumsum
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel(x_ptr, y_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_ptr + row * n_cols + cols, tl.cumsum(x, axis=0), mask=cols < n_cols)


def cumsum(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK_SIZE=triton.next_power_of_2(x.shape[1]))
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return cumsum(x)


def custom_kernel(data):
    return cumsum(*data)


def run(x):
    return cumsum(x)

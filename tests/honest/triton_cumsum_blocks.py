"""Scans blocks of the row one after the other and carries the sum along.

problem: cumsum
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel(x_ptr, y_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    start = tl.program_id(0) * n_cols
    cols = tl.arange(0, BLOCK_SIZE)
    carried = 0.0
    for first in range(0, n_cols, BLOCK_SIZE):
        x = tl.load(x_ptr + start + first + cols, mask=first + cols < n_cols, other=0.0)
        tl.store(y_ptr + start + first + cols, carried + tl.cumsum(x, axis=0), mask=first + cols < n_cols)
        carried += tl.sum(x, axis=0)


def cumsum(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK_SIZE=512)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return cumsum(x)


def custom_kernel(data):
    return cumsum(*data)


def run(x):
    return cumsum(x)

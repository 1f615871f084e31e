"""A fixed number of programs, each of which takes every fourth row.

problem: mean
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel(x_ptr, y_ptr, n_rows, n_cols, BLOCK_SIZE: tl.constexpr):
    cols = tl.arange(0, BLOCK_SIZE)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        tl.store(y_ptr + row, tl.sum(x, axis=0) / n_cols)


def mean(x):
    x = x.contiguous()
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    kernel[(4,)](x, y, *x.shape, BLOCK_SIZE=triton.next_power_of_2(x.shape[1]))
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return mean(x)


def custom_kernel(data):
    return mean(*data)


def run(x):
    return mean(x)

"""The online softmax: maximum and sum in one pass over blocks of the row, results in a second.

problem: softmax
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel(x_ptr, y_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    start = tl.program_id(0) * n_cols
    cols = tl.arange(0, BLOCK_SIZE)
    largest = -float("inf")
    total = 0.0
    for first in range(0, n_cols, BLOCK_SIZE):
        x = tl.load(x_ptr + start + first + cols, mask=first + cols < n_cols, other=-float("inf"))
        new = tl.maximum(largest, tl.max(x, axis=0))
        total = total * tl.exp(largest - new) + tl.sum(tl.exp(x - new), axis=0)
        largest = new
    for first in range(0, n_cols, BLOCK_SIZE):
        x = tl.load(x_ptr + start + first + cols, mask=first + cols < n_cols)
        y = tl.exp(x - largest) / total
        tl.store(y_ptr + start + first + cols, y, mask=first + cols < n_cols)


def softmax(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK_SIZE=4096)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)


def custom_kernel(data):
    return softmax(*data)


def run(x):
    return softmax(x)

"""Chooses its block size with `triton.autotune` in the first call, if there is a GPU.

problem: mean
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel(x_ptr, y_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    sums = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for first in range(0, n_cols, BLOCK_SIZE):
        sums += tl.load(x_ptr + row * n_cols + first + cols, mask=first + cols < n_cols, other=0.0)
    tl.store(y_ptr + row, tl.sum(sums, axis=0) / n_cols)


CONFIGS = [triton.Config({"BLOCK_SIZE": size}, num_warps=4) for size in (256, 512, 1024)]
tuned = triton.autotune(configs=CONFIGS, key=["n_cols"])(kernel)


def mean(x):
    x = x.contiguous()
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    if torch.cuda.is_available():
        tuned[(x.shape[0],)](x, y, x.shape[1])
    else:
        kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK_SIZE=512)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return mean(x)


def custom_kernel(data):
    return mean(*data)


def run(x):
    return mean(x)

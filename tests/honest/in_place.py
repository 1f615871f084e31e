"""Changes its first input, as the problem asks, and returns it.

problem: scaled_add
"""

import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel(x_ptr, update_ptr, n, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + at, mask=at < n)
    update = tl.load(update_ptr + at, mask=at < n)
    tl.store(x_ptr + at, x + 0.5 * update, mask=at < n)


def scaled_add(x, update):
    if not (x.is_contiguous() and update.is_contiguous()):
        return x.copy_(x + 0.5 * update)
    kernel[(triton.cdiv(x.numel(), 4096),)](x, update, x.numel(), BLOCK_SIZE=4096)
    return x


class ModelNew(nn.Module):
    def forward(self, x, update):
        return scaled_add(x, update)


def custom_kernel(data):
    return scaled_add(*data)


def run(x, update):
    return scaled_add(x, update)

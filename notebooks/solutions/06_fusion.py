"""The exercises of lesson 06 with their solutions; `workbook form` writes both into the notebook."""

import torch
import triton
import triton.language as tl

from helpers.lab import check


# %% softmax-traffic
def softmax_traffic(n_rows: int, n_cols: int, element_size: int) -> tuple[int, int]:
    """Return (bytes read, bytes written) by the five kernels, for elements of `element_size` bytes."""
    # BEGIN SOLUTION: what do the five kernels read, and what do they write?
    matrix, column = n_rows * n_cols * element_size, n_rows * element_size
    read = 5 * matrix + 2 * column
    written = 3 * matrix + 2 * column + 8 * n_rows
    return read, written
    # END SOLUTION


check("softmax-traffic", softmax_traffic)


# %% center-rows
@triton.jit
def center_rows_kernel(y_ptr, x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    # BEGIN SOLUTION: load the row, subtract its mean, store the result
    # STARTER: raise NotImplementedError("load the row, subtract its mean, store the result")
    # STARTER: tl.store(y_ptr + row * n_cols + cols, ..., mask=mask)
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n_cols
    tl.store(y_ptr + row * n_cols + cols, x - mean, mask=mask)
    # END SOLUTION


def center_rows(x):
    """Subtract from each row of x its mean; x is a contiguous float32 matrix."""
    y = torch.empty_like(x)
    if x.numel():
        center_rows_kernel[(x.shape[0],)](y, x, x.shape[1], BLOCK_SIZE=triton.next_power_of_2(x.shape[1]))
    return y


check("center-rows", center_rows)


# %% share-of-a-copy
def share_of_a_copy(loads: int, stores: int) -> float:
    """Return the highest share of a copy's speed, in percent, for a kernel that reads the whole matrix
    `loads` times and writes it `stores` times.
    """
    # BEGIN SOLUTION: how many passes does a copy make, and how many this kernel?
    return 100 * 2 / (loads + stores)
    # END SOLUTION


check("share-of-a-copy", share_of_a_copy)


# %% fuse-a-gelu
@triton.jit
def my_gelu_kernel(y_ptr, x_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    # BEGIN SOLUTION: load x, compute its GELU, store it
    # STARTER: raise NotImplementedError("load x, compute its GELU, store it")
    # STARTER: tl.store(y_ptr + offsets, ..., mask=mask)
    x = tl.load(x_ptr + offsets, mask=mask)
    u = 0.7978845608 * (x + 0.044715 * x * x * x)
    tanh = 2.0 / (1.0 + tl.exp(-2.0 * u)) - 1.0
    y = 0.5 * x * (1.0 + tanh)
    tl.store(y_ptr + offsets, y, mask=mask)
    # END SOLUTION


def my_gelu(x):
    """Compute the GELU of each element of x in one kernel; x is a contiguous float32 tensor."""
    y = torch.empty_like(x)
    if x.numel():
        my_gelu_kernel[(triton.cdiv(x.numel(), 1024),)](y, x, x.numel(), BLOCK_SIZE=1024)
    return y


check("fuse-a-gelu", my_gelu)

import torch
import triton
import triton.language as tl

from helpers.lab import check


# %% cube-rows
@triton.jit
def cube_rows_kernel(y_ptr, x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    # BEGIN SOLUTION: write x * x * x of one row
    # STARTER: pass  # which row is it, which columns, and which of them exist?
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask)
    tl.store(y_ptr + row * n_cols + cols, x * x * x, mask=mask)
    # END SOLUTION


def cube_rows(x):
    """Return x * x * x for a contiguous matrix x with at least one element."""
    y = torch.empty_like(x)
    # BEGIN SOLUTION: launch one program per row
    block_size = triton.next_power_of_2(x.shape[1])
    cube_rows_kernel[(x.shape[0],)](y, x, x.shape[1], BLOCK_SIZE=block_size)
    # END SOLUTION
    return y


check("cube-rows", cube_rows)


# %% claimed-and-real
def claimed_and_real(n_rows, n_cols, block_size, time_us):
    """GB/s that the benchmark claims for float32, and the GB/s that the kernel really moved."""
    # BEGIN SOLUTION: return two numbers; 1 GB is 1e9 bytes
    claimed = 8 * n_rows * n_cols / time_us / 1e3
    real = 8 * n_rows * min(n_cols, block_size) / time_us / 1e3
    return claimed, real
    # END SOLUTION


check("claimed-and-real", claimed_and_real)


# %% fix-the-draft
@triton.jit
def draft_kernel(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    # BEGIN SOLUTION: fix the kernel
    # STARTER: xnumel = 1423763
    # STARTER: xoffset = tl.program_id(0) * XBLOCK
    # STARTER: xindex = xoffset + tl.arange(0, XBLOCK)[:]
    # STARTER: xmask = xindex < xnumel
    # STARTER: x0 = xindex
    # STARTER: tmp0 = tl.load(in_ptr0 + (x0), xmask)
    # STARTER: tmp1 = tmp0 * tmp0
    # STARTER: tl.store(out_ptr0 + (x0), tmp1, xmask)
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tmp0 * tmp0
    tl.store(out_ptr0 + (x0), tmp1, xmask)
    # END SOLUTION


def square_by_draft(x):
    """Return x * x for a contiguous tensor x of any shape, with at least one element."""
    y = torch.empty_like(x)
    # BEGIN SOLUTION: launch as many programs of 4,096 elements as x needs
    draft_kernel[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), XBLOCK=4096)
    # END SOLUTION
    return y


check("fix-the-draft", square_by_draft)


# %% sum-rows
@triton.jit
def sum_rows_kernel(y_ptr, x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    # BEGIN SOLUTION: store the sum of one row at y_ptr + row
    # STARTER: pass  # tl.sum(x, axis=0) adds up a block
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_ptr + row, tl.sum(x, axis=0))
    # END SOLUTION


def sum_rows(x):
    """Return x.sum(dim=1) for a contiguous matrix x with at least one element."""
    y = torch.empty(x.shape[0], device=x.device)
    # BEGIN SOLUTION: launch one program per row
    block_size = triton.next_power_of_2(x.shape[1])
    sum_rows_kernel[(x.shape[0],)](y, x, x.shape[1], BLOCK_SIZE=block_size)
    # END SOLUTION
    return y


check("sum-rows", sum_rows)

"""The exercises of lesson 05 with their solutions; `workbook form` writes both into the notebook."""

import math

import torch
import triton
import triton.language as tl

from helpers.lab import check


# %% blocks-on-an-sm
def blocks_on_an_sm(threads_per_block: int, registers_per_thread: int) -> int:
    """Return how many blocks fit on an SM with 2,048 thread slots, 65,536 registers and at most 32 blocks.
    A thread's registers are allocated in groups of eight: 26 take up as much as 32.
    """
    # BEGIN SOLUTION: how many blocks does each of the three limits allow?
    allocated = (registers_per_thread + 7) // 8 * 8
    by_threads = 2048 // threads_per_block
    by_registers = 65536 // (threads_per_block * allocated)
    return min(by_threads, by_registers, 32)
    # END SOLUTION


check("blocks-on-an-sm", blocks_on_an_sm)


# %% empty-slots
def empty_share(n_blocks: int, at_once: int) -> float:
    """Return the share of slots that stay empty, from 0 to 1, over all waves of a launch of n_blocks ≥ 1."""
    # BEGIN SOLUTION: how many slots do the waves have in total, and how many are filled?
    n_waves = (n_blocks + at_once - 1) // at_once
    return 1 - n_blocks / (n_waves * at_once)
    # END SOLUTION


check("empty-slots", empty_share)


# %% sum-columns
@triton.jit
def my_columns_kernel(sums_ptr, x_ptr, n_rows, n_cols, BLOCK_COLS: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    total = tl.zeros((BLOCK_COLS,), dtype=tl.float32)
    # BEGIN SOLUTION: add up the rows of these columns, and store the sums
    # STARTER: raise NotImplementedError("add up the rows of these columns, and store the sums")
    for row in range(n_rows):
        total += tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(sums_ptr + cols, total, mask=cols < n_cols)
    # END SOLUTION


def my_column_sums(x):
    """Return the sum of each column of a contiguous matrix, like x.sum(dim=0)."""
    sums = torch.empty(x.shape[1], device=x.device)
    my_columns_kernel[(triton.cdiv(x.shape[1], 128),)](sums, x, *x.shape, BLOCK_COLS=128)
    return sums


check("sum-columns", my_column_sums)


# %% warps-needed
def warps_needed(gb_per_s: float, latency_ns: float, n_sms: int, bytes_per_thread: int) -> int:
    """Return how many warps each SM needs so that the whole GPU reads gb_per_s and writes nothing, if every
    thread always waits for bytes_per_thread bytes, which arrive latency_ns after it asked for them.
    """
    # BEGIN SOLUTION: how many bytes must be on their way at any time, and how many does a warp ask for?
    in_flight = gb_per_s * latency_ns / n_sms
    return math.ceil(in_flight / (32 * bytes_per_thread))
    # END SOLUTION


check("warps-needed", warps_needed)

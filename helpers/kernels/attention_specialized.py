"""Attention with specialized warps, for compute capability 9.0: one group of warps loads, two compute.

The two groups have half of the queries each, so that one can multiply while the other computes its softmax.
Triton divides the work by itself (`warp_specialize`), under conditions that shape this kernel: programs of 4
warps, which become 12, tensor descriptors that are made inside the kernel, and a single loop. So full and
masked tiles share a loop.

On an H100 with Triton 3.6 (2026-11-27, bfloat16), it took 1.03 times as long as the descriptor kernel for
4 × 16 heads of 4,096 tokens and size 128, 1.22 times under a causal mask, and 0.96 times for 16 heads of
16,384 tokens. With two stages its results were wrong, so it has at least three.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from helpers.kernels.attention_tiles import COUNTS, finished, key_bounds, place_of, softmax_step, visible


@triton.jit(do_not_specialize=COUNTS)
def attention_specialized_kernel(
    o_ptr, lse_ptr, q_ptr, k_ptr, v_ptr, scale, n_sequences, n_heads, group, n_queries, n_keys, window,
    stride_ob, stride_oh, stride_om, stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, RAGGED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    sequence, first_row = place_of(n_queries, n_sequences, BLOCK_M, HEADS, CAUSAL)
    batch, head = (sequence // n_heads).to(tl.int64), (sequence % n_heads).to(tl.int64)
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head // group * stride_kh
    v_head = v_ptr + batch * stride_vb + head // group * stride_vh
    q_desc = tl.make_tensor_descriptor(q_head, [n_queries, HEAD_SIZE], [stride_qm, 1], [BLOCK_M, HEAD_SIZE])
    k_desc = tl.make_tensor_descriptor(k_head, [n_keys, HEAD_SIZE], [stride_kn, 1], [BLOCK_N, HEAD_SIZE])
    v_desc = tl.make_tensor_descriptor(v_head, [n_keys, HEAD_SIZE], [stride_vn, 1], [BLOCK_N, HEAD_SIZE])
    q = q_desc.load([first_row, 0])
    rows, dims = first_row + tl.arange(0, BLOCK_M), tl.arange(0, HEAD_SIZE)
    acc = tl.zeros((BLOCK_M, HEAD_SIZE), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    first, _, _, end = key_bounds(first_row, n_keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    for start in tl.range(first, end, BLOCK_N, warp_specialize=True):
        scores = tl.dot(q, k_desc.load([start, 0]).T, input_precision=PRECISION)
        if CAUSAL or RAGGED:
            cols = start + tl.arange(0, BLOCK_N)
            sees = visible(rows[:, None], cols[None, :], n_keys, window, CAUSAL, WINDOWED)
            scores = tl.where(sees, scores, float("-inf"))
        v = v_desc.load([start, 0])
        acc, total, top = softmax_step(acc, total, top, scores, v, scale, WINDOWED, PRECISION)
    o, lse = finished(acc, total, top)
    tl.store(lse_ptr + sequence.to(tl.int64) * n_queries + rows, lse, mask=rows < n_queries)
    o_head = o_ptr + batch * stride_ob + head * stride_oh
    o_ptrs = o_head + rows[:, None].to(tl.int64) * stride_om + dims[None, :]
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=(rows < n_queries)[:, None])


def allocate_descriptors() -> None:
    """Tells Triton to take the memory of descriptors that a kernel makes from PyTorch."""
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))

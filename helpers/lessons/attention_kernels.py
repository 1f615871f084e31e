"""The kernels of lesson 12: attention for tiles of any size, then with powers of 2 and a causal mask, and one
with specialized warps, to read.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from helpers.kernels.attention_tiles import COUNTS, finished, key_bounds, place_of, softmax_step, visible


@triton.jit
def attention_kernel(
    o_ptr, q_ptr, k_ptr, v_ptr, n_queries, n_keys, scale, HEAD_SIZE: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    head, dims = tl.program_id(1).to(tl.int64), tl.arange(0, HEAD_SIZE)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    q_at = (head * n_queries + rows)[:, None] * HEAD_SIZE + dims
    q = tl.load(q_ptr + q_at, mask=(rows < n_queries)[:, None], other=0.0)
    top, total = tl.full((BLOCK_M,), -float("inf"), tl.float32), tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD_SIZE), tl.float32)
    for first in range(0, n_keys, BLOCK_N):
        keys = first + tl.arange(0, BLOCK_N)
        kv_at = (head * n_keys + keys)[:, None] * HEAD_SIZE + dims
        k = tl.load(k_ptr + kv_at, mask=(keys < n_keys)[:, None], other=0.0)
        v = tl.load(v_ptr + kv_at, mask=(keys < n_keys)[:, None], other=0.0)
        scores = tl.where(keys < n_keys, tl.dot(q, k.T) * scale, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        shrink = tl.exp(top - new_top)
        weights = tl.exp(scores - new_top[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])
        top = new_top
    o = (acc / total[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + q_at, o, mask=(rows < n_queries)[:, None])


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tile: tuple[int, int] = (128, 64), num_warps: int = 8
) -> torch.Tensor:
    """Attention by `attention_kernel`.

    Args:
        q, k, v: (batch, heads, n, size), contiguous, of a 16-bit dtype; q may have another n than k and v.
        tile: Queries and keys of a tile.
        num_warps: Warps per program.
    """
    o, (batch, n_heads, n_queries, size) = torch.empty_like(q), q.shape
    grid = (triton.cdiv(n_queries, tile[0]), batch * n_heads)
    sizes = {"HEAD_SIZE": size, "BLOCK_M": tile[0], "BLOCK_N": tile[1]}
    attention_kernel[grid](o, q, k, v, n_queries, k.shape[2], size**-0.5, **sizes, num_warps=num_warps)
    return o


@triton.jit
def masked_attention_kernel(
    o_ptr, lse_ptr, q_ptr, k_ptr, v_ptr, n_queries, n_keys, scale, HEAD_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head, dims = tl.program_id(1).to(tl.int64), tl.arange(0, HEAD_SIZE)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    q_at = (head * n_queries + rows)[:, None] * HEAD_SIZE + dims
    q = tl.load(q_ptr + q_at, mask=(rows < n_queries)[:, None], other=0.0)
    top, total = tl.full((BLOCK_M,), -float("inf"), tl.float32), tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD_SIZE), tl.float32)
    end = min(n_keys, (tl.program_id(0) + 1) * BLOCK_M) if CAUSAL else n_keys
    for first in range(0, end, BLOCK_N):
        keys = first + tl.arange(0, BLOCK_N)
        kv_at = (head * n_keys + keys)[:, None] * HEAD_SIZE + dims
        k = tl.load(k_ptr + kv_at, mask=(keys < n_keys)[:, None], other=0.0)
        v = tl.load(v_ptr + kv_at, mask=(keys < n_keys)[:, None], other=0.0)
        sees = keys[None, :] <= tl.minimum(rows, n_keys - 1)[:, None] if CAUSAL else keys < n_keys
        scores = tl.where(sees, tl.dot(q, k.T), -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1) * scale)
        shrink = tl.exp2(top - new_top)
        weights = tl.exp2(scores * scale - new_top[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])
        top = new_top
    o, lse = acc / total[:, None], (top + tl.log2(total)) * 0.6931471805599453  # ln 2: back to base e
    tl.store(o_ptr + q_at, o.to(o_ptr.dtype.element_ty), mask=(rows < n_queries)[:, None])
    tl.store(lse_ptr + head * n_queries + rows, lse, mask=rows < n_queries)


def attend_masked(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False,
    tile: tuple[int, int] = (128, 64), num_warps: int = 8, dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Attention by `masked_attention_kernel`, and the log-sum-exp of each query's scores.

    Args:
        q, k, v, tile, num_warps: As in `attend`.
        is_causal: Whether query i sees only the keys j <= i.
        dtype: The dtype of the result; that of q by default.

    Returns:
        The result, with the shape of q, and (batch, heads, n) in float32.
    """
    o, (batch, n_heads, n_queries, size) = torch.empty_like(q, dtype=dtype or q.dtype), q.shape
    lse = torch.empty(q.shape[:3], device=q.device, dtype=torch.float32)
    grid, scale = (triton.cdiv(n_queries, tile[0]), batch * n_heads), size**-0.5 * math.log2(math.e)
    sizes = {"HEAD_SIZE": size, "BLOCK_M": tile[0], "BLOCK_N": tile[1], "CAUSAL": is_causal}
    masked_attention_kernel[grid](o, lse, q, k, v, n_queries, k.shape[2], scale, **sizes, num_warps=num_warps)
    return o, lse


def decode_in_parts(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, parts: int) -> torch.Tensor:
    """Attention of one query per head; each part of the keys is treated as if it were a head of its own.

    Args:
        q: (batch, heads, 1, size).
        k, v: (batch, kv_heads, n, size), contiguous; kv_heads divides heads.
        parts: Into how many parts the keys are cut; it divides n.
    """
    (batch, kv_heads, n_keys, size), n_heads = k.shape, q.shape[1]
    group = n_heads // kv_heads
    split = (batch, kv_heads * parts, n_keys // parts, size)
    queries = q.view(batch, kv_heads, 1, group, size).expand(-1, -1, parts, -1, -1)
    queries = queries.reshape(batch, kv_heads * parts, group, size)
    how = {"tile": (16, 64), "num_warps": 4, "dtype": torch.float32}
    o, lse = attend_masked(queries, k.view(split), v.view(split), **how)
    o, lse = o.view(batch, kv_heads, parts, group, size), lse.view(batch, kv_heads, parts, group)
    merged = (torch.softmax(lse, dim=2)[..., None] * o).sum(dim=2)
    return merged.reshape(q.shape).to(q.dtype)


# One group of warps loads, and two have half of the queries each, so that one can multiply while the other
# computes its softmax. Triton divides the work by itself (`warp_specialize`), under conditions that shape
# this kernel: programs of 4 warps, which become 12, tensor descriptors that are made inside the kernel, and a
# single loop. So full and masked tiles share a loop.
#
# Nothing launches it. On an H100 with Triton 3.6 (2026-11-27, bfloat16), it took 1.03 times as long as the
# workbook's kernel for 4 × 16 heads of 4,096 tokens and size 128, 1.22 times under a causal mask, and 0.96
# times for 16 heads of 16,384 tokens. With two stages its results were wrong.
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

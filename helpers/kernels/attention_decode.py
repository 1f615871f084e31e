"""Attention of few queries to many keys, as in decoding.

It is bound by memory, so that the keys are split among programs.

`attention_parts_kernel` computes the result of one part of the keys and its log-sum-exp. The queries of all
heads that share a key head form one tile, so that each key is loaded once. `merge_parts_kernel` merges the
parts: a part's weight is exp(its log-sum-exp).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from helpers.kernels.attention_plan import AttentionPlan
from helpers.kernels.attention_tiles import COUNTS, finished, visit_keys


@triton.jit(do_not_specialize=COUNTS)
def attention_parts_kernel(
    o_ptr, lse_ptr, q_ptr, k_ptr, v_ptr, scale, n_kv_heads, group, n_queries, n_keys, keys_per_part,
    stride_op, stride_ob, stride_oh, stride_om, stride_qb, stride_qh, stride_qm, stride_kb, stride_kh,
    stride_kn, stride_vb, stride_vh, stride_vn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    HEAD_SIZE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    sequence, part = tl.program_id(0), tl.program_id(1).to(tl.int64)
    batch, kv_head = (sequence // n_kv_heads).to(tl.int64), (sequence % n_kv_heads).to(tl.int64)
    rows, cols = tl.arange(0, BLOCK_M), tl.arange(0, HEAD_SIZE)
    heads, queries = kv_head * group + rows // n_queries, rows % n_queries
    exists = rows < group * n_queries
    q_rows = q_ptr + batch * stride_qb + heads * stride_qh + queries * stride_qm
    q = tl.load(q_rows[:, None] + cols[None, :], mask=exists[:, None], other=0.0)
    k_ptr += batch * stride_kb + kv_head * stride_kh
    v_ptr += batch * stride_vb + kv_head * stride_vh
    acc = tl.zeros((BLOCK_M, HEAD_SIZE), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    first = tl.program_id(1) * keys_per_part
    end = min(first + keys_per_part, n_keys)
    full = first + max(end - first, 0) // BLOCK_N * BLOCK_N
    for masked in tl.static_range(2):
        acc, total, top = visit_keys(
            acc, total, top, q, k_ptr, v_ptr, batch, kv_head, rows, full if masked else first,
            end if masked else full, n_keys, 0, scale, stride_kn, stride_vn, BLOCK_N, HEAD_SIZE,
            False, False, False, masked == 1, PRECISION,
        )  # fmt: skip
    o, lse = finished(acc, total, top)
    n_batches, n_heads = tl.num_programs(0) // n_kv_heads, n_kv_heads * group
    at = ((part * n_batches + batch) * n_heads + heads) * n_queries + queries
    tl.store(lse_ptr + at, lse, mask=exists)
    o_rows = o_ptr + part * stride_op + batch * stride_ob + heads * stride_oh + queries * stride_om
    tl.store(o_rows[:, None] + cols[None, :], o.to(o_ptr.dtype.element_ty), mask=exists[:, None])


@triton.jit(do_not_specialize=COUNTS)
def merge_parts_kernel(
    o_ptr, lse_ptr, parts_ptr, part_lse_ptr, n_heads, n_queries, n_rows, n_parts, stride_ob, stride_oh,
    stride_om, PARTS: tl.constexpr, HEAD_SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)  # a query of a head of a batch
    parts, cols = tl.arange(0, PARTS), tl.arange(0, HEAD_SIZE)
    at = parts.to(tl.int64) * n_rows + row
    exists = parts < n_parts
    part_lse = tl.load(part_lse_ptr + at, mask=exists, other=float("-inf"))
    values = tl.load(parts_ptr + at[:, None] * HEAD_SIZE + cols[None, :], mask=exists[:, None], other=0.0)
    top = tl.max(part_lse, axis=0)
    weights = tl.exp(part_lse - top)
    total = tl.sum(weights, axis=0)
    o = tl.sum(weights[:, None] * values, axis=0) / total
    batch, head, query = row // n_queries // n_heads, row // n_queries % n_heads, row % n_queries
    o_ptrs = o_ptr + batch * stride_ob + head * stride_oh + query * stride_om + cols
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty))
    tl.store(lse_ptr + row, top + tl.log(total))


def decode(
    o: torch.Tensor, lse: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float,
    plan: AttentionPlan, precision: str = "ieee",
) -> None:  # fmt: skip
    """Writes the result of attention without a mask to `o` and `lse`.

    Args:
        o, lse, q, k, v: As in `attention_forward`, with contiguous rows and at least one key.
        scale: The scale of the scores times log2(e).
        plan: A plan whose kernel is "split"; `block_m` covers the queries of a group of heads.
        precision: As in `attention_forward`.
    """
    batch, heads, n_queries, head_size = q.shape
    kv_heads, n_keys = k.shape[1:3]
    parts, n_rows = plan.parts, batch * heads * n_queries
    keys_per_part = triton.cdiv(triton.cdiv(n_keys, parts), plan.block_n) * plan.block_n
    part_o, part_lse = o[None], lse
    if parts > 1:
        part_o = torch.empty(parts, *o.shape, dtype=torch.float32, device=o.device)
        part_lse = torch.empty(parts, *lse.shape, dtype=torch.float32, device=o.device)
    attention_parts_kernel[(batch * kv_heads, parts)](
        part_o, part_lse, q, k, v, scale, kv_heads, heads // kv_heads, n_queries, n_keys, keys_per_part,
        *part_o.stride()[:4], *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, HEAD_SIZE=head_size, PRECISION=precision,
        num_warps=plan.num_warps, num_stages=plan.num_stages,
    )  # fmt: skip
    if parts > 1:
        merge_parts_kernel[(n_rows,)](
            o,
            lse,
            part_o,
            part_lse,
            heads,
            n_queries,
            n_rows,
            parts,
            *o.stride()[:3],
            PARTS=triton.next_power_of_2(parts),
            HEAD_SIZE=head_size,
        )

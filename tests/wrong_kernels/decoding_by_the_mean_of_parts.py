"""The result is the plain mean of the parts' results."""

import torch
import triton
import triton.language as tl

EXERCISE = "split-the-keys"
REASON = "plain-mean"


@triton.jit
def part_kernel(
    accs_ptr,
    totals_ptr,
    tops_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    n_heads,
    n_keys,
    part_size,
    scale,
    stride_q,
    stride_k,
    stride_v,
    HEADS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
):
    part = tl.program_id(0)
    heads = tl.arange(0, HEADS).to(tl.int64)
    cols = tl.arange(0, HEAD_SIZE)
    inside = heads < n_heads
    q = tl.load(q_ptr + heads[:, None] * stride_q + cols[None, :], mask=inside[:, None], other=0.0)
    acc = tl.zeros((HEADS, HEAD_SIZE), tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    top = tl.full((HEADS,), -float("inf"), tl.float32)
    end = min(n_keys, (part + 1) * part_size)
    for start in range(part * part_size, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N).to(tl.int64)
        exists = (keys < end)[:, None]
        k = tl.load(k_ptr + keys[:, None] * stride_k + cols[None, :], mask=exists, other=0.0)
        v = tl.load(v_ptr + keys[:, None] * stride_v + cols[None, :], mask=exists, other=0.0)
        scores = tl.where((keys < end)[None, :], tl.dot(q, k.T) * scale, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_top[:, None])
        shrink = tl.exp(top - new_top)
        total = total * shrink + tl.sum(weights, axis=1)
        acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
        top = new_top
    at = part * n_heads + heads
    tl.store(accs_ptr + at[:, None] * HEAD_SIZE + cols[None, :], acc, mask=inside[:, None])
    tl.store(totals_ptr + at, total, mask=inside)
    tl.store(tops_ptr + at, top, mask=inside)


@triton.jit
def merge_kernel(
    o_ptr, accs_ptr, totals_ptr, tops_ptr, n_heads, n_parts, PARTS: tl.constexpr, HEAD_SIZE: tl.constexpr
):
    head = tl.program_id(0)
    parts, cols = tl.arange(0, PARTS), tl.arange(0, HEAD_SIZE)
    at, exists = parts * n_heads + head, parts < n_parts
    totals = tl.load(totals_ptr + at, mask=exists, other=0.0)
    accs = tl.load(accs_ptr + at[:, None] * HEAD_SIZE + cols[None, :], mask=exists[:, None], other=0.0)
    filled = totals > 0.0
    means = accs / tl.where(filled, totals, 1.0)[:, None]
    o = tl.sum(means, axis=0) / tl.sum(filled.to(tl.float32), axis=0)
    tl.store(o_ptr + head * HEAD_SIZE + cols, o.to(o_ptr.dtype.element_ty))


def decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, n_parts: int) -> torch.Tensor:
    (n_heads, head_size), n_keys = q.shape, len(k)
    o = torch.empty(n_heads, head_size, dtype=q.dtype, device=q.device)
    if o.numel():
        accs = torch.empty(n_parts, n_heads, head_size, device=q.device)
        totals, tops = (torch.empty(n_parts, n_heads, device=q.device) for _ in range(2))
        partial = (accs, totals, tops)
        counts = (n_heads, n_keys, triton.cdiv(n_keys, n_parts), head_size**-0.5)
        strides = (q.stride(0), k.stride(0), v.stride(0))
        sizes = {"HEADS": 16, "BLOCK_N": 32, "HEAD_SIZE": head_size}
        part_kernel[(n_parts,)](*partial, q, k, v, *counts, *strides, **sizes)
        lanes = triton.next_power_of_2(n_parts)
        merge_kernel[(n_heads,)](o, *partial, n_heads, n_parts, PARTS=lanes, HEAD_SIZE=head_size)
    return o

"""The new maximum replaces the old one too early, so nothing is rescaled. Right if all keys are the same."""

import torch
import triton
import triton.language as tl

EXERCISE = "find-the-bug"
REASON = "nothing-rescaled"


@triton.jit
def fast_kernel(
    o_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    n_queries,
    n_keys,
    scale,
    stride_q,
    stride_k,
    stride_v,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
):
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = tl.arange(0, HEAD_SIZE)
    inside = (rows < n_queries)[:, None]
    q = tl.load(q_ptr + rows[:, None] * stride_q + cols[None, :], mask=inside, other=0.0)
    acc = tl.zeros((BLOCK_M, HEAD_SIZE), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    for start in range(0, n_keys, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N).to(tl.int64)
        exists = (keys < n_keys)[:, None]
        k = tl.load(k_ptr + keys[:, None] * stride_k + cols[None, :], mask=exists, other=0.0)
        v = tl.load(v_ptr + keys[:, None] * stride_v + cols[None, :], mask=exists, other=0.0)
        scores = tl.where((keys < n_keys)[None, :], tl.dot(q, k.T) * scale, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_top[:, None])
        top = new_top
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])
    o = acc / total[:, None]
    tl.store(o_ptr + rows[:, None] * HEAD_SIZE + cols[None, :], o.to(o_ptr.dtype.element_ty), mask=inside)


def fast_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    (n_queries, head_size), n_keys = q.shape, len(k)
    o = torch.empty(n_queries, head_size, dtype=q.dtype, device=q.device)
    if o.numel():
        scale = 1.44269504 * head_size**-0.5
        strides = (q.stride(0), k.stride(0), v.stride(0))
        sizes = {"BLOCK_M": 16, "BLOCK_N": 32, "HEAD_SIZE": head_size}
        grid = (triton.cdiv(n_queries, 16),)
        fast_kernel[grid](o, q, k, v, n_queries, n_keys, scale, *strides, **sizes)
    return o

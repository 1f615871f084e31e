"""The offsets of the keys are computed in 32 bits."""

import torch
import triton
import triton.language as tl

EXERCISE = "causal-tiles"
REASON = "int32-overflow"


@triton.jit
def causal_kernel(
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
    first_row = tl.program_id(0) * BLOCK_M
    rows = (first_row + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = tl.arange(0, HEAD_SIZE)
    inside = (rows < n_queries)[:, None]
    q = tl.load(q_ptr + rows[:, None] * stride_q + cols[None, :], mask=inside, other=0.0)
    acc = tl.zeros((BLOCK_M, HEAD_SIZE), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    for start in range(0, min(n_keys, first_row + BLOCK_M), BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        exists = (keys < n_keys)[:, None]
        k = tl.load(k_ptr + keys[:, None] * stride_k + cols[None, :], mask=exists, other=0.0)
        v = tl.load(v_ptr + keys[:, None] * stride_v + cols[None, :], mask=exists, other=0.0)
        sees = (keys < n_keys)[None, :] & (keys[None, :] <= rows[:, None])
        scores = tl.where(sees, tl.dot(q, k.T) * scale, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_top[:, None])
        shrink = tl.exp(top - new_top)
        total = total * shrink + tl.sum(weights, axis=1)
        acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
        top = new_top
    o = acc / total[:, None]
    tl.store(o_ptr + rows[:, None] * HEAD_SIZE + cols[None, :], o.to(o_ptr.dtype.element_ty), mask=inside)


def causal_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block_m: int, block_n: int
) -> torch.Tensor:
    (n_queries, head_size), n_keys = q.shape, len(k)
    o = torch.empty(n_queries, head_size, dtype=q.dtype, device=q.device)
    if o.numel():
        strides = (q.stride(0), k.stride(0), v.stride(0))
        sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "HEAD_SIZE": head_size}
        grid = (triton.cdiv(n_queries, block_m),)
        causal_kernel[grid](o, q, k, v, n_queries, n_keys, head_size**-0.5, *strides, **sizes)
    return o

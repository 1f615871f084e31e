"""The gradients of attention, computed from the inputs, the result and the log-sum-exp of the forward pass.

With p = exp(scores - lse), the gradient of the scores is p * (dp - delta), where dp = g @ v.T and delta is
the sum of g * o over each row. `delta_kernel` computes delta. `key_gradients_kernel` gives each program a
tile of keys and visits the queries that see them, of all heads that share these keys.
`query_gradients_kernel` gives each program a tile of queries and visits the keys. Both compute the scores
again, but no program adds to another's result, so the gradients are the same in every run.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from helpers.kernels.attention import can_describe, described, masks_of, result_like, with_contiguous_rows
from helpers.kernels.attention_plan import AttentionPlan, plan_gradients
from helpers.kernels.attention_tiles import (
    COUNTS,
    LOG2_E,
    key_bounds,
    load_rows,
    place_of,
    query_bounds,
    visible,
)
from helpers.kernels.chip import chip_of
from helpers.kernels.elementwise import INTERPRETED, on_device_of

DELTA_ROWS = 64  # per program of `delta_kernel`


@triton.jit(do_not_specialize=COUNTS)
def delta_kernel(
    delta_ptr, g_ptr, o_ptr, n_heads, n_queries, stride_gb, stride_gh, stride_gm, stride_ob, stride_oh,
    stride_om, BLOCK_M: tl.constexpr, HEAD_SIZE: tl.constexpr,
):  # fmt: skip
    sequence = tl.program_id(0).to(tl.int64)
    batch, head = sequence // n_heads, sequence % n_heads
    first = tl.program_id(1) * BLOCK_M
    g_ptr += batch * stride_gb + head * stride_gh
    o_ptr += batch * stride_ob + head * stride_oh
    g = load_rows(g_ptr, batch, head, first, n_queries, stride_gm, BLOCK_M, HEAD_SIZE, False, True)
    o = load_rows(o_ptr, batch, head, first, n_queries, stride_om, BLOCK_M, HEAD_SIZE, False, True)
    delta = tl.sum(g.to(tl.float32) * o.to(tl.float32), axis=1)
    rows = first + tl.arange(0, BLOCK_M)
    tl.store(delta_ptr + sequence * n_queries + rows, delta, mask=rows < n_queries)


@triton.jit
def load_lse(lse_ptr, rows, n_queries):
    """Loads the log-sum-exp of some queries, to base 2. For those that see no key, and those past the last
    one, it is inf, because exp2(score - inf) is the weight that they give: 0.
    """
    lse = tl.load(lse_ptr + rows, mask=rows < n_queries, other=float("inf")) * 1.4426950408889634
    return tl.where(lse == float("-inf"), float("inf"), lse)


@triton.jit
def visit_queries(
    dk, dv, k, v, q, g, lse_ptr, delta_ptr, batch, head, cols, start, end, n_queries, n_keys, window, scale,
    stride_qm, stride_gm, BLOCK_M: tl.constexpr, HEAD_SIZE: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, DESCRIBED: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds what the queries from `start` to `end` contribute to the gradients of a tile of keys.

    Tiles of scores are transposed (keys by queries), so that the products with q and g read them as they are.
    """
    for first in range(start, end, BLOCK_M):
        rows = first + tl.arange(0, BLOCK_M)
        q_tile = load_rows(q, batch, head, first, n_queries, stride_qm, BLOCK_M, HEAD_SIZE, DESCRIBED, True)
        lse = load_lse(lse_ptr, rows, n_queries)
        scores = tl.dot(k, q_tile.T, input_precision=PRECISION)
        if MASKED:
            sees = visible(rows[None, :], cols[:, None], n_keys, window, CAUSAL, WINDOWED)
            scores = tl.where(sees, scores, float("-inf"))
        weights = tl.exp2(scores * scale - lse[None, :])
        g_tile = load_rows(g, batch, head, first, n_queries, stride_gm, BLOCK_M, HEAD_SIZE, DESCRIBED, True)
        dv = tl.dot(weights.to(g_tile.dtype), g_tile, dv, input_precision=PRECISION)
        d_weights = tl.dot(v, g_tile.T, input_precision=PRECISION)
        delta = tl.load(delta_ptr + rows, mask=rows < n_queries, other=0.0)
        d_scores = weights * (d_weights - delta[None, :])
        dk = tl.dot(d_scores.to(q_tile.dtype), q_tile, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=COUNTS)
def key_gradients_kernel(
    dk_ptr, dv_ptr, g, q, k, v, lse_ptr, delta_ptr, scale, n_sequences, n_kv_heads, group, n_queries, n_keys,
    window, stride_gb, stride_gh, stride_gm, stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_dkb, stride_dkh, stride_dkn, stride_dvb, stride_dvh, stride_dvn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEADS: tl.constexpr, HEAD_SIZE: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, DESCRIBED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    sequence, first_key = place_of(n_keys, n_sequences, BLOCK_N, HEADS, False)
    sequence = sequence.to(tl.int64)
    batch, kv_head = sequence // n_kv_heads, sequence % n_kv_heads
    k_head, v_head = k, v
    if not DESCRIBED:
        k_head += batch * stride_kb + kv_head * stride_kh
        v_head += batch * stride_vb + kv_head * stride_vh
    b, h = batch.to(tl.int32), kv_head.to(tl.int32)
    k_tile = load_rows(k_head, b, h, first_key, n_keys, stride_kn, BLOCK_N, HEAD_SIZE, DESCRIBED, True)
    v_tile = load_rows(v_head, b, h, first_key, n_keys, stride_vn, BLOCK_N, HEAD_SIZE, DESCRIBED, True)
    keys = first_key + tl.arange(0, BLOCK_N)
    dk = tl.zeros((BLOCK_N, HEAD_SIZE), tl.float32)
    dv = tl.zeros((BLOCK_N, HEAD_SIZE), tl.float32)
    first, full, last_full, end = query_bounds(
        first_key, n_queries, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED
    )  # fmt: skip
    # Pointers take so many registers that separate loops for full and masked tiles would spill.
    LOOPS: tl.constexpr = 3 if DESCRIBED else 1
    for member in range(group):
        head = kv_head * group + member
        q_head, g_head = q, g
        if not DESCRIBED:
            q_head += batch * stride_qb + head * stride_qh
            g_head += batch * stride_gb + head * stride_gh
        at = (batch * n_kv_heads * group + head) * n_queries
        h = head.to(tl.int32)
        if CAUSAL:
            dk, dv = visit_queries(
                dk, dv, k_tile, v_tile, q_head, g_head, lse_ptr + at, delta_ptr + at, b, h, keys,
                first, full if LOOPS > 1 else end, n_queries, n_keys, window, scale, stride_qm, stride_gm,
                BLOCK_M, HEAD_SIZE, CAUSAL, WINDOWED, DESCRIBED, True, PRECISION,
            )  # fmt: skip
        if LOOPS > 1 or not CAUSAL:
            dk, dv = visit_queries(
                dk, dv, k_tile, v_tile, q_head, g_head, lse_ptr + at, delta_ptr + at, b, h, keys,
                full, last_full, n_queries, n_keys, window, scale, stride_qm, stride_gm,
                BLOCK_M, HEAD_SIZE, CAUSAL, WINDOWED, DESCRIBED, False, PRECISION,
            )  # fmt: skip
        if LOOPS > 1 and WINDOWED:
            dk, dv = visit_queries(
                dk, dv, k_tile, v_tile, q_head, g_head, lse_ptr + at, delta_ptr + at, b, h, keys,
                last_full, end, n_queries, n_keys, window, scale, stride_qm, stride_gm,
                BLOCK_M, HEAD_SIZE, CAUSAL, WINDOWED, DESCRIBED, True, PRECISION,
            )  # fmt: skip
    dk *= scale * 0.6931471805599453  # without log2(e)
    dims = tl.arange(0, HEAD_SIZE)[None, :]
    exists = (keys < n_keys)[:, None]
    dk_ptr += batch * stride_dkb + kv_head * stride_dkh
    dv_ptr += batch * stride_dvb + kv_head * stride_dvh
    keys = keys.to(tl.int64)[:, None]
    tl.store(dk_ptr + keys * stride_dkn + dims, dk.to(dk_ptr.dtype.element_ty), mask=exists)
    tl.store(dv_ptr + keys * stride_dvn + dims, dv.to(dv_ptr.dtype.element_ty), mask=exists)


@triton.jit
def visit_keys_again(
    dq, q, g, lse, delta, k, v, batch, head, rows, start, end, n_keys, window, scale, stride_kn, stride_vn,
    BLOCK_N: tl.constexpr, HEAD_SIZE: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    DESCRIBED: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds what the keys from `start` to `end` contribute to the gradient of a tile of queries."""
    for first in range(start, end, BLOCK_N):
        k_tile = load_rows(k, batch, head, first, n_keys, stride_kn, BLOCK_N, HEAD_SIZE, DESCRIBED, MASKED)
        scores = tl.dot(q, k_tile.T, input_precision=PRECISION)
        if MASKED:
            cols = first + tl.arange(0, BLOCK_N)
            sees = visible(rows[:, None], cols[None, :], n_keys, window, CAUSAL, WINDOWED)
            scores = tl.where(sees, scores, float("-inf"))
        weights = tl.exp2(scores * scale - lse[:, None])
        v_tile = load_rows(v, batch, head, first, n_keys, stride_vn, BLOCK_N, HEAD_SIZE, DESCRIBED, MASKED)
        d_weights = tl.dot(g, v_tile.T, input_precision=PRECISION)
        d_scores = weights * (d_weights - delta[:, None])
        dq = tl.dot(d_scores.to(k_tile.dtype), k_tile, dq, input_precision=PRECISION)
    return dq


@triton.jit(do_not_specialize=COUNTS)
def query_gradients_kernel(
    dq_ptr, g, q, k, v, lse_ptr, delta_ptr, scale, n_sequences, n_heads, group, n_queries, n_keys, window,
    stride_gb, stride_gh, stride_gm, stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_dqb, stride_dqh, stride_dqm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEADS: tl.constexpr, HEAD_SIZE: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, DESCRIBED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    sequence, first_row = place_of(n_queries, n_sequences, BLOCK_M, HEADS, CAUSAL)
    sequence = sequence.to(tl.int64)
    batch, head = sequence // n_heads, sequence % n_heads
    if not DESCRIBED:
        q += batch * stride_qb + head * stride_qh
        g += batch * stride_gb + head * stride_gh
        k += batch * stride_kb + head // group * stride_kh
        v += batch * stride_vb + head // group * stride_vh
    b, h, kv_head = batch.to(tl.int32), head.to(tl.int32), (head // group).to(tl.int32)
    q_tile = load_rows(q, b, h, first_row, n_queries, stride_qm, BLOCK_M, HEAD_SIZE, DESCRIBED, True)
    g_tile = load_rows(g, b, h, first_row, n_queries, stride_gm, BLOCK_M, HEAD_SIZE, DESCRIBED, True)
    rows = first_row + tl.arange(0, BLOCK_M)
    lse = load_lse(lse_ptr + sequence * n_queries, rows, n_queries)
    delta = tl.load(delta_ptr + sequence * n_queries + rows, mask=rows < n_queries, other=0.0)
    dq = tl.zeros((BLOCK_M, HEAD_SIZE), tl.float32)
    first, full, last_full, end = key_bounds(first_row, n_keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    if WINDOWED:
        dq = visit_keys_again(
            dq, q_tile, g_tile, lse, delta, k, v, b, kv_head, rows, first, min(full, end), n_keys,
            window, scale, stride_kn, stride_vn, BLOCK_N, HEAD_SIZE, CAUSAL, WINDOWED, DESCRIBED, True,
            PRECISION,
        )  # fmt: skip
    dq = visit_keys_again(
        dq, q_tile, g_tile, lse, delta, k, v, b, kv_head, rows, full, last_full, n_keys, window, scale,
        stride_kn, stride_vn, BLOCK_N, HEAD_SIZE, CAUSAL, WINDOWED, DESCRIBED, False, PRECISION,
    )  # fmt: skip
    dq = visit_keys_again(
        dq, q_tile, g_tile, lse, delta, k, v, b, kv_head, rows, last_full, end, n_keys, window, scale,
        stride_kn, stride_vn, BLOCK_N, HEAD_SIZE, CAUSAL, WINDOWED, DESCRIBED, True, PRECISION,
    )  # fmt: skip
    dq *= scale * 0.6931471805599453  # without log2(e)
    dims = tl.arange(0, HEAD_SIZE)[None, :]
    dq_ptrs = dq_ptr + batch * stride_dqb + head * stride_dqh + rows.to(tl.int64)[:, None] * stride_dqm + dims
    tl.store(dq_ptrs, dq.to(dq_ptr.dtype.element_ty), mask=(rows < n_queries)[:, None])


def attention_backward(
    g: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, *,
    is_causal: bool = False, scale: float | None = None, window: int | None = None, precision: str = "ieee",
    plans: tuple[AttentionPlan, AttentionPlan] | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Returns the gradients of q, k and v.

    Args:
        g: The gradient of o, with the shape of q.
        q, k, v, is_causal, scale, window, precision: As in `attention_forward`.
        o, lse: What `attention_forward` returned for them.
        plans: The launches to use instead of `plan_gradients`'s.

    Returns:
        Three tensors with the shapes of q, k and v and their dtype; each has its heads inside if q, k or v
        has, as `result_like` explains.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    batch, heads, n_queries, head_size = q.shape
    kv_heads, n_keys = k.shape[1:3]
    gradients = dq, dk, dv = result_like(q), result_like(k), result_like(v)
    if not q.numel() or not k.numel():
        for x in gradients:
            x.zero_()
        return gradients
    g, q, k, v = (with_contiguous_rows(x) for x in (g, q, k, v))
    if INTERPRETED and q.dtype == torch.bfloat16:  # the interpreter's dot misreads bfloat16
        g, q, k, v = g.float(), q.float(), k.float(), v.float()
    is_causal, window = masks_of(is_causal, window, n_queries)
    sizes = (heads // kv_heads, n_queries, n_keys, window or 0)
    with on_device_of(q):
        keys, queries = plans or plan_gradients(
            q.shape, k.shape, q.dtype, is_causal=is_causal, precision=precision,
            described=can_describe(g, q, k, v), chip=chip_of(q.device),
        )  # fmt: skip
        how = {
            "HEAD_SIZE": head_size, "CAUSAL": is_causal, "WINDOWED": window is not None,
            "PRECISION": precision,
        }  # fmt: skip
        delta = torch.empty_like(lse)
        delta_kernel[(batch * heads, triton.cdiv(n_queries, DELTA_ROWS))](
            delta, g, o, heads, n_queries, *g.stride()[:3], *o.stride()[:3], BLOCK_M=DELTA_ROWS,
            HEAD_SIZE=head_size,
        )  # fmt: skip
        strides = [stride for x in (g, q, k, v) for stride in x.stride()[:3]]
        key_gradients_kernel[(triton.cdiv(n_keys, keys.block_n) * batch * kv_heads,)](
            dk, dv, *_inputs(keys, g, q, k, v), lse, delta, scale * LOG2_E, batch * kv_heads, kv_heads,
            *sizes, *strides, *dk.stride()[:3], *dv.stride()[:3], **how, **keys.options(),
            DESCRIBED=keys.kernel == "descriptors",
        )  # fmt: skip
        query_gradients_kernel[(triton.cdiv(n_queries, queries.block_m) * batch * heads,)](
            dq, *_inputs(queries, g, q, k, v), lse, delta, scale * LOG2_E, batch * heads, heads,
            *sizes, *strides, *dq.stride()[:3], **how, **queries.options(),
            DESCRIBED=queries.kernel == "descriptors",
        )  # fmt: skip
    return gradients


def _inputs(plan: AttentionPlan, g, q, k, v) -> list[torch.Tensor] | list[TensorDescriptor]:
    """The tensors as a kernel with this plan loads them."""
    if plan.kernel != "descriptors":
        return [g, q, k, v]
    return [*(described(x, plan.block_m) for x in (g, q)), *(described(x, plan.block_n) for x in (k, v))]

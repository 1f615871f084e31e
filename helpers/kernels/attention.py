"""Scaled dot-product attention: o = softmax(q @ k.T * scale) @ v, without storing the scores.

`q` is (batch, heads, n_queries, head_size), and `k` and `v` are (batch, kv_heads, n_keys, head_size), where
`kv_heads` divides `heads`. Each program holds a tile of queries and visits the keys tile by tile, with the
online softmax: if a tile raises a query's maximum, what has been accumulated so far is scaled down. Tiles of
keys that a mask hides completely are skipped, and only tiles that it hides in part are masked.

* `attention_tiles_kernel` loads through pointers, so it accepts every row stride and runs on every GPU.
* `attention_descriptor_kernel` loads and stores through tensor descriptors (TMA, from compute capability 9.0
  on).
* For few queries and many keys, `helpers.kernels.attention_decode` splits the keys among programs.

`helpers.kernels.attention_plan` chooses the kernel, and `helpers.kernels.attention_grad` has the gradients.

Masks are aligned as in `torch.nn.functional.scaled_dot_product_attention`: under a causal mask, query i sees
the keys j <= i, also if the numbers of queries and keys differ. With a window it sees i - window < j <= i.
A query that sees no key has the result 0.

Set `TRITON_INTERPRET=1` before you import this module to run the kernels in Triton's interpreter, on CPU
tensors.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from helpers.kernels.attention_decode import decode
from helpers.kernels.attention_plan import HEAD_SIZES, AttentionPlan, plan_attention
from helpers.kernels.attention_tiles import (
    COUNTS,
    LOG2_E,
    finished,
    key_bounds,
    load_rows,
    place_of,
    visit_keys,
)
from helpers.kernels.chip import chip_of
from helpers.kernels.elementwise import DTYPES, INTERPRETED, on_device_of, require_place
from helpers.kernels.matmul import PRECISIONS


@triton.jit
def attend(
    q, k, v, batch, head, first_row, n_keys, window, scale, stride_kn, stride_vn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_SIZE: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, RAGGED: tl.constexpr, DESCRIBED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Returns the result and the log-sum-exp of a tile of queries."""
    rows = first_row + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M, HEAD_SIZE), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    first, full, last_full, end = key_bounds(first_row, n_keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    if WINDOWED:
        acc, total, top = visit_keys(
            acc, total, top, q, k, v, batch, head, rows, first, min(full, end), n_keys, window, scale,
            stride_kn, stride_vn, BLOCK_N, HEAD_SIZE, CAUSAL, WINDOWED, DESCRIBED, True, PRECISION,
        )  # fmt: skip
    acc, total, top = visit_keys(
        acc, total, top, q, k, v, batch, head, rows, full, last_full, n_keys, window, scale,
        stride_kn, stride_vn, BLOCK_N, HEAD_SIZE, CAUSAL, WINDOWED, DESCRIBED, False, PRECISION,
    )  # fmt: skip
    if CAUSAL or RAGGED:
        acc, total, top = visit_keys(
            acc, total, top, q, k, v, batch, head, rows, last_full, end, n_keys, window, scale,
            stride_kn, stride_vn, BLOCK_N, HEAD_SIZE, CAUSAL, WINDOWED, DESCRIBED, True, PRECISION,
        )  # fmt: skip
    return finished(acc, total, top)


@triton.jit(do_not_specialize=COUNTS)
def attention_tiles_kernel(
    o_ptr, lse_ptr, q_ptr, k_ptr, v_ptr, scale, n_sequences, n_heads, group, n_queries, n_keys, window,
    stride_ob, stride_oh, stride_om, stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, RAGGED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    sequence, first_row = place_of(n_queries, n_sequences, BLOCK_M, HEADS, CAUSAL)
    batch, head = (sequence // n_heads).to(tl.int64), (sequence % n_heads).to(tl.int64)
    kv_head = head // group
    q_ptr += batch * stride_qb + head * stride_qh
    k_ptr += batch * stride_kb + kv_head * stride_kh
    v_ptr += batch * stride_vb + kv_head * stride_vh
    o_ptr += batch * stride_ob + head * stride_oh
    q = load_rows(q_ptr, batch, head, first_row, n_queries, stride_qm, BLOCK_M, HEAD_SIZE, False, True)
    o, lse = attend(
        q, k_ptr, v_ptr, batch, kv_head, first_row, n_keys, window, scale, stride_kn, stride_vn,
        BLOCK_M, BLOCK_N, HEAD_SIZE, CAUSAL, WINDOWED, RAGGED, False, PRECISION,
    )  # fmt: skip
    rows, cols = first_row + tl.arange(0, BLOCK_M), tl.arange(0, HEAD_SIZE)
    tl.store(lse_ptr + sequence.to(tl.int64) * n_queries + rows, lse, mask=rows < n_queries)
    o_ptrs = o_ptr + rows[:, None].to(tl.int64) * stride_om + cols[None, :]
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=(rows < n_queries)[:, None])


@triton.jit(do_not_specialize=COUNTS)
def attention_descriptor_kernel(
    o, lse_ptr, q, k, v, scale, n_sequences, n_heads, group, n_queries, n_keys, window,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEADS: tl.constexpr, HEAD_SIZE: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, RAGGED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    sequence, first_row = place_of(n_queries, n_sequences, BLOCK_M, HEADS, CAUSAL)
    batch, head = sequence // n_heads, sequence % n_heads
    q_tile = load_rows(q, batch, head, first_row, n_queries, 0, BLOCK_M, HEAD_SIZE, True, True)
    o_tile, lse = attend(
        q_tile, k, v, batch, head // group, first_row, n_keys, window, scale, 0, 0,
        BLOCK_M, BLOCK_N, HEAD_SIZE, CAUSAL, WINDOWED, RAGGED, True, PRECISION,
    )  # fmt: skip
    rows = first_row + tl.arange(0, BLOCK_M)
    tl.store(lse_ptr + sequence.to(tl.int64) * n_queries + rows, lse, mask=rows < n_queries)
    o.store([batch, head, first_row, 0], o_tile.to(o.dtype).reshape(1, 1, BLOCK_M, HEAD_SIZE))


def require_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None = None,
    window: int | None = None, precision: str = "ieee",
) -> None:  # fmt: skip
    """Raises a ValueError unless the kernels can compute attention with these arguments."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 4:
            raise ValueError(f"{name} is {tuple(x.shape)}; pass (batch, heads, length, head_size).")
        if x.dtype not in DTYPES:
            names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
            raise ValueError(f"{name} is {x.dtype}; pass one of {names}.")
        if x.dtype != q.dtype:
            raise ValueError(f"{name} is {x.dtype} and q is {q.dtype}; pass the same dtype.")
        if x.device != q.device:
            raise ValueError(f"{name} is on {x.device} and q is on {q.device}; move one of them.")
    (batch, heads, _, head_size), kv_heads = q.shape, k.shape[1]
    if head_size not in HEAD_SIZES:
        raise ValueError(f"The head size is {head_size}; these kernels support 64 and 128.")
    if k.shape != v.shape or k.shape[0] != batch or k.shape[3] != head_size:
        raise ValueError(
            f"q is {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}; k and v must have the same "
            "shape, and the batch and head sizes of q."
        )
    if heads != kv_heads and (kv_heads == 0 or heads % kv_heads):
        raise ValueError(f"q has {heads} heads and k has {kv_heads}, which must divide them.")
    if window is not None and window < 1:
        raise ValueError(f"window is {window}; it must be at least 1.")
    if scale is not None and not 0 < scale < math.inf:
        raise ValueError(f"scale is {scale}; it must be positive and finite.")
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {precision!r}; pass one of {', '.join(PRECISIONS)}.")


def masks_of(is_causal: bool, window: int | None, n_queries: int) -> tuple[bool, int | None]:
    """Whether there is a causal mask, which a window implies, and the window, if it hides any other key."""
    return is_causal or window is not None, None if window is None or window >= n_queries else window


def result_like(q: torch.Tensor) -> torch.Tensor:
    """An uninitialized result with contiguous rows, and with the heads inside if they are inside in q.

    So if q is a transposed view of (batch, n_queries, heads, head_size), as in most models, the result can be
    viewed in that order, too.
    """
    batch, heads, n_queries, head_size = q.shape
    if q.stride(1) < q.stride(2):
        return q.new_empty(batch, n_queries, heads, head_size).transpose(1, 2)
    return q.new_empty(q.shape)


def with_contiguous_rows(x: torch.Tensor) -> torch.Tensor:
    """x itself, or a copy if the elements of a row aren't contiguous."""
    return x if x.stride(3) == 1 else x.contiguous()


def can_describe(*tensors: torch.Tensor) -> bool:
    """Whether tensors with contiguous rows can be accessed through tensor descriptors on their device."""
    if INTERPRETED or chip_of(tensors[0].device).capability < (9, 0):
        return False
    return all(
        x.data_ptr() % 16 == 0
        and all(stride > 0 and stride * x.element_size() % 16 == 0 for stride in x.stride()[:3])
        for x in tensors
    )


def described(x: torch.Tensor, rows: int) -> TensorDescriptor:
    """A descriptor whose tiles are `rows` rows of one head."""
    return TensorDescriptor.from_tensor(x, [1, 1, rows, x.shape[3]])


def attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, is_causal: bool = False, scale: float | None = None,
    window: int | None = None, precision: str = "ieee", plan: AttentionPlan | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Returns the result of attention and the log-sum-exp of each query's scaled scores.

    Args:
        q: (batch, heads, n_queries, head_size), float32, bfloat16 or float16, with a head size of 64 or 128.
        k, v: (batch, kv_heads, n_keys, head_size) of the same dtype; `kv_heads` divides `heads`.
        is_causal: Whether query i sees only the keys j <= i.
        scale: What the scores are multiplied by; 1 / sqrt(head_size) by default.
        window: How many keys each query sees at most, itself included: i - window < j <= i.
        precision: For float32: "ieee" multiplies float32 numbers, "tf32" rounds them to TF32 first.
        plan: The launch to use instead of `plan_attention`'s.

    Returns:
        o: The shape and dtype of q, with contiguous rows.
        lse: (batch, heads, n_queries), float32, contiguous; -inf for a query that sees no key.

    Raises:
        ValueError: The arguments don't fit each other, or the kernels can't run on their device.
    """
    require_attention(q, k, v, scale, window, precision)
    require_place(q)
    batch, heads, n_queries, head_size = q.shape
    n_keys = k.shape[2]
    scale = head_size**-0.5 if scale is None else scale
    o = result_like(q)
    lse = torch.empty(batch, heads, n_queries, dtype=torch.float32, device=q.device)
    if not lse.numel():
        return o, lse
    if n_keys == 0:
        return o.zero_(), lse.fill_(-math.inf)
    q, k, v = (with_contiguous_rows(x) for x in (q, k, v))
    if INTERPRETED and q.dtype == torch.bfloat16:  # the interpreter's dot misreads bfloat16
        q, k, v = q.float(), k.float(), v.float()
    is_causal, window = masks_of(is_causal, window, n_queries)
    with on_device_of(q):
        plan = plan or plan_attention(
            q.shape, k.shape, q.dtype, is_causal=is_causal, precision=precision,
            described=can_describe(q, k, v), chip=chip_of(q.device),
        )  # fmt: skip
        if plan.kernel == "split":
            decode(o, lse, q, k, v, scale * LOG2_E, plan, precision)
        else:
            _launch(o, lse, q, k, v, scale * LOG2_E, is_causal, window, plan, precision)
    return o, lse


def _launch(o, lse, q, k, v, scale, is_causal, window, plan: AttentionPlan, precision: str) -> None:
    """Launches a program per tile of queries; `scale` includes log2(e)."""
    batch, heads, n_queries, head_size = q.shape
    kv_heads, n_keys = k.shape[1:3]
    sizes = (scale, batch * heads, heads, heads // kv_heads, n_queries, n_keys, window or 0)
    how = {
        "HEAD_SIZE": head_size, "CAUSAL": is_causal, "WINDOWED": window is not None,
        "RAGGED": n_keys % plan.block_n > 0, "PRECISION": precision, **plan.options(),
    }  # fmt: skip
    grid = (triton.cdiv(n_queries, plan.block_m) * batch * heads,)
    if plan.kernel == "descriptors":
        o, q = described(o, plan.block_m), described(q, plan.block_m)
        k, v = described(k, plan.block_n), described(v, plan.block_n)
        attention_descriptor_kernel[grid](o, lse, q, k, v, *sizes, **how)
        return
    strides = (stride for x in (o, q, k, v) for stride in x.stride()[:3])
    attention_tiles_kernel[grid](o, lse, q, k, v, *sizes, *strides, **how)

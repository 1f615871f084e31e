"""What the attention kernels share: the tile of a program, loads, masks, and the online softmax."""

from __future__ import annotations

import triton
import triton.language as tl

from helpers.kernels.matmul import tile_of

LOG2_E = 1.4426950408889634  # exp(x) = exp2(x * LOG2_E)

# Arguments whose divisibility gains nothing, so that no kernel is compiled again when they change.
COUNTS = (
    "n_sequences",
    "n_heads",
    "n_kv_heads",
    "group",
    "n_keys",
    "keys_per_part",
    "window",
    "n_rows",
    "n_parts",
)


@triton.jit
def place_of(n_rows, n_sequences, BLOCK: tl.constexpr, HEADS: tl.constexpr, LAST_FIRST: tl.constexpr):
    """This program's sequence (a head of a batch) and its first row.

    The programs of HEADS sequences take turns, few enough for the L2 cache. Under a causal mask, some tiles
    have more work than others. These should start first, so that short ones fill the gaps at the end.
    LAST_FIRST starts with the last rows.
    """
    sequence, tile = tile_of(tl.program_id(0), n_sequences, n_rows, 1, BLOCK, HEADS)
    if LAST_FIRST:
        tile = tl.cdiv(n_rows, BLOCK) - 1 - tile
    return sequence, tile * BLOCK


@triton.jit
def load_rows(x, batch, head, first, n_rows, stride, ROWS: tl.constexpr, HEAD_SIZE: tl.constexpr,
              DESCRIBED: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """Loads rows `first` to `first + ROWS` of one head; rows from `n_rows` on are 0.

    `x` is a tensor descriptor or, without DESCRIBED, a pointer to the first row of the head. A descriptor
    never reads past the last row. Loads by pointers only check it if MASKED is true.
    """
    if DESCRIBED:
        tile = x.load([batch, head, first, 0]).reshape(ROWS, HEAD_SIZE)
    else:
        rows, cols = tl.arange(0, ROWS)[:, None], tl.arange(0, HEAD_SIZE)[None, :]
        ptrs = x + tl.cast(first, tl.int64) * stride + rows.to(tl.int64) * stride + cols
        tile = tl.load(ptrs, mask=first + rows < n_rows, other=0.0) if MASKED else tl.load(ptrs)
    return tile


@triton.jit
def visible(rows, cols, n_keys, window, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr):
    """Whether the queries `rows` see the keys `cols`; one is a column, the other a row."""
    sees = cols < n_keys
    if CAUSAL:
        sees &= cols <= rows
    if WINDOWED:
        sees &= cols > rows - window
    return sees


@triton.jit
def key_bounds(first_row, n_keys, window, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
               CAUSAL: tl.constexpr, WINDOWED: tl.constexpr):  # fmt: skip
    """The keys that a tile of queries needs: `first`, `full`, `last_full`, `end`.

    Tiles of keys from `full` to `last_full` are visible to every query of the tile, so they need no mask.
    Those from `first` to `full` and from `last_full` to `end` are visible in part.
    """
    first, full = 0, 0
    last_full, end = n_keys // BLOCK_N * BLOCK_N, n_keys
    if CAUSAL:
        last_full = min(last_full, (first_row + 1) // BLOCK_N * BLOCK_N)
        end = min(end, first_row + BLOCK_M)
    if WINDOWED:
        first = max(first_row - window + 1, 0) // BLOCK_N * BLOCK_N
        full = min(
            tl.cdiv(max(first_row + BLOCK_M - window, 0), BLOCK_N) * BLOCK_N, tl.cdiv(end, BLOCK_N) * BLOCK_N
        )
        last_full = max(full, last_full)
    return first, full, last_full, end


@triton.jit
def query_bounds(first_key, n_queries, window, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                 CAUSAL: tl.constexpr, WINDOWED: tl.constexpr):  # fmt: skip
    """The queries that see a tile of keys, as in `key_bounds`. Queries past the last one need no mask."""
    first, full = 0, 0
    last_full, end = tl.cdiv(n_queries, BLOCK_M) * BLOCK_M, n_queries
    if CAUSAL:
        first = first_key // BLOCK_M * BLOCK_M
        full = min(tl.cdiv(first_key + BLOCK_N - 1, BLOCK_M) * BLOCK_M, last_full)
    if WINDOWED:
        end = min(end, first_key + BLOCK_N - 1 + window)
        last_full = max(full, min(last_full, (first_key + window) // BLOCK_M * BLOCK_M))
    return first, full, last_full, end


@triton.jit
def softmax_step(acc, total, top, scores, v, scale, GUARDED: tl.constexpr, PRECISION: tl.constexpr):
    """Adds a tile of keys to the running softmax of a tile of queries.

    Args:
        acc: The weighted sum of the values so far, relative to exp2(top).
        total: The sum of the weights so far, relative to exp2(top).
        top: The largest score of each query so far, times `scale`; -inf if it has seen no key.
        scores: The new scores; those of invisible keys are -inf.
        v: The new values.
        scale: The scale of the scores times log2(e), because the hardware computes powers of 2.
        GUARDED: Whether a query may still have seen no key. It would become NaN by -inf - (-inf).
    """
    new_top = tl.maximum(top, tl.max(scores, axis=1) * scale)
    shift = tl.where(new_top == float("-inf"), 0.0, new_top) if GUARDED else new_top
    weights = tl.exp2(scores * scale - shift[:, None])
    shrink = tl.exp2(top - shift)
    total = total * shrink + tl.sum(weights, axis=1)
    acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
    return acc, total, new_top


@triton.jit
def visit_keys(
    acc, total, top, q, k, v, batch, head, rows, start, end, n_keys, window, scale, stride_kn, stride_vn,
    BLOCK_N: tl.constexpr, HEAD_SIZE: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    DESCRIBED: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Visits the keys from `start` to `end`, tile by tile."""
    for first in range(start, end, BLOCK_N):
        k_tile = load_rows(k, batch, head, first, n_keys, stride_kn, BLOCK_N, HEAD_SIZE, DESCRIBED, MASKED)
        scores = tl.dot(q, k_tile.T, input_precision=PRECISION)
        if MASKED:
            cols = first + tl.arange(0, BLOCK_N)
            sees = visible(rows[:, None], cols[None, :], n_keys, window, CAUSAL, WINDOWED)
            scores = tl.where(sees, scores, float("-inf"))
        v_tile = load_rows(v, batch, head, first, n_keys, stride_vn, BLOCK_N, HEAD_SIZE, DESCRIBED, MASKED)
        acc, total, top = softmax_step(
            acc, total, top, scores, v_tile, scale, MASKED and WINDOWED, PRECISION
        )  # fmt: skip
    return acc, total, top


@triton.jit
def finished(acc, total, top):
    """The weighted mean of the values and the log-sum-exp; 0 and -inf for a query that sees no key."""
    mean = acc * tl.where(total == 0.0, 0.0, 1.0 / total)[:, None]
    return mean, (top + tl.log2(total)) * 0.6931471805599453

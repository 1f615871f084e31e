"""The exercises of lesson 12 with their solutions; `workbook form` writes both into the notebook."""

import math

import numpy as np
import torch
import triton
import triton.language as tl

from helpers.lab import check


# %% longest-sequence
def longest_sequence(n_bytes: int, batch: int, heads: int, itemsize: int) -> int:
    """Return the largest n, an int, for which the scores and weights of all heads fit into `n_bytes`.

    A head of a sequence has n × n scores and as many weights, and each number has `itemsize` bytes.
    """
    # BEGIN SOLUTION: how many bytes do two n × n matrices of each head have?
    return math.isqrt(n_bytes // (2 * batch * heads * itemsize))
    # END SOLUTION


check("longest-sequence", longest_sequence)


# %% tiles-of-keys
def attend_in_tiles(q, k, v, block):
    """Return the attention of the queries q to the keys k and values v, which are NumPy matrices."""
    top = np.full(len(q), -np.inf)  # each query's largest score so far
    total = np.zeros(len(q))  # its sum of exp(score - top)
    acc = np.zeros((len(q), v.shape[1]))  # its sum of exp(score - top) * value
    for first in range(0, len(k), block):
        tile = slice(first, first + block)
        scores = q @ k[tile].T / np.sqrt(q.shape[1])
        new_top = np.maximum(top, scores.max(axis=1))
        # BEGIN SOLUTION: update total and acc with the weights of this tile
        shrink = np.exp(top - new_top)
        weights = np.exp(scores - new_top[:, None])
        total = total * shrink + weights.sum(axis=1)
        acc = acc * shrink[:, None] + weights @ v[tile]
        # END SOLUTION
        top = new_top
    return acc / total[:, None]


check("tiles-of-keys", attend_in_tiles)


# %% attention-in-triton
@triton.jit
def my_attention_kernel(o_ptr, q_ptr, k_ptr, v_ptr, n_queries, n_keys, scale, SIZE: tl.constexpr):
    head, rows, dims = tl.program_id(1), tl.program_id(0) * 32 + tl.arange(0, 32), tl.arange(0, SIZE)
    q_at = (head * n_queries + rows)[:, None] * SIZE + dims
    q = tl.load(q_ptr + q_at, mask=(rows < n_queries)[:, None], other=0.0)
    top, total = tl.full((32,), -float("inf"), tl.float32), tl.zeros((32,), tl.float32)
    acc = tl.zeros((32, SIZE), tl.float32)
    for first in range(0, n_keys, 32):
        keys = first + tl.arange(0, 32)
        kv_at = (head * n_keys + keys)[:, None] * SIZE + dims
        k = tl.load(k_ptr + kv_at, mask=(keys < n_keys)[:, None], other=0.0)
        v = tl.load(v_ptr + kv_at, mask=(keys < n_keys)[:, None], other=0.0)
        scores = tl.where(keys < n_keys, tl.dot(q, k.T) * scale, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        # BEGIN SOLUTION: update total and acc with the weights of this tile
        # STARTER: raise NotImplementedError("update total and acc with the weights of this tile")
        # STARTER: acc = tl.dot(..., v, ...)  # the third argument is added to the product
        shrink = tl.exp(top - new_top)
        weights = tl.exp(scores - new_top[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])
        # END SOLUTION
        top = new_top
    o = (acc / total[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + q_at, o, mask=(rows < n_queries)[:, None])


def my_attention(q, k, v):
    """Attention of (heads, n, size) tensors of float16; size is a power of two, and at least 16."""
    o, (heads, n, size) = torch.empty_like(q), q.shape
    grid = (triton.cdiv(n, 32), heads)
    my_attention_kernel[grid](o, q, k, v, n, k.shape[1], size**-0.5, SIZE=size)
    return o


check("attention-in-triton", my_attention)


# %% tiles-visited
def tiles_visited(n: int, block_m: int, block_n: int) -> int:
    """Return how many tiles all programs visit together, under a causal mask.

    A program has `block_m` queries. It visits tiles of `block_n` keys from the first key on, up to the last
    tile with a key that one of its queries sees. `n` is a multiple of both.
    """
    # BEGIN SOLUTION: how many keys does a program's last query see?
    return sum(triton.cdiv(first + block_m, block_n) for first in range(0, n, block_m))
    # END SOLUTION


check("tiles-visited", tiles_visited)


# %% merge-results
def merge_results(o, lse):
    """Return the result of attention to all keys.

    o: (parts, head_size), a tensor of each part's own result, already divided by its sum, exp(lse);
    lse: (parts,), the log-sum-exp of each part's scores.
    """
    # BEGIN SOLUTION: which weight does each part have?
    weights = torch.exp(lse - lse.max())
    return (weights / weights.sum()) @ o
    # END SOLUTION


check("merge-results", merge_results)

"""Chooses how attention is launched, from the sizes, the dtype and the GPU's properties."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import triton

from helpers.kernels.chip import Chip

HEAD_SIZES = (64, 128)
SPLIT_QUERIES = 16  # with more queries per head, attention is no longer bound by memory
SPLIT_ROWS = 128  # queries of a group of heads, in one tile
MAX_PARTS = 64
SPLIT_TILE_BYTES = 16 << 10  # of keys, and as many of values
START_STEPS = 4


@dataclass(frozen=True)
class AttentionPlan:
    """The kernel and the launch parameters for one call.

    Attributes:
        kernel: "tiles" (loads through pointers), "descriptors", or "split" (each program has a part of the
            keys, for few queries).
        block_m: Queries per tile.
        block_n: Keys per step.
        num_warps: Warps per program.
        num_stages: Steps whose loads are in flight.
        heads_in_turn: How many heads' programs take turns; 1 starts all programs of a head in a row.
        parts: Into how many parts the keys are split.
        warp_specialize: Whether loads and products have warps of their own.
    """

    kernel: str
    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    heads_in_turn: int = 1
    parts: int = 1
    warp_specialize: bool = False

    def options(self) -> dict[str, int]:
        """The plan as arguments of a kernel that visits tiles."""
        return {
            "BLOCK_M": self.block_m, "BLOCK_N": self.block_n, "HEADS": self.heads_in_turn,
            "num_warps": self.num_warps, "num_stages": self.num_stages,
        }  # fmt: skip


def has_tensor_cores(dtype: torch.dtype, precision: str, chip: Chip) -> bool:
    """Whether Triton multiplies this dtype on tensor cores."""
    return chip.capability >= (8, 0) and (dtype != torch.float32 or precision == "tf32")


@functools.lru_cache(maxsize=4096)
def plan_attention(
    q_shape: tuple[int, ...], k_shape: tuple[int, ...], dtype: torch.dtype, *, is_causal: bool = False,
    precision: str = "ieee", described: bool = False, chip: Chip | None = None,
) -> AttentionPlan:  # fmt: skip
    """Chooses the kernel and the launch of attention's forward pass.

    The largest tile of queries is best, because each program loads all keys and values that its queries see,
    unless it would leave SMs idle. A program's registers hold the result and a tile of scores.

    Args:
        q_shape: (batch, heads, n_queries, head_size), each 1 or more.
        k_shape: (batch, kv_heads, n_keys, head_size), each 1 or more.
        dtype: The dtype of q, k and v.
        is_causal: Whether there is a causal mask, with or without a window.
        precision: "tf32" or "ieee", for float32.
        described: Whether q, k and v can be accessed through tensor descriptors.
        chip: The GPU; an H100 if there is none.
    """
    chip = chip or Chip()
    batch, heads, n_queries, head_size = q_shape
    kv_heads, n_keys = k_shape[1:3]
    group = heads // kv_heads
    if not is_causal and n_queries <= SPLIT_QUERIES and group * n_queries <= SPLIT_ROWS:
        return _split(group * n_queries, batch * kv_heads, n_keys, head_size, dtype, chip)
    tensor_cores = has_tensor_cores(dtype, precision, chip)
    described = described and tensor_cores
    if tensor_cores and dtype.itemsize == 2:
        block_m, block_n = 128, 128 if described else 64
    else:
        block_m, block_n = 64, 32
    if batch * heads * -(-n_queries // block_m) < chip.n_sms:
        block_m = max(block_m // 2, 32)
    turn = _heads_in_turn(heads, kv_heads, batch * heads, 2 * n_keys * head_size * dtype.itemsize, chip)
    return AttentionPlan(
        "descriptors" if described else "tiles", block_m, block_n, 8 if block_m * head_size > 4096 else 4,
        _stages(block_m, 2 * block_n, head_size, dtype, chip), turn if is_causal else 1,
    )  # fmt: skip


@functools.lru_cache(maxsize=4096)
def plan_gradients(
    q_shape: tuple[int, ...], k_shape: tuple[int, ...], dtype: torch.dtype, *, is_causal: bool = False,
    precision: str = "ieee", described: bool = False, chip: Chip | None = None,
) -> tuple[AttentionPlan, AttentionPlan]:  # fmt: skip
    """Chooses the launches of attention's backward pass: for the gradients of k and v, and for that of q.

    The arguments are those of `plan_attention`.
    """
    chip = chip or Chip()
    (batch, heads, n_queries, head_size), (kv_heads, n_keys) = q_shape, k_shape[1:3]
    tensor_cores = has_tensor_cores(dtype, precision, chip)
    described = described and tensor_cores
    turn = _heads_in_turn(heads, kv_heads, batch * heads, 2 * n_keys * head_size * dtype.itemsize, chip)

    def planned(block_m: int, block_n: int, num_warps: int, resident: int, loaded: int) -> AttentionPlan:
        stages = _stages(2 * resident, 2 * loaded, head_size, dtype, chip, most=2)
        kernel = "descriptors" if described else "tiles"
        return AttentionPlan(kernel, block_m, block_n, num_warps, stages, turn if is_causal else 1)

    if tensor_cores and dtype.itemsize == 2:
        return planned(64, 64, 8, 64, 64), planned(128, 64, 8, 128, 64)
    return planned(32, 32, 8, 32, 32), planned(32, 32, 8, 32, 32)


def _stages(resident: int, loaded: int, head_size: int, dtype: torch.dtype, chip: Chip, most: int = 3) -> int:
    """How many steps of `loaded` rows fit into shared memory next to `resident` rows."""
    row = head_size * dtype.itemsize
    free = chip.shared_bytes - (2 << 10) - resident * row  # 2 KB are the compiler's
    return max(1, min(most, free // (loaded * row)))


def _heads_in_turn(heads: int, kv_heads: int, sequences: int, n_bytes: int, chip: Chip) -> int:
    """How many heads can take turns if what they read, `n_bytes` per key head, may fill half the L2 cache."""
    fit = max(1, chip.l2_bytes // 2 // n_bytes) * (heads // kv_heads)
    return min(1 << (fit.bit_length() - 1), triton.next_power_of_2(sequences))


def _split(
    rows: int, sequences: int, n_keys: int, head_size: int, dtype: torch.dtype, chip: Chip
) -> AttentionPlan:
    """The plan for few queries: as many parts as keep every SM busy to the end.

    Programs run in waves of as many as fit on the GPU at once. A program takes a step per tile of keys, and
    its start and its end weigh as much as START_STEPS.
    """
    block_m = max(16, triton.next_power_of_2(rows))
    block_n = SPLIT_TILE_BYTES // (head_size * dtype.itemsize)
    program_bytes = chip.shared_bytes // 2  # two programs per SM, so that one loads while the other starts
    stages = max(1, min(3, program_bytes // (2 * SPLIT_TILE_BYTES)))
    slots, steps = 2 * chip.n_sms, -(-n_keys // block_n)

    def estimate(parts: int) -> int:
        return -(-sequences * parts // slots) * (-(-steps // parts) + START_STEPS)

    parts = min((1 << i for i in range(MAX_PARTS.bit_length()) if 1 << i <= steps), key=estimate)
    return AttentionPlan("split", block_m, block_n, 4, stages, parts=parts)

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
SPLIT_TILE_BYTES = 8 << 10  # of keys, and as many of values
SPLIT_PROGRAMS = 4  # per SM, so that one loads while another computes
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
    """

    kernel: str
    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    heads_in_turn: int = 1
    parts: int = 1

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
    unless it would leave SMs idle. A program's registers hold the result and a tile of scores. On Hopper, two
    programs of four warps per SM are faster than one of eight: while one computes exponentials, the other
    multiplies. So a tile has 8,192 scores, 64 for each thread.

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
    rows = heads // kv_heads * n_queries
    tensor_cores = has_tensor_cores(dtype, precision, chip)
    described = described and tensor_cores and dtype.itemsize == 2
    most_rows = SPLIT_ROWS if tensor_cores else 16
    if not is_causal and n_queries <= SPLIT_QUERIES and rows <= most_rows:
        return _split(rows, batch * kv_heads, n_keys, head_size * dtype.itemsize, tensor_cores, chip)
    block_m, block_n, num_warps = (head_size, 8192 // head_size, 4) if described else (128, 64, 8)
    if not tensor_cores:  # without them, rows of q and k take registers, too
        block_m, block_n = 2048 // head_size, 32
    elif dtype == torch.float32:
        block_m, block_n = 64, 32
    elif batch * heads * -(-n_queries // block_m) < chip.n_sms:
        block_m, num_warps = 64, 4
    stages = _stages(block_m, 2 * block_n, head_size, dtype, chip, most=2 if described else 3)
    if stages < 3 and not described and block_n == 64:  # with two, Triton holds more addresses in registers
        block_n, stages = 32, _stages(block_m, 64, head_size, dtype, chip)
    turn = _heads_in_turn(q_shape, k_shape, dtype, chip) if is_causal else 1
    kernel = "descriptors" if described else "tiles"
    return AttentionPlan(kernel, block_m, block_n, num_warps, stages, turn)


@functools.lru_cache(maxsize=4096)
def plan_gradients(
    q_shape: tuple[int, ...], k_shape: tuple[int, ...], dtype: torch.dtype, *, is_causal: bool = False,
    precision: str = "ieee", described: bool = False, chip: Chip | None = None,
) -> tuple[AttentionPlan, AttentionPlan]:  # fmt: skip
    """Chooses the launches of attention's backward pass: for the gradients of k and v, and for that of q.

    The arguments are those of `plan_attention`.
    """
    chip = chip or Chip()
    head_size = q_shape[3]
    tensor_cores = has_tensor_cores(dtype, precision, chip)
    described = described and tensor_cores and dtype.itemsize == 2
    if described:
        keys, queries = (8192 // head_size, 64), (64, 64)
    elif tensor_cores and dtype.itemsize == 2:
        keys, queries = (32, 64), (64, 64)
    elif tensor_cores:
        keys = queries = (32, 32)
    else:
        keys = queries = (2048 // head_size,) * 2

    kernel, num_warps = ("descriptors", 4) if described else ("tiles", 8)

    def planned(block_m: int, block_n: int, resident: int, loaded: int) -> AttentionPlan:
        stages = _stages(2 * resident, 2 * loaded, head_size, dtype, chip, most=2)
        turn = _heads_in_turn(q_shape, k_shape, dtype, chip) if is_causal else 1
        return AttentionPlan(kernel, block_m, block_n, num_warps, stages, turn)

    return planned(*keys, resident=keys[1], loaded=keys[0]), planned(
        *queries, resident=queries[0], loaded=queries[1]
    )


def _stages(resident: int, loaded: int, head_size: int, dtype: torch.dtype, chip: Chip, most: int = 3) -> int:
    """How many steps of `loaded` rows fit into shared memory next to `resident` rows."""
    row = head_size * dtype.itemsize
    free = chip.shared_bytes - (2 << 10) - resident * row  # 2 KB are the compiler's
    return max(1, min(most, free // (loaded * row)))


def _heads_in_turn(q_shape: tuple[int, ...], k_shape: tuple[int, ...], dtype: torch.dtype, chip: Chip) -> int:
    """How many heads can take turns if their keys and values may fill half of the L2 cache."""
    batch, kv_heads, n_keys, head_size = k_shape
    fit = max(1, chip.l2_bytes // (4 * n_keys * head_size * dtype.itemsize)) * (q_shape[1] // kv_heads)
    return min(1 << (fit.bit_length() - 1), triton.next_power_of_2(batch * q_shape[1]))


def _split(
    rows: int, sequences: int, n_keys: int, row_bytes: int, tensor_cores: bool, chip: Chip
) -> AttentionPlan:
    """The plan for few queries: as many parts as keep every SM busy to the end.

    Programs run in waves of SPLIT_PROGRAMS per SM. A program takes a step per tile of keys, and its start and
    its end weigh as much as START_STEPS. With up to 16 rows, two warps and three steps in flight are 5 %
    faster on an H200 than four warps and two steps, and 1 % slower on an H100.
    """
    block_m = max(16, triton.next_power_of_2(rows))
    block_n = max(16, SPLIT_TILE_BYTES // (1 if tensor_cores else 4) // row_bytes)
    num_warps, num_stages = (2, 3) if tensor_cores and block_m == 16 else (4 if block_m <= 64 else 8, 2)
    slots, steps = SPLIT_PROGRAMS * chip.n_sms, -(-n_keys // block_n)

    def estimate(parts: int) -> int:
        return -(-sequences * parts // slots) * (-(-steps // parts) + START_STEPS)

    parts = min((1 << i for i in range(MAX_PARTS.bit_length()) if 1 << i <= steps), key=estimate)
    return AttentionPlan("split", block_m, block_n, num_warps, num_stages, parts=parts)

"""What lesson 12's sliders move over: the workbook's attention by tile, warps and stages, with and without a
causal mask.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from helpers import plots
from helpers.widgets import compiled
from helpers.widgets.product import MOST_REGISTERS
from helpers.widgets.space import Candidate, Space

if TYPE_CHECKING:
    import torch

DESCRIPTORS, FLASH, CUDNN = "Triton descriptors", "torch flash", "torch cuDNN"
BATCH, HEADS = 4, 16
HEADS_IN_TURN = 8  # under a causal mask; the keys and values of so many heads fit into the L2 cache
# Absolute, too, because elements near 0 are sums of larger terms that were rounded to bfloat16.
_TOLERANCE = (1e-2, 1e-2)
_DRAWN = 2**10  # tokens; more on the CPU are only compiled for, so nobody draws their numbers


def _reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> torch.Tensor:
    """Attention head by head, because the scores of all heads are several GB."""
    import torch

    o = torch.empty_like(q)
    hidden = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1) & is_causal
    for head in range(q.shape[0] * q.shape[1]):
        one = divmod(head, q.shape[1])
        scores = (q[one] @ k[one].mT * q.shape[3] ** -0.5).masked_fill_(hidden, float("-inf"))
        o[one] = torch.softmax(scores, dim=-1) @ v[one]
    return o


def _inputs(
    shape: tuple[int, int],
    generator: torch.Generator,
    device: str,
    dtype: torch.dtype,
    *,
    head_size: int,
    is_causal: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool]:
    """q, k and v for shape[1] tokens, and whether there is a causal mask.

    The queries are twice as long as usual, so that single keys have large weights, and a kernel that misses
    some is noticed.
    """
    import torch

    small = device == "cpu" and shape[1] <= _DRAWN
    size = (1, 1, shape[1], head_size) if small else (BATCH, HEADS, shape[1], head_size)
    if device == "cpu" and not small:
        return *(torch.empty(size, dtype=dtype) for _ in range(3)), is_causal
    q, k, v = (torch.randn(size, generator=generator, device=device, dtype=dtype) for _ in range(3))
    return 2 * q, k, v, is_causal


def n_flops(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> int:
    """The operations of both products; a causal mask hides half of them."""
    return 4 * q.numel() * k.shape[2] // (2 if is_causal else 1)


def candidate(kernel: str, point: Mapping[str, Any]) -> Candidate:
    """One of the kernels at a point."""
    problem = {"head_size": point["head_size"], "is_causal": point["causal"] == "yes"}
    common = {
        "reference": _reference,
        "make_inputs": functools.partial(_inputs, **problem),
        "tolerance": _TOLERANCE,
    }
    if kernel != DESCRIPTORS:
        return Candidate(functools.partial(_by_torch, kernel), **common)
    run = functools.partial(_by_descriptors, point)
    return Candidate(run, facts=functools.partial(compiled.run_facts, run, loop=True), **common)


def _by_torch(
    kernel: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool
) -> torch.Tensor:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    backends = {FLASH: SDPBackend.FLASH_ATTENTION, CUDNN: SDPBackend.CUDNN_ATTENTION}
    with sdpa_kernel(backends[kernel]):
        return scaled_dot_product_attention(q, k, v, is_causal=is_causal)


def _by_descriptors(
    point: Mapping[str, Any], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool
) -> torch.Tensor:
    import torch

    from helpers.kernels.attention import attention_descriptor_kernel, described
    from helpers.kernels.attention_tiles import LOG2_E

    batch, heads, n, head_size = q.shape
    block_m, block_n = point["block_m"], point["block_n"]
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    attention_descriptor_kernel[(-(-n // block_m) * batch * heads,)](
        described(o, block_m), lse, described(q, block_m), described(k, block_n), described(v, block_n),
        head_size**-0.5 * LOG2_E, batch * heads, heads, 1, n, n, 0,
        BLOCK_M=block_m, BLOCK_N=block_n, HEADS=HEADS_IN_TURN if is_causal else 1, HEAD_SIZE=head_size,
        CAUSAL=is_causal, WINDOWED=False, RAGGED=n % block_n > 0, PRECISION="ieee",
        num_warps=point["num_warps"], num_stages=point["num_stages"],
    )  # fmt: skip
    return o


def skipped(kernel: str, point: Mapping[str, Any]) -> str:
    """Why a point isn't timed: the sums and scores of its tile don't fit into registers."""
    if kernel != DESCRIPTORS:
        return ""
    threads = 32 * point["num_warps"]
    numbers = point["block_m"] * (point["head_size"] + point["block_n"]) // threads
    if numbers < MOST_REGISTERS:
        return ""
    return (
        f"each of its {threads} threads has {numbers} sums and scores and at most {MOST_REGISTERS} "
        "registers, so it spills, and isn't timed"
    )


def _sources() -> list:
    from helpers.kernels import attention, attention_tiles
    from helpers.kernels.matmul import tile_of

    tiles = ("place_of", "load_rows", "visible", "key_bounds", "softmax_step", "visit_keys", "finished")
    called = [getattr(attention_tiles, name) for name in tiles]
    return [attention.attention_descriptor_kernel, attention.attend, *called, tile_of]


def _programs(row: Mapping[str, Any]) -> int:
    """Programs of the launch behind a row."""
    return BATCH * HEADS * -(-row["n_cols"] // row["block_m"]) if row["kernel"] == DESCRIPTORS else 1


SPACE = Space(
    name="attention",
    record="attention/launch-sweep",
    x="block_n",
    y="block_m",
    axes={
        "block_m": (64, 128),
        "block_n": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (2, 3),
        "head_size": (64, 128),
        "causal": ("no", "yes"),
        "n_cols": (4096,),
        "dtype": ("bfloat16",),
    },
    mapped=(DESCRIPTORS,),
    rivals=(FLASH, CUDNN),
    problem=("n_cols", "dtype", "head_size", "causal"),
    start={
        "block_m": 128, "block_n": 128, "num_warps": 8, "num_stages": 3, "head_size": 128, "causal": "no",
        "n_cols": 4096, "dtype": "bfloat16",
    },
    candidates=candidate,
    sources=_sources,
    blocks=_programs,
    operation=f"attention in {BATCH * HEADS} heads",
    size=lambda n_rows, n_cols: f"{n_cols:,} tokens",
    words={
        "block_m": ("BLOCK_M", "queries"),
        "block_n": ("BLOCK_N", "keys"),
        "n_cols": ("length", "tokens"),
    },
    n_rows=None,
    n_flops=n_flops,
    skipped=skipped,
    colours={DESCRIPTORS: plots.PALETTE[0], FLASH: plots.PALETTE[4], CUDNN: plots.PALETTE[5]},
)  # fmt: skip

"""What lesson 11's sliders move over: one Triton product by tile, warps, stages and order, at three sizes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from helpers import plots
from helpers.widgets import compiled
from helpers.widgets.peak import SIZES
from helpers.widgets.space import Candidate, Space

if TYPE_CHECKING:
    import torch

TILES, TORCH = "Triton tiles", "torch.matmul"
BLOCK_K = 64  # columns of a per step; of 16-bit numbers, these are 128 bytes, a row of a swizzle
MOST_REGISTERS = 255  # of a thread
# Relative: two steps of bfloat16. Absolute: torch.matmul may round partial sums of about 64 to bfloat16, and
# a product that is missing from a sum changes it by about 1.
_TOLERANCE = (8e-3, 0.5)
_DRAWN = 2**18  # elements; larger matrices on the CPU are only compiled for, so nobody draws their numbers


def _reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def _matrices(
    shape: tuple[int, int], generator: torch.Generator, device: str, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """a of this shape, and a square b."""
    import torch

    shapes = (shape, (shape[1], shape[1]))
    if device == "cpu" and shape[0] * shape[1] > _DRAWN:
        return tuple(torch.empty(one, dtype=dtype) for one in shapes)
    return tuple(torch.randn(one, generator=generator, device=device, dtype=dtype) for one in shapes)


def n_flops(a: torch.Tensor, b: torch.Tensor) -> int:
    """The operations of a @ b: a multiplication and an addition per pair of numbers."""
    return 2 * a.shape[0] * a.shape[1] * b.shape[1]


def candidate(kernel: str, point: Mapping[str, Any]) -> Candidate:
    """One of the kernels at a point."""
    import torch

    from helpers.kernels.matmul import matmul_tiles_kernel

    common = {"reference": _reference, "make_inputs": _matrices, "tolerance": _TOLERANCE}
    if kernel == TORCH:
        return Candidate(torch.matmul, **common)

    sizes = {name.upper(): point[name] for name in ("block_m", "block_n", "group_m")}
    how = {"num_warps": point["num_warps"], "num_stages": point["num_stages"]}

    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        grid = (-(-m // point["block_m"]) * -(-n // point["block_n"]), 1)
        k_per_part = -(-k // BLOCK_K) * BLOCK_K
        matmul_tiles_kernel[grid](
            c, a, b, c, c, c, m, n, k, k_per_part, *a.stride(), *b.stride(), 0, *c.stride(),
            BLOCK_K=BLOCK_K, PRECISION="ieee", IMPRECISE=None, SCALED=False, BIAS=False, GELU=False,
            **sizes, **how,
        )  # fmt: skip
        return c

    return Candidate(run, facts=functools.partial(compiled.run_facts, run, loop=True), **common)


def skipped(kernel: str, point: Mapping[str, Any]) -> str:
    """Why a point isn't timed: its tile of c doesn't fit into registers, so that it would spill."""
    if kernel == TORCH:
        return ""
    threads = 32 * point["num_warps"]
    sums = point["block_m"] * point["block_n"] // threads
    if sums < MOST_REGISTERS:
        return ""
    return (
        f"each of its {threads} threads has {sums} sums and at most {MOST_REGISTERS} registers, so it "
        "spills, and isn't timed"
    )


def _sources() -> list:
    from helpers.kernels.matmul import matmul_tiles_kernel, tile_of

    return [matmul_tiles_kernel, tile_of]


def _programs(row: Mapping[str, Any]) -> int:
    """Programs of the launch behind a row."""
    n = row["n_cols"]
    return -(-n // row["block_m"]) * -(-n // row["block_n"]) if row["kernel"] == TILES else 1


SPACE = Space(
    name="product",
    record="matmul/tile-sweep",
    x="block_n",
    y="block_m",
    axes={
        "block_m": (64, 128, 256),
        "block_n": (64, 128, 256),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
        "group_m": (1, 8),
        "n_cols": SIZES,
        "dtype": ("bfloat16",),
    },
    mapped=(TILES,),
    rivals=(TORCH,),
    start={
        "block_m": 128, "block_n": 128, "num_warps": 8, "num_stages": 3, "group_m": 8,
        "n_cols": 4096, "dtype": "bfloat16",
    },
    candidates=candidate,
    sources=_sources,
    blocks=_programs,
    operation="product",
    n_rows=None,
    n_flops=n_flops,
    skipped=skipped,
    colours={TILES: plots.PALETTE[0], TORCH: plots.PALETTE[4]},
)  # fmt: skip

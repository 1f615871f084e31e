"""What lesson 06's sliders move over: softmax kernels by columns, warps and dtype, always on the same number
of elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from helpers import plots
from helpers.widgets import compiled
from helpers.widgets.space import COMPILED, Candidate, Refused, Space

if TYPE_CHECKING:
    import torch

ONE_BLOCK, ONLINE, PLANNED, TORCH = "one block", "online", "by plan", "torch.softmax"
N_ELEMENTS = 2**25
MOST_A_THREAD = 256  # elements: beyond, the compiler takes minutes to spill everything
# Elements are about 1/N: an absolute tolerance would hide a wrong one.
_TOLERANCE = {"float32": (1e-5, 1e-12), "bfloat16": (1.6e-2, 1e-9)}


def _reference(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(dim=1)


def candidate(kernel: str, point: Mapping[str, Any]) -> Candidate:
    """One of the kernels at a point.

    Raises:
        helpers.widgets.space.Refused: a row that the kernel cannot hold with so many warps, or a dtype that
            torch.compile leaves to eager on this GPU.
    """
    import torch
    import triton

    from helpers.kernels import softmax as kernels

    n_cols, warps = point["n_cols"], point.get("num_warps")
    common = {"reference": _reference, "tolerance": _TOLERANCE[point["dtype"]]}
    if kernel == TORCH:
        return Candidate(_reference, **common)
    if kernel == COMPILED:
        compiled.refuse_eager(point["dtype"])
        return Candidate(_torch_compiled(), **common)
    if kernel == PLANNED:
        return Candidate(lambda x: kernels.softmax_forward(x, torch.empty_like(x)), **common)
    if kernel == ONE_BLOCK:
        block, function = triton.next_power_of_2(n_cols), kernels.softmax_rows_kernel
        if block // (32 * warps) > MOST_A_THREAD:
            raise Refused(f"a thread would hold {block // (32 * warps):,} elements and has 255 registers")
    else:
        block, function = 4096, kernels.softmax_online_kernel

    def launch(x: torch.Tensor, y: torch.Tensor) -> Any:
        return function[(x.shape[0],)](
            y, x, x.stride(0), y.stride(0), x.shape[1], BLOCK_SIZE=block, num_warps=warps
        )

    def run(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        launch(x, y)
        return y

    def facts(x: torch.Tensor) -> dict[str, int]:
        return compiled.triton_facts(function, lambda y: launch(x, y), x)

    return Candidate(run, facts=facts, **common)


def _torch_compiled() -> Any:
    """torch.compile of a softmax, made to forget the shape before: a row is compiled for its own shape."""
    import torch

    torch._dynamo.reset()
    return torch.compile(_reference, dynamic=False)


def _sources() -> list:
    from helpers.kernels import softmax as kernels

    return [kernels.softmax_rows_kernel, kernels.softmax_online_kernel, kernels.softmax_tiles_kernel]


SPACE = Space(
    name="softmax",
    record="fusion/softmax-sweep",
    x="num_warps",
    y="n_cols",
    axes={
        "num_warps": (1, 2, 4, 8, 16, 32),
        "n_cols": (256, 1024, 4096, 8192, 8320, 16384, 32768, 65536, 131072),
        "dtype": ("float32", "bfloat16"),
    },
    mapped=(ONE_BLOCK, ONLINE),
    rivals=(PLANNED, TORCH, COMPILED),
    start={"num_warps": 16, "n_cols": 8192, "dtype": "float32"},
    candidates=candidate,
    sources=_sources,
    operation="softmax",
    n_elements=N_ELEMENTS,
    colours={
        ONE_BLOCK: plots.PALETTE[0],
        ONLINE: plots.PALETTE[1],
        PLANNED: plots.PALETTE[2],
        TORCH: plots.PALETTE[4],
        COMPILED: plots.PALETTE[5],
    },
)

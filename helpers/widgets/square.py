"""The spaces of lessons 02 and 03: kernels that square a matrix of 4,096 rows, by launch parameters, shape
and alignment.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from helpers import cuda, plots
from helpers.widgets import compiled
from helpers.widgets.space import COMPILED, N_ROWS, Candidate, Refused, Space

if TYPE_CHECKING:
    import torch

ROWS, FLAT, CUDA, TORCH = "Triton rows", "Triton flat", "CUDA C++", "torch.square"
_COLOURS = {
    ROWS: plots.PALETTE[0],
    FLAT: plots.PALETTE[1],
    CUDA: plots.PALETTE[2],
    TORCH: plots.PALETTE[4],
    COMPILED: plots.PALETTE[5],
}
# The launches of kernels that a space's sliders do not change.
_BLOCK_SHAPE, _FLAT_BLOCK, _FLAT_WARPS = (32, 8), 1024, 4


def candidate(kernel: str, point: Mapping[str, Any]) -> Candidate:
    """One of the kernels at a point of the space "launch" or "shape", on a contiguous matrix.

    Raises:
        helpers.widgets.space.Refused: a dtype that the kernel is not written for, or that torch.compile
            leaves to eager.
    """
    import torch

    if kernel == TORCH:
        return Candidate(torch.square, torch.square)
    if kernel == COMPILED:
        compiled.refuse_eager(point["dtype"])
        return Candidate(_torch_compiled(), torch.square)
    if kernel == CUDA:
        return _cuda_candidate(point)
    if kernel == FLAT:
        return _flat_candidate(point)
    return _rows_candidate(lambda x: x, point)


def unaligned(kernel: str, point: Mapping[str, Any]) -> Candidate:
    """One of the kernels on rows that lie `padding` elements apart in a buffer and begin `offset` elements
    into it.
    """
    import torch

    n_cols, offset = point["n_cols"], point["offset"]
    stride = n_cols + point["padding"]

    def view(buffer: torch.Tensor) -> torch.Tensor:
        return buffer.as_strided((N_ROWS, n_cols), (stride, 1), offset)

    def squared(buffer: torch.Tensor) -> torch.Tensor:
        return torch.square(view(buffer))

    def make_inputs(shape, generator, device, dtype) -> tuple[torch.Tensor]:
        return (torch.randn(offset + N_ROWS * stride, generator=generator, device=device, dtype=dtype),)

    made = Candidate(squared, squared) if kernel == TORCH else _rows_candidate(view, point)
    return dataclasses.replace(made, make_inputs=make_inputs)


def _cuda_candidate(point: Mapping[str, Any]) -> Candidate:
    import torch

    if point["dtype"] != "float32":
        raise Refused("square_matrix is written for float32")
    block_x, block_y = point.get("block_x", _BLOCK_SHAPE[0]), point.get("block_y", _BLOCK_SHAPE[1])
    return Candidate(
        lambda x: _square_cuda(x, block_x, block_y),
        torch.square,
        lambda x: compiled.cuda_facts(_cuda_text(), block_x * block_y),
    )


def _square_cuda(x: torch.Tensor, block_x: int, block_y: int) -> torch.Tensor:
    """The square of a float32 matrix (rows, columns) on a GPU by the kernel of lesson 02.

    Raises:
        RuntimeError: a block of more threads than a GPU can launch.
    """
    import torch

    threads = block_x * block_y
    if threads > 1024:
        raise RuntimeError(f"a block of {block_x} × {block_y} has {threads:,} threads, and 1,024 is the most")
    kernel = _cuda_kernel()
    y = torch.empty_like(x)
    height, width = x.shape
    # A grid of zero blocks is an error.
    if x.numel():
        grid = math.ceil(width / block_x), math.ceil(height / block_y)
        kernel(x, y, height, width, grid=grid, block=(block_x, block_y))
    return y


@functools.cache
def _cuda_kernel() -> cuda.LoadedKernel:
    return cuda.load_kernel(_cuda_text(), "square_matrix_kernel", device="cuda")


@functools.cache
def _cuda_text() -> str:
    """The kernel `square_matrix_kernel` of helpers/kernels/square.cu, without its wrapper."""
    from helpers.kernels import source

    return source.text("square_matrix")


def _flat_candidate(point: Mapping[str, Any]) -> Candidate:
    import torch

    from helpers.kernels import square

    block, warps = point.get("block_size", _FLAT_BLOCK), point.get("num_warps", _FLAT_WARPS)

    def launch(x: torch.Tensor, y: torch.Tensor) -> Any:
        return square.square_flat_kernel[(math.ceil(x.numel() / block),)](
            x, y, x.numel(), BLOCK_SIZE=block, num_warps=warps
        )

    return Candidate(
        lambda x: square.square_flat(x, block_size=block, num_warps=warps),
        torch.square,
        lambda x: compiled.triton_facts(square.square_flat_kernel, lambda y: launch(x, y), x),
    )


def _rows_candidate(view: Callable[[torch.Tensor], torch.Tensor], point: Mapping[str, Any]) -> Candidate:
    """The kernel of a program a row on the matrix `view(x)`."""
    import torch
    import triton

    from helpers.kernels.square import square_rows_kernel, warps_for

    block = point.get("block_size") or triton.next_power_of_2(point["n_cols"])
    warps = point.get("num_warps") or warps_for(block)

    def launch(x: torch.Tensor, y: torch.Tensor) -> Any:
        return square_rows_kernel[(x.shape[0],)](
            y, x, x.stride(0), y.stride(0), x.shape[1], BLOCK_SIZE=block, num_warps=warps
        )

    def run(x: torch.Tensor) -> torch.Tensor:
        x = view(x)
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        launch(x, y)
        return y

    def facts(x: torch.Tensor) -> dict[str, int]:
        x = view(x)
        return compiled.triton_facts(square_rows_kernel, lambda y: launch(x, y), x)

    return Candidate(run, lambda x: torch.square(view(x)), facts)


@functools.cache
def _torch_compiled() -> Callable:
    import torch

    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    return torch.compile(torch.square, dynamic=False)


def _blocks(row: Mapping[str, Any]) -> int:
    """Blocks (programs) that the launch behind a row has."""
    n_cols = row["n_cols"]
    if row["kernel"] == CUDA:
        block_x, block_y = row.get("block_x") or _BLOCK_SHAPE[0], row.get("block_y") or _BLOCK_SHAPE[1]
        return math.ceil(n_cols / block_x) * math.ceil(N_ROWS / block_y)
    if row["kernel"] == FLAT:
        return math.ceil(N_ROWS * n_cols / (row.get("block_size") or _FLAT_BLOCK))
    return N_ROWS


def _sources() -> list:
    from helpers.kernels import square

    return [square.square_rows_kernel, square.square_flat_kernel, _cuda_text()]


def _rows_source() -> list:
    from helpers.kernels import square

    return [square.square_rows_kernel]


LAUNCH = Space(
    name="launch",
    record="triton/launch-sweep",
    x="num_warps",
    y="block_size",
    axes={
        "block_size": tuple(2**i for i in range(6, 14)),
        "num_warps": (1, 2, 4, 8, 16, 32),
        "n_cols": (256, 512, 781, 1024, 1536, 2048, 4096, 8192),
        "dtype": ("float32", "bfloat16"),
    },
    mapped=(ROWS, FLAT),
    rivals=(CUDA, TORCH, COMPILED),
    start={"block_size": 4096, "num_warps": 8, "n_cols": 4096, "dtype": "float32"},
    candidates=candidate,
    sources=_sources,
    blocks=_blocks,
    operation="square",
    colours=_COLOURS,
)
SHAPE = Space(
    name="shape",
    record="load_inline/shape-sweep",
    x="block_x",
    y="block_y",
    axes={
        "block_x": tuple(2**i for i in range(11)),
        "block_y": (1, 2, 4, 8, 16, 32, 64, 128, 256),
        "n_cols": (256, 781, 1024, 4096, 8192),
        "dtype": ("float32",),
    },
    mapped=(CUDA,),
    rivals=(ROWS, FLAT, TORCH),
    start={"block_x": 16, "block_y": 16, "n_cols": 4096, "dtype": "float32"},
    candidates=candidate,
    sources=_sources,
    blocks=_blocks,
    operation="square",
    colours=_COLOURS,
)
ALIGNMENT = Space(
    name="alignment",
    record="triton/alignment-sweep",
    x="offset",
    y="padding",
    axes={
        "padding": (0, 1, 2, 4, 8, 16, 32),
        "offset": (0, 1, 2, 4, 8, 16),
        "n_cols": (1024, 4096),
        "dtype": ("float32", "bfloat16"),
    },
    mapped=(ROWS, TORCH),
    start={"padding": 0, "offset": 0, "n_cols": 4096, "dtype": "float32"},
    candidates=unaligned,
    sources=_rows_source,
    operation="square",
    colours=_COLOURS,
)
SPACES = {space.name: space for space in (LAUNCH, SHAPE, ALIGNMENT)}

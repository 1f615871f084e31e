"""Measuring a point of a `Space` on this GPU: checked first, then timed, with what the compiler made of the kernel."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers import cuda, device
from helpers.widgets.table import COMPILED, CUDA, FACTS, FLAT, N_ROWS, RESULTS, ROWS, TORCH, Space

if TYPE_CHECKING:
    import torch


class Refused(Exception):
    """A kernel that has no such point."""


@dataclass(frozen=True)
class Candidate:
    """One kernel at one point: `run(x)` squares; `facts(x)` says what was compiled; `inputs` where x is special.

    `tolerance` is (relative, absolute), where the dtype's own would hide a wrong result.
    """

    run: Callable[[torch.Tensor], torch.Tensor]
    facts: Callable[[torch.Tensor], dict[str, int]] = lambda x: {}
    reference: Callable[[torch.Tensor], torch.Tensor] | None = None
    make_inputs: Callable | None = None
    tolerance: tuple[float, float] | None = None


def measure(space: Space, kernel: str, point: Mapping[str, Any], *, budget_s: float = 0.1) -> dict[str, Any]:
    """Check one kernel at one point on this GPU, then time it.

    Returns:
        The row: kernel, the point, times in µs with their interval, GB/s, verdict and reason, and the compiled facts.

    Raises:
        helpers.device.Missing: no GPU here.
    """
    import torch

    from helpers.timing.sweeps import sweep

    device.require("gpu")
    shape, dtype = (space.rows(point["n_cols"]), point["n_cols"]), getattr(torch, point["dtype"])
    row: dict[str, Any] = {"kernel": kernel, **{axis: point.get(axis) for axis in space.axes}}
    if kernel not in space.mapped:
        row |= {axis: None for axis in space.axes if axis not in ("n_cols", "dtype")}
    try:
        candidate = _candidate(space, kernel, point)
    except Refused as refusal:
        return row | dict.fromkeys(FACTS) | {"verdict": "refused", "reason": str(refusal)}

    (found,) = sweep(
        candidate.run,
        name=kernel,
        shapes=[shape],
        reference=candidate.reference or torch.square,
        make_inputs=candidate.make_inputs,
        n_bytes=2 * shape[0] * shape[1] * dtype.itemsize,
        dtype=dtype,
        budget_s=budget_s,
        tolerance=candidate.tolerance,
    ).to_dict("records")
    facts: dict[str, int] = {}
    if found["verdict"] != "refused":
        x = candidate.make_inputs(shape, None, "cuda", dtype)[0] if candidate.make_inputs else None
        facts = candidate.facts(torch.ones(shape, dtype=dtype, device="cuda") if x is None else x)
    row |= {name: facts.get(name) for name in FACTS}
    return row | {name: _short(found[name]) for name in RESULTS}


def _short(value: Any) -> Any:
    """Five significant digits are more than a measurement has."""
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else float(f"{value:.5g}")


def _candidate(space: Space, kernel: str, point: Mapping[str, Any]) -> Candidate:
    import torch

    if space.operation == "softmax":
        from helpers.widgets import softmax

        return softmax.candidate(kernel, point)
    if space.name == "alignment":
        return _unaligned(kernel, point)
    if kernel == TORCH:
        return Candidate(torch.square)
    if kernel == COMPILED:
        if reason := device.left_to_eager(getattr(torch, point["dtype"])):
            raise Refused(reason)
        return Candidate(_compiled())
    if kernel == CUDA:
        if point["dtype"] != "float32":
            raise Refused("square_matrix is written for float32")
        shape = (point.get("block_x", 32), point.get("block_y", 8))
        return Candidate(lambda x: _square_cuda(x, *shape), lambda x: _cuda_facts(shape))
    from helpers.kernels import square

    if kernel == FLAT:
        block, warps = point.get("block_size", 1024), point.get("num_warps", 4)
        return Candidate(
            lambda x: square.square_flat(x, block_size=block, num_warps=warps),
            lambda x: triton_facts(
                square.square_flat_kernel,
                lambda y: square.square_flat_kernel[(math.ceil(x.numel() / block),)](
                    x, y, x.numel(), BLOCK_SIZE=block, num_warps=warps
                ),
                x,
            ),
        )
    block = point.get("block_size") or _next_power_of_2(point["n_cols"])
    warps = point.get("num_warps") or square.warps_for(block)
    return _rows_candidate(lambda x: x, block, warps)


def _rows_candidate(view: Callable, block: int, warps: int) -> Candidate:
    import torch

    from helpers.kernels.square import square_rows_kernel

    def launch(x, y):
        x = view(x)
        return square_rows_kernel[(x.shape[0],)](
            y, x, x.stride(0), y.stride(0), x.shape[1], BLOCK_SIZE=block, num_warps=warps
        )

    def run(x):
        y = torch.empty(view(x).shape, dtype=x.dtype, device=x.device)
        launch(x, y)
        return y

    return Candidate(
        run,
        lambda x: triton_facts(square_rows_kernel, lambda y: launch(x, y), view(x)),
        lambda x: torch.square(view(x)),
    )


def _unaligned(kernel: str, point: Mapping[str, Any]) -> Candidate:
    """Rows that lie `padding` elements apart in a buffer and begin `offset` elements into it."""
    import dataclasses

    import torch

    n_cols, offset = point["n_cols"], point["offset"]
    stride = n_cols + point["padding"]

    def view(buffer):
        return buffer.as_strided((N_ROWS, n_cols), (stride, 1), offset)

    def make_inputs(shape, generator, device, dtype):
        return (torch.randn(offset + N_ROWS * stride, generator=generator, device=device, dtype=dtype),)

    if kernel == TORCH:
        made = Candidate(lambda x: torch.square(view(x)), reference=lambda x: torch.square(view(x)))
    else:
        from helpers.kernels.square import warps_for

        block = _next_power_of_2(n_cols)
        made = _rows_candidate(view, block, warps_for(block))
    return dataclasses.replace(made, make_inputs=make_inputs)


def _next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()


@functools.cache
def _compiled() -> Callable:
    import torch

    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    return torch.compile(torch.square, dynamic=False)


def triton_facts(kernel: Any, launch: Callable, like: torch.Tensor) -> dict[str, int]:
    """What the compiler made of a Triton kernel that `launch(y)` launches; y is like `like`."""
    import torch

    from helpers import ptx

    compiled = launch(torch.empty(like.shape, dtype=like.dtype, device=like.device))
    reading = ptx.from_compiled(kernel, compiled).reading
    return {
        "threads": 32 * compiled.metadata.num_warps,
        "registers": compiled.n_regs,
        "spill_bytes": 4 * compiled.n_spills,  # Triton counts words
        "shared_bytes": compiled.metadata.shared,
        "loads": len(reading.loads),
        "load_bytes": max((i.n_bytes for i in reading.loads), default=0),
    }


@functools.cache
def cuda_text() -> str:
    """The kernel `square_matrix_kernel` of helpers/kernels/square.cu, without its wrapper."""
    from helpers.kernels import source

    return source.text("square_matrix")


@functools.cache
def _cuda_kernel() -> cuda.LoadedKernel:
    return cuda.load_kernel(cuda_text(), "square_matrix_kernel", device="cuda")


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


def _cuda_facts(shape: tuple[int, int]) -> dict[str, int]:
    from helpers import ptx

    stages = ptx.cuda_stages(cuda_text(), target=device.gpu_spec().target)
    loads = stages.reading.loads
    return {
        "threads": shape[0] * shape[1],
        "registers": stages.n_registers,
        "spill_bytes": stages.spill_bytes,
        "shared_bytes": stages.shared_bytes,
        "loads": len(loads),
        "load_bytes": max(i.n_bytes for i in loads),
    }


def record(space: Space, *, progress: bool = True, budget_s: float = 0.02) -> list[dict[str, Any]]:
    """Every row of a space, measured on this GPU: what `make record` keeps."""
    plan: Any = list(space.points())
    if progress:
        from tqdm.auto import tqdm

        plan = tqdm(plan, desc=space.record, unit="row", leave=False)
    return [measure(space, kernel, point, budget_s=budget_s) for kernel, point in plan]


def sources(space: Space) -> list:
    """The kernels of a space, for the record's hashes."""
    if space.operation == "softmax":
        from helpers.widgets import softmax

        return softmax.sources()
    from helpers.kernels import square

    kernels = {*space.mapped, *space.rivals}
    found = {ROWS: square.square_rows_kernel, FLAT: square.square_flat_kernel, CUDA: cuda_text()}
    return [source for kernel, source in found.items() if kernel in kernels]

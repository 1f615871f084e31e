"""What the sliders of `helpers.widgets` move over: launch parameters crossed with sizes, checked and timed.

A `Space` is a grid of points for some kernels that square a matrix of 4,096 rows. Its table has a row for each kernel
and point; `Table` finds rows in it, and on a GPU measures those that are still missing. Each row also holds what the
compiler made of the kernel that was timed, so that the sentence under a figure is about that very kernel.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from helpers import device, records

if TYPE_CHECKING:
    import pandas as pd
    import torch

N_ROWS = 4096
ROWS, FLAT, CUDA = "Triton rows", "Triton flat", "CUDA C++"
TORCH, COMPILED = "torch.square", "torch.compile"
BYTES = {"float32": 4, "bfloat16": 2}
_FACTS = ("threads", "registers", "spill_bytes", "shared_bytes", "loads", "load_bytes")
_RESULTS = ("median_us", "ci_low_us", "ci_high_us", "gb_per_s", "verdict", "reason")
WORDS = {
    "block_size": "BLOCK_SIZE",
    "num_warps": "num_warps",
    "n_cols": "columns, N",
    "dtype": "dtype",
    "block_x": "block, x",
    "block_y": "block, y",
    "padding": "row padding",
    "offset": "first element",
}
UNITS = {"block_size": "elements", "block_x": "threads", "block_y": "threads", "padding": "elements",
         "offset": "elements", "num_warps": "warps a program"}  # fmt: skip


@dataclass(frozen=True)
class Space:
    """A grid of points and the kernels that are compared on it.

    Attributes:
        name: how `explore(over=...)` calls it.
        record: the record that holds its table.
        x, y: the two axes of the heat map.
        axes: every slider with its values; `n_cols` and `dtype` are always among them.
        mapped: the kernels that depend on all axes.
        rivals: the kernels that depend on size and dtype only.
        start: the sliders' first positions.
    """

    name: str
    record: str
    x: str
    y: str
    axes: Mapping[str, tuple]
    mapped: tuple[str, ...]
    rivals: tuple[str, ...]
    start: Mapping[str, Any]

    def key(self, kernel: str, point: Mapping[str, Any]) -> tuple:
        """What tells this kernel's row at a point from all others."""
        axes = self.axes if kernel in self.mapped else ("n_cols", "dtype")
        return kernel, *(point[a] for a in axes)

    def points(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every kernel with each of its points, grouped so that neighbours share a compiled kernel."""
        small = {name: self.axes[name] for name in ("dtype", "n_cols")}
        for kernel in (*self.mapped, *self.rivals):
            axes = {n: v for n, v in self.axes.items() if n not in small} if kernel in self.mapped else {}
            for values in itertools.product(*axes.values(), *small.values()):
                yield kernel, dict(zip((*axes, *small), values, strict=True))


_DTYPES = ("float32", "bfloat16")
SPACES = {
    space.name: space
    for space in (
        Space(
            "launch",
            "triton/launch-sweep",
            "num_warps",
            "block_size",
            {
                "block_size": tuple(2**i for i in range(6, 14)),
                "num_warps": (1, 2, 4, 8, 16, 32),
                "n_cols": (256, 512, 781, 1024, 1536, 2048, 4096, 8192),
                "dtype": _DTYPES,
            },
            (ROWS, FLAT),
            (CUDA, TORCH, COMPILED),
            {"block_size": 4096, "num_warps": 8, "n_cols": 4096, "dtype": "float32"},
        ),
        Space(
            "shape",
            "load_inline/shape-sweep",
            "block_x",
            "block_y",
            {
                "block_x": tuple(2**i for i in range(11)),
                "block_y": (1, 2, 4, 8, 16, 32, 64, 128, 256),
                "n_cols": (256, 781, 1024, 4096, 8192),
                "dtype": ("float32",),
            },
            (CUDA,),
            (ROWS, FLAT, TORCH),
            {"block_x": 16, "block_y": 16, "n_cols": 4096, "dtype": "float32"},
        ),
        Space(
            "alignment",
            "triton/alignment-sweep",
            "offset",
            "padding",
            {
                "padding": (0, 1, 2, 4, 8, 16, 32),
                "offset": (0, 1, 2, 4, 8, 16),
                "n_cols": (1024, 4096),
                "dtype": _DTYPES,
            },
            (ROWS, TORCH),
            (),
            {"padding": 0, "offset": 0, "n_cols": 4096, "dtype": "float32"},
        ),
    )
}


# ------------------------------------------------------------------------------------------- measuring


class _Refused(Exception):
    """A kernel that has no such point."""


@dataclass(frozen=True)
class _Candidate:
    """One kernel at one point: `run(x)` squares; `facts(x)` says what was compiled; `inputs` where x is special."""

    run: Callable[[torch.Tensor], torch.Tensor]
    facts: Callable[[torch.Tensor], dict[str, int]] = lambda x: {}
    reference: Callable[[torch.Tensor], torch.Tensor] | None = None
    make_inputs: Callable | None = None


def measure(space: Space, kernel: str, point: Mapping[str, Any], *, budget_s: float = 0.1) -> dict[str, Any]:
    """Check one kernel at one point on this GPU, then time it.

    Returns:
        The row: kernel, the point, times in µs with their interval, GB/s, verdict and reason, and the compiled facts.

    Raises:
        helpers.device.Missing: no GPU here.
    """
    import torch

    from helpers.sweep import sweep

    device.require("gpu")
    n_cols, dtype = point["n_cols"], getattr(torch, point["dtype"])
    row: dict[str, Any] = {"kernel": kernel, **{axis: point.get(axis) for axis in space.axes}}
    if kernel not in space.mapped:
        row |= {axis: None for axis in space.axes if axis not in ("n_cols", "dtype")}
    try:
        candidate = _candidate(space, kernel, point)
    except _Refused as refusal:
        return row | dict.fromkeys(_FACTS) | {"verdict": "refused", "reason": str(refusal)}

    def named(x):
        return candidate.run(x)

    named.__name__ = kernel
    (found,) = sweep(
        named,
        shapes=[(N_ROWS, n_cols)],
        reference=candidate.reference or torch.square,
        make_inputs=candidate.make_inputs,
        n_bytes=2 * N_ROWS * n_cols * dtype.itemsize,
        dtype=dtype,
        budget_s=budget_s,
    ).to_dict("records")
    facts: dict[str, int] = {}
    if found["verdict"] != "refused":
        x = candidate.make_inputs((N_ROWS, n_cols), None, "cuda", dtype)[0] if candidate.make_inputs else None
        facts = candidate.facts(torch.ones(N_ROWS, n_cols, dtype=dtype, device="cuda") if x is None else x)
    row |= {name: facts.get(name) for name in _FACTS}
    return row | {name: _short(found[name]) for name in _RESULTS}


def _short(value: Any) -> Any:
    """Five significant digits are more than a measurement has."""
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else float(f"{value:.5g}")


def _candidate(space: Space, kernel: str, point: Mapping[str, Any]) -> _Candidate:
    import torch

    if space.name == "alignment":
        return _unaligned(kernel, point)
    if kernel == TORCH:
        return _Candidate(torch.square)
    if kernel == COMPILED:
        return _Candidate(_compiled())
    if kernel == CUDA:
        if point["dtype"] != "float32":
            raise _Refused("square_matrix is written for float32")
        shape = (point.get("block_x", 32), point.get("block_y", 8))
        return _Candidate(lambda x: _square_cuda(x, *shape), lambda x: _cuda_facts(shape))
    from helpers.kernels import square

    if kernel == FLAT:
        block, warps = point.get("block_size", 1024), point.get("num_warps", 4)
        return _Candidate(
            lambda x: square.square_flat(x, block_size=block, num_warps=warps),
            lambda x: _triton_facts(
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


def _rows_candidate(view: Callable, block: int, warps: int) -> _Candidate:
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

    return _Candidate(
        run,
        lambda x: _triton_facts(square_rows_kernel, lambda y: launch(x, y), view(x)),
        lambda x: torch.square(view(x)),
    )


def _unaligned(kernel: str, point: Mapping[str, Any]) -> _Candidate:
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
        made = _Candidate(lambda x: torch.square(view(x)), reference=lambda x: torch.square(view(x)))
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


def _triton_facts(kernel: Any, launch: Callable, like: torch.Tensor) -> dict[str, int]:
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
    from pathlib import Path

    from helpers import project

    return project.read_kernels(Path(__file__).parent / "kernels")["square_matrix"][1]


@functools.cache
def _cuda_function():
    """The CUDA kernel, compiled by NVRTC for this GPU and loaded into PyTorch's context: no nvcc needed."""
    import torch
    from cuda.bindings import driver

    from helpers import build

    torch.cuda.init()
    torch.cuda.synchronize()
    cubin = build.compile_cubin(cuda_text(), target=device.gpu_spec().target)
    module = _ok(*driver.cuModuleLoadData(cubin))
    from helpers import ptx

    name = ptx.cuda_stages(cuda_text(), target=device.gpu_spec().target).kernel
    return _ok(*driver.cuModuleGetFunction(module, name.encode()))


def _ok(error, *values):
    if error.value:
        raise RuntimeError(f"the driver says {error.name}")
    return values[0] if values else None


def _square_cuda(x: torch.Tensor, block_x: int, block_y: int) -> torch.Tensor:
    import ctypes

    import torch
    from cuda.bindings import driver

    if block_x * block_y > 1024:
        raise RuntimeError(
            f"a block of {block_x} × {block_y} has {block_x * block_y:,} threads, and 1,024 is the most"
        )
    function = _cuda_function()
    y = torch.empty_like(x)
    height, width = x.shape
    grid = math.ceil(width / block_x), math.ceil(height / block_y)
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    arguments = ((x.data_ptr(), y.data_ptr(), height, width), kinds)
    stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
    if x.numel():
        _ok(*driver.cuLaunchKernel(function, *grid, 1, block_x, block_y, 1, 0, stream, arguments, 0))
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


# ------------------------------------------------------------------------------------------- the table


@dataclass
class Table:
    """The rows of a space that are known, and whether this machine can measure the others."""

    space: Space
    spec: device.GpuSpec
    live: bool
    date: str = ""
    rows: dict[tuple, dict[str, Any]] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """Where the figures come from, for the figure itself."""
        return f"live on {self.spec.name}" if self.live else f"replayed: {self.spec.name}, {self.date}"

    def row(self, kernel: str, point: Mapping[str, Any]) -> dict[str, Any] | None:
        """A known row, or None."""
        return self.rows.get(self.space.key(kernel, point))

    def measured(self, kernel: str, point: Mapping[str, Any]) -> dict[str, Any] | None:
        """A row; on a GPU one that is missing is checked and timed first."""
        key = self.space.key(kernel, point)
        if key not in self.rows and self.live:
            self.rows[key] = measure(self.space, kernel, point)
        return self.rows.get(key)


def load(space: Space) -> Table:
    """The space's table: recorded where there is no GPU, empty and to be filled where there is one.

    While records are being made (`make record`) the whole space is measured.

    Raises:
        helpers.records.NoRecord: no GPU here and nothing recorded.
    """
    recording = os.environ.get("WORKBOOK_RECORD") == "1"
    if device.has_gpu() and not recording:
        return Table(space, device.gpu_spec(), live=True)
    frame = records.measured(space.record, lambda: record(space), sources=_sources(space))
    return from_frame(space, frame, live=device.has_gpu())


def _sources(space: Space) -> list:
    from helpers.kernels import square

    kernels = {*space.mapped, *space.rivals}
    found = {ROWS: square.square_rows_kernel, FLAT: square.square_flat_kernel, CUDA: cuda_text()}
    return [source for kernel, source in found.items() if kernel in kernels]


def from_frame(space: Space, frame: pd.DataFrame, *, live: bool = False) -> Table:
    """A table from rows that `records.measured` returned."""
    provenance = frame.attrs["provenance"]
    table = Table(space, device.GpuSpec.from_dict(provenance.gpu), live, provenance.date)
    for row in frame.to_dict("records"):
        clean = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
        for name in (*space.axes, *_FACTS):
            if isinstance(clean.get(name), float):
                clean[name] = int(clean[name])
        table.rows[space.key(clean["kernel"], clean)] = clean
    return table


# ------------------------------------------------------------------------------------------- the sentence


def n_blocks(space: Space, row: Mapping[str, Any]) -> int:
    """Blocks (programs) that the launch behind a row has."""
    n = row["n_cols"]
    if row["kernel"] == CUDA:
        bx, by = row.get("block_x") or 32, row.get("block_y") or 8
        return math.ceil(n / bx) * math.ceil(N_ROWS / by)
    if row["kernel"] == FLAT:
        return math.ceil(N_ROWS * n / (row.get("block_size") or 1024))
    return N_ROWS


def occupancy(spec: device.GpuSpec, threads: int, registers: int, shared_bytes: int) -> tuple[int, str]:
    """How many blocks an SM holds at once, and what keeps it from holding more.

    Registers are given to a warp in units of 256 (CUDA Occupancy Calculator, compute capability 7.0 to 9.0).
    """
    warps = math.ceil(threads / spec.warp_size)
    per_warp = math.ceil(registers * spec.warp_size / 256) * 256
    limits = {
        "threads": spec.max_threads_per_sm // (warps * spec.warp_size),
        "blocks": spec.max_blocks_per_sm,
        "registers": spec.registers_per_sm // (per_warp * warps) if per_warp else 10**6,
    }
    if shared_bytes:
        limits["shared memory"] = spec.shared_bytes_per_sm // (shared_bytes + 1024)  # 1 KiB is the system's
    tightest = min(limits, key=limits.get)
    return limits[tightest], tightest


def reason(table: Table, row: Mapping[str, Any] | None) -> str:
    """One line on why a kernel is as fast as it is at a point: registers, occupancy, waves, vector width, spills."""
    if row is None:
        return "not measured yet"
    if row["verdict"] != "ok":
        return f"{row['verdict']}: {row['reason']}"
    if not row.get("registers"):
        return "a library's kernel: nothing here compiled it"
    at_once, tightest, busy, waves = _residence(table, row)
    spills = f"{row['spill_bytes']} bytes spilled" if row["spill_bytes"] else "none spilled"
    return (
        f"{row['registers']} registers a thread ({spills}) · {row['loads']} × {row['load_bytes']}-byte loads · "
        f"{at_once} blocks an SM, {busy:.0f} % of its threads (limit: {tightest}) · {waves:,.1f} waves"
    )


def brief(table: Table, row: Mapping[str, Any] | None) -> str:
    """The same for a hover text, of which a figure holds hundreds."""
    if row is None or row["verdict"] != "ok" or not row.get("registers"):
        return reason(table, row)[:90]
    _, _, busy, waves = _residence(table, row)
    spills = f", {row['spill_bytes']} B spilled" if row["spill_bytes"] else ""
    return (
        f"{row['registers']} registers{spills}, {row['loads']} × {row['load_bytes']} B loads<br>"
        f"{busy:.0f} % occupied, {waves:,.1f} waves"
    )


def _residence(table: Table, row: Mapping[str, Any]) -> tuple[int, str, float, float]:
    """Blocks an SM, what limits them, per cent of its threads, waves of the launch."""
    spec = table.spec
    at_once, tightest = occupancy(spec, row["threads"], row["registers"], row["shared_bytes"] or 0)
    busy = 100 * at_once * row["threads"] / spec.max_threads_per_sm
    return at_once, tightest, busy, n_blocks(table.space, row) / max(1, at_once * spec.sm_count)

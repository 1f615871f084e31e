"""Measurements of lesson 03: what a wrong benchmark claims, what the autotuner chooses and costs, how four
squares compare over many sizes, and what a race and a print look like on a GPU.

Each function measures on a GPU, and replays the record otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import check, records, timing
from helpers.lessons import generated, programs, scripts

if TYPE_CHECKING:
    import pandas as pd
    import torch

ROWS, TORCH, COMPILE = "Triton, a program a row", "torch.square", "torch.compile"
_PRINTS = """
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def show(x_ptr, BLOCK_SIZE: tl.constexpr):
        x = tl.load(x_ptr + tl.arange(0, BLOCK_SIZE))
        tl.device_print("x", x)
        tl.device_assert(x < 3, "too big")

    show[(1,)](torch.arange(4.0, device="cuda"), BLOCK_SIZE=4, num_warps=1)
    torch.cuda.synchronize()
"""


def square_bytes(x: torch.Tensor) -> int:
    """Returns the bytes that a square of `x` must move: each element is read once and written once."""
    return 2 * x.nbytes


def counting_up(shape: tuple[int, int], generator: object, device: str, dtype: torch.dtype) -> tuple:
    """Returns a matrix for `assert_matches` with the same values on every machine."""
    import torch

    n_elements = shape[0] * shape[1]
    return (torch.arange(n_elements, device=device, dtype=dtype).reshape(shape) % 2048,)


# ------------------------------------------------------------ a wrong benchmark
def square_rows_1024(x: torch.Tensor) -> torch.Tensor:
    """Squares the first 1,024 columns of each row, with one program per row."""
    import torch

    from helpers.kernels.square import square_rows_kernel

    out = torch.empty_like(x)
    square_rows_kernel[(x.shape[0],)](out, x, x.stride(0), out.stride(0), x.shape[1], BLOCK_SIZE=1024)
    return out


def fixed_block() -> pd.DataFrame:
    """Returns what a benchmark of `square_rows_1024` reports for 4,096 rows.

    Returns:
        A DataFrame with `n_cols`, `median_us`, `claimed_gb_per_s` (all columns), `really_gb_per_s` (the
        columns that were written), `columns_written`, `same_memory` (whether the output got the memory of an
        earlier right answer) and `allclose_passes`.
    """
    from helpers.kernels.square import square_rows_kernel

    sizes = (1024, 2048, 4096, 12672)
    return records.measured(
        "triton/fixed-block", lambda: [_claim(n) for n in sizes], sources=[square_rows_kernel]
    )


def _claim(n: int) -> dict[str, Any]:
    import torch

    from helpers.kernels.square import square_rows

    x = torch.randn(4096, n, device="cuda")
    torch.cuda.empty_cache()
    address = square_rows(x).data_ptr()  # a right answer, freed at once
    suspect = square_rows_1024(x)
    row = {"same_memory": suspect.data_ptr() == address}
    row["allclose_passes"] = torch.allclose(suspect, torch.square(x))
    with check.poisoned():
        written = torch.isfinite(square_rows_1024(x)).all(dim=0)
    seen = timing.time_gpu(lambda: square_rows_1024(x), budget_s=0.1)
    row["claimed_gb_per_s"] = seen.gb_per_s(square_bytes(x))
    row["really_gb_per_s"] = seen.gb_per_s(square_bytes(x[:, written]))
    row["columns_written"] = int(written.sum())
    return {"n_cols": n, "median_us": seen.median_us, **row}


# ------------------------------------------------------------ the autotuner
def autotune_rows(tuned: Callable, tuner: Any, sizes: Iterable[int]) -> pd.DataFrame:
    """Returns what the autotuner's first call costs for 4,096 rows, and what it gains over `warps_for`.

    Args:
        tuned: Squares a tensor with the autotuned kernel.
        tuner: The autotuned kernel.
        sizes: The columns to try.
    """
    from helpers.kernels.square import square_rows_kernel

    return records.measured(
        "triton/autotune", lambda: [_tuned(tuned, tuner, n) for n in sizes], sources=[square_rows_kernel]
    )


def _tuned(tuned: Callable, tuner: Any, n: int) -> dict[str, Any]:
    import torch
    import triton

    from helpers.kernels.square import square_rows, warps_for

    x = torch.randn(4096, n, device="cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    tuned(x)
    torch.cuda.synchronize()
    row = {"n_cols": n, "first_call_ms": 1e3 * (time.perf_counter() - start)}
    check.assert_matches(tuned, torch.square, shapes=[(4096, n)])
    row["tuner's warps"] = tuner.best_config.num_warps
    row["rule's warps"] = warps_for(triton.next_power_of_2(n))
    for name, f in (("tuned_us", tuned), ("by_rule_us", square_rows)):
        row[name] = timing.time_gpu(lambda f=f: f(x), budget_s=0.1).median_us
    return row


# ------------------------------------------------------------ the curve
def curve(curve_step: int) -> pd.DataFrame:
    """Returns GB/s of four squares of 4,096 rows, over the columns.

    torch.compile compiles once per size, outside the timed region. If nvcc is available, the CUDA kernel of
    lesson 02 is included.

    Args:
        curve_step: 1 measures all sizes, and 8 every eighth.
    """
    from helpers.kernels.square import square_matrix_source, square_rows_kernel

    return records.measured(
        "triton/curve",
        lambda: _curve(curve_step),
        sources=[square_rows_kernel, square_matrix_source()],
        params={"curve_rows": 4096, "curve_step": curve_step},
    )


def _curve(curve_step: int) -> pd.DataFrame:
    import pandas as pd
    import torch

    from helpers import device
    from helpers.kernels.square import load_square_matrix, square_rows

    square_matrix = load_square_matrix() if device.find_tool("nvcc") else None
    sizes = sorted({*range(256, 12800, 128 * curve_step), 12672, 781, 4097, 8193})
    shapes = [(4096, n) for n in sizes]
    common = {"reference": torch.square, "n_bytes": square_bytes, "budget_s": 0.05}
    kernels = {ROWS: square_rows, TORCH: torch.square}
    if square_matrix:
        kernels["CUDA, 16 × 16 threads"] = square_matrix  # lesson 02's, with one element per thread
    tables = [timing.sweep(f, shapes=shapes, **common).assign(kernel=name) for name, f in kernels.items()]
    for shape in shapes:
        torch._dynamo.reset()  # forgets the previous size, of which torch.compile would only keep eight
        compiled = torch.compile(torch.square, dynamic=False)
        tables.append(timing.sweep(compiled, shapes=[shape], **common).assign(kernel=COMPILE))
    if square_matrix:  # blocks of another shape, at the widest size only
        line = timing.sweep(lambda x: square_matrix(x, (256, 1)), shapes=shapes[-1:], **common)
        tables.append(line.assign(kernel="CUDA, 256 × 1 threads"))
    return pd.concat(tables, ignore_index=True)


# ------------------------------------------------------------ torch.compile's kernel
def generated_code(n_rows: int, n_cols: int) -> str:
    """Returns the Python file that torch.compile generates for a square of this size on a GPU."""
    import torch

    def write(path: Path) -> None:
        path.write_text(generated.by_compile(torch.square, (n_rows, n_cols)))

    params = {"n_rows": n_rows, "n_cols": n_cols}
    return records.measured_file("triton/output-code", write, ".py", params=params).read_text()


def launches() -> pd.DataFrame:
    """Returns how four squares of 4,096 × 12,672 floats launch their kernels, a row per function."""
    from helpers.kernels.square import square_flat_kernel, square_rows_kernel

    sources = [square_rows_kernel, square_flat_kernel]
    rows = records.measured("triton/launches", _launches, sources=sources)
    return rows.set_index("function").drop(columns="kernel").astype({"elements a block": int})


def _launches() -> list[dict[str, Any]]:
    import torch

    from helpers.kernels.square import square_flat, square_rows

    x = torch.randn(4096, 12672, device="cuda")
    torch._dynamo.reset()
    kernels = {"square_rows": square_rows, "square_flat": square_flat, TORCH: torch.square}
    kernels[COMPILE] = torch.compile(torch.square, dynamic=False)
    for f in kernels.values():
        check.assert_matches(f, torch.square, shapes=[tuple(x.shape)])
    return [programs.launch_of(name, f, x) for name, f in kernels.items()]


# ------------------------------------------------------------ what only a GPU can show
def race(kernels: dict[str, Any]) -> pd.DataFrame:
    """Returns what 4,096 programs count if each adds 1 to the same number.

    Args:
        kernels: Name to kernel, in the order of the record.
    """
    return records.measured("triton/race", lambda: _race(kernels), sources=list(kernels.values()))


def _race(kernels: dict[str, Any]) -> list[dict[str, Any]]:
    import torch

    rows = []
    for name, kernel in kernels.items():
        counter = torch.zeros(1, dtype=torch.int32, device="cuda")
        kernel[(4096,)](counter)
        rows.append({"update": name, "programs": 4096, "counted": counter.item()})
    return rows


def device_prints() -> pd.DataFrame:
    """Returns what `device_print` and `device_assert` print on a GPU, and the error that follows."""

    def live() -> list[dict[str, str]]:
        return scripts.debug_lines(scripts.run_script(_PRINTS, TRITON_DEBUG="1"))

    return records.measured("triton/device-print", live, sources=[_PRINTS])

"""The league: its points, and the functions that every installation can measure.

The functions are our softmax, GELU and square, and the same operators of PyTorch and torch.compile.
`benchmarks/kernels.py` measures all points and adds other libraries; `workbook bench` measures the points
that you choose.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from helpers import check, device
from workbook.bench.measure import Call, copy_of, measure_point, on_poisoned_memory
from workbook.bench.table import COPY, OURS

if TYPE_CHECKING:
    import torch

NAMES = (COPY, "eager", "compile", "compile-max", OURS)
WIDTHS = (256, 512, 1024, 2048, 4096, 8192, 8320, 12288, 16384, 32768, 65536, 131072, 262144, 393216)
WIDTHS_AT_1G = (1024, 4096, 8192, 32768, 65536, 262144, 393216)
SIZES = (*(4**k for k in range(6, 16)), 10_007, 1_000_003, 100_000_001)
SIZES_FP16 = (4096, 1 << 20, 1 << 26, 1 << 28)
# A softmax's values are small, so the relative tolerance must be tighter than the default: 1e-5 for float32,
# and one rounding for the 16-bit dtypes.
SOFTMAX_TOLERANCE = {"float32": (1e-5, 1e-12), "bfloat16": (8e-3, 1e-12), "float16": (2e-3, 6e-8)}
_CHECKED_AT_ONCE = 1 << 25  # elements


@dataclass(frozen=True)
class Point:
    """One operation on one tensor. The tensor of square and GELU has one dimension, so `n_rows` is 1."""

    op: str
    dtype: str
    n_rows: int
    n_cols: int

    @property
    def n_elements(self) -> int:
        return self.n_rows * self.n_cols


def all_points() -> list[Point]:
    """All points of the league."""
    n_256m, n_1g = 1 << 28, 1 << 30
    points = [Point("softmax", dtype, n_256m // n, n) for n in WIDTHS for dtype in ("float32", "bfloat16")]
    for dtype, sizes in (("float32", SIZES), ("bfloat16", SIZES), ("float16", SIZES_FP16)):
        points += [Point(op, dtype, 1, n) for op in ("gelu", "square") for n in sorted(sizes)]
    return points + [
        Point("softmax", dtype, n_1g // n, n) for n in WIDTHS_AT_1G for dtype in ("float32", "bfloat16")
    ]


def torch_function(op: str) -> Callable:
    """PyTorch's version of an operation; softmax runs along the last dimension."""
    import torch
    from torch.nn import functional

    return {
        "softmax": lambda x: torch.softmax(x, dim=-1),
        "gelu": lambda x: functional.gelu(x, approximate="tanh"),
        "square": lambda x: torch.square(x),
    }[op]


def contestant(name: str, op: str, x: torch.Tensor) -> tuple[Call | None, str]:
    """Make one of `NAMES` as a function without arguments, or return None and the reason."""
    import torch

    if name == COPY:
        return copy_of(x), ""
    if name == "eager":
        function = torch_function(op)
        return lambda: function(x), ""
    if name in ("compile", "compile-max"):
        if reason := device.left_to_eager(x.dtype):
            return None, reason
        mode = "max-autotune-no-cudagraphs" if name == "compile-max" else None
        compiled = torch.compile(torch_function(op), dynamic=False, fullgraph=True, mode=mode)
        return lambda: compiled(x), ""
    from helpers.kernels import ops

    ours = getattr(ops, op)
    return lambda: ours(x), ""


def run_point(
    point: Point,
    names: Sequence[str],
    budget_s: float,
    *,
    broken: Collection[str] = (),
    make: Callable[[str, str, Any], tuple[Call | None, str]] = contestant,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Measure one point of the league.

    Args:
        point: the point.
        names: the functions to measure, by the names that `make` knows.
        budget_s: how many seconds to time.
        broken: functions that broke the GPU's state at this point before, and are skipped.
        make: `make(name, op, x)` makes a function, as `contestant` does.

    Returns:
        The rows and the kernels' descriptions, as `measure.measure_point` returns them.
    """
    import torch

    torch._dynamo.reset()
    generator = torch.Generator(device="cuda").manual_seed(point.n_cols)
    shape = (point.n_rows, point.n_cols) if point.op == "softmax" else (point.n_cols,)
    x = torch.randn(shape, dtype=getattr(torch, point.dtype), device="cuda", generator=generator)
    tolerance = SOFTMAX_TOLERANCE[point.dtype] if point.op == "softmax" else None
    return measure_point(
        asdict(point),
        {name: functools.partial(make, name, point.op, x) for name in names},
        lambda name, call: check_large(name, call, torch_function(point.op), x, tolerance),
        2 * x.numel() * x.element_size(),
        broken=broken,
        budget_s=budget_s,
    )


def check_large(
    name: str,
    call: Call,
    reference: Callable[[torch.Tensor], torch.Tensor],
    x: torch.Tensor,
    tolerance: tuple[float, float] | None = None,
) -> None:
    """Raise `check.Mismatch` unless `call()` equals `reference(x)` in float64, checked in pieces.

    A float64 copy of a large tensor might not fit into memory, so `reference` gets some rows at a time (some
    elements, if `x` is 1-D). The memory that the output will get is filled with 0xFF bytes (NaN) first.
    """
    import torch

    got = on_poisoned_memory(call, x)
    if not isinstance(got, torch.Tensor) or (got.shape, got.dtype) != (x.shape, x.dtype):
        raise check.Mismatch(
            f"{name} returned {getattr(got, 'dtype', type(got).__name__)} of shape "
            f"{tuple(getattr(got, 'shape', ()))}, but {x.dtype} of shape {tuple(x.shape)} was expected."
        )
    step = max(1, _CHECKED_AT_ONCE // (x.shape[1] if x.ndim == 2 else 1))
    for start in range(0, x.shape[0], step):
        piece = slice(start, start + step)
        case = f"{tuple(x.shape)}, from row {start:,} on"
        check.assert_close(name, got[piece], reference(x[piece].double()), case=case, tolerance=tolerance)

"""The league's points, and the contestants that are always there: our softmax, GELU and square, torch and torch.compile.

`benchmarks/kernels.py` measures them all, with other libraries beside them; `workbook bench` those that you name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from helpers import device
from helpers.timing import league
from helpers.workshop.bench.measure import THEN, copy_of, measure_point

NAMES = (league.COPY, "eager", "compile", "compile-max", league.OURS)
WIDTHS = (256, 512, 1024, 2048, 4096, 8192, 8320, 12288, 16384, 32768, 65536, 131072, 262144, 393216)
WIDTHS_AT_1G = (1024, 4096, 8192, 32768, 65536, 262144, 393216)
SIZES = (*(4**k for k in range(6, 16)), 10_007, 1_000_003, 100_000_001)
SIZES_FP16 = (4096, 1 << 20, 1 << 26, 1 << 28)
# Tighter than check's own where a softmax's values are small: one part in 1e5 in float32, one rounding in the others.
SOFTMAX_TOLERANCE = {"float32": (1e-5, 1e-12), "bfloat16": (8e-3, 1e-12), "float16": (2e-3, 6e-8)}


@dataclass(frozen=True)
class Point:
    """One operation on one tensor; square and GELU have one row."""

    op: str
    dtype: str
    n_rows: int
    n_cols: int

    @property
    def n_elements(self) -> int:
        return self.n_rows * self.n_cols


def all_points() -> list[Point]:
    """The whole league, the widest claims first."""
    quarter, whole = 1 << 28, 1 << 30
    points = [Point("softmax", dtype, quarter // n, n) for n in WIDTHS for dtype in ("float32", "bfloat16")]
    for dtype, sizes in (("float32", SIZES), ("bfloat16", SIZES), ("float16", SIZES_FP16)):
        points += [Point(op, dtype, 1, n) for op in ("gelu", "square") for n in sorted(sizes)]
    return points + [
        Point("softmax", dtype, whole // n, n) for n in WIDTHS_AT_1G for dtype in ("float32", "bfloat16")
    ]


def torch_function(op: str) -> Callable:
    """The operation in plain torch; along the last dimension for softmax."""
    import torch
    from torch.nn import functional

    return {
        "softmax": lambda x: torch.softmax(x, dim=-1),
        "gelu": lambda x: functional.gelu(x, approximate="tanh"),
        "square": lambda x: torch.square(x),
    }[op]


def contestant(name: str, op: str, x) -> tuple[Callable[[], Any] | None, str]:
    """A contestant of `NAMES` as a function without arguments, or None, and a note: why there is none."""
    import torch

    if name == league.COPY:
        return copy_of(x)
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
    names: list[str],
    broken: set[str],
    budget_s: float,
    *,
    then: Callable | None = None,
    make: Callable[[str, str, Any], tuple[Callable | None, str]] = contestant,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Measure a point of the league: see `measure_point`.

    Args:
        point: which.
        names: the contestants that `make` knows.
        broken: those that have broken the GPU's state at this point before.
        budget_s: seconds of timing.
        then: another text of the operation's entry (`entry_of_op`), timed beside ours.
        make: `make(name, op, x)` gives a contestant, as `contestant` does.
    """
    import torch

    torch._dynamo.reset()
    generator = torch.Generator(device="cuda").manual_seed(point.n_cols)
    shape = (point.n_rows, point.n_cols) if point.op == "softmax" else (point.n_cols,)
    x = torch.randn(shape, dtype=getattr(torch, point.dtype), device="cuda", generator=generator)
    tolerance = SOFTMAX_TOLERANCE[point.dtype] if point.op == "softmax" else None
    makers = {name: functools.partial(make, name, point.op, x) for name in names}
    if then:
        call = (lambda: then(x, torch.empty_like(x))) if point.op == "softmax" else (lambda: then(x))
        makers[THEN] = lambda: (call, "")
    return measure_point(
        asdict(point),
        makers,
        lambda name, call: league.check_large(name, call, torch_function(point.op), x, tolerance),
        2 * x.numel() * x.element_size(),
        broken=broken,
        budget_s=budget_s,
    )


def entry_of_op(op: str) -> Callable:
    """The function behind one of our operations whose module's text is kept: `softmax_forward(x, out)`, `gelu_forward(x)` …

    `helpers.kernels.ops` itself registers operators with torch and so can be loaded only once.
    """
    from helpers.kernels import elementwise, softmax

    return {
        "softmax": softmax.softmax_forward,
        "gelu": elementwise.gelu_forward,
        "square": elementwise.square_forward,
    }[op]

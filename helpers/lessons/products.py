"""What lesson 11 measures and draws: the speed of matrix products, their traffic, and the order of tiles.

Functions that measure need a GPU and return the rows of a record.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from helpers import plots

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    import torch

    from helpers.ncu import Report
    from helpers.ptx import Instruction, Stages

    Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    Call = Callable[[], torch.Tensor]

SECTOR = 32  # bytes
# counter -> what one of its units is worth in bytes
COUNTERS = {
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": SECTOR,
    "lts__t_sectors_srcunit_tex_op_read.sum": SECTOR,
    "dram__bytes_read.sum": 1,
}


def off(ours: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest error of a product, relative to the size of its typical element."""
    return ((ours.double() - exact).abs().max() / exact.square().mean().sqrt()).item()


def speed(n_flop: int, median_us: float, ci95_us: tuple[float, float]) -> dict[str, float]:
    """The columns of one timing: µs and TFLOP/s of a product of `n_flop` operations, with their intervals."""
    tflop = lambda us: n_flop / us / 1e6  # noqa: E731
    return {
        "median_us": median_us, "ci_low_us": ci95_us[0], "ci_high_us": ci95_us[1],
        "tflop_per_s": tflop(median_us), "tflop_per_s_low": tflop(ci95_us[1]),
        "tflop_per_s_high": tflop(ci95_us[0]),
    }  # fmt: skip


def time_products(
    functions: Mapping[str, Product], sizes: Iterable[int], dtype: torch.dtype, *, budget_s: float = 0.25
) -> list[dict[str, Any]]:
    """Checks matrix products and times them in turns, on matrices of random numbers.

    Args:
        functions: The products by name. Each receives two n × n matrices.
        sizes: The values of n.
        dtype: The dtype of both matrices.
        budget_s: Seconds of measurement per size.

    Returns:
        A row per size and function: `n`, `kernel`, the columns of `speed`, and `ratio`, its time relative to
        the first function's, with the interval from `ratio_low` to `ratio_high`.

    Raises:
        ValueError: A product is wrong.
    """
    import torch

    rows = []
    for n in sizes:
        a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
        exact = a[:64].double() @ b.double()
        for name, f in functions.items():
            if (error := off(f(a, b)[:64], exact)) > 0.02:
                raise ValueError(f"{name} is wrong at n = {n:,}: it is off by {error:.2g}.")
        calls = {name: lambda f=f, a=a, b=b: f(a, b) for name, f in functions.items()}
        rows += [{"n": n} | row for row in _timed(calls, next(iter(calls)), 2 * n**3, budget_s)]
    return rows


def compiled_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b by `torch.compile`, which compiles it once for all sizes."""
    return _compiled_matmul()(a, b)


@functools.cache
def _compiled_matmul() -> Product:
    import torch

    return torch.compile(torch.matmul, dynamic=True)


def _timed(calls: Mapping[str, Call], against: str, n_flop: int, budget_s: float) -> Iterator[dict[str, Any]]:
    """Times calls in turns; a row per call: `kernel`, the columns of `speed`, and those of its `ratio`."""
    from helpers.timing.interleaved import compare_many

    for name, one in compare_many(calls, against=against, budget_s=budget_s).items():
        low, high = one.ratio_ci95
        relative = {"ratio": one.ratio, "ratio_low": low, "ratio_high": high}
        yield {"kernel": name, **speed(n_flop, one.median_us, one.ci95_us), **relative}


def time_epilogue(fused: Callable[..., torch.Tensor], ks: Iterable[int]) -> list[dict[str, Any]]:
    """Checks and times GELU of a product plus a bias, in turns, with matrices of random bfloat16 numbers.

    Args:
        fused: Computes all of it, when it is called as `fused(a, b, bias, gelu=True)`.
        ks: The values of k, for a of (8,192, k) and b of (k, 4,096).

    Returns:
        A row per k and way to compute it: `k`, `kernel` ("fused", or one of `by_torch`), the columns of
        `speed`, which count the product's operations, and `ratio`, its time relative to "compiled", with the
        interval from `ratio_low` to `ratio_high`.

    Raises:
        ValueError: A result is wrong.
    """
    import torch

    m, n = 8192, 4096
    rows = []
    for k in ks:
        a, b, bias = (
            torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((m, k), (k, n), (n,))
        )
        b /= k**0.5  # so the bias is about as large as the product
        calls = by_torch(a, b, bias) | {"fused": lambda a=a, b=b, bias=bias: fused(a, b, bias, gelu=True)}
        exact = bias_and_gelu(a[:64].double(), b.double(), bias.double())
        for name, call in calls.items():
            if name != "the product alone" and not (error := off(call()[:64], exact)) <= 0.05:
                raise ValueError(f"{name} is wrong at k = {k:,}: it is off by {error:.2g}.")
        rows += [{"k": k} | row for row in _timed(calls, "compiled", 2 * m * n * k, budget_s=0.6)]
    return rows


def bias_and_gelu(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """GELU (tanh form) of a @ b + bias, in PyTorch's operations."""
    import torch
    from torch.nn import functional

    return functional.gelu(torch.addmm(bias, a, b), approximate="tanh")


def by_torch(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> dict[str, Call]:
    """PyTorch's ways to compute `bias_and_gelu`: "torch" and "compiled"; and "the product alone"."""
    import torch

    compiled = torch.compile(bias_and_gelu, dynamic=False)
    return {
        "torch": lambda: bias_and_gelu(a, b, bias),
        "compiled": lambda: compiled(a, b, bias),
        "the product alone": lambda: a @ b,
    }


def time_contents(product: Product, n: int, dtype: torch.dtype) -> list[dict[str, Any]]:
    """Times one product of random numbers and one of zeros, one after the other.

    They don't take turns, because the clock follows the power that was drawn a moment ago. Each first runs
    for a second, so that the clock has settled.
    """
    import torch

    from helpers import timing

    rows = []
    for name, make in {"random numbers": torch.randn, "zeros": torch.zeros}.items():
        a, b = (make(n, n, device="cuda", dtype=dtype) for _ in range(2))
        end = time.perf_counter() + 1.0
        while time.perf_counter() < end:
            product(a, b)
            torch.cuda.synchronize()
        one = timing.time_gpu(lambda a=a, b=b: product(a, b), budget_s=1.0)
        rows.append({"n": n, "kernel": name, **speed(2 * n**3, one.median_us, one.ci95_us)})
    return rows


def traffic_table(report: Report, names: Sequence[str], computed: Sequence[float]) -> pd.DataFrame:
    """The bytes that the launches of a report read, next to those that were computed.

    Args:
        report: Launches that were profiled with `COUNTERS`.
        names: What to call each launch.
        computed: The bytes that each launch was expected to load.

    Returns:
        A row per launch: `kernel`, and in GB `computed`, `loaded` (what the SMs asked the L1 for), `L2`
        (what the L1 asked the L2 for) and `DRAM`.
    """
    import pandas as pd

    rows = []
    for kernel, name, expected in zip(report, names, computed, strict=True):
        found = [float(kernel.metrics[one]) * unit / 1e9 for one, unit in COUNTERS.items()]
        rows.append(dict(zip(("kernel", "computed", "loaded", "L2", "DRAM"), (name, expected / 1e9, *found),
                             strict=True)))  # fmt: skip
    return pd.DataFrame(rows)


def tile_of(program: int, tiles_m: int, tiles_n: int, group: int) -> tuple[int, int]:
    """The row and the column of a program's tile, in bands that are `group` tiles high."""
    band, within = divmod(program, group * tiles_n)
    height = min(tiles_m - band * group, group)
    return band * group + within % height, within // height


def strips_loaded(tiles_m: int, tiles_n: int, group: int, at_once: int) -> tuple[int, int]:
    """How many strips of a (high as a tile) and of b (wide as one) the first `at_once` programs need."""
    tiles = [tile_of(p, tiles_m, tiles_n, group) for p in range(min(at_once, tiles_m * tiles_n))]
    return len({row for row, _ in tiles}), len({col for _, col in tiles})


def draw_tiles(n: int = 32, tiles: Sequence[int] = (1, 2, 4, 8, 16)) -> go.Figure:
    """Draws what one block loads to compute its tile of c. A slider changes the width of a tile.

    Args:
        n: The rows and columns of each of the three matrices.
        tiles: The widths that the slider offers; each divides n. The last but one is shown first.
    """
    import plotly.graph_objects as go

    first = len(tiles) - 2
    steps = [
        {"label": str(tile), "method": "relayout", "args": [{"shapes": _of_one_block(n, tile)}]}
        for tile in tiles
    ]
    fig = plots.layout(
        go.Figure(),
        "What one block loads for its tile of c",
        note="dark: in one step; pale: in all steps",
        height=520,
    )
    slider = {"active": first, "steps": steps, "currentvalue": {"prefix": "TILE: "}, "pad": {"t": 25}}
    fig.update_layout(
        sliders=[slider],
        shapes=steps[first]["args"][0]["shapes"],
        margin={"t": 75, "b": 90, "l": 20, "r": 20},
    )
    for text, x, y in (("a", -n / 2, -1), ("b", n + 1, -n / 2 - 1), ("c", n + 1, n / 2)):
        at_side = text != "a"
        fig.add_annotation(
            text=f"<b>{text}</b>", x=x - 1 if text == "a" else x, y=y, showarrow=False, font={"size": 17},
            xanchor="left" if at_side else "center", yanchor="middle" if at_side else "bottom",
        )  # fmt: skip
    fig.update_xaxes(range=[-n - 2, n + 4], visible=False)
    fig.update_yaxes(range=[n + 1, -n - 2], visible=False, scaleanchor="x")
    return fig


def _of_one_block(n: int, tile: int) -> list[dict[str, Any]]:
    """The shapes of `draw_tiles`: c is at (0, 0), a is left of it, and b above it."""
    blue, orange, green = plots.PALETTE[0], plots.PALETTE[1], plots.PALETTE[2]
    place = n * 5 // 8 // tile * tile  # of the block's first row and column
    step = n // 4 // tile * tile  # of the numbers of k that it loads now
    left, top = -n - 1, -n - 1
    outline = {"line": {"color": plots.TEXT_COLOUR, "width": 1}}

    def box(x: float, y: float, width: float, height: float, **look: Any) -> dict[str, Any]:
        return {"type": "rect", "x0": x, "y0": y, "x1": x + width, "y1": y + height} | look

    def filled(color: str, opacity: float) -> dict[str, Any]:
        return {"fillcolor": color, "opacity": opacity, "line": {"color": color, "width": 1}}

    matrices = [box(x, y, n, n, **outline) for x, y in ((left, 0), (0, top), (0, 0))]
    strips = [box(left, place, n, tile, **filled(blue, 0.3)), box(place, top, tile, n, **filled(orange, 0.3))]
    now = [
        box(left + step, place, tile, tile, **filled(blue, 1)),
        box(place, top + step, tile, tile, **filled(orange, 1)),
    ]
    return [*matrices, *strips, *now, box(place, place, tile, tile, **filled(green, 1))]


def draw_order(
    tiles_m: int, tiles_n: int, at_once: int, groups: Sequence[int] = (1, 2, 4, 8, 16, 32)
) -> go.Figure:
    """Draws which tiles of c the first programs compute at once. A slider changes the height of a band.

    Args:
        tiles_m, tiles_n: The tiles of c, in rows and columns.
        at_once: The number of programs that run at a time.
        groups: The heights that the slider offers; the first one is shown.
    """
    import plotly.graph_objects as go

    fig = go.Figure()
    steps = []
    for i, group in enumerate(groups):
        grid: list[list[float | None]] = [[None] * tiles_n for _ in range(tiles_m)]
        for program in range(min(at_once, tiles_m * tiles_n)):
            row, col = tile_of(program, tiles_m, tiles_n, group)
            grid[row][col] = program
        hover = "row %{y}, column %{x}: program %{z}<extra></extra>"
        fig.add_trace(
            go.Heatmap(
                z=grid, visible=i == 0, colorscale=["#08306b", "#9ecae1"], xgap=1, ygap=1,
                zmin=0, zmax=at_once, showscale=False, hovertemplate=hover, hoverongaps=False,
            )
        )  # fmt: skip
        shown = {"visible": [j == i for j in range(len(groups))]}
        title = {"title.text": _order_title(tiles_m, tiles_n, group, at_once)}
        steps.append({"label": str(group), "method": "update", "args": [shown, title]})
    plots.layout(fig, steps[0]["args"][1]["title.text"], "column of tiles", "row of tiles", height=520)
    slider = {"active": 0, "steps": steps, "currentvalue": {"prefix": "GROUP_M: "}, "pad": {"t": 55}}
    fig.update_layout(sliders=[slider], margin={"t": 90, "b": 120})
    fig.update_yaxes(range=[tiles_m - 0.5, -0.5], showgrid=False)
    fig.update_xaxes(range=[-0.5, tiles_n - 0.5], showgrid=False)
    return fig


def _order_title(tiles_m: int, tiles_n: int, group: int, at_once: int) -> str:
    rows, cols = strips_loaded(tiles_m, tiles_n, group, at_once)
    return f"{at_once} programs at once need {rows} strips of a and {cols} of b"


def compile_tiles(
    kernel: Any, tiles: Iterable[tuple[int, int, int]], target: str, **sizes: int
) -> pd.DataFrame:
    """Compiles a product for several tiles, for a GPU that needn't be there.

    Args:
        kernel: The Triton kernel of lesson 11.
        tiles: Rows, columns and warps of each tile of c.
        target: The GPU's architecture, such as "sm_90".
        **sizes: Other compile-time sizes, such as `BLOCK_K=64`; and `num_stages`.

    Returns:
        A row per tile: `tile`, `warps`, `registers` per thread, `spilled` bytes per thread, and `shared`
        bytes per program.
    """
    import pandas as pd

    rows = []
    for block_m, block_n, warps in tiles:
        made = compile_product(kernel, target, BLOCK_M=block_m, BLOCK_N=block_n, num_warps=warps, **sizes)
        rows.append({"tile": f"{block_m} × {block_n}", "warps": warps, "registers": made.n_registers,
                     "spilled": made.spill_bytes, "shared": made.shared_bytes})  # fmt: skip
    return pd.DataFrame(rows)


def compile_product(kernel: Any, target: str, *, num_warps: int, num_stages: int = 3, **sizes: int) -> Any:
    """Compiles lesson 11's Triton product, for float16 matrices with contiguous rows."""
    from helpers import ptx

    pointers = dict.fromkeys(("c_ptr", "a_ptr", "b_ptr"), "*fp16")
    integers = dict.fromkeys(("m", "n", "k", "stride_am", "stride_bk"), "i32")
    return ptx.stages(
        kernel, signature=pointers | integers, constexprs={"stride_ak": 1, "stride_bn": 1, **sizes},
        target=target, num_warps=num_warps, num_stages=num_stages, divisible_by_16=[*pointers, *integers],
    )  # fmt: skip


# PTX instructions that compute with integers or with predicates: addresses, masks, the index of a buffer.
INTEGER = ("add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "bfe", "cvt", "selp", "setp")


def longest_loop(made: Stages) -> list[Instruction]:
    """The PTX instructions of a kernel's longest loop, from its label to the branch back; [] without one."""
    lines = enumerate(made.ptx.splitlines(), 1)
    labels = {match[1]: n for n, line in lines if (match := re.match(r"(\$L\w+):", line))}
    branches = [(labels.get(i.operands[-1], i.line), i.line) for i in made.reading.find("bra")]
    start, end = max(branches, key=lambda ends: ends[1] - ends[0], default=(0, 0))
    return [i for i in made.reading.instructions if start < i.line <= end]


def count_steps(kernels: Mapping[str, Stages]) -> pd.DataFrame:
    """What one step of each product's loop consists of.

    Returns:
        A row per product: `product`, `loads` that bring numbers to shared memory, `integer` instructions,
        `all` PTX instructions, each per step, and `registers` per thread.
    """
    import pandas as pd

    rows = []
    for name, made in kernels.items():
        loop = longest_loop(made)
        loads = [i for i in loop if i.parts[:2] == ("cp", "async") and len(i.operands) > 1]
        integer = [i for i in loop if i.parts[0] in INTEGER]
        rows.append({"product": name, "loads": len(loads), "integer": len(integer), "all": len(loop),
                     "registers": made.n_registers})  # fmt: skip
    return pd.DataFrame(rows)

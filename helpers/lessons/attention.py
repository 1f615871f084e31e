"""What lesson 12 counts, compiles and draws without a GPU: the memory of attention, the tiles that a mask
leaves, and the code of its kernels. `helpers.lessons.attention_times` measures them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from helpers import plots

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    import torch
    from pandas.io.formats.style import Styler

    from helpers.ptx import Stages

SKIPPED, FULL, PARTLY = "skipped", "computed", "computed and masked"
_COLORS = {FULL: "#9ecae1", PARTLY: "#08306b"}
# The columns of `count_steps`, and the PTX instructions that each one counts.
PER_SCORE = {"mul": ("mul",), "add": ("add", "sub"), "fma": ("fma",), "ex2": ("ex2",)}


def table(rows: pd.DataFrame, columns: Mapping[str, str], **how: Any) -> Styler | None:
    """`plots.table`, or None (which a notebook doesn't show) if nothing has been measured."""
    return plots.table(rows, columns, **how) if len(rows) else None


def peak_bytes(fn: Callable[..., Any], *inputs: torch.Tensor) -> int:
    """The most memory that a call of `fn` on CPU tensors holds at once, its inputs excluded.

    torch.profiler reports each allocation and each release in order.
    """
    from torch.profiler import ProfilerActivity, profile

    # acc_events: older versions warn without it, even though there is only one cycle
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as prof:
        fn(*inputs)
    held = most = 0
    for event in sorted(prof.events(), key=lambda one: one.time_range.start):
        held += event.self_cpu_memory_usage
        most = max(most, held)
    return most


def kind_of_tile(
    first_row: int, first_key: int, block_m: int, block_n: int, *, is_causal: bool, window: int | None = None
) -> str:
    """Whether a tile of scores is skipped, computed, or computed and masked.

    Args:
        first_row, first_key: The first query and the first key of the tile.
        block_m, block_n: Its queries and keys.
        is_causal: Whether query i sees only the keys j <= i.
        window: With a causal mask, how many keys a query sees, itself included.
    """
    if not is_causal:
        return FULL
    # The distance from a query to a key that it sees is from 0 to window - 1.
    nearest = first_row - (first_key + block_n - 1)
    farthest = first_row + block_m - 1 - first_key
    most = math.inf if window is None else window - 1
    if farthest < 0 or nearest > most:
        return SKIPPED
    return FULL if nearest >= 0 and farthest <= most else PARTLY


def tiles_of(
    n: int, block_m: int, block_n: int, *, is_causal: bool, window: int | None = None
) -> list[list[str]]:
    """The kind of each tile of n × n scores: a row per program, and in it a tile per step."""
    mask = {"is_causal": is_causal, "window": window}
    return [
        [kind_of_tile(row, key, block_m, block_n, **mask) for key in range(0, n, block_n)]
        for row in range(0, n, block_m)
    ]


def n_visited(tiles: list[list[str]]) -> int:
    """How many tiles are not skipped."""
    return sum(kind != SKIPPED for row in tiles for kind in row)


def draw_tiles(
    block_m: int, block_n: int, lengths: Sequence[int] = (512, 1024, 2048), window: int = 384
) -> go.Figure:
    """Draws which tiles of scores the programs visit. A slider changes the length, and buttons the mask.

    The slider sets the traces' visibility and the buttons their opacity, so the two don't disturb each other.
    """
    import plotly.graph_objects as go

    masks = {
        "causal": {"is_causal": True},
        "none": {"is_causal": False},
        f"window of {window}": {"is_causal": True, "window": window},
    }
    fig, placed = go.Figure(), []
    for length in lengths:
        for mask, how in masks.items():
            for trace in _tile_traces(length, block_m, block_n, **how):
                trace.visible, trace.opacity = length == lengths[0], float(mask == "causal")
                trace.hoverinfo = None if mask == "causal" else "skip"
                fig.add_trace(trace)
                placed.append((length, mask))
    plots.layout(fig, "", "tile of keys", "program: tile of queries", height=520)
    steps = []
    for length in lengths:
        axes = {
            "xaxis.range": [-0.5, length / block_n - 0.5],
            "yaxis.range": [length / block_m - 0.5, -1 - length / block_m / 10],
        }
        shown = {"visible": [one == length for one, _ in placed]}
        steps.append({"label": f"{length:,}", "method": "update", "args": [shown, axes]})
    buttons = [
        {
            "label": mask,
            "method": "restyle",
            "args": [
                {
                    "opacity": [float(one == mask) for _, one in placed],
                    "hoverinfo": [None if one == mask else "skip" for _, one in placed],
                }
            ],
        }
        for mask in masks
    ]
    slider = {"steps": steps, "currentvalue": {"prefix": "length: "}, "pad": {"t": 55}}
    menu = {"type": "buttons", "direction": "right", "buttons": buttons, "x": 0, "xanchor": "left",
            "y": 1.02, "yanchor": "bottom", "showactive": True}  # fmt: skip
    fig.update_layout(sliders=[slider], updatemenus=[menu], margin={"t": 60, "b": 120}, showlegend=False)
    fig.update_xaxes(range=steps[0]["args"][1]["xaxis.range"], showgrid=False, zeroline=False, dtick=4)
    fig.update_yaxes(
        range=steps[0]["args"][1]["yaxis.range"], showgrid=False, zeroline=False,
        tickvals=list(range(max(lengths) // block_m)),
    )  # fmt: skip
    return fig


def _tile_traces(n: int, block_m: int, block_n: int, **mask: Any) -> Iterator[go.Heatmap | go.Scatter]:
    """The tiles of one length and one mask, and above them their count."""
    import plotly.graph_objects as go

    tiles = tiles_of(n, block_m, block_n, **mask)
    codes = {SKIPPED: None, FULL: 0, PARTLY: 1}
    yield go.Heatmap(
        z=[[codes[kind] for kind in row] for row in tiles], text=tiles, zmin=0, zmax=1, xgap=1, ygap=1,
        colorscale=list(_COLORS.values()), showscale=False, hoverongaps=False,
        hovertemplate="program %{y}, tile %{x}: %{text}<extra></extra>",
    )  # fmt: skip
    visited, all_tiles = n_visited(tiles), len(tiles) * len(tiles[0])
    masked = sum(kind == PARTLY for row in tiles for kind in row)
    text = f"{visited} of {all_tiles} tiles, {masked} masked"
    yield go.Scatter(
        x=[len(tiles[0]) / 2 - 0.5], y=[-0.75 - len(tiles) / 20], mode="text", text=[text],
        cliponaxis=False,
    )  # fmt: skip


def compile_attention(
    kernel: Any, target: str, *, num_warps: int, num_stages: int = 3, **sizes: Any
) -> Stages:
    """Compiles one of lesson 12's kernels for float16 tensors.

    Args:
        kernel: The Triton kernel; its arguments that end in "_ptr" are tensors.
        target: The GPU's architecture, such as "sm_90".
        num_warps, num_stages: The launch.
        **sizes: The compile-time arguments.
    """
    from helpers import ptx

    pointers = {name: "*fp16" for name in kernel.arg_names if name.endswith("_ptr")}
    pointers |= {name: "*fp32" for name in pointers if name.startswith("lse")}
    numbers = {"n_queries": "i32", "n_keys": "i32"}
    return ptx.stages(
        kernel, signature=pointers | numbers | {"scale": "fp32"}, constexprs=sizes, target=target,
        num_warps=num_warps, num_stages=num_stages, divisible_by_16=[*pointers, *numbers],
    )  # fmt: skip


def count_steps(kernels: Mapping[str, Stages], n_scores: int) -> pd.DataFrame:
    """What one step of each kernel's loop executes for each score.

    Args:
        kernels: Compiled kernels by name.
        n_scores: The scores of a tile, per thread.

    Returns:
        A row per kernel: `kernel`; `mul`, `add` and `fma` instructions of float32 in PTX (`add` includes
        subtractions), `ex2`, and `all` instructions of SASS; each divided by `n_scores`.
    """
    import pandas as pd

    from helpers.lessons.products import longest_loop

    rows = []
    for name, made in kernels.items():
        loop = [(i.parts[0], "f32" in i.parts) for i in longest_loop(made)]
        row: dict[str, Any] = {"kernel": name}
        for column, opcodes in PER_SCORE.items():
            row[column] = sum(is_float and opcode in opcodes for opcode, is_float in loop) / n_scores
        rows.append(row | {"all": made.product_loop.n_instructions / n_scores})
    return pd.DataFrame(rows)


def compile_specialized(kernel: Any) -> Stages:
    """Compiles `attention_specialized_kernel` for an H100, with tiles of 128 × 64 and a head size of 64."""
    from helpers import ptx

    pointers = {name: "*fp16" for name in kernel.arg_names if name.endswith("_ptr")} | {"lse_ptr": "*fp32"}
    sizes = {"BLOCK_M": 128, "BLOCK_N": 64, "HEADS": 1, "HEAD_SIZE": 64, "PRECISION": "ieee"}
    sizes |= dict.fromkeys(("CAUSAL", "WINDOWED", "RAGGED"), False)
    known = {*pointers, *sizes, "scale"}
    integers = {name: "i32" for name in kernel.arg_names if name not in known}
    strides = [name for name in integers if name.startswith("stride_")]
    return ptx.stages(
        kernel, signature=pointers | integers | {"scale": "fp32"}, constexprs=sizes, target="sm_90",
        num_warps=4, num_stages=3, divisible_by_16=[*pointers, *strides],
    )  # fmt: skip


def roles(made: Stages) -> pd.DataFrame:
    """What the warps of a specialized kernel execute after each change of their registers.

    Returns:
        A row per `setmaxnreg` in PTX, in the order of the text: `registers` per thread, and how many loads by
        TMA (`loads`), `wgmma` (`products`), and exponentials (`ex2`) follow until the next one.
    """
    import pandas as pd

    counted = {"loads": "cp.async.bulk.tensor", "products": "wgmma.mma_async", "ex2": "ex2.approx"}
    pieces = re.split(r"setmaxnreg\.\w+\.sync\.aligned\.u32\s+(\d+);", made.ptx)
    rows = [
        {"registers": int(n)} | {name: text.count(word) for name, word in counted.items()}
        for n, text in zip(pieces[1::2], pieces[2::2], strict=True)
    ]
    return pd.DataFrame(rows, columns=["registers", *counted])

"""Which elements each program of a square kernel processes, masks off or leaves out, as a table and as a
plot.

`programs_over_rows` describes a kernel with one program per row and a block of any size, and
`programs_over_elements` a flat kernel; `draw` plots either. They compute what the kernels of lesson 03 do
from their offsets and masks, and the tests compare them with the kernels. `launch_of` reports how a function
launches its kernel, and `by_elements_a_thread` compares Triton's launches with CUDA's.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from helpers import plots, trace

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    import torch

SQUARED, MASKED, LEFT_OUT = "squared", "masked off", "in no block"
_MARKERS = {
    SQUARED: {"symbol": "square", "color": plots.PALETTE[0]},
    MASKED: {"symbol": "square-open", "color": plots.TEXT_COLOUR},
    LEFT_OUT: {"symbol": "x", "color": plots.PALETTE[3]},
}


def programs_over_rows(
    n_rows: int, n_cols: int, *, block_size: int, row_stride: int | None = None
) -> pd.DataFrame:
    """Returns what each program does with each element if there is one program per row.

    Args:
        n_rows: The rows of the matrix.
        n_cols: The columns of the matrix.
        block_size: Elements per block.
        row_stride: Elements from the start of one row to the start of the next. By default, the number of
            columns.

    Returns:
        A DataFrame with a row per program and element of memory in its block or its row: `program`, `element`
        (its position in memory) and `what` ("squared", "masked off" or "in no block").
    """
    stride = n_cols if row_stride is None else row_stride
    rows = [
        (row, row * stride + c, LEFT_OUT if c >= block_size else MASKED if c >= n_cols else SQUARED)
        for row in range(n_rows)
        for c in range(max(block_size, n_cols))
    ]
    return _table(rows)


def programs_over_elements(n_elements: int, *, block_size: int) -> pd.DataFrame:
    """Returns the same table for a flat kernel over `n_elements`, which never leaves an element out."""
    n_programs = -(-n_elements // block_size)
    rows = [
        (e // block_size, e, SQUARED if e < n_elements else MASKED) for e in range(n_programs * block_size)
    ]
    return _table(rows)


def _table(rows: list[tuple[int, int, str]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows, columns=["program", "element", "what"])


def draw(*tables: pd.DataFrame, titles: tuple[str, ...] = ()) -> go.Figure:
    """Draws a lane per program and a square per element of memory; several tables are drawn one below the
    other.

    Args:
        *tables: Tables from `programs_over_rows` or `programs_over_elements`.
        titles: One title per table.
    """
    from plotly.subplots import make_subplots

    lanes = [int(t.program.max()) + 1 for t in tables]
    fig = make_subplots(
        rows=len(tables),
        cols=1,
        subplot_titles=titles or None,
        row_heights=lanes,
        vertical_spacing=0.9 / (2 + sum(lanes)),
        shared_xaxes=True,
    )
    drawn: set[str] = set()
    for i, table in enumerate(tables, start=1):
        for what, marker_style in _MARKERS.items():
            subset = table[table.what == what]
            if subset.empty:
                continue
            fig.add_scatter(
                x=list(subset.element), y=[f"program {p}" for p in subset.program], mode="markers", name=what,
                legendgroup=what, showlegend=what not in drawn, row=i, col=1,
                marker={**marker_style, "size": 17, "line": {"width": 2}},
                hovertemplate="element %{x}, %{y}: " + what + "<extra></extra>",
            )  # fmt: skip
            drawn.add(what)
        fig.update_yaxes(row=i, col=1, type="category", autorange="reversed", showgrid=False)
    plots.layout(fig, height=170 + 34 * sum(lanes) + 40 * len(tables))
    last = max(int(t.element.max()) for t in tables)
    fig.update_xaxes(dtick=1, range=[-0.7, last + 0.7], title_text="")
    fig.update_xaxes(title_text="element of memory", row=len(tables), col=1)
    fig.update_annotations(x=0, xanchor="left", font_size=14)
    fig.update_layout(legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 1, "xanchor": "right"})
    return fig


def launch_of(
    name: str, function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> dict[str, object]:
    """Returns how a function launches its only kernel on `x`, from the profiler's trace.

    Args:
        name: The name of the function in the result.
        function: A function that launches exactly one kernel.
        x: A tensor on the GPU.

    Returns:
        A dictionary with the function, the kernel (its short name), blocks, threads per block, elements per
        block and per thread, and registers per thread.

    Raises:
        ValueError: The function launched no kernel or several kernels.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = trace.capture(lambda: function(x), path=Path(folder, "one.json.gz"), warmup=1, active=1)
        kernels = trace.kernels(trace.load_trace(path)).query("kind == 'kernel'").to_dict("records")
    if len(kernels) != 1:
        raise ValueError(f"{name} launched {len(kernels)} kernels, but launch_of needs exactly one.")
    (kernel,) = kernels
    n_blocks, n_threads = math.prod(kernel["grid"]), math.prod(kernel["block"])
    return {
        "function": name,
        "kernel": kernel["short"],
        "blocks": n_blocks,
        "threads a block": n_threads,
        "elements a block": x.numel() / n_blocks,
        "elements a thread": x.numel() / n_blocks / n_threads,
        "registers a thread": kernel["registers"],
    }


def by_elements_a_thread(
    triton_sweep: pd.DataFrame, cuda_sweep: pd.DataFrame, *, n_cols: int
) -> pd.DataFrame:
    """Returns GB/s of a flat square by elements per thread in Triton, and of CUDA with one element per
    thread.

    Args:
        triton_sweep: The record triton/launch-sweep.
        cuda_sweep: The record load_inline/shape-sweep, of which the blocks with one row are used.
        n_cols: The columns of the float32 matrices in both records.

    Returns:
        A DataFrame with a row per block size that both records have.
    """
    flat = triton_sweep.query("kernel == 'Triton flat' and dtype == 'float32'")
    flat = flat[flat.n_cols == n_cols]
    flat = flat.assign(elements=flat.block_size / (32 * flat.num_warps)).query("elements in (4, 2, 1)")
    table = flat.pivot(index="block_size", columns="elements", values="gb_per_s")[[4, 2, 1]]
    table.columns = [f"Triton, {n} a thread" for n in (4, 2, 1)]
    lines = cuda_sweep.query("kernel == 'CUDA C++' and block_y == 1 and dtype == 'float32'")
    lines = lines[lines.n_cols == n_cols].set_index("block_x").gb_per_s
    table = table.join(lines.rename("CUDA, 1 a thread"), how="inner")
    table.index = table.index.astype(int)
    return table.rename_axis("elements a block (GB/s)")

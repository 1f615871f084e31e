"""Lessons 01 and 07: a drawing of f(i) for all i, and squares of three sizes, measured by several timers and
by a trace.
"""

from __future__ import annotations

import html
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import check, device, plots, trace

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import torch
    from IPython.display import HTML


def f_for_all(fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, threads: int) -> go.Figure:
    """Draws what a launch is: each thread applies one function to its own element, and threads form blocks.

    Args:
        fn: A function that returns one number per element.
        x: The elements, one-dimensional, at most 24 so that they stay readable.
        threads: The number of threads per block. The last block may have threads without an element.

    Raises:
        ValueError: There is no element, or more than 24, or a block has no threads.
    """
    import plotly.graph_objects as go

    if x.ndim != 1 or not 1 <= len(x) <= 24:
        raise ValueError(
            f"f_for_all draws a 1-D tensor of 1 to 24 elements; this x has the shape {tuple(x.shape)}."
        )
    if threads < 1:
        raise ValueError(f"A block needs at least one thread; threads={threads}.")
    n, y = len(x), fn(x)
    blocks = -(-n // threads)
    fig = go.Figure()
    for block in range(blocks):
        color = plots.PALETTE[block % 6]
        indices = range(block * threads, (block + 1) * threads)
        fig.add_shape(
            type="rect",
            x0=indices[0] - 0.46,
            x1=indices[-1] + 0.46,
            y0=0.56,
            y1=1.32,
            line={"color": color, "width": 2},
        )
        fig.add_annotation(x=(indices[0] + indices[-1]) / 2, y=0.7, text=f"block {block}", showarrow=False)
        for i in indices:
            _draw_thread(fig, i, i - indices[0], color, (float(x[i]), float(y[i])) if i < n else None)
    plots.layout(fig, "f(i) for all i", height=330)
    fig.update_layout(showlegend=False, margin={"l": 70, "r": 20, "t": 60, "b": 20}, dragmode=False)
    fig.update_xaxes(visible=False, range=[-0.8, blocks * threads - 0.2])
    fig.update_yaxes(
        tickvals=[2, 1, 0], ticktext=["x", "threads", "f(x)"], ticks="", range=[-0.4, 2.4], showgrid=False
    )
    fig.update_yaxes(zeroline=False)
    return fig


def _draw_thread(fig: go.Figure, i: int, thread: int, color: str, values: tuple[float, float] | None) -> None:
    """Draws a thread of a block with element `i`: its input above and its output below, if it has an
    element.
    """
    hover_text = (
        f"thread {thread}: element {i}" if values else f"thread {thread}: no element {i}, nothing to do"
    )
    if values:
        for y, value in zip((2, 0), values, strict=True):
            fig.add_shape(
                type="rect",
                x0=i - 0.4,
                x1=i + 0.4,
                y0=y - 0.2,
                y1=y + 0.2,
                line={"color": color, "width": 1},
            )
            fig.add_annotation(x=i, y=y, text=f"{value:g}", showarrow=False)
        for tail, head in ((1.78, 1.2), (0.53, 0.24)):
            fig.add_annotation(
                x=i, y=head, ax=i, ay=tail, xref="x", yref="y", axref="x", ayref="y",
                showarrow=True, arrowhead=2, arrowsize=0.9, arrowwidth=1.2, arrowcolor=plots.TEXT_COLOUR,
            )  # fmt: skip
    fig.add_scatter(
        x=[i], y=[1], mode="markers+text", text=["f" if values else "–"],
        hovertext=[hover_text], hoverinfo="text",
        marker={"size": 24, "color": color, "opacity": 1.0 if values else 0.35},
        textfont={"color": plots.text_on(color) if values else plots.TEXT_COLOUR, "size": 14},
    )  # fmt: skip


def truth_us(fn: Callable[[], Any]) -> float:
    """Returns the kernel time in µs: the median over 30 traced calls, each after a flush of the L2."""
    import torch

    flush = torch.empty(device.gpu_spec().l2_bytes // 2, dtype=torch.float32, device="cuda")  # twice the L2

    def step() -> None:
        flush.zero_()
        fn()

    with tempfile.TemporaryDirectory() as folder:
        path = trace.capture(step, path=Path(folder) / "truth.json.gz", active=30)
        ran = trace.kernels(trace.load_trace(path))
    return ran.duration_us[~ran.name.str.contains("Fill")].median()


def time_three_squares(timers: Mapping[str, Callable[[Callable[[], Any]], float]]) -> list[dict]:
    """Times `torch.square` of a tiny, a cached and a large input with each timer, and with a trace.

    Args:
        timers: Names and their timers, functions that take the call and return µs.

    Returns:
        A dictionary per input: "square of" (its shape), "trace" (µs, from `truth_us`), and each timer's µs.
    """
    import torch

    rows = []
    n_fitting = device.gpu_spec().l2_bytes * 2 // 25 // 1024  # rows: input and output take 64 % of the L2
    for shape in [(8, 1024), (n_fitting, 1024), (16384, 8192)]:
        square = partial(torch.square, torch.randn(shape, device="cuda"))
        check.assert_matches(torch.square, lambda x: x * x, timed_shape=shape)
        times = {"trace": truth_us(square)} | {name: timer(square) for name, timer in timers.items()}
        rows.append({"square of": "{:,} × {:,}".format(*shape), **times})
    return rows


def wide(text: str) -> HTML:
    """Returns a printed table whose lines scroll sideways instead of wrapping.

    The tables of `torch.profiler` are 200 columns wide.
    """
    from IPython.display import HTML

    return HTML(
        f'<pre style="white-space: pre; overflow-x: auto; font-family: monospace">{html.escape(text)}</pre>'
    )

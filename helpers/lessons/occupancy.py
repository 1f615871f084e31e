"""Lesson 05's launches of one kernel on one matrix: the warps and the bytes in flight on an SM, and times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helpers import plots

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

_SHAPE = "kernel == 'Triton flat' and n_cols == 4096 and dtype == 'float32'"
_ELEMENTS = 4096 * 4096
_STARTING = 0.9  # of the highest rate at which blocks started: these launches wait for blocks to start
# One load per thread, and as many threads as an SM holds: with 4 bytes per load, and with 16.
NARROW, WIDE = (256, 8), (1024, 8)  # BLOCK_SIZE, num_warps


def launches(counted: pd.DataFrame) -> pd.DataFrame:
    """Returns the launches of `square_flat_kernel` on a float32 matrix of 4,096 × 4,096 from the sliders'
    counters.

    Launches with more threads than elements are left out, because several of their threads load the same
    elements. Warps and bytes follow from the launch configuration, not from a measurement.

    Args:
        counted: The record triton/launch-sweep-counters.

    Returns:
        A DataFrame with BLOCK_SIZE, num_warps, `warps` (that fit on an SM), `load_bytes` (bytes per load of a
        thread), `in_flight_kb` (how many kB these warps ask for before one of them needs a value),
        `starting` (whether the launch is limited by the rate at which blocks start) and `ncu_us`.
    """
    rows = counted.query(f"{_SHAPE} and block_size >= 32 * num_warps")
    n_blocks = -(-_ELEMENTS // rows.block_size)
    blocks_per_sm = (n_blocks / rows.waves / counted.attrs["provenance"].gpu["sm_count"]).round()
    rate = n_blocks / rows.ncu_us
    return rows.assign(
        BLOCK_SIZE=rows.block_size.astype(int),
        num_warps=rows.num_warps.astype(int),
        warps=(blocks_per_sm * rows.num_warps).astype(int),
        load_bytes=(rows.load_sectors / rows.load_requests).round().astype(int),
        in_flight_kb=blocks_per_sm * rows.block_size * 4 / 1000,
        starting=rate > _STARTING * rate.max(),
    )[["BLOCK_SIZE", "num_warps", "warps", "load_bytes", "in_flight_kb", "starting", "ncu_us"]].reset_index(
        drop=True
    )


def same_warps(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns two launches with as many warps per SM and one load per thread, of 4 bytes and of 16."""
    return rows.set_index(["BLOCK_SIZE", "num_warps"], drop=False).loc[[NARROW, WIDE]].reset_index(drop=True)


def draw(rows: pd.DataFrame, *, title: str = "") -> go.Figure:
    """Draws time over the warps per SM, and next to it time over the bytes in flight.

    Colors show the bytes per load of a thread. Open symbols are launches that wait for blocks to start.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    axes = {
        "warps": ("warps that fit on an SM", "%{x} warps"),
        "in_flight_kb": ("kB that they ask for at once", "%{x:,.1f} kB"),
    }
    fig = make_subplots(cols=len(axes), shared_yaxes=True, horizontal_spacing=0.04)
    for column, (x, (_, hover)) in enumerate(axes.items(), start=1):
        for i, (n_bytes, part) in enumerate(rows.groupby("load_bytes")):
            launched = [f"BLOCK_SIZE {r.BLOCK_SIZE:,}, {r.num_warps} warps" for r in part.itertuples()]
            symbols = [plots.MARKERS[i] + "-open" * starting for starting in part.starting]
            points = go.Scatter(
                x=part[x],
                y=part.ncu_us,
                text=launched,
                mode="markers",
                name=f"{n_bytes} bytes per load",
                legendgroup=str(n_bytes),
                showlegend=column == 1,
                marker={"size": 10, "color": plots.PALETTE[i], "symbol": symbols, "line": {"width": 2}},
                hovertemplate=f"%{{text}}: {hover}, %{{y:.0f}} µs<extra></extra>",
            )
            fig.add_trace(points, row=1, col=column)
    plots.layout(fig, title, note=plots.origin_of(rows))
    for column, (x, (axis, _)) in enumerate(axes.items(), start=1):
        fig.update_xaxes(title_text=axis, col=column)
        if x == "in_flight_kb":
            fig.update_xaxes(plots.log_axis(rows[x]), col=column)
    fig.update_xaxes(rangemode="tozero", col=1)
    fig.update_yaxes(rangemode="tozero")
    fig.update_yaxes(title_text="time by ncu (µs)", col=1)
    return fig.update_layout(
        legend={"orientation": "h", "y": -0.22, "yanchor": "top", "x": 0}, margin={"b": 100}
    )

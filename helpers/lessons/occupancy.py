"""Lesson 05's launches of one kernel on one matrix: their resident warps, bytes in flight, and times."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from helpers import plots

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

_MIN_RATIO = 1.25  # times as many warps; below that, two launches count as equal
_SHAPE = "kernel == 'Triton flat' and n_cols == 4096 and dtype == 'float32'"


def launches(counted: pd.DataFrame) -> pd.DataFrame:
    """Returns the launches of `square_flat_kernel` on a float32 matrix of 4,096 × 4,096 from the sliders'
    counters.

    Launches with more threads than elements are left out, because several of their threads load the same
    elements.

    Args:
        counted: The record triton/launch-sweep-counters.

    Returns:
        A DataFrame with BLOCK_SIZE, num_warps, `warps_percent` (achieved occupancy), `load_bytes` (bytes per
        load of a thread), `waiting_kb` (how many kB the resident warps of an SM can have in flight at once,
        since a thread issues all its loads before it needs one) and `ncu_us`.
    """
    rows = counted.query(f"{_SHAPE} and block_size >= 32 * num_warps")
    bytes_per_request = 32 * rows.load_sectors / rows.load_requests
    threads = rows.occupancy_percent / 100 * counted.attrs["provenance"].gpu["max_threads_per_sm"]
    return rows.assign(
        BLOCK_SIZE=rows.block_size.astype(int),
        num_warps=rows.num_warps.astype(int),
        warps_percent=rows.occupancy_percent,
        load_bytes=(bytes_per_request / 32).round().astype(int),
        waiting_kb=threads * 4 * rows.block_size / (32 * rows.num_warps) / 1000,
    )[["BLOCK_SIZE", "num_warps", "warps_percent", "load_bytes", "waiting_kb", "ncu_us"]].reset_index(
        drop=True
    )


def faster_with_more(rows: pd.DataFrame) -> tuple[int, int]:
    """Counts the pairs of launches in which the one with more resident warps is faster.

    Returns:
        The number of such pairs, and the number of all pairs.
    """
    pairs = [
        (few, many)
        for few, many in itertools.combinations(rows.sort_values("warps_percent").itertuples(), 2)
        if many.warps_percent > _MIN_RATIO * few.warps_percent
    ]
    return sum(many.ncu_us < few.ncu_us for few, many in pairs), len(pairs)


def draw(rows: pd.DataFrame, *, title: str = "") -> go.Figure:
    """Draws time over resident warps, and next to it time over the bytes in flight.

    Colors show the bytes per load of a thread.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    axes = {
        "warps_percent": ("achieved occupancy (%)", "%{x:.0f} % of the warps"),
        "waiting_kb": ("kB that an SM's warps can wait for at once", "%{x:,.1f} kB"),
    }
    fig = make_subplots(cols=len(axes), shared_yaxes=True, horizontal_spacing=0.04)
    for column, (x, (_, hover)) in enumerate(axes.items(), start=1):
        for i, (n_bytes, part) in enumerate(rows.groupby("load_bytes")):
            launched = [f"BLOCK_SIZE {r.BLOCK_SIZE:,}, {r.num_warps} warps" for r in part.itertuples()]
            points = go.Scatter(
                x=part[x],
                y=part.ncu_us,
                text=launched,
                mode="markers",
                name=f"{n_bytes} bytes per load",
                legendgroup=str(n_bytes),
                showlegend=column == 1,
                marker={"size": 10, "color": plots.PALETTE[i], "symbol": plots.MARKERS[i]},
                hovertemplate=f"%{{text}}: {hover}, %{{y:.0f}} µs<extra></extra>",
            )
            fig.add_trace(points, row=1, col=column)
    plots.layout(fig, title, note=plots.origin_of(rows))
    for column, (x, (axis, _)) in enumerate(axes.items(), start=1):
        fig.update_xaxes(title_text=axis, col=column)
        if x == "waiting_kb":
            fig.update_xaxes(plots.log_axis(rows[x]), col=column)
    fig.update_xaxes(range=[0, 100], col=1)
    fig.update_yaxes(rangemode="tozero")
    fig.update_yaxes(title_text="time by ncu (µs)", col=1)
    return fig.update_layout(
        legend={"orientation": "h", "y": -0.22, "yanchor": "top", "x": 0}, margin={"b": 100}
    )

"""Lesson 05's launches of one kernel on one matrix: how many warps were resident in each, and how long it took."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from helpers import plots

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

_APART = 1.25  # times as many warps: with less, two launches hold the same


def launches(counted: pd.DataFrame) -> pd.DataFrame:
    """Of the sliders' counters, the launches that square a matrix of 4,096 × 4,096 float32 with `square_flat_kernel`.

    Args:
        counted: the record triton/launch-sweep-counters.

    Returns:
        BLOCK_SIZE, num_warps, `warps_percent` (achieved occupancy), `load_bytes` of a thread's load, `ncu_us`.
    """
    rows = counted.query("kernel == 'Triton flat' and n_cols == 4096 and dtype == 'float32'")
    of_a_warp = 32 * rows.load_sectors / rows.load_requests
    return rows.assign(
        BLOCK_SIZE=rows.block_size.astype(int),
        num_warps=rows.num_warps.astype(int),
        warps_percent=rows.occupancy_percent,
        load_bytes=(of_a_warp / 32).round().astype(int),
    )[["BLOCK_SIZE", "num_warps", "warps_percent", "load_bytes", "ncu_us"]].reset_index(drop=True)


def faster_with_more(rows: pd.DataFrame) -> tuple[int, int]:
    """In how many pairs of launches the one with more resident warps is the faster one, and how many pairs there are."""
    pairs = [
        (few, many)
        for few, many in itertools.combinations(rows.sort_values("warps_percent").itertuples(), 2)
        if many.warps_percent > _APART * few.warps_percent
    ]
    return sum(many.ncu_us < few.ncu_us for few, many in pairs), len(pairs)


def draw(rows: pd.DataFrame, *, title: str = "") -> go.Figure:
    """Time over resident warps, a colour for what a thread's load asks for."""
    import plotly.graph_objects as go

    fig = go.Figure()
    for i, (n_bytes, part) in enumerate(rows.groupby("load_bytes")):
        launched = part.apply(lambda r: f"BLOCK_SIZE {r.BLOCK_SIZE:,.0f}, {r.num_warps:.0f} warps", axis=1)
        fig.add_scatter(
            x=part.warps_percent, y=part.ncu_us, text=launched, mode="markers", name=f"{n_bytes} bytes a thread's load",
            marker={"size": 10, "color": plots.PALETTE[i], "symbol": plots.MARKERS[i]},
            hovertemplate="%{text}: %{x:.0f} % of the warps, %{y:.0f} µs<extra></extra>",
        )  # fmt: skip
    x, y = "warps resident, % of the most (achieved occupancy)", "time by ncu (µs)"
    plots.layout(fig, title, x, y, note=plots.origin_of(rows))
    fig.update_xaxes(range=[0, 100])
    return fig.update_yaxes(**plots.log_axis(rows.ncu_us))

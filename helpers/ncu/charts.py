"""Figures from Nsight Compute reports, its formatted summary, and two diagrams that need no report.

Most functions take a report or a launch from `ncu.load_report`. `draw_requests` and `draw_waves` compute
their diagrams from numbers alone. None of the functions needs a GPU.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from helpers import plots
from helpers.ncu.reader import Kernel, Report, summary
from helpers.ncu.views import instructions, moments, occupancy_curves, over_time

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from pandas.io.formats.style import Styler

_SUMMARY = {
    "est_speedup_percent": "est. speedup (%)",
    "function_name": "function",
    "demangled_name": "demangled name",
    "duration_us": "duration (µs)",
    "runtime_improvement_us": "runtime improvement (µs)",
    "compute_throughput_percent": "compute (%)",
    "memory_throughput_percent": "memory (%)",
    "registers_per_thread": "registers",
    "grid_size": "grid",
    "block_size": "block",
}


def summary_table(report: Report | Kernel) -> Styler:
    """Returns `summary` as a formatted table with the columns of Nsight Compute's Summary page.

    `summary` itself returns more columns, as plain numbers.
    """
    styler = plots.table(summary(report), _SUMMARY)
    styler = styler.format(_breakable, subset=["function", "demangled name"])
    return styler.set_properties(subset=["grid", "block"], **{"white-space": "nowrap"})


def _breakable(name: str) -> str:
    """Returns a kernel name as HTML that may wrap after underscores, so that the table fits the page."""
    return html.escape(name).replace("_", "_<wbr>")


_BUSY = {
    "memory_throughput_percent": "memory throughput",
    "compute_throughput_percent": "compute throughput",
    "achieved_occupancy_percent": "achieved occupancy",
}


def draw_busy(report: Report, *, title: str = "") -> go.Figure:
    """Draws each launch's memory and compute throughput and achieved occupancy over its number of blocks."""
    table = summary(report).rename(columns=_BUSY)
    shares = table.assign(blocks=[f"{k.n_blocks:,}" for k in report]).melt("blocks", _BUSY.values())
    titles = {"x_title": "blocks in the grid", "y_title": "% of what is possible"}
    return plots.bars(shares, "blocks", "value", series="variable", title=title, **titles)


def draw_requests(
    requests: Mapping[str, Sequence[int]], *, lane_bytes: int = 4, title: str = ""
) -> go.Figure:
    """Draws the sectors that each of a warp's requests touches, and highlights the bytes that the lanes need.

    Args:
        requests: maps a name to the addresses of each lane's first byte.
        lane_bytes: the number of bytes that each lane needs.
        title: the figure's title.
    """
    import plotly.graph_objects as go

    sector_starts, needed, notes = [], [], []
    for name, addresses in requests.items():
        touched = sorted({b // 32 for a in addresses for b in (a, a + lane_bytes - 1)})
        place = {sector: 32 * i for i, sector in enumerate(touched)}
        sector_starts += [(name, start) for start in place.values()]
        # A lane that spans two sectors is drawn as two pieces.
        for a in addresses:
            pieces = {b // 32: b for b in range(a + lane_bytes - 1, a - 1, -1)}
            for sector, first in pieces.items():
                length = min(a + lane_bytes, 32 * (sector + 1)) - first
                needed.append((name, place[sector] + first % 32, length))
        notes.append((name, 32 * len(touched), f" {len(touched)} sectors"))
    fig = go.Figure()
    outline = {"color": plots.TEXT_COLOUR, "width": 1}
    fig.add_bar(
        y=[name for name, _ in sector_starts],
        base=[start for _, start in sector_starts],
        x=[32] * len(sector_starts),
        name="a sector of 32 bytes",
        marker={"color": plots.GRID_COLOUR, "line": outline},
    )
    fig.add_bar(
        y=[name for name, *_ in needed],
        base=[start for _, start, _ in needed],
        x=[length for *_, length in needed],
        name=f"{lane_bytes} bytes that a lane needs",
        width=0.45,
        marker={"color": plots.PALETTE[0], "line": {"color": "white", "width": 0.5}},
    )
    for name, end, text in notes:
        fig.add_annotation(x=end, y=name, text=text, showarrow=False, xanchor="left")
    plots.layout(fig, title, "bytes carried, sector by sector", height=150 + 70 * len(requests))
    widest = max(end for _, end, _ in notes)
    fig.update_traces(orientation="h", hoverinfo="skip")
    fig.update_layout(barmode="overlay", legend={"orientation": "h", "y": 1.0, "yanchor": "bottom"})
    fig.update_xaxes(
        range=[0, widest * 1.14],
        tickformat=",",
        tickvals=list(range(0, widest + 1, 32 if widest <= 512 else 128)),
    )
    fig.update_yaxes(autorange="reversed", showgrid=False)
    return fig


def draw_waves(n_blocks: int, at_once: int, *, title: str = "") -> go.Figure:
    """Draws the blocks of a launch as waves, with the slots that each wave fills or leaves empty."""
    import plotly.graph_objects as go

    n_waves = max(1, math.ceil(n_blocks / at_once))
    filled = [min(at_once, n_blocks - at_once * i) for i in range(n_waves)]
    waves = list(range(1, n_waves + 1))
    fig = go.Figure()
    fig.add_bar(
        x=waves,
        y=filled,
        name="blocks",
        marker_color=plots.PALETTE[0],
        insidetextfont={"color": plots.text_on(plots.PALETTE[0])},
        text=[f"{n:,}" for n in filled] if n_waves <= 12 else None,
    )
    empty = [at_once - n for n in filled]
    outline = {"color": plots.TEXT_COLOUR, "width": 1}
    marker = {"color": plots.GRID_COLOUR, "line": outline, "pattern": {"shape": "/"}}
    fig.add_bar(x=waves, y=empty, name="slots left empty", marker=marker)
    plots.layout(fig, title, "wave", f"of {at_once:,} slots", height=340)
    fig.update_layout(barmode="stack", bargap=0.15)
    fig.update_xaxes(dtick=max(1, n_waves // 12))
    fig.update_yaxes(tickformat=",")
    return fig


def draw_over_time(kernel: Kernel, *, title: str = "") -> go.Figure:
    """Draws a launch over time: active SMs, DRAM reads and writes, and below them the started blocks.

    The figure marks the events from `moments`: when DRAM writes begin, when the last block starts, and the
    tail. If the report has no samples over time (for example on GPUs before Turing), the axes stay empty and
    a note explains why.
    """
    from plotly.subplots import make_subplots

    time = over_time(kernel)
    fig = make_subplots(2, 1, shared_xaxes=True, row_heights=[0.7, 0.3], vertical_spacing=0.06)
    curves = {"sm_active": "SMs at work", "dram_read": "DRAM reads", "dram_write": "DRAM writes"}
    for (column, name), color, marker in zip(curves.items(), (2, 0, 3), plots.MARKERS, strict=False):
        fig.add_scatter(
            x=time["time_us"],
            y=time[f"{column}_percent"],
            name=name,
            mode="lines+markers",
            line_color=plots.PALETTE[color],
            marker_symbol=marker,
            row=1,
            col=1,
        )
    started = {"name": "blocks started", "marker_color": plots.PALETTE[7]}
    fig.add_bar(x=time["time_us"], y=time["blocks_launched"], **started, row=2, col=1)
    note = "" if len(time) else "this GPU or this profile has no samples over time"
    plots.layout(fig, title, note=note, height=520)
    fig.update_yaxes(title_text="% of peak", range=[0, 122], row=1, col=1)
    fig.update_yaxes(title_text="blocks", row=2, col=1)
    fig.update_xaxes(title_text="time since the first sample (µs)", row=2, col=1)
    _mark_moments(fig, moments(kernel))
    return fig


def _mark_moments(fig: go.Figure, at: Mapping[str, float]) -> None:
    """Marks the events that occurred, with labels above the curves."""
    line = {"color": plots.TEXT_COLOUR, "width": 1.5, "dash": "dot"}
    words = {"writes_from_us": ("DRAM writes begin", "left"), "last_start_us": ("last block starts", "right")}
    for moment, (text, anchor) in words.items():
        if not math.isnan(at[moment]):
            fig.add_vline(at[moment], line=line)
            fig.add_annotation(x=at[moment], y=115, text=text, showarrow=False, xanchor=anchor, row=1, col=1)
    if not math.isnan(at["tail_from_us"]):
        fig.add_vrect(
            at["tail_from_us"], at["end_us"], fillcolor=plots.PALETTE[1], opacity=0.22, line_width=0
        )
        middle = (at["tail_from_us"] + at["end_us"]) / 2
        fig.add_annotation(x=middle, y=115, text="tail", showarrow=False, row=1, col=1)


def draw_occupancy(kernel: Kernel, *, title: str = "") -> go.Figure:
    """Draws theoretical occupancy over threads per block and over registers per thread.

    A dot marks the kernel's current configuration.
    """
    from plotly.subplots import make_subplots

    curves = occupancy_curves(kernel)
    current = {
        "threads a block": kernel.block[0] * kernel.block[1] * kernel.block[2],
        "registers a thread": int(kernel.metrics["launch__registers_per_thread"]),
    }
    fig = make_subplots(1, 2, shared_yaxes=True, horizontal_spacing=0.06)
    for column, (what, value) in enumerate(current.items(), start=1):
        curve = curves[curves["what"] == what]
        if curve.empty:
            continue
        current_point = curve.iloc[[(curve["value"] - value).abs().argmin()]]
        for points, name, style in (
            (curve, "if this changed", {"mode": "lines", "line": {"shape": "hv", "color": plots.PALETTE[0]}}),
            (
                current_point,
                "this kernel",
                {"mode": "markers", "marker": {"size": 12, "color": plots.PALETTE[3]}},
            ),
        ):
            x, y = points["value"], points["occupancy_percent"]
            fig.add_scatter(x=x, y=y, name=name, showlegend=column == 1, row=1, col=column, **style)
        fig.update_xaxes(title_text=what, rangemode="tozero", row=1, col=column)
    plots.layout(fig, title, height=400)
    for column, what in enumerate(current, start=1):
        fig.update_xaxes(title_text=what, row=1, col=column)
    fig.update_yaxes(rangemode="tozero", title_text="")
    fig.update_yaxes(title_text="theoretical occupancy (%)", row=1, col=1)
    return fig


def draw_hot_instructions(kernel: Kernel, *, title: str = "") -> go.Figure:
    """Draws the stall samples of each SASS instruction in program order.

    Colors show the most common stall reason of the instruction.
    """
    import plotly.graph_objects as go

    code = instructions(kernel)
    common = code.groupby("top_stall")["samples"].sum().nlargest(6).index
    code["stall"] = code["top_stall"].where(code["top_stall"].isin(common), "other")
    fig = go.Figure()
    sampled = code[code["samples"] > 0].groupby("stall", sort=False)
    for (stall, group), color in zip(sampled, plots.PALETTE, strict=False):
        fig.add_bar(
            x=group.index,
            y=group["samples_percent"],
            name=stall,
            width=0.9,
            marker_color=color,
            customdata=group[["sass", "source"]],
            hovertemplate="%{customdata[0]}<br>%{customdata[1]}<br>%{y:.1f} %",
        )
    plots.layout(fig, title, "instruction, in program order", "samples (%)")
    return fig.update_layout(
        barmode="overlay", legend_title_text="mostly waiting for", xaxis_range=[-1, len(code)]
    )

"""Nsight Compute's tables as figures (a launch over time, occupancy, hot instructions), and its summary formatted.

Each takes a report or a launch from `ncu.load_report`; the figures need no GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from helpers import plots
from helpers.ncu.reader import Kernel, Report, summary
from helpers.ncu.views import instructions, occupancy_curves, over_time

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
    """`summary` formatted, with the columns of Nsight Compute's Summary page; `summary` itself has more, as numbers."""
    shown = plots.table(summary(report), _SUMMARY)
    return shown.set_properties(subset=["grid", "block"], **{"white-space": "nowrap"})


def draw_over_time(kernel: Kernel, *, title: str = "") -> go.Figure:
    """A launch over time: SMs at work, DRAM reads and writes, and below them the blocks that started.

    Empty axes, and a note that says why, where the report has no such samples (GPUs before Ampere).
    """
    from plotly.subplots import make_subplots

    time = over_time(kernel)
    fig = make_subplots(2, 1, shared_xaxes=True, row_heights=[0.7, 0.3], vertical_spacing=0.06)
    curves = {"sm_active": "SMs at work", "dram_read": "DRAM reads", "dram_write": "DRAM writes"}
    for (column, name), colour, marker in zip(curves.items(), (2, 0, 3), plots.MARKERS, strict=False):
        fig.add_scatter(
            x=time["time_us"],
            y=time[f"{column}_percent"],
            name=name,
            mode="lines+markers",
            line_color=plots.PALETTE[colour],
            marker_symbol=marker,
            row=1,
            col=1,
        )
    started = {"name": "blocks started", "marker_color": plots.PALETTE[7]}
    fig.add_bar(x=time["time_us"], y=time["blocks_launched"], **started, row=2, col=1)
    note = "" if len(time) else "this GPU, or this profile, has no samples over time"
    plots.layout(fig, title, note=note, height=520)
    fig.update_yaxes(title_text="% of peak", rangemode="tozero", row=1, col=1)
    fig.update_yaxes(title_text="blocks", row=2, col=1)
    fig.update_xaxes(title_text="time since the first sample (µs)", row=2, col=1)
    return fig


def draw_occupancy(kernel: Kernel, *, title: str = "") -> go.Figure:
    """Theoretical occupancy over threads a block and over registers a thread; a dot where the kernel is now."""
    from plotly.subplots import make_subplots

    curves = occupancy_curves(kernel)
    here = {
        "threads a block": kernel.block[0] * kernel.block[1] * kernel.block[2],
        "registers a thread": int(kernel.metrics["launch__registers_per_thread"]),
    }
    fig = make_subplots(1, 2, shared_yaxes=True, horizontal_spacing=0.06)
    for column, (what, value) in enumerate(here.items(), start=1):
        curve = curves[curves["what"] == what]
        if curve.empty:
            continue
        now = curve.iloc[[(curve["value"] - value).abs().argmin()]]
        for points, name, look in (
            (curve, "if this changed", {"mode": "lines", "line": {"shape": "hv", "color": plots.PALETTE[0]}}),
            (now, "this kernel", {"mode": "markers", "marker": {"size": 12, "color": plots.PALETTE[3]}}),
        ):
            x, y = points["value"], points["occupancy_percent"]
            fig.add_scatter(x=x, y=y, name=name, showlegend=column == 1, row=1, col=column, **look)
        fig.update_xaxes(title_text=what, rangemode="tozero", row=1, col=column)
    plots.layout(fig, title, height=400)
    for column, what in enumerate(here, start=1):
        fig.update_xaxes(title_text=what, row=1, col=column)
    fig.update_yaxes(rangemode="tozero", title_text="")
    fig.update_yaxes(title_text="theoretical occupancy (%)", row=1, col=1)
    return fig


def draw_hot_instructions(kernel: Kernel, *, title: str = "") -> go.Figure:
    """Stall samples of each SASS instruction in program order, coloured by what most of them waited for."""
    import plotly.graph_objects as go

    code = instructions(kernel)
    common = code.groupby("top_stall")["samples"].sum().nlargest(6).index
    code["stall"] = code["top_stall"].where(code["top_stall"].isin(common), "other")
    fig = go.Figure()
    sampled = code[code["samples"] > 0].groupby("stall", sort=False)
    for (stall, group), colour in zip(sampled, plots.PALETTE, strict=False):
        fig.add_bar(
            x=group.index,
            y=group["samples_percent"],
            name=stall,
            width=0.9,
            marker_color=colour,
            customdata=group[["sass", "source"]],
            hovertemplate="%{customdata[0]}<br>%{customdata[1]}<br>%{y:.1f} %",
        )
    plots.layout(fig, title, "instruction, in program order", "samples (%)")
    return fig.update_layout(
        barmode="overlay", legend_title_text="mostly waiting for", xaxis_range=[-1, len(code)]
    )

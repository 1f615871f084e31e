"""Lesson 09's measurements: the gain from each trick of the tuned softmax kernel, and hardware counters of
this kernel and other softmaxes.

Both records need a GPU: wide_rows/tricks has the tuned kernel with one trick removed at a time, and
wide_rows/counters has our softmax and others under Nsight Compute. `draw_tricks` plots the first record, and
`draw_league` shows the wide rows of the league on several GPUs side by side.
"""

from __future__ import annotations

import tempfile
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import plots, records

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    import torch

WIDE = 65_536  # columns: programs share a row of either dtype that is at least this wide
ELEMENTS = 1 << 28
NO_NAP, ONE_SECTOR, MANY_LOOK, LARGE_PARTS, AS_TUNED = (
    *("no nap", "words of two rows in a sector", "each warp looks at every word"),
    *("32 KB a program", "as tuned"),
)
# what the kernel does without a trick -> the name of the trick in the lesson
TRICKS = {
    ONE_SECTOR: "words apart",
    NO_NAP: "a nap",
    MANY_LOOK: "one look a word",
    LARGE_PARTS: "smaller programs",
}
_SHORT = {"bfloat16": "bf16", "float32": "fp32"}
_POINTS = (("bfloat16", 131_072), ("bfloat16", 262_144), ("bfloat16", 393_216), ("float32", 262_144))


# one trick less


def kernel_without_nap() -> Any:
    """Returns the tuned kernel without its nap, so that waiting programs poll the words all the time."""
    import triton

    from helpers.kernels import softmax

    original = softmax.softmax_split_kernel.fn
    names = {**original.__globals__, "nap": _no_nap()}
    copy = types.FunctionType(original.__code__, names, original.__name__, original.__defaults__)
    copy.__annotations__ = original.__annotations__  # the annotations mark constant arguments
    return triton.jit(copy)


def _no_nap() -> Any:
    from helpers.lessons.spin_wait import no_nap

    return no_nap


def _launch(trick: str, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> tuple:
    """Returns the tuned launch with one trick removed: its plan, the stride between the words of two rows,
    and the block that reads the words of a row.
    """
    import triton

    from helpers.kernels import softmax as kernels

    plan = kernels.plan_softmax(*shape, dtype, device=device)
    if plan.kernel != "split" or plan.parts == 1:
        raise ValueError(
            f"without: rows of {shape[1]:,} columns are not shared by several programs; use wider rows."
        )
    if trick == LARGE_PARTS:
        size = kernels.PART_CHUNKS * 16 * 128 // dtype.itemsize
        plan = kernels.plan_parts(shape, dtype, size, 4, kernels.PART_REGISTERS)
    stride = plan.parts if trick == ONE_SECTOR else plan.words_stride
    return plan, stride, triton.next_power_of_2(plan.parts + 1) if trick == MANY_LOOK else plan.words_block


def without(trick: str, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Returns a call that computes the softmax of `x` with the tuned kernel, but with one trick removed.

    The call allocates the output, clears the words and launches the kernel.

    Args:
        trick: One of this module's constants; `AS_TUNED` removes none.
        x: A tensor (n_rows, n_cols) on the GPU, wide enough that programs share a row.

    Raises:
        ValueError: The row isn't shared, or its programs may not fit on the GPU at once.
    """
    import torch

    from helpers.kernels import softmax as kernels

    plan, stride, block = _launch(trick, tuple(x.shape), x.dtype, x.device)
    kernel = kernel_without_nap() if trick == NO_NAP else kernels.softmax_split_kernel
    if plan.parts > kernels.max_parts(x.device, plan.num_warps, plan.max_registers):
        raise ValueError(f"without: the {plan.parts} programs of a row may not fit on this GPU at once.")

    def run() -> torch.Tensor:
        y = torch.empty_like(x)
        words = torch.zeros(plan.n_rows * stride, dtype=torch.int64, device=x.device)
        kernel[(plan.n_programs,)](
            y,
            x,
            x.stride(0),
            y.stride(0),
            plan.n_cols,
            words,
            PARTS=plan.parts,
            PARTS_BLOCK=block,
            WORDS_STRIDE=stride,
            CHUNK=plan.block_size,
            CHUNKS=plan.chunks,
            ALIGN=kernels.alignment(x, y),
            REPACK=x.element_size() == 2,
            PUBLISH_ONLY=False,
            num_warps=plan.num_warps,
            maxnreg=plan.max_registers,
        )
        return y

    return run


def changes(trick: str, dtype: str, n_cols: int) -> bool:
    """Returns whether removing a trick changes the launch or the kernel.

    If it doesn't, the tuned kernel is timed twice.
    """
    import torch

    shape, torch_dtype = (ELEMENTS // n_cols, n_cols), getattr(torch, dtype)
    # The answer depends on the shape, not on the available GPU, which may be too small to share such rows.
    any_device = torch.device("cpu")
    tuned = _launch(AS_TUNED, shape, torch_dtype, any_device)
    return trick == NO_NAP or _launch(trick, shape, torch_dtype, any_device) != tuned


def tricks() -> list[dict[str, Any]]:
    """Measures the rows of wide_rows/tricks on this GPU.

    Each trick is removed in turn and timed interleaved with the tuned kernel and a copy. A trick that makes
    no difference at a width (see `changes`) has a row too: timing the same launch twice shows the resolution
    of the measurement.

    Raises:
        records.CannotMeasure: A row of these widths isn't shared on this GPU.
    """
    import torch

    from helpers.timing.interleaved import compare_many

    found = []
    for dtype, n_cols in _POINTS:
        x = torch.randn(ELEMENTS // n_cols, n_cols, device="cuda", dtype=getattr(torch, dtype))
        expected, y = torch.softmax(x, dim=1), torch.empty_like(x)
        calls: dict[str, Callable[[], Any]] = {"copy": lambda x=x, y=y: y.copy_(x)}
        for trick in (AS_TUNED, *TRICKS):
            try:
                call = without(trick, x)
            except ValueError as error:
                raise records.CannotMeasure(str(error)) from error
            if not torch.allclose(call(), expected, rtol=2e-2 if dtype == "bfloat16" else 1e-4, atol=0):
                raise RuntimeError(
                    f"The softmax of {n_cols:,} {dtype} columns is wrong for the variant {trick!r}."
                )
            calls[trick] = call
        del expected
        timings = compare_many(calls, against=AS_TUNED, budget_s=0.4)
        for trick, one in timings.items():
            row = {"trick": trick, "dtype": dtype, "n_cols": n_cols, "median_us": one.median_us}
            row |= {"of_copy": timings["copy"].median_us / one.median_us, "over_tuned": one.ratio}
            found.append(row | {"ratio_low": one.ratio_ci95[0], "ratio_high": one.ratio_ci95[1]})
    return found


def bought(tricks: pd.DataFrame) -> pd.DataFrame:
    """Returns what each trick gains.

    The columns include `trick` (its name in the lesson), `row`, `bought` (in % of the time) with the ends of
    its confidence interval, and `changes`, which is false if the launch is the same without the trick.

    Args:
        tricks: The record wide_rows/tricks.
    """
    rows = tricks[tricks.trick.isin(TRICKS)]
    rows = rows.iloc[rows.trick.map([*TRICKS].index).argsort(kind="stable")]
    points = list(zip(rows.trick, rows.dtype, rows.n_cols, strict=True))
    return rows.assign(
        trick=rows.trick.map(TRICKS),
        row=[f"{_SHORT[dtype]}, {n_cols:,}" for _, dtype, n_cols in points],
        changes=[changes(*point) for point in points],
        bought=100 * (rows.over_tuned - 1),
        bought_low=100 * (rows.ratio_low - 1),
        bought_high=100 * (rows.ratio_high - 1),
    )


def draw_tricks(tricks: pd.DataFrame) -> go.Figure:
    """Draws the gain from each trick where it makes a difference: a group of bars per dtype and columns.

    Args:
        tricks: The record wide_rows/tricks.
    """
    rows = bought(tricks)
    title = "One trick taken out of the tuned kernel"
    axes = {"x_title": "dtype and columns of a row", "y_title": "extra time without the trick (%)"}
    return plots.bars(rows[rows.changes], "row", "bought", "trick", title=title, **axes)


def timed_twice(tricks: pd.DataFrame) -> str:
    """Returns how far two timings of the same launch differ, from the tricks that change nothing."""
    same = bought(tricks).query("not changes").bought
    return f"The same launch against itself, {len(same)} pairs: {same.min():+.2f} to {same.max():+.2f} %"


# counters of peers

NAMES = {
    "ours": "ours",
    "quack": "QuACK",
    "compile-max": "torch.compile, max-autotune",
    "compile": "torch.compile",
    "eager": "torch.softmax",
    "liger": "Liger",
}
_SECTIONS = (
    "SpeedOfLight",
    "LaunchStats",
    "Occupancy",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables",
)
_COUNTED = (("bfloat16", 65_536), ("bfloat16", 262_144), ("float32", 262_144))
_SCRIPT = "from helpers.lessons import wide_rows\nwide_rows.launch_peers()\n"


def _peers(x: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """Returns the available contestants: ours, torch, torch.compile, and QuACK if it is installed."""
    import importlib.util

    import torch

    from helpers.kernels.ops import softmax

    torch._dynamo.reset()
    compiled = torch.compile(lambda t: torch.softmax(t, dim=-1), dynamic=False)
    found = {
        "ours": lambda: softmax(x),
        "eager": lambda: torch.softmax(x, dim=-1),
        "compile": lambda: compiled(x),
    }
    if importlib.util.find_spec("quack"):
        from quack import softmax as quack

        found["quack"] = lambda: quack(x)
    return found


def launch_peers() -> None:
    """Launches each contestant once at each point, in a range that names both, for Nsight Compute."""
    import torch
    from torch.cuda import nvtx

    for dtype, n_cols in _COUNTED:
        x = torch.randn(ELEMENTS // n_cols, n_cols, device="cuda", dtype=getattr(torch, dtype))
        for name, call in _peers(x).items():
            call()  # compile outside the range
            torch.cuda.synchronize()
            with nvtx.range("measured"), nvtx.range(f"{name}|{dtype}|{n_cols}"):
                call()
            torch.cuda.synchronize()


def counters() -> list[dict[str, Any]]:
    """Measures the rows of wide_rows/counters on this GPU: one per contestant and point.

    Raises:
        records.CannotMeasure: Nsight Compute can't count on this machine.
    """
    from helpers import ncu

    with tempfile.TemporaryDirectory() as folder:
        try:
            path = ncu.run(
                _SCRIPT, out=Path(folder, "peers.ncu-rep"), nvtx="measured", set=None, sections=_SECTIONS,
                import_source=False, timeout_s=900,
            )  # fmt: skip
        except ncu.NcuError as error:
            if error.reason in ("not-found", "permission", "driver", "busy"):
                raise records.CannotMeasure(str(error)) from error
            raise
        return of_report(ncu.load_report(path))


def of_report(report: Any) -> list[dict[str, Any]]:
    """Sums a report's launches by contestant and point.

    Args:
        report: A report with launches in ranges named "name|dtype|columns".

    Returns:
        Dictionaries with `contestant`, `dtype`, `n_cols`, `launches`, `ncu_us`, `read_gb` and `written_gb`,
        and for the longest launch `dram_percent`, `issue_percent` and `warps_percent` (of their peaks) and
        `registers` (per thread).
    """
    from helpers import ncu

    table = ncu.summary(report)
    found: dict[str, dict[str, Any]] = {}
    for kernel, row in zip(report, table.to_dict("records"), strict=True):
        range_name = next((one for one in kernel.nvtx if one.count("|") == 2), None)
        if range_name is None:
            continue
        name, dtype, n_cols = range_name.split("|")
        empty = {"launches": 0, "ncu_us": 0.0, "read_gb": 0.0, "written_gb": 0.0, "longest_us": 0.0}
        totals = found.setdefault(
            range_name, {"contestant": name, "dtype": dtype, "n_cols": int(n_cols)} | empty
        )
        totals["launches"] += 1
        totals["ncu_us"] += kernel.duration_us
        totals["read_gb"] += row["dram_read_bytes"] / 1e9
        totals["written_gb"] += row["dram_write_bytes"] / 1e9
        if kernel.duration_us > totals["longest_us"]:
            m = kernel.metrics
            totals |= {
                "longest_us": kernel.duration_us,
                "dram_percent": float(m["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"]),
                "issue_percent": float(m["sm__issue_active.avg.pct_of_peak_sustained_elapsed"]),
                "warps_percent": float(m["sm__warps_active.avg.pct_of_peak_sustained_active"]),
                "registers": int(m["launch__registers_per_thread"]),
            }
    return [{k: v for k, v in one.items() if k != "longest_us"} for one in found.values()]


def why(rows: pd.DataFrame) -> str:
    """Returns an explanation of the differences between our softmax and each other one, in Markdown.

    Every sentence follows from the rows.
    """
    paragraphs = []
    for (dtype, n_cols), point in rows.groupby(["dtype", "n_cols"], sort=False):
        by_name = point.set_index("contestant")
        ours, floor = by_name.loc["ours"], 2 * ELEMENTS * (2 if dtype == "bfloat16" else 4) / 1e9
        lines = [f"**{dtype}, {n_cols:,} columns** (floor {floor:.2f} GB)."]
        for name, other in by_name.drop(index="ours").iterrows():
            times = other.ncu_us / ours.ncu_us
            other_gb, our_gb = other.read_gb + other.written_gb, ours.read_gb + ours.written_gb
            reasons = []
            if other_gb > 1.1 * our_gb:
                part = "" if other_gb >= 0.9 * times * our_gb else ", which is a part of it"
                reasons.append(f"it moves {other_gb:.2f} GB through DRAM, ours {our_gb:.2f}{part}")
            elif abs(other.dram_percent - ours.dram_percent) > 2:
                reasons.append(
                    f"as many bytes, and DRAM busy {other.dram_percent:.0f} % of its peak; under ours "
                    f"{ours.dram_percent:.0f} %"
                )
            if other_gb < 0.9 * times * our_gb and other.issue_percent > max(50, ours.issue_percent + 20):
                reasons.append(
                    f"its schedulers issue in {other.issue_percent:.0f} % of all cycles, under ours in "
                    f"{ours.issue_percent:.0f} %"
                )
            explanation = (
                "; ".join(reasons) or "as many bytes, and DRAM equally busy: the counters do not part the two"
            )
            lines.append(f"{NAMES.get(name, name)} takes {times:.2f} times our time: {explanation}.")
        paragraphs.append(" ".join(lines))
    return "\n\n".join(paragraphs)


# the league's figure


def wide_softmaxes(league: pd.DataFrame) -> pd.DataFrame:
    """Returns the league's softmaxes of 2²⁸ elements with at least 8,192 columns.

    `of_peak` is the bandwidth in percent of the memory's peak.
    """
    peak = league.attrs["provenance"].gpu["peak_gb_per_s"]
    rows = league[
        league.op.eq("softmax") & league.n_cols.ge(8192) & league.n_rows.mul(league.n_cols).lt(2 * ELEMENTS)
    ]
    return rows.assign(of_peak=100 * rows.gb_per_s.astype(float) / peak)


def draw_league(
    leagues: Mapping[str, pd.DataFrame], dtypes: tuple[str, ...] = ("bfloat16", "float32")
) -> go.Figure:
    """Draws the percentage of the memory's peak bandwidth over the width, with a panel per GPU and buttons
    for the dtype.

    Args:
        leagues: The league of each set of records, from `records.stored_by_gpu("fusion/league")`.
        dtypes: The dtypes that the buttons offer; the first one is shown.
    """
    from plotly.subplots import make_subplots

    names = {
        gpu: table.attrs["provenance"].gpu["name"].removeprefix("NVIDIA ") for gpu, table in leagues.items()
    }
    days = {gpu: table.attrs["provenance"].date for gpu, table in leagues.items()}
    fig = make_subplots(rows=1, cols=len(leagues), shared_yaxes=True, horizontal_spacing=0.04,
                        subplot_titles=[f"{names[gpu]}, {days[gpu]}" for gpu in leagues])  # fmt: skip
    trace_dtypes = []
    for column, table in enumerate(leagues.values(), start=1):
        rows = wide_softmaxes(table)
        for dtype in dtypes:
            part = rows[rows.dtype.eq(dtype)]
            for i, (contestant, name) in enumerate(NAMES.items()):
                subset = part[part.contestant.eq(contestant) & part.median_us.gt(0)].sort_values("n_cols")
                fig.add_scatter(
                    x=list(subset.n_cols),
                    y=list(subset.of_peak),
                    mode="lines+markers",
                    name=name,
                    legendgroup=name,
                    showlegend=column == 1,
                    visible=dtype == dtypes[0],
                    row=1,
                    col=column,
                    line={"color": plots.PALETTE[i], "width": 2},
                    marker={"symbol": plots.MARKERS[i], "size": 8},
                    hovertemplate=name + ", %{x:,} columns: %{y:.1f} %<extra></extra>",
                )
                trace_dtypes.append(dtype)
            copy = part[part.contestant.eq("copy")].sort_values("n_cols")
            fig.add_scatter(
                x=list(copy.n_cols), y=list(copy.of_peak), mode="lines", name="a copy", legendgroup="copy",
                showlegend=column == 1, visible=dtype == dtypes[0], row=1, col=column,
                line={"color": plots.TEXT_COLOUR, "width": 2, "dash": "dash"},
            )  # fmt: skip
            trace_dtypes.append(dtype)
    buttons = [
        {
            "label": _SHORT[one],
            "method": "update",
            "args": [{"visible": [one == dtype for dtype in trace_dtypes]}],
        }
        for one in dtypes
    ]
    plots.layout(fig, "Softmax of 2²⁸ elements under the roof: % of the memory's peak", height=520)
    ticks = [8192, 32768, 131072, 393216]
    fig.update_xaxes(
        type="log", tickvals=ticks, ticktext=[f"{n // 1024} Ki" for n in ticks], title_text="columns"
    )
    fig.update_yaxes(range=[0, 105], title_text="")
    fig.update_yaxes(title_text="% of the memory's peak", col=1)
    fig.update_layout(
        margin={"t": 110, "b": 130},
        legend={"orientation": "h", "y": -0.2, "yanchor": "top", "x": 0},
        updatemenus=[
            {
                "type": "buttons",
                "direction": "right",
                "buttons": buttons,
                "x": 1,
                "xanchor": "right",
                "y": 1.24,
                "yanchor": "top",
                "showactive": True,
            }
        ],
    )
    return fig

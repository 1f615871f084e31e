"""The tables and plots of lesson 10: the same kernels, launches and tuned choices on two GPUs.

All rows come from the records of the two GPUs. `known` is the GPU that you have measured on, and `new` is the
other one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from helpers import device, plots, records, timing

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Gpu = Mapping[str, Any]  # the facts about a GPU, as in a record's provenance

# The columns that identify a launch of the sweep, and the rows of its matrix.
LAUNCH = ["block_size", "num_warps"]
SHAPE = ["n_cols", "dtype"]
SWEEP_ROWS = 4096
_ELEMENT_BYTES = {"float32": 4, "bfloat16": 2}
_COPY, _SOFTMAX = "torch, a copy", "torch.softmax"
# The records to compare, and the column that names the kernels: only kernels with the same source on both
# GPUs.
_RECORDS = {"fusion/league": "contestant", "triton/curve": "kernel", "fusion/five-operations": "kernel"}
_LEFT_OUT = ("torch.compile", "CUDA, 256 × 1 threads")  # tunes itself on each GPU; one point only


def facts(gpus: Mapping[str, Gpu]) -> pd.DataFrame:
    """Returns what matters in this lesson about each GPU: one column per GPU."""
    import pandas as pd

    names = ["name", "sm_count", "l2_bytes", "peak_gb_per_s", "copy_gb_per_s"]
    return pd.DataFrame(gpus).loc[names]


def predicted_us(n_bytes: float, gpu: Gpu, floor_us: float = 0.0) -> float:
    """Returns how many µs the bytes take at the bandwidth of a copy on that GPU, plus a launch floor."""
    return floor_us + n_bytes / gpu["copy_gb_per_s"] / 1e3


def square_here(n: int = 10_000) -> str:
    """Returns a sentence with the predicted and the measured time of squaring n × n floats on this machine's
    GPU.
    """
    if not device.has_gpu():
        return "There is no GPU here, so the two recorded ones are all we have."
    import torch

    x, gpu = torch.randn(n, n, device="cuda"), device.gpu_spec().as_dict()
    measured = timing.time_gpu(lambda: torch.square(x)).median_us
    return f"{gpu['name']}: by the rule {predicted_us(8 * n * n, gpu):.0f} µs, measured {measured:.0f} µs"


def machines(table: pd.DataFrame) -> str:
    """Returns the GPUs of a compared table with the dates of their records, such as "H100, 2026-11-21 · H200,
    2026-11-22".
    """
    found = table.attrs["provenance"].items()
    return " · ".join(f"{gpu.upper()}, {provenance.date}" for gpu, provenance in found)


def kernels_of_both(known: str = "h100", new: str = "h200") -> pd.DataFrame:
    """Returns the kernels that were timed on both GPUs with a cold L2.

    These are the league's copies of 4,096 to 2**30 floats, the kernels of lesson 03 over the columns of 4,096
    rows (Triton, CUDA C++ and torch.square), and torch.softmax of lesson 06. torch.compile is left out,
    because it tunes itself and so is a different kernel on each GPU. The function prints nothing: `machines`
    returns where the rows come from.

    Args:
        known: The name of a set of records, such as "h100".
        new: The name of another one.

    Returns:
        A DataFrame with `kernel`, `n_bytes` (the bytes that must be moved), `known_us`, `new_us` and
        `speedup` (known over new). Its `.attrs` have "provenance" and "gpus", as in `records.compare`.

    Raises:
        helpers.records.NoRecord: A set doesn't exist or lacks one of the records.
    """
    import pandas as pd

    frames, provenance = [], {}
    for name, column in _RECORDS.items():
        # From the league, only torch's copies are used, because our kernels may have changed since.
        sets = records.stored_by_gpu(name)
        if missing := [gpu for gpu in (known, new) if gpu not in sets]:
            raise records.NoRecord(
                f"The records of {missing[0]} have no {name!r}, but those of {', '.join(sets)} do."
            )
        keys = ["n_rows", "n_cols", column] + ["op", "dtype"] * (name == "fusion/league")
        rows = sets[known].merge(sets[new], on=keys, suffixes=("_known", "_new"))
        if name == "fusion/league":
            rows = rows[rows.contestant.eq("copy") & rows.op.eq("square") & rows.dtype.eq("float32")]
            rows = rows.assign(kernel=_COPY)
        elif name == "triton/curve":
            rows = rows[~rows.kernel.isin(_LEFT_OUT)]
        else:
            rows = rows[rows.kernel.eq(_SOFTMAX)]
        times = {"known_us": rows.median_us_known, "new_us": rows.median_us_new}
        n_bytes = rows.median_us_new * rows.gb_per_s_new * 1e3
        frames.append(pd.DataFrame({"kernel": rows.kernel, "n_bytes": n_bytes, **times}).dropna())
        provenance = {gpu: sets[gpu].attrs["provenance"] for gpu in (known, new)}
    table = pd.concat(frames, ignore_index=True)
    table["speedup"] = table.known_us / table.new_us
    table.attrs |= {"provenance": provenance, "gpus": [known, new]}
    return table


def large(both: pd.DataFrame, least_bytes: float = 300e6) -> pd.DataFrame:
    """Returns the kernels of `kernels_of_both` at their large sizes, one row each.

    Returns:
        A DataFrame with `kernel`, `share` (the median bandwidth on the known GPU, in percent of a copy's) and
        `speedup` (the median, on the new GPU).
    """
    rows = both[both.n_bytes > least_bytes]
    known = both.attrs["provenance"][both.attrs["gpus"][0]].gpu
    rows = rows.assign(share=100 * predicted_us(rows.n_bytes, known) / rows.known_us)
    return rows.groupby("kernel", sort=False)[["share", "speedup"]].median().reset_index()


def from_the_cache(gpu: str = "h200") -> str:
    """Returns two lines about lesson 01's small tensor: its square predicted from bytes, and measured with a
    cold and a warm L2.
    """
    fits = records.compare("profiling/wrong-buffers", on=["input"]).set_index("input")
    cold, warm = (fits.loc[f"fits the L2, {state}"] for state in ("cold", "warm"))
    n_bytes = 2 * 4 * warm[f"n_elements_{gpu}"]
    predicted = predicted_us(n_bytes, fits.attrs["provenance"][gpu].gpu)
    return (
        f"{gpu.upper()}: {n_bytes / 1e6:.0f} MB take {predicted:.1f} µs at a copy's bandwidth.\n"
        f"Measured: {cold[f'median_us_{gpu}']:.1f} µs with a cold L2, {warm[f'median_us_{gpu}']:.1f} µs with "
        "a warm one."
    )


def copies_by_size(both: pd.DataFrame) -> pd.DataFrame:
    """Returns the copies of `kernels_of_both` by size, with two predictions of their times on the new GPU.

    The launch floor is the time of the smallest copy on the known GPU.

    Returns:
        A DataFrame with `MB`, `new_us`, `by_bytes`, `with_floor` (both in µs), and `by_bytes_off` and
        `with_floor_off` (in percent of the measured time). Its `.attrs` have "floor_us".
    """
    copies = both[both.kernel.eq(_COPY)].sort_values("n_bytes").reset_index(drop=True)
    new = both.attrs["provenance"][both.attrs["gpus"][1]].gpu
    floor_us = float(copies.known_us.iloc[0])
    found = copies[["new_us"]].assign(MB=copies.n_bytes / 1e6)
    for name, floor in (("by_bytes", 0.0), ("with_floor", floor_us)):
        found[name] = predicted_us(copies.n_bytes, new, floor)
        found[f"{name}_off"] = 100 * (found[name] / found.new_us - 1)
    found.attrs["floor_us"] = floor_us
    return found


def copy_ratio(table: pd.DataFrame) -> float:
    """Returns the new GPU's copy bandwidth divided by the known one's, from a compared table's provenance."""
    known, new = (table.attrs["provenance"][gpu].gpu["copy_gb_per_s"] for gpu in table.attrs["gpus"])
    return new / known


def draw_speedups(table: pd.DataFrame) -> go.Figure:
    """Draws how many times as fast each kernel is on the new GPU, over the bytes that it moves.

    One dashed line marks the ratio of the copy bandwidths, another one marks 1.

    Args:
        table: A table from `kernels_of_both`.
    """
    import plotly.graph_objects as go

    known, new = (gpu.upper() for gpu in table.attrs["gpus"])
    fig = go.Figure()
    for i, (kernel, rows) in enumerate(table.groupby("kernel", sort=False)):
        marker = {"color": plots.PALETTE[i], "symbol": plots.MARKERS[i], "size": 9}
        hover = f"%{{x:.3g}} MB<br>%{{y:.2f}} times as fast<extra>{kernel}</extra>"
        x, y = rows.n_bytes / 1e6, rows.speedup
        fig.add_scatter(x=x, y=y, name=kernel, mode="markers", marker=marker, hovertemplate=hover)
    ratio = copy_ratio(table)
    for y, label in ((ratio, f"the copies' ratio, {ratio:.2f}"), (1, "no faster")):
        fig.add_hline(y=y, line={"dash": "dash", "color": plots.TEXT_COLOUR, "width": 1.5})
        label_style = {"xref": "paper", "x": 0, "xanchor": "left", "yanchor": "bottom", "showarrow": False}
        fig.add_annotation(y=y, text=label, **label_style)
    title = f"How many times as fast on an {new} as on an {known}"
    plots.layout(fig, title, "bytes moved, MB (log scale)", "times as fast", note=machines(table), height=460)
    fig.update_xaxes(**plots.log_axis(table.n_bytes / 1e6))
    return fig.update_yaxes(range=[0.9, 1.5])


def launches(sweep: pd.DataFrame, n_cols: int = 8192, dtype: str = "float32") -> pd.DataFrame:
    """Returns the launches of lesson 03's flat kernel at one shape, and how far each is from the best on its
    GPU.

    Args:
        sweep: `records.compare("triton/launch-sweep")`.
        n_cols: The columns of the 4,096 rows.
        dtype: "float32" or "bfloat16".

    Returns:
        A DataFrame with a row per launch that was correct on both GPUs: `block_size`, `num_warps`,
        `programs`, and for each GPU columns such as `us_h100` and `loss_h100` (percent above the fastest
        launch there).
    """
    rows = sweep[sweep.kernel.eq("Triton flat") & sweep.n_cols.eq(n_cols) & sweep.dtype.eq(dtype)]
    gpus = sweep.attrs["gpus"]
    rows = rows.dropna(subset=[f"median_us_{gpu}" for gpu in gpus]).reset_index(drop=True)
    found = rows[LAUNCH].astype(int)
    found["programs"] = -(-SWEEP_ROWS * n_cols // found.block_size)
    for gpu in gpus:
        found[f"us_{gpu}"] = rows[f"median_us_{gpu}"]
        found[f"loss_{gpu}"] = 100 * (found[f"us_{gpu}"] / found[f"us_{gpu}"].min() - 1)
    found.attrs |= {key: sweep.attrs[key] for key in ("provenance", "gpus")}
    found.attrs["n_bytes"] = 2 * SWEEP_ROWS * n_cols * _ELEMENT_BYTES[dtype]
    return found


def order(ours: tuple[float, float], theirs: tuple[float, float]) -> str:
    """Returns what two intervals of times show about ours: "faster", "slower", or "tie" if they overlap."""
    if ours[1] < theirs[0]:
        return "faster"
    return "slower" if ours[0] > theirs[1] else "tie"


def transfer(sweep: pd.DataFrame) -> pd.DataFrame:
    """Returns how the first GPU's fastest launch performs on both GPUs, for each shape of the sweep.

    Args:
        sweep: `records.compare("triton/launch-sweep")`.

    Returns:
        A DataFrame with `n_cols`, `dtype`, `block_size`, `num_warps`, `loss_percent` (compared with the
        second GPU's own fastest launch), and for each GPU columns such as `over_torch_h100`
        (torch.square's time divided by the time of this launch) and `order_h100` (what the 95 % intervals of
        the two times show: "faster", "tie" or "slower" than torch.square).
    """
    import pandas as pd

    known, new = sweep.attrs["gpus"]
    torch_rows = sweep[sweep.kernel.eq("torch.square")].set_index(SHAPE)
    flat = sweep[sweep.kernel.eq("Triton flat")]
    our_rows = flat.set_index([*SHAPE, *LAUNCH]).sort_index()
    rows = []
    for shape, _ in flat.groupby(SHAPE, sort=False):
        table = launches(sweep, *shape)
        best = table.loc[table[f"us_{known}"].idxmin()]
        launch = {key: int(best[key]) for key in LAUNCH}
        row = dict(zip(SHAPE, shape, strict=True)) | launch
        ours, theirs = our_rows.loc[(*shape, *launch.values())], torch_rows.loc[shape]
        for gpu in (known, new):
            row[f"over_torch_{gpu}"] = theirs[f"median_us_{gpu}"] / best[f"us_{gpu}"]
            intervals = ((one[f"ci_low_us_{gpu}"], one[f"ci_high_us_{gpu}"]) for one in (ours, theirs))
            row[f"order_{gpu}"] = order(*intervals)
        rows.append(row | {"loss_percent": best[f"loss_{new}"]})
    found = pd.DataFrame(rows)
    found.attrs["gpus"] = [known, new]
    return found


def orders(moved: pd.DataFrame) -> str:
    """Returns the counts of orders in a table from `transfer`, and where they change, as lines of text."""
    known, new = moved.attrs["gpus"]
    lines = []
    for gpu in (known, new):
        counts = moved[f"order_{gpu}"].value_counts()
        lines.append(
            f"{gpu.upper()}: faster than torch.square at {counts.get('faster', 0)} of {len(moved)} shapes, "
            f"a tie at {counts.get('tie', 0)}, slower at {counts.get('slower', 0)}"
        )
    both = moved.groupby([f"order_{known}", f"order_{new}"]).size()
    wins, ties = (moved[f"order_{known}"].eq(one).sum() for one in ("faster", "tie"))
    for n, name, changes in ((wins, "faster", ("faster", "tie", "slower")), (ties, "tie", ("tie", "slower"))):
        parts = ", ".join(f"{one} at {both.get((name, one), 0)}" for one in changes)
        lines.append(
            f"Of the {n} shapes with {name!r} on the {known.upper()}, the {new.upper()} has: {parts}"
        )
    return "\n".join(lines)


def starts_per_ns(found: pd.DataFrame, gpu: str) -> float:
    """Returns how many one-warp programs a GPU starts per nanosecond, from the launch with the most
    programs.
    """
    most = found[found.num_warps.eq(1)].sort_values("programs").iloc[-1]
    return most.programs / most[f"us_{gpu}"] / 1e3


def start_rates(found: pd.DataFrame, blocks: tuple[int, ...] = (64, 128)) -> pd.DataFrame:
    """Returns the launches with the smallest blocks and one warp per program, and their rates on both GPUs.

    Args:
        found: A table from `launches`.
        blocks: The block sizes.

    Returns:
        A DataFrame with a row per block size and GPU: `block`, `programs`, `gpu`, `bytes_us` (the time of the
        bytes at a copy's bandwidth), `us` (measured) and `per_ns` (programs per nanosecond).
    """
    import pandas as pd

    rows = []
    for block in blocks:
        row = found[found.block_size.eq(block) & found.num_warps.eq(1)].iloc[0]
        for gpu in found.attrs["gpus"]:
            us, of = float(row[f"us_{gpu}"]), found.attrs["provenance"][gpu].gpu
            one = {"block": block, "programs": int(row.programs), "gpu": gpu.upper(), "us": us}
            one["bytes_us"] = predicted_us(found.attrs["n_bytes"], of)
            rows.append(one | {"per_ns": row.programs / us / 1e3})
    return pd.DataFrame(rows)


def draw_floors(found: pd.DataFrame) -> go.Figure:
    """Draws the time of each launch over the elements per block on both GPUs, with a slider for the warps per
    program.

    Dashed lines show lower bounds: the time to move the bytes at each GPU's copy bandwidth, and the time to
    start that many one-warp programs at the first GPU's rate.

    Args:
        found: A table from `launches`.
    """
    import plotly.graph_objects as go

    known, new = found.attrs["gpus"]
    sizes = sorted(found.block_size.unique())
    starts = found.groupby("block_size").programs.first()[sizes] / starts_per_ns(found, known) / 1e3
    fig, warps = go.Figure(), sorted(found.num_warps.unique())
    for w in warps:
        rows = found[found.num_warps.eq(w)].sort_values("block_size")
        for i, gpu in enumerate((known, new)):
            line = {"color": plots.PALETTE[i], "width": 2}
            marker = {"symbol": plots.MARKERS[i], "size": 8}
            y = rows[f"us_{gpu}"]
            fig.add_scatter(
                x=rows.block_size, y=y, name=gpu.upper(), line=line, marker=marker, visible=bool(w == 1)
            )
    of = found.attrs["provenance"]
    bytes_us = {gpu: predicted_us(found.attrs["n_bytes"], of[gpu].gpu) for gpu in (known, new)}
    bounds = {f"bytes, {gpu.upper()}": ([us] * len(sizes), i) for i, (gpu, us) in enumerate(bytes_us.items())}
    bounds["starts, both"] = (starts, 3)
    for name, (y, color) in bounds.items():
        line = {"dash": "dash", "color": plots.PALETTE[color], "width": 2}
        fig.add_scatter(x=sizes, y=y, name=name, mode="lines", line=line)
    steps = [
        {
            "label": str(w),
            "method": "restyle",
            "args": [{"visible": [one == w for one in warps for _ in "kn"] + [True] * len(bounds)}],
        }
        for w in warps
    ]
    title = f"Lesson 03's flat kernel moves {found.attrs['n_bytes'] / 1e6:,.0f} MB, L2 cold"
    plots.layout(
        fig, title, "elements per program (log scale)", "µs (log scale)", note=machines(found), height=540
    )
    fig.update_layout(
        sliders=[{"steps": steps, "currentvalue": {"prefix": "warps per program: "}, "pad": {"t": 60}}]
    )
    fig.update_xaxes(**plots.log_axis(sizes), tickvals=sizes, ticktext=[f"{n:,}" for n in sizes])
    top = math.log10(float(found[[f"us_{known}", f"us_{new}"]].max().max()) * 1.2)
    ticks = [50, 100, 200, 500, 1000, 2000]
    return fig.update_yaxes(type="log", range=[math.log10(bytes_us[new] * 0.7), top], tickvals=ticks)


def draw_losses(found: pd.DataFrame, most: float = 10.0) -> go.Figure:
    """Draws two maps side by side: how much slower each launch is than the best on its GPU, in percent.

    Args:
        found: A table from `launches`.
        most: The percentage at which the color scale ends. Cells show their number up to 99 %.
    """
    from plotly.subplots import make_subplots

    gpus = found.attrs["gpus"]
    fig = make_subplots(cols=len(gpus), shared_yaxes=True, horizontal_spacing=0.05)
    for col, gpu in enumerate(gpus, start=1):
        grid = found.pivot(index="num_warps", columns="block_size", values=f"loss_{gpu}")
        fig.add_trace(_loss_map(grid, most, last=col == len(gpus)), row=1, col=col)
    plots.layout(fig, "Slower than the fastest launch on the same GPU (%)", note=machines(found), height=440)
    for col, gpu in enumerate(gpus, start=1):
        fig.update_xaxes(title_text=f"{gpu.upper()}: elements", type="category", col=col)
    fig.update_yaxes(type="category", showgrid=False)
    fig.update_xaxes(showgrid=False)
    return fig.update_yaxes(title_text="warps per program", col=1)


def _loss_map(grid: pd.DataFrame, most: float, *, last: bool) -> Any:
    import plotly.graph_objects as go

    losses = grid.to_numpy()
    text = [
        [f"{one:.1f}" if one < 10 else f"{one:.0f}" if one < 100 else ">99" for one in row] for row in losses
    ]
    return go.Heatmap(
        x=[str(n) for n in grid.columns],
        y=[str(n) for n in grid.index],
        z=grid.clip(upper=most),
        zmin=0,
        zmax=most,
        colorscale=plots.HEAT_COLOURS,
        reversescale=True,
        text=text,
        texttemplate="%{text}",
        textfont={"color": "#000000", "size": 11},
        xgap=2,
        ygap=2,
        showscale=last,
        colorbar={"title": {"text": "%", "side": "right"}},
        customdata=losses,
        hovertemplate="%{x} elements, %{y} warps: %{customdata:.1f} %<extra></extra>",
    )

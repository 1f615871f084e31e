"""Lesson 01: a drawing of f(i) for all i, and what the lesson measures on a GPU.

Each `measure_…` function returns the rows of a record; `recorded` calls one on a GPU, and replays the record
without one. `recorded_trace` does the same for the functions that write a trace.
"""

from __future__ import annotations

import html
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import check, device, plots, records, timing, trace

if TYPE_CHECKING:
    import pandas as pd
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


_FIRST_CALL = """
import torch
a = torch.randn({n_rows}, {n_cols}, device="cuda")
start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
torch.square(a)
stop.record()
torch.cuda.synchronize()
print(start.elapsed_time(stop) * 1e3)
"""


def first_call_us(n_rows: int, n_cols: int) -> float:
    """Returns the µs between two events around the first square of a new process."""
    script = _FIRST_CALL.format(n_rows=n_rows, n_cols=n_cols)
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


def measure_clocks(a: torch.Tensor, host_clock: Callable, event_clock: Callable) -> list[dict]:
    """Reads six clocks for one square.

    Args:
        a: A matrix on the GPU.
        host_clock: `(fn, wait) -> µs` on the host's clock, with or without waiting for the GPU.
        event_clock: `(fn) -> µs` between two CUDA events.

    Returns:
        A dictionary per clock: "clock", "us", and "low_us" and "high_us" where there are many readings.
    """
    import torch

    square, first = partial(torch.square, a), first_call_us(*a.shape)
    for _ in range(10):
        square()
    not_waiting, waiting = (
        statistics.median(host_clock(square, wait) for _ in range(21)) for wait in (False, True)
    )
    many = [event_clock(square) for _ in range(100)]
    ours = timing.time_gpu(square)
    rows = [("host, no waiting", not_waiting), ("host, waiting", waiting), ("events, first call", first)]
    rows += [("events, warm, one pair", event_clock(square))]
    rows += [("events, warm, 100 pairs", statistics.median(many), *timing.median_interval(many))]
    rows += [("timing.time_gpu", ours.median_us, *ours.ci95_us)]
    return [dict(zip(("clock", "us", "low_us", "high_us"), row, strict=False)) for row in rows]


def measure_buffers(a: torch.Tensor, labels: list[str]) -> list[dict]:
    """Times the square of four inputs: `a`, zeros like `a`, and a small one with a cold and a warm L2.

    Args:
        a: A matrix on the GPU, much larger than the L2.
        labels: A name per input that ends with "cold" or "warm".
    """
    import torch

    n_small = device.gpu_spec().l2_bytes * 2 // 25  # input and output take 64 % of the L2
    small = torch.randn(n_small, device="cuda")
    rows = []
    for label, x in zip(labels, (a, torch.zeros_like(a), small, small), strict=True):
        square = partial(torch.square, x, out=torch.empty_like(x))
        rows.append({"input": label, **_bandwidth(square, 8 * x.numel(), label.split()[-1])})
        rows[-1]["n_elements"] = x.numel()
        del rows[-1]["n_bytes"]
    return rows


def _bandwidth(fn: Callable[[], Any], n_bytes: int, l2: str = "cold") -> dict[str, float]:
    took = timing.time_gpu(fn, l2=l2)
    low, high = took.ci95_us
    figures = {"median_us": took.median_us, "ci_low_us": low, "ci_high_us": high}
    return figures | {"gb_per_s": took.gb_per_s(n_bytes), "n_bytes": n_bytes}


def measure_bandwidths(a: torch.Tensor, spellings: Mapping[str, Callable]) -> list[dict]:
    """Times a copy of `a` and each spelling of its square, in GB/s."""
    import torch

    out = torch.empty_like(a)
    jobs = {"copy on the device": lambda: out.copy_(a)} | {s: partial(fn, a) for s, fn in spellings.items()}
    return [{"operation": name, **_bandwidth(job, 8 * a.numel())} for name, job in jobs.items()]


def measure_race(a: torch.Tensor, event_clock: Callable) -> list[dict]:
    """Times the same square under three names, 200 times, in µs."""
    import torch

    return [{name: event_clock(partial(torch.square, a)) for name in "ABC"} for _ in range(200)]


def measure_comparisons(a: torch.Tensor, spellings: Mapping[str, Callable]) -> list[dict]:
    """Compares spellings of a square with one another, and one with itself (A/A)."""
    rows = []
    for x, y in [("torch.square(a)", "a ** 2"), ("torch.square(a)", "a * a"), ("a * a", "a * a")]:
        again = " again" if x == y else ""
        result = timing.compare(partial(spellings[x], a), partial(spellings[y], a), labels=(x, y + again))
        low, high = result.ci95
        figures = {"ratio": result.ratio, "low": low, "high": high, "verdict": result.verdict}
        rows.append({"pair": f"{x}  :  {y}{again}"} | figures)
    return rows


def measure_profiles(
    a: torch.Tensor, spellings: Mapping[str, Callable], profile: Callable[[Callable], pd.DataFrame]
) -> pd.DataFrame:
    """Profiles each spelling after a warm-up, and returns the rows of all tables."""
    import pandas as pd
    import torch

    parts = []
    for spelling, fn in spellings.items():
        fn(a)
        torch.cuda.synchronize()
        parts.append(profile(partial(fn, a)).assign(spelling=spelling))
    return pd.concat(parts, ignore_index=True)[["spelling", "name", "kind", "calls", "cpu_us", "device_us"]]


def autograd_table(fn: Callable[[], Any]) -> pd.DataFrame:
    """Returns the table of the older profiler, `torch.autograd.profiler`, for one call on the GPU."""
    import torch

    with torch.autograd.profiler.profile(use_device="cuda") as prof:
        fn()
    return trace.profile_table(prof)


def measure_launches(a: torch.Tensor) -> list[dict]:
    """Squares views of `a` with different alignments, and bf16, and reads each launch from a trace."""
    import torch

    if a.numel() < 3:
        raise records.CannotMeasure("There is no element 2.")
    flat, rows = a.view(-1), []
    tensors = {"fp32": flat, "fp32, from element 2": flat[2:], "fp32, from element 1": flat[1:]}
    with tempfile.TemporaryDirectory() as folder:
        for label, x in (tensors | {"bf16": flat.bfloat16()}).items():
            path = trace.capture(partial(torch.square, x), path=Path(folder) / "one.json.gz", active=1)
            kernel = trace.kernels(trace.load_trace(path)).iloc[0]
            shape = {"grid": list(kernel.grid), "block": list(kernel.block), "registers": kernel.registers}
            rows.append({"tensor": label, "n_elements": x.numel(), **shape, "name": kernel["name"]})
    return rows


def recorded(name: str, a: torch.Tensor, live: Callable[..., Any], *args: Any) -> pd.DataFrame:
    """Returns what `live(a, *args)` measures on a GPU, or the record of the same size without one.

    Args:
        name: The record's name below "profiling/".
        a: The matrix that the lesson squares.
        live: One of the functions above.
        args: Its further arguments.
    """
    return records.measured(f"profiling/{name}", lambda: live(a, *args), params=_size(a))


def recorded_trace(name: str, a: torch.Tensor, write: Callable[..., None], *args: Any) -> trace.Trace:
    """Returns the trace that `write(path, a, *args)` records on a GPU, or the recorded one without a GPU."""
    path = records.measured_file(
        f"profiling/{name}", lambda path: write(path, a, *args), ".json.gz", params=_size(a)
    )
    return trace.load_trace(path)


def _size(a: torch.Tensor) -> dict[str, int]:
    return {"n_rows": a.shape[0], "n_cols": a.shape[1]}


def write_spellings(path: Path, a: torch.Tensor, spellings: Mapping[str, Callable]) -> None:
    """Writes a trace of two steps of all spellings, each in a range with its name."""
    import torch

    def step() -> None:
        for spelling, fn in spellings.items():
            with torch.profiler.record_function(spelling):
                fn(a)

    trace.capture(step, path=path, wait=1, warmup=2, active=2)


def write_copies(path: Path, a: torch.Tensor) -> None:
    """Writes a trace of two squares of data like `a` that is made on the host: pageable, then pinned."""
    import torch

    n_rows, n_cols = a.shape
    pinned = torch.empty(n_rows, n_cols, pin_memory=True).normal_()

    def from_the_host() -> None:
        with torch.profiler.record_function("pageable"):
            torch.square(torch.randn(n_rows, n_cols).cuda())
        with torch.profiler.record_function("pinned, non_blocking"):
            torch.square(pinned.to("cuda", non_blocking=True))

    trace.capture(from_the_host, path=path, warmup=1, active=1)


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


def columns(text: str, *names: str) -> HTML:
    """Returns some columns of a table that a profiler prints; its lines scroll sideways instead of wrapping.

    All columns of a table of `torch.profiler` are 200 characters wide.

    Args:
        text: The table, between lines of dashes, with at least two spaces between columns.
        names: The columns to show. Lines below the table stay as they are.
    """
    from IPython.display import HTML

    lines = text.splitlines()
    rules = [i for i, line in enumerate(lines) if line and not line.replace("-", "").strip()]
    rows = {i: re.split(" {2,}", lines[i].strip()) for i in range(rules[0], rules[-1] + 1)}
    header = rows[rules[0] + 1]
    places = [header.index(name) for name in names]
    widths = [max(len(row[k]) for i, row in rows.items() if i not in rules) for k in places]
    for i, row in rows.items():
        cells = ["-" * w if i in rules else row[k].rjust(w) for k, w in zip(places, widths, strict=True)]
        lines[i] = "  ".join(cells)
    return HTML(
        '<pre style="white-space: pre; overflow-x: auto; font-family: monospace">'
        f"{html.escape(chr(10).join(lines))}</pre>"
    )

"""Measurements of lesson 07: compiling inside the timed function, and kernels with and without a profiler.

Each function measures on a GPU, and replays the record otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from helpers import check, plots, records, timing

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    import torch


def two_witnesses(truth: pd.DataFrame) -> go.Figure:
    """Draws how far the times of ncu and CUPTI differ, for each function that both can time.

    Args:
        truth: The record timer/truth.
    """
    both = truth[truth.timer == "time_gpu"].dropna(subset=["ncu_us"]).copy()
    both["difference_us"] = both.ncu_us - both.cupti_us
    both.attrs = truth.attrs
    return plots.dots(
        both,
        "difference_us",
        "kernel",
        title="ncu's time minus CUPTI's",
        x_title="µs",
        value_format="+.1f",
        reference=0.0,
    )


def alone_and_watched(functions: Mapping[str, Callable[[torch.Tensor], torch.Tensor]]) -> pd.DataFrame:
    """Returns the time of each function between two events, without a profiler and under one.

    Args:
        functions: Names and functions of a matrix of 32,768 × 4,096 floats.

    Returns:
        A row per function: "alone_us", "watched_us" and "percent", by which the second exceeds the first.
    """
    both = records.measured(
        "profiling/alone-and-watched", lambda: [_watched(name, fn) for name, fn in functions.items()]
    )
    both["percent"] = 100 * (both.watched_us / both.alone_us - 1)
    return both


def _watched(name: str, function: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
    import torch

    call = partial(function, torch.randn(32768, 4096, device="cuda"))
    seen, ours = timing.profiler_overhead(call), timing.time_gpu(call)
    row = {"function": name, "alone_us": seen.unwatched_us, "watched_us": seen.watched_us}
    return row | {"half_us": seen.half_us, "time_gpu_us": ours.median_us, "slows": seen.slows}


def compile_inside() -> pd.DataFrame:
    """Returns the bandwidth of a compiled square of 4,096 × N floats, timed in three ways.

    Returns:
        A row per way and N: "n_cols", "torch.compile" (the way), "us" and "gb_per_s". The times of `do_bench`
        are means.
    """
    sizes = (256, 4096, 12672)
    return records.measured("triton/compile-inside", lambda: [row for n in sizes for row in _compiled(n)])


def _compiled(n: int) -> list[dict[str, Any]]:
    import torch
    from triton.testing import do_bench

    x = torch.randn(4096, n, device="cuda")
    torch._dynamo.reset()
    compiled = torch.compile(torch.square, dynamic=False)
    check.assert_matches(compiled, torch.square, shapes=[(4096, n)])
    times_us = {
        "inside the lambda, do_bench": 1e3 * do_bench(lambda: torch.compile(torch.square)(x)),
        "outside, do_bench": 1e3 * do_bench(lambda: compiled(x)),
        "outside, device clock": timing.time_gpu(lambda: compiled(x), budget_s=0.1).median_us,
    }
    return [
        {"n_cols": n, "torch.compile": way, "us": us, "gb_per_s": 2 * x.nbytes / us / 1e3}
        for way, us in times_us.items()
    ]

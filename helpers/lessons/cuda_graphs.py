"""Lesson 10's program of many small kernels, measured as separate calls and as a replayed CUDA graph."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from helpers import plots, records, timing

if TYPE_CHECKING:
    import torch


def graph_and_calls(program: Callable[[torch.Tensor], torch.Tensor], as_graph: Callable) -> Any:
    """Returns the table of `measure`, measured or replayed."""
    rows = records.measured("cross_gpu/graphs", lambda: measure(program, as_graph))
    titles = {"launched": "launched by", "host_us": "CPU busy (µs)", "median_us": "from start to end (µs)"}
    return plots.table(rows, titles | {"kernels_us": "the kernels' own times (µs)"})


def measure(program: Callable, as_graph: Callable, n_elements: int = 4096) -> list[dict[str, Any]]:
    """Measures the rows of cross_gpu/graphs on this GPU: a program of many small kernels, called from Python
    and replayed as a CUDA graph.

    Args:
        program: A function of a tensor that launches the kernels and returns their result.
        as_graph: `as_graph(program, x) -> (graph, y)`: a `torch.cuda.CUDAGraph` that writes program(x) to y.
        n_elements: How many floats the tensor has.

    Returns:
        A row per way to launch: `launched`, `host_us` (until the calls return), `median_us` (between two
        events around them, on an idle GPU), `low_us` and `high_us` (its 95 % interval), and `kernels_us` (the
        sum of the kernels' own times, by CUPTI).

    Raises:
        RuntimeError: The replayed graph computes something else than the program.
    """
    import torch

    x = torch.rand(n_elements, device="cuda")
    program(x)  # loads the kernels, which a capture must not do
    torch.cuda.synchronize()
    graph, y = as_graph(program, x)
    x.copy_(torch.rand_like(x))  # a replay reads whatever is in x now
    graph.replay()
    if not torch.equal(y, program(x)):
        raise RuntimeError("The replayed graph doesn't compute what the program does.")
    rows = []
    for name, call in (("one call per kernel", lambda: program(x)), ("one graph", graph.replay)):
        host_us, between = _on_an_idle_gpu(call)
        low, high = timing.median_interval(between)
        row = {"launched": name, "host_us": host_us, "median_us": statistics.median(between)}
        row |= {"low_us": low, "high_us": high}
        rows.append(row | {"kernels_us": _kernels_us(call)})
    return rows


def _on_an_idle_gpu(call: Callable[[], Any], rounds: int = 400) -> tuple[float, list[float]]:
    """Returns the host's median µs until the call returns, and the µs between events around each call."""
    import time

    import torch

    host, between = [], []
    for _ in range(rounds + 50):  # the first 50 are the warm-up
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        began = time.perf_counter()
        call()
        host.append(1e6 * (time.perf_counter() - began))
        end.record()
        torch.cuda.synchronize()
        between.append(1e3 * start.elapsed_time(end))
    return statistics.median(host[50:]), between[50:]


def _kernels_us(call: Callable[[], Any], rounds: int = 100) -> float:
    """Returns the sum of the durations of a call's kernels, by CUPTI. (`time_gpu` refuses other streams, and
    CUPTI may report a graph's kernels on one.)
    """
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(rounds):
            call()
        torch.cuda.synchronize()
    events = profiler.profiler.kineto_results.events()
    kernels = [e for e in events if e.device_type() == DeviceType.CUDA and "Sync" not in e.name()]
    return sum(event.duration_ns() for event in kernels) / rounds / 1e3

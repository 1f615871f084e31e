"""The timers that are compared; each takes a function and returns µs."""

from __future__ import annotations

import time
from collections.abc import Callable

from helpers import timing
from timer.traps import Fn


def by_time_gpu(fn: Fn) -> float:
    return timing.time_gpu(fn).median_us


def by_do_bench(fn: Fn) -> float:
    from triton.testing import do_bench

    return do_bench(fn, return_mode="median") * 1e3


def by_cudagraph(fn: Fn) -> float:
    from triton.testing import do_bench_cudagraph

    return do_bench_cudagraph(fn, return_mode="median") * 1e3


def by_torch(fn: Fn) -> float:
    from torch.utils.benchmark import Timer

    return Timer("fn()", globals={"fn": fn}).blocked_autorange().median * 1e6


TIMERS = {
    "time_gpu": by_time_gpu,
    "do_bench": by_do_bench,
    "do_bench_cudagraph": by_cudagraph,
    "torch.utils.benchmark": by_torch,
}


def one_timing(timer: str, run: Callable[[Fn], float], fn: Fn) -> tuple[float | None, float, str, dict]:
    """The result of one timer: µs, seconds spent, its notes or error, and what only `time_gpu` reports."""
    start = time.perf_counter()
    try:
        if timer != "time_gpu":
            return run(fn), time.perf_counter() - start, "", {}
        ours = timing.time_gpu(fn)
        low, high = ours.ci95_us
        extra = {"low_us": low, "high_us": high, "n_samples": ours.n_samples}
        return ours.median_us, time.perf_counter() - start, "; ".join(ours.notes), extra
    except Exception as error:
        return None, time.perf_counter() - start, f"{type(error).__name__}: {error}", {}

"""How far `time_gpu` and `compare` can be trusted.

This measures what CUPTI adds, how many intervals contain the truth, and how often `compare` raises a false
alarm or finds a real difference.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time

from helpers import timing
from helpers.timing import cupti
from timer.cases import Flush, cases, cupti_samples, watched_functions
from timer.traps import Fn


def watching_part(options: argparse.Namespace) -> list[dict]:
    """What CUPTI adds to functions of 128 M elements.

    CUDA events measure it with and without CUPTI, alternately; the row also has what `time_gpu` reports.
    """
    rows = []
    for name, dtype, n_rows, n_cols, fn in watched_functions():
        found, ours = timing.profiler_overhead(fn), timing.time_gpu(fn)
        rows.append(
            {
                "function": name,
                "dtype": dtype,
                "n_rows": n_rows,
                "n_cols": n_cols,
                "alone_us": found.unwatched_us,
                "watched_us": found.watched_us,
                "added_us": found.added_us,
                "half_us": found.half_us,
                "added_percent": 100 * found.added_us / found.unwatched_us,
                "slows": found.slows,
                "time_gpu_us": ours.median_us,
                "taken_off_us": ours.added_us,
            }
        )
        print(
            f"{name:<18} {dtype:<9} {n_rows:>7,} × {n_cols:<6,} time_gpu {ours.median_us:8.2f}  {found}",
            flush=True,
        )
    return rows


COVERED = ("square_flat 8 × 1,024", "copy 4,096 × 1,024", "square_flat 16,384 × 8,192")


def coverage_part(options: argparse.Namespace) -> list[dict]:
    """How many of 100 intervals contain the truth: the median of a reference measured in between, in the
    same minutes.

    The reference is CUPTI's, from Chrome traces, 60 calls before every second repeat. The median of all of
    it is the truth for every repeat. Within a step of the clock (32 ns on an H100) it is interpolated as
    for grouped data, because a plain median jumps by a whole step. If the machine's speed drifts, every
    interval looks too narrow.
    """
    rows = []
    for name in COVERED:
        fn, flush = cases()[name](), Flush()
        reference: list[float] = []
        blocks, timings = [], []
        stop = time.perf_counter() + options.limit / len(COVERED)
        while len(timings) < options.repeats and time.perf_counter() < stop:
            if len(timings) % 2 == 0:
                block = cupti_samples(fn, 60, flush)
                blocks.append(statistics.median(block))
                reference += block
            timings.append(timing.time_gpu(fn))
        truth = median_between_steps(reference)
        held = sum(t.ci95_us[0] <= truth <= t.ci95_us[1] for t in timings)
        below = sum(t.ci95_us[1] < truth for t in timings)
        width = statistics.median(t.ci95_us[1] - t.ci95_us[0] for t in timings)
        medians = sorted(t.median_us for t in timings)
        rows.append(
            {
                "kernel": name,
                "repeats": len(timings),
                "held": held,
                "below": below,
                "above": len(timings) - held - below,
                "truth_us": truth,
                "width_us": width,
                "lowest_us": medians[0],
                "highest_us": medians[-1],
                "reference_low_us": min(blocks),
                "reference_high_us": max(blocks),
                "n_samples": statistics.median(t.n_samples for t in timings),
                "seconds": statistics.median(t.seconds for t in timings),
                "notes": "; ".join(sorted({n.split(" from ")[0][:60] for t in timings for n in t.notes})),
            }
        )
        print(rows[-1], flush=True)
        if options.dump:
            dump(options.dump, name, fn, timings, reference)
    return rows


def median_between_steps(samples: list[float]) -> float:
    """The median in µs, interpolated within its step of the clock, as for grouped data."""
    ns = [round(1e3 * us) for us in samples]
    step, below = 1e3 * cupti.clock_step_us(ns), 0
    for centre, count in cupti.clusters(ns):
        if below + count >= len(ns) / 2:
            return (centre + step * ((len(ns) / 2 - below) / count - 0.5)) / 1e3
        below += count
    return math.nan


def dump(path: str, name: str, fn: Fn, timings: list[timing.Timing], reference: list[float]) -> None:
    """Write single results for closer inspection: every interval, the reference, and raw samples of eight
    sessions.
    """
    sessions = [cupti.measure([fn], cupti.Flush("cold"), 200).functions[0].times for _ in range(8)]
    intervals = [[t.median_us, *t.ci95_us, t.n_samples, t.seconds] for t in timings]
    row = {"kernel": name, "intervals": intervals, "reference": reference, "sessions": sessions}
    with open(path, "a") as file:
        file.write(json.dumps(row) + "\n")


def comparisons(label: str, a: Fn, b: Fn, repeats: int, limit: float, **options) -> dict:
    stop = time.perf_counter() + limit
    results = []
    while len(results) < repeats and time.perf_counter() < stop:
        start = time.perf_counter()
        results.append((timing.compare(a, b, **options), time.perf_counter() - start))
    ratios = sorted(c.ratio for c, _ in results)
    row = {
        "pair": label,
        "repeats": len(results),
        "differences": sum(c.difference for c, _ in results),
        "ratio": statistics.median(ratios),
        "lowest": ratios[0],
        "highest": ratios[-1],
        "width": statistics.median(c.ci95[1] - c.ci95[0] for c, _ in results),
        "n_pairs": statistics.median(c.a.n_samples for c, _ in results),
        "seconds": statistics.median(s for _, s in results),
        "slowest_s": max(s for _, s in results),
    }
    print(row, flush=True)
    return row


def aa_part(options: argparse.Namespace) -> list[dict]:
    """Compare a function with itself, 100 times: a "difference" is a false alarm."""
    rows = []
    names = ("square_flat 512 × 1,024", "square_flat 16,384 × 8,192")
    for name in names:
        fn = cases()[name]()
        n, limit = options.repeats // len(names), options.limit / len(names)
        rows.append(comparisons(name, fn, lambda fn=fn: fn(), n, limit, budget_s=0.4))
    return rows


def difference_part(options: argparse.Namespace) -> list[dict]:
    """Compare a function with the same on 1 % more elements: how often is it found within a second?"""
    import torch

    from helpers.kernels.square import square_flat

    rows = []
    for n in (4096 * 4096, 16384 * 8192):
        more = (
            round(1.01 * n / 1024) * 1024
        )  # whole blocks, because otherwise Triton loads element by element
        x = torch.randn(more, device="cuda")
        less = x[:n]
        label = f"square_flat of {n:,} elements and of {100 * (more / n - 1):.2f} % more"
        rows.append(
            comparisons(
                label,
                lambda x=x: square_flat(x),
                lambda x=less: square_flat(x),
                10,
                options.limit / 2,
                budget_s=0.8,  # less than a second including the warm-up
            )
        )
    return rows

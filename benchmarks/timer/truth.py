"""Compare every timer with the truth by CUPTI and by ncu: the part "kernels" of
`benchmarks/timer_truth.py`.
"""

from __future__ import annotations

import argparse
import math
import statistics

from timer.cases import Call, Flush, cases, cupti_calls, cupti_samples
from timer.children import child, ncu_truth
from timer.failures import report
from timer.rivals import TIMERS, one_timing
from timer.traps import goal_us


def kernels_part(options: argparse.Namespace) -> list[dict]:
    """Time each case with every timer, and measure the truth."""
    import torch

    flush, rows, launched = Flush(), [], {}
    for name, make in cases().items():
        try:
            fn = make()
            for _ in range(3):
                fn()
            calls = cupti_calls(fn, 51, flush)
            launched[name] = calls[-1]
            truths, found = [statistics.median(call.us for call in calls)], {}
            for timer, run in TIMERS.items():
                found[timer] = one_timing(timer, run, fn)
                truths.append(statistics.median(cupti_samples(fn, 51, flush)))
            for i, (timer, (us, seconds, said, extra)) in enumerate(found.items()):
                row = truth_row(name, timer, (truths[i], truths[i + 1]), us, seconds, said)
                rows.append(row | extra | {"cupti_us": statistics.median(truths)})
        except Exception as error:
            report("kernels", f"{name}: {type(error).__name__}: {error}")
        fn = None
        torch.cuda.empty_cache()
        print_truth([row for row in rows if row["kernel"] == name])
    truths = {row["kernel"]: row["cupti_us"] for row in rows}
    if "ncu" not in options.skip:
        try:
            by_ncu = ncu_truth({name: launched.get(name, Call(kernels=1)).kernels for name in cases()}, 15)
            for name, us in by_ncu.items():
                for row in rows:
                    if row["kernel"] == name:
                        row["ncu_us"] = us
                print(f"ncu {name:<34} {us:10.2f} µs, CUPTI {truths.get(name, math.nan):10.2f}")
        except Exception as error:
            report("kernels", f"ncu: {error}")
    for row in rows:
        row["ncu_misses"] = ", ".join(launched[row["kernel"]].others)
    longer = ncu_offset(rows)
    for row in rows:
        settle(row, longer)
    if "nvbench" not in options.skip:
        found_rows, said = child(["nvbench"], 240)
        if said:
            report("kernels", f"nvbench: {said}")
        for row in found_rows:
            mine = next((r for r in rows if r["kernel"] == row["kernel"]), None)
            if mine is None:
                continue
            # nvbench ran later in its own process: the truth is that of the other timers, without drift
            around = (mine["cupti_us"], mine["cupti_us"])
            new = truth_row(row["kernel"], "nvbench", around, row["us"], row["seconds"], row["said"])
            rows.append(settle(new | {key: mine[key] for key in ("ncu_us", "ncu_misses")}, longer))
            print_truth(rows[-1:])
    order = list(cases())
    rows.sort(key=lambda row: order.index(row["kernel"]))
    for timer in dict.fromkeys(row["timer"] for row in rows):
        mine = [r for r in rows if r["timer"] == timer and r["us"] is not None]
        worst = max((abs(r["error_us"]) / r["allowed_us"] for r in mine), default=math.nan)
        took = sum(r["seconds"] or 0 for r in mine)
        held = sum(r["within_goal"] for r in mine)
        print(
            f"{timer:<24} {held} of {len(mine)} within max(0.5 µs, 1 %, the truth's own drift); "
            f"largest error {worst:.2f} of that; {took:.1f} s in all"
        )
    return rows


def truth_row(kernel: str, timer: str, around: tuple[float, float], us, seconds, said: str) -> dict:
    """One row: a timer's result compared with the mean of the truths just before and just after it.

    If those two differ by more than the goal, the truth isn't known any better than that: `allowed_us` is
    the larger.
    """
    truth, drift = statistics.fmean(around), around[1] - around[0]
    error = None if us is None else us - truth
    allowed = max(goal_us(truth), abs(drift))
    return {
        "kernel": kernel,
        "timer": timer,
        "cupti_us": truth,
        "truth_us": truth,
        "truth_by": "CUPTI",
        "drift_us": drift,
        "allowed_us": allowed,
        "ncu_us": None,
        "us": us,
        "error_us": error,
        "within_goal": error is not None and abs(error) <= allowed,
        "seconds": seconds,
        "low_us": None,
        "high_us": None,
        "n_samples": None,
        "said": said.splitlines()[0][:200] if said else "",
    }


def apart(row: dict) -> bool:
    """Whether ncu reports less than CUPTI by more than 3 µs and 1 %."""
    return (
        row["ncu_us"] is not None
        and not row["ncu_misses"]
        and (row["cupti_us"] - row["ncu_us"] > max(3, 0.01 * row["ncu_us"]))
    )


def ncu_offset(rows: list[dict]) -> float:
    """How many µs ncu adds compared with CUPTI: the median over the cases that CUPTI doesn't lengthen."""
    offsets = [
        row["ncu_us"] - row["cupti_us"]
        for row in rows
        if row["ncu_us"] is not None and not row["ncu_misses"] and not apart(row)
    ]
    return statistics.median(offsets) if offsets else 0.0


def settle(row: dict, longer: float) -> dict:
    """Judge the row by ncu if ncu reports less than CUPTI, because then the profiler lengthened the kernel.

    `longer` is what ncu adds to every kernel in µs; it is subtracted from ncu's value.
    """
    if apart(row):
        truth = row["ncu_us"] - longer
        row["truth_by"], row["truth_us"] = "ncu", truth
        row["allowed_us"] = max(goal_us(truth), abs(row["drift_us"]))
        if row["us"] is not None:
            row["error_us"] = row["us"] - truth
            row["within_goal"] = abs(row["error_us"]) <= row["allowed_us"]
    return row


def print_truth(rows: list[dict]) -> None:
    for r in rows:
        us = "–" if r["us"] is None else f"{r['us']:10.2f} ({r['error_us']:+8.2f})"
        seconds = "–" if r["seconds"] is None else f"{r['seconds']:.2f} s"
        print(
            f"{r['kernel']:<34} truth {r['truth_us']:10.3f} (drift {r['drift_us']:+.3f})  {r['timer']:<22} "
            f"{us:>22} {seconds:>8} "
            f"{r['said']}",
            flush=True,
        )

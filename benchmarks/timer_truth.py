"""Check the timer against the truth: fourteen functions, five timers, a hundred intervals, and traps.

    python benchmarks/timer_truth.py                        everything, about seven minutes on an H100
    python benchmarks/timer_truth.py --only kernels,traps   some parts: kernels, watching, coverage, aa,
                                                            difference, traps

WORKBOOK_RECORD=1 stores each part as the record timer/truth, timer/watching, timer/coverage, timer/aa,
timer/difference, timer/traps. If a part fails, the failure is reported and the other parts still run.

**The truth by CUPTI** is measured independently of the timer's code. A Chrome trace records launches, each
after the same flush (zeros over twice the L2 cache). What runs between two flushes, in the GPU's order, is
one call, and the median over the calls is the truth. It is measured before and after every timer. A timer
is compared with the mean of the two, and if they differ by more than the goal, this difference is allowed.
**The truth by ncu** is `gpu__time_duration` in another process, with clocks and caches left alone, after
the same flush. It includes kernels, but no copies or fills. If ncu reports less than CUPTI, by more than
3 µs and 1 %, we assume that CUPTI lengthened the kernel: ncu's value is the truth, minus what ncu adds in the
other cases. Events with and without CUPTI confirm that for softmaxes (timer/watching).
"""

from __future__ import annotations

import argparse
import os
import sys

from timer import traps
from timer.children import child, run_child
from timer.failures import FAILED, report, reported
from timer.intervals import aa_part, coverage_part, difference_part, watching_part
from timer.rivals import TIMERS
from timer.truth import kernels_part

from helpers import device, records

# seconds, on an H100
PARTS = {
    "kernels": 170,
    "watching": 20,
    "coverage": 120,
    "aa": 80,
    "difference": 30,
    "traps": 90,
}
RECORDS = {part: f"timer/{'truth' if part == 'kernels' else part}" for part in PARTS}


def traps_part(options: argparse.Namespace) -> list[dict]:
    """Run every trap with every timer.

    Each timer runs in its own process, because a trap may break the process that it runs in.
    """
    rows = []
    for timer in [*TIMERS, "nvbench"]:
        if timer in options.skip:
            continue
        words = ["nvbench-traps"] if timer == "nvbench" else ["traps", "--timer", timer]
        found, said = child(words, 120)
        if timer == "nvbench":
            truths = {row["trap"]: row["truth_us"] for row in rows}
            found = traps.nvbench_rows({row["kernel"]: row for row in found}, truths)
        rows += found
        for row in found:
            print(traps.line(row), flush=True)
        if said:
            report("traps", f"{timer}: {said}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts to run, out of {','.join(PARTS)}")
    parser.add_argument(
        "--skip", default="", help="ncu, nvbench or names of other timers to skip, separated by commas"
    )
    parser.add_argument(
        "--repeats", type=int, default=100, help="the number of intervals and A/A comparisons"
    )
    parser.add_argument("--limit", type=float, default=120, help="the most seconds for coverage, and for aa")
    parser.add_argument("--dump", help="append coverage's single results to this file as JSON lines")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--timer", help=argparse.SUPPRESS)
    parser.add_argument("--calls", type=int, default=15, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.skip = {word for word in options.skip.split(",") if word}
    if options.child:
        run_child(options)
        return
    parts = [part for part in options.only.split(",") if part]
    if unknown := set(parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    try:
        device.require("gpu")
    except device.Missing as missing:
        print(missing)
        return
    print(f"{', '.join(parts)}: about {sum(PARTS[part] for part in parts)} s on an H100")
    functions = {
        "kernels": kernels_part,
        "watching": watching_part,
        "coverage": coverage_part,
        "aa": aa_part,
        "difference": difference_part,
        "traps": traps_part,
    }
    for part in parts:
        with reported(part):
            records.measured(RECORDS[part], lambda part=part: functions[part](options))
    print("\n".join(["", f"{len(FAILED)} failures", *FAILED]))
    if FAILED and os.environ.get("WORKBOOK_RECORD") == "1":
        sys.exit(1)


if __name__ == "__main__":
    main()

"""The timer against the truth: thirteen kernels and a copy, five timers, a hundred intervals, and traps.

    python benchmarks/timer_truth.py                        everything, about seven minutes on an H100
    python benchmarks/timer_truth.py --only kernels,traps   some parts: kernels, watching, coverage, aa, difference, traps

WORKBOOK_RECORD=1 keeps each part as the record timer/truth, timer/watching, timer/coverage, timer/aa, timer/difference,
timer/traps.
A part that fails is reported, and the rest goes on.

**The truth by CUPTI** is read apart from the timer's own code: out of a Chrome trace of launches, each behind the same
flush (zeros over twice the L2); what runs between two flushes, in the GPU's own order, is one call, and the median
over the calls is the truth. It is taken before and after every timer; a timer is judged by the mean of its two, and
where they differ by more than the goal, that difference is allowed. **The truth by ncu** is `gpu__time_duration` in another
process, with clocks and caches left alone, behind the same flush. It sees kernels, and no copies or fills. Watching can
lengthen a kernel and cannot shorten it: where ncu says less than CUPTI, by more than 3 µs and 1 %, ncu's is the truth, less
what it is longer by elsewhere.
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
    """Every trap by every timer, each timer in a process of its own: a trap may break the process that it is set in."""
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
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {','.join(PARTS)}")
    parser.add_argument("--skip", default="", help="of ncu, nvbench and the other timers' names")
    parser.add_argument("--repeats", type=int, default=100, help="intervals and A/A comparisons")
    parser.add_argument("--limit", type=float, default=120, help="seconds at most for coverage, and for aa")
    parser.add_argument("--dump", help="append coverage's single results to this file, as JSON lines")
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
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
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

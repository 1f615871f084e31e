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
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from timer import traps
from timer.cases import Call, Flush, cases, cupti_calls, cupti_samples, watched_functions
from timer.traps import Fn, goal_us

from helpers import device, records, timing
from helpers.timing import cupti

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


# -------------------------------------------------------------------------------------------------- the timers
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


# ---------------------------------------------------------------------------------------------------- children
def child(words: list[str], timeout_s: float) -> tuple[list[dict], str]:
    """Run this file again as `--child …`; the rows that it wrote, line by line, and what went wrong, or ""."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.jsonl"
        command = [sys.executable, __file__, "--child", *words, "--out", str(out)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
            said = "" if done.returncode == 0 else last_line(done.stderr or done.stdout)
        except subprocess.TimeoutExpired:
            said = f"stopped after {timeout_s:.0f} s"
        rows = [json.loads(line) for line in out.read_text().splitlines()] if out.is_file() else []
    return rows, said


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it ended without a word"


def nvbench_child(names: dict[str, Callable[[], Fn]], out: Path, *, warm: bool) -> None:
    """Time every function with nvbench, in one run (it allows no second), and write one row each.

    With `warm`, each is called three times before, so that nvbench's blocking kernel never waits for an allocation.
    """
    import torch
    from cuda import bench

    seconds: dict[str, float] = {}
    notes: dict[str, str] = {}

    def register(index: int, name: str, make: Callable[[], Fn]) -> None:
        def benchmark(state) -> None:
            stream = torch.cuda.ExternalStream(state.get_stream().addressof())

            def launch(launched) -> None:
                with torch.cuda.stream(torch.cuda.ExternalStream(launched.get_stream().addressof())):
                    fn()

            try:
                fn = make()
                with torch.cuda.stream(stream):
                    for _ in range(3 * warm):
                        fn()
                torch.cuda.synchronize()
                start = traps.clock()
                state.exec(launch, batched=False)
                seconds[name] = traps.clock() - start
            except Exception as error:
                notes[name] = f"{type(error).__name__}: {last_line(str(error))}"
                state.skip(notes[name])
            finally:
                fn = None
                torch.cuda.empty_cache()

        bench.register(benchmark).set_name(f"case{index}")

    for index, (name, make) in enumerate(names.items()):
        register(index, name, make)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nvbench.json"
        # its own 15 s timeout is cut to 3 s: a noisy kernel would run into it every time
        bench.run_all_benchmarks(["nvbench", "--devices", "0", "--timeout", "3", "--json", str(path)])
        results = json.loads(path.read_text())["benchmarks"]
    with out.open("a") as file:
        for result in results:
            name = list(names)[int(result["name"].removeprefix("case"))]
            row = {"kernel": name, "us": None, "seconds": seconds.get(name), "said": notes.get(name, "")}
            for state in result["states"]:
                found = {s["tag"]: s for s in state.get("summaries") or ()}
                summary = found.get("nv/cold/time/gpu/median") or found.get("nv/cold/time/gpu/mean")
                if summary:
                    value = next(d["value"] for d in summary["data"] if d["name"] == "value")
                    row["us"] = float(value) * 1e6
            file.write(json.dumps(row) + "\n")


def ncu_child(n: int) -> None:
    """Launch every case `n` times behind the flush, in one NVTX range, for ncu to look at."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # ncu would follow the compiler's processes
    import torch

    for make in cases().values():
        fn, flush = make(), Flush()
        for _ in range(3):
            flush()
            fn()
        torch.cuda.synchronize()
        for _ in range(n):
            flush()
            with torch.cuda.nvtx.range("timed"):
                fn()
        torch.cuda.synchronize()
        del fn, flush
        torch.cuda.empty_cache()


def ncu_truth(kernels_a_call: dict[str, int], n: int) -> dict[str, float]:
    """Medians in µs over `n` calls of each case by `gpu__time_duration`; clocks and caches are left alone.

    ncu sees kernels: a case without one (a copy by the driver) is left out, and fills beside a kernel are not in its sum.
    """
    from helpers import ncu

    with tempfile.TemporaryDirectory() as folder:
        path = ncu.run(
            [sys.executable, str(Path(__file__).resolve()), "--child", "ncu", "--calls", str(n)],
            out=Path(folder) / "truth.ncu-rep",
            set=None,
            metrics=["gpu__time_duration.sum"],
            nvtx="timed",
            import_source=False,
            extra=["--cache-control", "none"],
            timeout_s=240,
        )
        us = [kernel.duration_us for kernel in ncu.load_report(path)]
    if len(us) != n * sum(kernels_a_call.values()):
        raise RuntimeError(f"ncu saw {len(us)} launches instead of {n * sum(kernels_a_call.values())}")
    medians, at = {}, 0
    for name, k in kernels_a_call.items():
        if k:
            medians[name] = statistics.median(sum(us[at + i * k : at + (i + 1) * k]) for i in range(n))
        at += n * k
    return medians


# --------------------------------------------------------------------------------------------------- the parts
def kernels_part(options: argparse.Namespace) -> list[dict]:
    """Each case by every timer, beside the truth."""
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
            # in a process of its own, later: the truth is what the other timers' turns found, its drift unknown
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


def one_timing(timer: str, run: Callable[[Fn], float], fn: Fn) -> tuple[float | None, float, str, dict]:
    """What one timer says: µs, seconds spent, words, and what only `time_gpu` knows."""
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


def truth_row(kernel: str, timer: str, around: tuple[float, float], us, seconds, said: str) -> dict:
    """One row: a timer's figure beside the mean of the truths just before and just after it.

    Where those two differ by more than the goal, nobody knows the truth better than that: `allowed_us` is the larger.
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
    """True where ncu says less than CUPTI by more than 3 µs and 1 %."""
    return (
        row["ncu_us"] is not None
        and not row["ncu_misses"]
        and (row["cupti_us"] - row["ncu_us"] > max(3, 0.01 * row["ncu_us"]))
    )


def ncu_offset(rows: list[dict]) -> float:
    """By how many µs ncu is longer than CUPTI: the median over the cases that CUPTI does not lengthen."""
    offsets = [
        row["ncu_us"] - row["cupti_us"]
        for row in rows
        if row["ncu_us"] is not None and not row["ncu_misses"] and not apart(row)
    ]
    return statistics.median(offsets) if offsets else 0.0


def settle(row: dict, longer: float) -> dict:
    """Judge the row by ncu where that says less than CUPTI: the profiler lengthened the kernel, and all that it timed.

    `longer` is what ncu adds to every kernel, in µs; it is taken from its figure.
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
            f"{r['kernel']:<34} truth {r['truth_us']:10.3f} (drift {r['drift_us']:+.3f})  {r['timer']:<22} {us:>22} {seconds:>8} "
            f"{r['said']}",
            flush=True,
        )


def watching_part(options: argparse.Namespace) -> list[dict]:
    """What CUPTI adds to functions of 128 M elements, by events alone and watched in turns, beside what `time_gpu` says."""
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
    """How many of 100 intervals hold the truth: the median of a reference taken between them, in the same minutes.

    The reference is CUPTI's, from Chrome traces, 60 calls before every second repeat; the median of all of it is the
    truth for every repeat, within a step of the clock (32 ns on an H100) interpolated as of grouped data, since a plain
    median jumps by a whole step. A machine whose speed drifts makes every interval look too narrow.
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
    """The median in µs, interpolated inside the clock's step that it falls into, as for grouped data."""
    ns = [round(1e3 * us) for us in samples]
    step, below = 1e3 * cupti.clock_step_us(ns), 0
    for centre, count in cupti.clusters(ns):
        if below + count >= len(ns) / 2:
            return (centre + step * ((len(ns) / 2 - below) / count - 0.5)) / 1e3
        below += count
    return math.nan


def dump(path: str, name: str, fn: Fn, timings: list[timing.Timing], reference: list[float]) -> None:
    """Single results for a closer look: every interval, the reference, and eight sessions of the timer's raw samples."""
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
    """A function against itself, 100 times: a "difference" is a false alarm."""
    rows = []
    names = ("square_flat 512 × 1,024", "square_flat 16,384 × 8,192")
    for name in names:
        fn = cases()[name]()
        n, limit = options.repeats // len(names), options.limit / len(names)
        rows.append(comparisons(name, fn, lambda fn=fn: fn(), n, limit, budget_s=0.4))
    return rows


def difference_part(options: argparse.Namespace) -> list[dict]:
    """A function on 1 % more elements against itself: how often it is found within a second."""
    import torch

    from helpers.kernels.square import square_flat

    rows = []
    for n in (4096 * 4096, 16384 * 8192):
        more = round(1.01 * n / 1024) * 1024  # whole blocks: with a rest, Triton loads element by element
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
                budget_s=0.8,  # with the warm-up, within a second
            )
        )
    return rows


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


# -------------------------------------------------------------------------------------------------------- main
FAILED: list[str] = []


def report(part: str, what: str) -> None:
    FAILED.append(f"{part}: {what}")
    print(f"FAILED {part}: {what}", flush=True)


@contextlib.contextmanager
def reported(part: str) -> Iterator[None]:
    """A part that fails is reported, and the next one runs."""
    start = time.perf_counter()
    print(f"== {part}", flush=True)
    try:
        yield
    except Exception as error:
        traceback.print_exc()
        report(part, f"{type(error).__name__}: {error}")
    print(f"== {part}: {time.perf_counter() - start:.0f} s", flush=True)


def run_child(options: argparse.Namespace) -> None:
    if options.child == "ncu":
        ncu_child(options.calls)
    elif options.child == "nvbench":
        nvbench_child(cases(), Path(options.out), warm=True)
    elif options.child == "nvbench-traps":
        nvbench_child(traps.makers(), Path(options.out), warm=False)
    else:
        flush = Flush()

        def truth_of(fn: Fn) -> float:
            return statistics.median(cupti_samples(fn, 51, flush))

        traps.run(options.timer, TIMERS[options.timer], truth_of, Path(options.out))


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

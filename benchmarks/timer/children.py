"""What needs its own process.

nvbench allows one run per process, ncu profiles one process, and a trap may break its process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from timer import traps
from timer.cases import Flush, cases, cupti_samples
from timer.failures import last_line
from timer.rivals import TIMERS
from timer.traps import Fn

SCRIPT = Path(__file__).resolve().parents[1] / "timer_truth.py"


def child(words: list[str], timeout_s: float) -> tuple[list[dict], str]:
    """Run `timer_truth.py` again with `--child …`.

    Returns:
        The rows that it wrote, and what went wrong, or "".
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.jsonl"
        command = [sys.executable, str(SCRIPT), "--child", *words, "--out", str(out)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
            said = "" if done.returncode == 0 else last_line(done.stderr or done.stdout)
        except subprocess.TimeoutExpired:
            said = f"stopped after {timeout_s:.0f} s"
        rows = [json.loads(line) for line in out.read_text().splitlines()] if out.is_file() else []
    return rows, said


def run_child(options: argparse.Namespace) -> None:
    """Do what `options.child` asks for: "ncu", "nvbench", "nvbench-traps" or "traps"."""
    if options.child == "ncu":
        ncu_child(options.calls)
    elif options.child == "nvbench":
        nvbench_child(cases(), Path(options.out), warm=True)
    elif options.child == "nvbench-traps":
        nvbench_child(traps.makers(), Path(options.out), warm=False)
    else:
        timer, flush = TIMERS[options.timer], Flush()

        def truth_of(fn: Fn) -> float:
            return statistics.median(cupti_samples(fn, 51, flush))

        traps.run(options.timer, timer, truth_of, Path(options.out))


def nvbench_child(names: dict[str, Callable[[], Fn]], out: Path, *, warm: bool) -> None:
    """Time every function with nvbench in a single run, because it doesn't allow a second one, and write
    one row each.

    With `warm`, each function is called three times beforehand, so that nvbench's blocking kernel never
    waits for an allocation.
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
        # The timeout is 3 s instead of 15 s, because a noisy kernel would reach it every time.
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
    """Launch every case `n` times, each after a flush and in an NVTX range, so that ncu can measure it."""
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
    """Measure the median in µs over `n` calls of each case with `gpu__time_duration`; clocks and caches are
    left alone.

    ncu only sees kernels: a case without one (a copy by the driver) is omitted, and fills next to a kernel
    are not included in its time.
    """
    from helpers import ncu

    with tempfile.TemporaryDirectory() as folder:
        path = ncu.run(
            [sys.executable, str(SCRIPT), "--child", "ncu", "--calls", str(n)],
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

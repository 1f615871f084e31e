"""The league: our softmax, GELU and square against torch, torch.compile, Liger and QuACK, with a copy as the ceiling.

    python benchmarks/kernels.py                                  every point, under 12 minutes on an H100
    python benchmarks/kernels.py --op softmax --dtype float32 --n 8192,8320
    python benchmarks/kernels.py --budget 540 --out build/league.json --resume     the rest of an earlier call

At each point every contestant is compiled outside the timed region, checked against float64 at that very size on poisoned
memory, then all are timed in turns in one run: device durations, L2 cold (helpers.timing.league). Contestants:

* copy: `y.copy_(x)`, the bytes that all of them must move, and the ceiling;
* eager: torch's own operator;
* compile: `torch.compile(dynamic=False)`; compile-max: mode "max-autotune-no-cudagraphs", the same search as
  "max-autotune" without CUDA graphs, which would add a copy of the input to the device time and take only host time away;
* liger: liger_kernel.ops.LigerSoftmaxFunction, refuses more than 65,536 columns; quack: quack.softmax. Both have softmax
  alone: Liger's and QuACK's GELU and square exist only fused with a product or a GEMM. Neither is a dependency: one that is
  not installed, or that refuses, gets a row with the reason;
* ours: helpers.kernels.ops.

The host's time a call stands in a column of its own (`host_us`): it is in no device duration.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from helpers import device
from helpers.timing import cupti, league

NAMES = (league.COPY, "eager", "compile", "compile-max", "liger", "quack", league.OURS)
WIDTHS = (256, 512, 1024, 2048, 4096, 8192, 8320, 12288, 16384, 32768, 65536, 131072, 262144, 393216)
WIDTHS_AT_1G = (1024, 4096, 8192, 32768, 65536, 262144, 393216)
SIZES = (*(4**k for k in range(6, 16)), 10_007, 1_000_003, 100_000_001)
SIZES_FP16 = (4096, 1 << 20, 1 << 26, 1 << 28)
# Tighter than check's own where a softmax's values are small: one part in 1e5 in float32, one rounding in the others.
SOFTMAX_TOLERANCE = {"float32": (1e-5, 1e-12), "bfloat16": (8e-3, 1e-12), "float16": (2e-3, 6e-8)}


@dataclass(frozen=True)
class Point:
    """One operation on one tensor; square and GELU have one row."""

    op: str
    dtype: str
    n_rows: int
    n_cols: int

    @property
    def n_elements(self) -> int:
        return self.n_rows * self.n_cols


def all_points() -> list[Point]:
    """The whole league, the widest claims first."""
    quarter, whole = 1 << 28, 1 << 30
    points = [Point("softmax", dtype, quarter // n, n) for n in WIDTHS for dtype in ("float32", "bfloat16")]
    for dtype, sizes in (("float32", SIZES), ("bfloat16", SIZES), ("float16", SIZES_FP16)):
        points += [Point(op, dtype, 1, n) for op in ("gelu", "square") for n in sorted(sizes)]
    return points + [
        Point("softmax", dtype, whole // n, n) for n in WIDTHS_AT_1G for dtype in ("float32", "bfloat16")
    ]


def torch_function(op: str) -> Callable:
    """The operation in plain torch; along the last dimension for softmax."""
    import torch
    from torch.nn import functional

    return {
        "softmax": lambda x: torch.softmax(x, dim=-1),
        "gelu": lambda x: functional.gelu(x, approximate="tanh"),
        "square": lambda x: torch.square(x),
    }[op]


def contestant(name: str, op: str, x) -> tuple[Callable[[], Any] | None, str]:
    """A contestant as a function without arguments, or None, and a note: what it is, or why there is none.

    Raises:
        ImportError: it is not installed.
    """
    import torch

    if name == league.COPY:
        y = torch.empty_like(x)
        return lambda: y.copy_(x), ""
    if name == "eager":
        function = torch_function(op)
        return lambda: function(x), ""
    if name in ("compile", "compile-max"):
        if reason := device.left_to_eager(x.dtype):
            return None, reason
        mode = "max-autotune-no-cudagraphs" if name == "compile-max" else None
        compiled = torch.compile(torch_function(op), dynamic=False, fullgraph=True, mode=mode)
        return lambda: compiled(x), ""
    if name == league.OURS:
        from helpers.kernels import ops

        ours = getattr(ops, op)
        return lambda: ours(x), ""
    if op != "softmax":
        return None, f"{name} has no {op} of its own"
    if name == "liger":
        from liger_kernel.ops import LigerSoftmaxFunction

        return lambda: LigerSoftmaxFunction.apply(x), f"liger-kernel {device.package_version('liger-kernel')}"
    from quack import softmax

    return lambda: softmax(x), f"quack-kernels {device.package_version('quack-kernels')}"


def run_point(point: Point, names: list[str], broken: set[str], budget_s: float) -> list[dict[str, Any]]:
    """Make the contestants, check them, time those that passed: the table's rows.

    Raises:
        BrokenGpu: a contestant has poisoned this process.
    """
    import torch

    torch._dynamo.reset()
    generator = torch.Generator(device="cuda").manual_seed(point.n_cols)
    shape = (point.n_rows, point.n_cols) if point.op == "softmax" else (point.n_cols,)
    x = torch.randn(shape, dtype=getattr(torch, point.dtype), device="cuda", generator=generator)
    tolerance = SOFTMAX_TOLERANCE[point.dtype] if point.op == "softmax" else None
    functions: dict[str, Callable] = {}
    notes: dict[str, str] = {}
    took: dict[str, float] = {}
    for name in names:
        if name in broken:
            notes[name] = "refused: it broke the GPU's state in an earlier try"
            continue
        start = time.perf_counter()
        try:
            call, notes[name] = contestant(name, point.op, x)
            if call is None:
                continue
            if name == league.COPY:
                if not torch.equal(call(), x):
                    raise AssertionError("the copy differs")
            else:
                league.check_large(name, call, torch_function(point.op), x, tolerance)
            functions[name] = call
        except ImportError as error:
            notes[name] = f"not installed: {_one_line(error)}"
        except Exception as error:
            notes[name] = f"refused: {type(error).__name__}: {_one_line(error)}"
            try:
                torch.cuda.synchronize()
            except RuntimeError:
                raise BrokenGpu(name) from error
        took[name] = time.perf_counter() - start
    slow = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in took.items() if seconds > 2)
    if slow:
        print(f"          compiled and checked: {slow}", flush=True)
    if league.OURS not in functions:
        return league.rows_of(asdict(point), 0, {}, {}, notes)
    try:
        standings = league.compare_many(functions, against=league.OURS, budget_s=budget_s)
    except cupti.TimingError:
        for name, reason in league.untimeable(functions).items():
            functions.pop(name)
            notes[name] = f"cannot be timed: {reason}"
        if league.OURS not in functions:
            return league.rows_of(asdict(point), 0, {}, {}, notes)
        standings = league.compare_many(functions, against=league.OURS, budget_s=budget_s)
    few = {"n_calls": 5, "repeats": 3} if point.n_elements > 1 << 24 else {}
    host = {name: league.host_us(call, **few) for name, call in functions.items()}
    return league.rows_of(asdict(point), 2 * x.numel() * x.element_size(), standings, host, notes)


class BrokenGpu(RuntimeError):
    """A contestant left the process without a working GPU; its name is the only argument."""


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else "no message")[:200]


def line_of(rows: list[dict[str, Any]]) -> str:
    """One line about a point: ours against the copy and against each that was timed."""
    by_name = {row["contestant"]: row for row in rows}
    ours = by_name.get(league.OURS, {})
    if not ours.get("median_us"):
        return f"{league.point_name(rows[0])}: ours was not timed: {ours.get('note', 'not asked for')}"
    ratios = [
        f"{name} {row['ours_ratio']:.3f}"
        for name, row in by_name.items()
        if row["ours_ratio"] and name != league.OURS
    ]
    return (
        f"{league.point_name(ours):<36} {ours['median_us']:>9,.2f} µs {ours['gb_per_s']:>6,.0f} GB/s, "
        f"host {ours['host_us']:.0f} µs; ours × {', '.join(ratios)}"
    )


class Store:
    """The rows measured so far, in a JSON file where one is named; an operation whose source changed starts anew."""

    def __init__(self, path: Path | None, resume: bool):
        import hashlib

        from helpers.kernels import elementwise, ops, softmax

        self.path = path
        modules = {"softmax": softmax, "gelu": elementwise, "square": elementwise}
        texts = {
            op: "".join(Path(m.__file__).read_text() for m in (module, ops)) for op, module in modules.items()
        }
        self.state: dict[str, Any] = {
            "sources": {op: hashlib.sha256(text.encode()).hexdigest() for op, text in texts.items()},
            "gpu": device.gpu_spec().name,
            "rows": [],
            "broken": [],
        }
        if path and resume and path.is_file():
            kept = json.loads(path.read_text())
            same = [op for op, sha in self.state["sources"].items() if kept["sources"].get(op) == sha]
            if kept["gpu"] != self.state["gpu"]:
                same = []
            changed = sorted({row["op"] for row in kept["rows"]} - set(same))
            if changed:
                print(f"{path}: {', '.join(changed)} measured with other kernels or on another GPU: anew.")
            for part in ("rows", "broken"):
                self.state[part] = [row for row in kept[part] if row["op"] in same]

    def done(self, point: Point, names: list[str]) -> bool:
        """Whether every contestant has a row at this point."""
        return set(names) <= {r["contestant"] for r in self.state["rows"] if _same(r, point)}

    def broken(self, point: Point) -> set[str]:
        """Who broke the GPU at this point."""
        return {b["contestant"] for b in self.state["broken"] if _same(b, point)}

    def add(self, point: Point, rows: list[dict[str, Any]]) -> None:
        """Keep a point's rows instead of its earlier ones."""
        self.state["rows"] = [r for r in self.state["rows"] if not _same(r, point)] + rows
        self.write()

    def write(self) -> None:
        """Write the file, whole or not at all."""
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial = self.path.with_name(f".{self.path.name}")
            partial.write_text(json.dumps(self.state, indent=1))
            os.replace(partial, self.path)


def _same(row: dict[str, Any], point: Point) -> bool:
    return all(row[name] == value for name, value in asdict(point).items())


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Our kernels against their peers.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    words = lambda text: [word for word in text.split(",") if word]  # noqa: E731
    parser.add_argument(
        "--op", type=words, default=["softmax", "gelu", "square"], help="operations, by comma"
    )
    parser.add_argument(
        "--dtype", type=words, default=["float32", "bfloat16", "float16"], help="dtypes, by comma"
    )
    parser.add_argument("--n", type=words, default=[], help="only these columns (square, GELU: elements)")
    parser.add_argument("--elements", type=int, help="softmax: only tensors of about so many elements")
    parser.add_argument("--contestants", type=words, default=list(NAMES), help="by comma; ours is always in")
    parser.add_argument("--budget", type=float, default=700, help="seconds after which no new point is begun")
    parser.add_argument("--point-seconds", type=float, default=0.6, help="seconds of timing a point")
    parser.add_argument("--out", type=Path, help="JSON file for the rows")
    parser.add_argument("--resume", action="store_true", help="keep what --out holds and measure the rest")
    parser.add_argument("--record", action="store_true", help='keep all rows as the record "fusion/league"')
    asked = parser.parse_args(arguments)
    for what, given, known in (
        ("--op", asked.op, ("softmax", "gelu", "square")),
        ("--dtype", asked.dtype, ("float32", "bfloat16", "float16")),
        ("--contestants", asked.contestants, NAMES),
    ):
        if unknown := [word for word in given if word not in known]:
            parser.error(f"{what}: {unknown[0]!r} is none of {', '.join(known)}")
    asked.contestants = [n for n in NAMES if n in asked.contestants or n == league.OURS]
    asked.n = [int(n) for n in asked.n]
    return asked


def chosen_points(asked: argparse.Namespace) -> list[Point]:
    """The points of the league that the command line asks for; sizes that the league has not are added."""
    points = [
        p
        for p in all_points()
        if p.op in asked.op
        and p.dtype in asked.dtype
        and (not asked.n or p.n_cols in asked.n)
        and (not asked.elements or p.op != "softmax" or asked.elements // p.n_cols == p.n_rows)
    ]
    have = {(p.op, p.dtype, p.n_cols) for p in points}
    for op, dtype, n in itertools.product(asked.op, asked.dtype, asked.n):
        if (op, dtype, n) not in have:
            n_rows = max(1, (asked.elements or 1 << 28) // n) if op == "softmax" else 1
            points.append(Point(op, dtype, n_rows, n))
    return points


def report(rows: list[dict[str, Any]], peak_gb_per_s: float | None) -> None:
    """Print the table, with SOL scores where the GPU's peak is known, and the goals."""
    import pandas as pd

    table = pd.DataFrame(rows, columns=league.COLUMNS)
    with pd.option_context("display.width", 200, "display.max_rows", None, "display.max_columns", None):
        print("\nOurs, and how many times as fast it is as each contestant (device time, L2 cold):")
        print(
            league.summary(table, peak_gb_per_s).to_string(
                float_format=lambda v: f"{v:,.3f}" if v < 10 else f"{v:,.0f}", na_rep="–"
            )
        )
    reasons = table[table.median_us.isna()][["contestant", "note"]].value_counts()
    for (name, note), count in reasons.items():
        print(f"{name}, {count} point{'s' if count > 1 else ''}: {note}")
    print()
    for goal in league.goals(table):
        print(goal)


def main() -> None:
    asked = parse()
    try:
        device.require("gpu")
    except device.Missing as missing:
        print(missing)
        return
    began = time.perf_counter()
    store = Store(asked.out, asked.resume)
    todo = [p for p in chosen_points(asked) if not store.done(p, asked.contestants)]
    print(f"{len(todo)} points to measure; contestants: {', '.join(asked.contestants)}", flush=True)
    longest = 0.0
    for i, point in enumerate(todo):
        start = time.perf_counter()
        if start - began + longest > asked.budget:
            print(f"{len(todo) - i} points are left: call again with --resume.")
            break
        try:
            rows = run_point(point, asked.contestants, store.broken(point), asked.point_seconds)
        except BrokenGpu as error:
            start_again(store, point, str(error), asked, began)
        store.add(point, rows)
        _free()
        now = time.perf_counter()
        longest = max(longest, now - start)
        left = (now - began) / (i + 1) * (len(todo) - i - 1)
        print(
            f"[{i + 1:>3}/{len(todo)}] {line_of(rows)}  ({now - start:.1f} s; about {left:.0f} s left)",
            flush=True,
        )
    report(store.state["rows"], device.gpu_spec().peak_gb_per_s)
    if asked.record:
        record(store.state["rows"])


def start_again(store: Store, point: Point, name: str, asked: argparse.Namespace, began: float) -> None:
    """Go on in a new process, which leaves out the contestant that broke this one; without --out, stop."""
    store.state["broken"].append({**asdict(point), "contestant": name})
    store.write()
    print(f"{name} broke the GPU's state at {league.point_name(asdict(point))}.", flush=True)
    if store.path is None:
        sys.exit("Name a file with --out to go on without it.")
    left = str(asked.budget - (time.perf_counter() - began))
    os.execv(sys.executable, [sys.executable, *sys.argv, "--resume", "--budget", left])


def record(rows: list[dict[str, Any]]) -> None:
    """Keep the rows as the record that lesson 09 draws, with the kernels' fingerprints."""
    import triton

    from helpers import records
    from helpers.kernels import elementwise, softmax

    os.environ["WORKBOOK_RECORD"] = "1"
    kernels = [
        value
        for module in (elementwise, softmax)
        for value in vars(module).values()
        if isinstance(value, triton.JITFunction) and value.fn.__module__ == module.__name__
    ]
    ordered = [{column: row[column] for column in league.COLUMNS} for row in rows]
    records.measured("fusion/league", lambda: ordered, sources=kernels)


def _free() -> None:
    import torch

    gc.collect()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

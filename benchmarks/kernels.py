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
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from helpers import device
from helpers.timing import league
from helpers.workshop.bench import league as always
from helpers.workshop.bench.league import Point, all_points, run_point
from helpers.workshop.bench.measure import BrokenGpu, free_memory

NAMES = (*always.NAMES[:-1], "liger", "quack", league.OURS)


def contestant(name: str, op: str, x) -> tuple[Callable[[], Any] | None, str]:
    """A contestant as a function without arguments, or None, and a note: what it is, or why there is none.

    Raises:
        ImportError: it is not installed.
    """
    if name in always.NAMES:
        return always.contestant(name, op, x)
    if op != "softmax":
        return None, f"{name} has no {op} of its own"
    if name == "liger":
        from liger_kernel.ops import LigerSoftmaxFunction

        return lambda: LigerSoftmaxFunction.apply(x), f"liger-kernel {device.package_version('liger-kernel')}"
    from quack import softmax

    return lambda: softmax(x), f"quack-kernels {device.package_version('quack-kernels')}"


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
            "kernels": [],
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
            for part in ("rows", "kernels", "broken"):
                self.state[part] = [row for row in kept.get(part, []) if row["op"] in same]

    def done(self, point: Point, names: list[str]) -> bool:
        """Whether every contestant has a row at this point."""
        return set(names) <= {r["contestant"] for r in self.state["rows"] if _same(r, point)}

    def broken(self, point: Point) -> set[str]:
        """Who broke the GPU at this point."""
        return {b["contestant"] for b in self.state["broken"] if _same(b, point)}

    def add(self, point: Point, rows: list[dict[str, Any]], compiled: list[dict[str, Any]]) -> None:
        """Keep a point's rows, and what ours launched there, instead of its earlier ones."""
        kernels = [{**asdict(point), "compiled": compiled}]
        for part, new in (("rows", rows), ("kernels", kernels)):
            self.state[part] = [r for r in self.state[part] if not _same(r, point)] + new
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
            rows, compiled = run_point(
                point, asked.contestants, store.broken(point), asked.point_seconds, make=contestant
            )
        except BrokenGpu as error:
            start_again(store, point, str(error), asked, began)
        store.add(point, rows, compiled)
        free_memory()
        now = time.perf_counter()
        longest = max(longest, now - start)
        left = (now - began) / (i + 1) * (len(todo) - i - 1)
        print(
            f"[{i + 1:>3}/{len(todo)}] {line_of(rows)}  ({now - start:.1f} s; about {left:.0f} s left)",
            flush=True,
        )
    report(store.state["rows"], device.gpu_spec().peak_gb_per_s)
    if asked.record:
        names = [field.name for field in fields(Point)]
        made = [({n: k[n] for n in names}, k["compiled"]) for k in store.state["kernels"]]
        record(store.state["rows"], made)


def start_again(store: Store, point: Point, name: str, asked: argparse.Namespace, began: float) -> None:
    """Go on in a new process, which leaves out the contestant that broke this one; without --out, stop."""
    store.state["broken"].append({**asdict(point), "contestant": name})
    store.write()
    print(f"{name} broke the GPU's state at {league.point_name(asdict(point))}.", flush=True)
    if store.path is None:
        sys.exit("Name a file with --out to go on without it.")
    left = str(asked.budget - (time.perf_counter() - began))
    os.execv(sys.executable, [sys.executable, *sys.argv, "--resume", "--budget", left])


def record(rows: list[dict[str, Any]], kernels: list[tuple[dict, list]]) -> None:
    """Keep the rows as the record that lesson 09 draws, with the kernels' fingerprints.

    `workbook bench --against fusion/league` compares with it: what was compiled and the kernels' texts are kept too.
    """
    import triton

    from helpers import records
    from helpers.kernels import elementwise, softmax
    from helpers.workshop.bench import suites

    os.environ["WORKBOOK_RECORD"] = "1"
    sources = [
        value
        for module in (elementwise, softmax)
        for value in vars(module).values()
        if isinstance(value, triton.JITFunction) and value.fn.__module__ == module.__name__
    ]
    also = suites.kept_with(suites.LEAGUE, [(suites.league_task(Point(**of)), made) for of, made in kernels])
    ordered = [{column: row[column] for column in league.COLUMNS} for row in rows]
    records.measured("fusion/league", lambda: ordered, sources=sources, also=also)


if __name__ == "__main__":
    main()

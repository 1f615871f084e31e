"""The league: our softmax, GELU and square compared with PyTorch, torch.compile, Liger and QuACK.

    python benchmarks/kernels.py                                  every point; less than 12 minutes on an H100
    python benchmarks/kernels.py --op softmax --dtype float32 --n 8192,8320
    python benchmarks/kernels.py --budget 540 --out build/league.json --resume     continue an earlier call

At each point every function is compiled outside the timed region and checked against float64 at that very
size, on poisoned memory. Then all functions are timed in one interleaved run, by the device's clock and
with a cold L2 cache (helpers.timing.interleaved). The functions are:

* copy: `y.copy_(x)`, which moves the bytes that all of them must move, and so is the upper bound;
* eager: PyTorch's own operator;
* compile: `torch.compile(dynamic=False)`;
* compile-max: the mode "max-autotune-no-cudagraphs". It searches like "max-autotune" but without CUDA graphs,
  which would add a copy of the input to the device time and only save CPU time;
* liger: liger_kernel.ops.LigerSoftmaxFunction, which refuses more than 65,536 columns;
* quack: quack.softmax;
* ours: helpers.kernels.ops.

Liger and QuACK only take part with softmax: their GELU and square exist only fused with a product or a GEMM.
Neither is a dependency. A library that is not installed, or that refuses a size, gets a row with the reason.

The CPU time per call has its own column (`host_us`) and is not part of any device duration.
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
from helpers.atomic import atomic_write
from workbook.bench import contestants
from workbook.bench.contestants import Point, all_points, run_point
from workbook.bench.goals import goals, summary
from workbook.bench.measure import BrokenGpu, free_memory
from workbook.bench.points import LEAGUE
from workbook.bench.table import COLUMNS, OURS, point_name

NAMES = (*contestants.NAMES[:-1], "liger", "quack", OURS)


def contestant(name: str, op: str, x) -> tuple[Callable[[], Any] | None, str]:
    """Make one of `NAMES` as a function without arguments, or return None and the reason why there is none.

    Raises:
        ImportError: the library is not installed.
    """
    if name in contestants.NAMES:
        return contestants.contestant(name, op, x)
    if op != "softmax":
        return None, f"{name} has no {op} of its own"
    if name == "liger":
        from liger_kernel.ops import LigerSoftmaxFunction

        return lambda: LigerSoftmaxFunction.apply(x), f"liger-kernel {device.package_version('liger-kernel')}"
    from quack import softmax

    return lambda: softmax(x), f"quack-kernels {device.package_version('quack-kernels')}"


def line_of(rows: list[dict[str, Any]]) -> str:
    """One line about a point: our time, and how many times as fast as each other function it is."""
    by_name = {row["contestant"]: row for row in rows}
    ours = by_name.get(OURS, {})
    if not ours.get("median_us"):
        return f"{point_name(rows[0])}: ours was not timed: {ours.get('note', 'not asked for')}"
    ratios = [
        f"{name} {row['ours_ratio']:.3f}"
        for name, row in by_name.items()
        if row["ours_ratio"] and name != OURS
    ]
    return (
        f"{point_name(ours):<36} {ours['median_us']:>9,.2f} µs {ours['gb_per_s']:>6,.0f} GB/s, "
        f"host {ours['host_us']:.0f} µs; ours × {', '.join(ratios)}"
    )


class Store:
    """The rows measured so far, stored in a JSON file if `--out` names one.

    The rows of an operation are dropped if its source or the GPU has changed.
    """

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
                print(f"{path} has other kernels or another GPU, so these start again: {', '.join(changed)}.")
            for part in ("rows", "kernels", "broken"):
                self.state[part] = [row for row in kept.get(part, []) if row["op"] in same]

    def done(self, point: Point, names: list[str]) -> bool:
        """Whether every function has a row at this point."""
        return set(names) <= {r["contestant"] for r in self.state["rows"] if _same(r, point)}

    def broken(self, point: Point) -> set[str]:
        """The functions that broke the GPU's state at this point."""
        return {b["contestant"] for b in self.state["broken"] if _same(b, point)}

    def add(self, point: Point, rows: list[dict[str, Any]], compiled: list[dict[str, Any]]) -> None:
        """Store a point's rows and the kernels that ours launched, replacing earlier ones."""
        kernels = [{**asdict(point), "compiled": compiled}]
        for part, new in (("rows", rows), ("kernels", kernels)):
            self.state[part] = [r for r in self.state[part] if not _same(r, point)] + new
        self.write()

    def write(self) -> None:
        """Write the file atomically."""
        if self.path:
            with atomic_write(self.path) as file:
                file.write_text(json.dumps(self.state, indent=1))


def _same(row: dict[str, Any], point: Point) -> bool:
    return all(row[name] == value for name, value in asdict(point).items())


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Our kernels against their peers.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    words = lambda text: [word for word in text.split(",") if word]  # noqa: E731
    parser.add_argument(
        "--op", type=words, default=["softmax", "gelu", "square"], help="operations, separated by commas"
    )
    parser.add_argument(
        "--dtype", type=words, default=["float32", "bfloat16", "float16"], help="dtypes, separated by commas"
    )
    parser.add_argument(
        "--n", type=words, default=[], help="only these numbers of columns (of elements for square and GELU)"
    )
    parser.add_argument("--elements", type=int, help="softmax: only tensors of about this many elements")
    parser.add_argument(
        "--contestants", type=words, default=list(NAMES), help="separated by commas; ours is always included"
    )
    parser.add_argument(
        "--budget", type=float, default=700, help="seconds after which no new point is started"
    )
    parser.add_argument("--point-seconds", type=float, default=0.6, help="seconds to time each point")
    parser.add_argument("--out", type=Path, help="JSON file for the rows")
    parser.add_argument("--resume", action="store_true", help="keep the rows of --out and measure the rest")
    parser.add_argument("--record", action="store_true", help='store all rows as the record "fusion/league"')
    asked = parser.parse_args(arguments)
    for what, given, known in (
        ("--op", asked.op, ("softmax", "gelu", "square")),
        ("--dtype", asked.dtype, ("float32", "bfloat16", "float16")),
        ("--contestants", asked.contestants, NAMES),
    ):
        if unknown := [word for word in given if word not in known]:
            parser.error(f"{what}: {unknown[0]!r} is not one of {', '.join(known)}")
    asked.contestants = [n for n in NAMES if n in asked.contestants or n == OURS]
    asked.n = [int(n) for n in asked.n]
    return asked


def chosen_points(asked: argparse.Namespace) -> list[Point]:
    """The points that the command line asks for, including sizes that are not part of the league."""
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
    """Print the table and the goals; the table has SOL scores if the GPU's peak bandwidth is known."""
    import pandas as pd

    table = pd.DataFrame(rows, columns=COLUMNS)
    with pd.option_context("display.width", 200, "display.max_rows", None, "display.max_columns", None):
        print("\nOur time, and how many times as fast as each other function it is (device time, cold L2):")
        print(
            summary(table, peak_gb_per_s).to_string(
                float_format=lambda v: f"{v:,.3f}" if v < 10 else f"{v:,.0f}", na_rep="–"
            )
        )
    reasons = table[table.median_us.isna()][["contestant", "note"]].value_counts()
    for (name, note), count in reasons.items():
        print(f"{name}, {count} point{'s' if count > 1 else ''}: {note}")
    print()
    for goal in goals(table):
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
    print(f"{len(todo)} points to measure, with {', '.join(asked.contestants)}", flush=True)
    longest = 0.0
    for i, point in enumerate(todo):
        start = time.perf_counter()
        if start - began + longest > asked.budget:
            print(f"{len(todo) - i} points are left; run the same command with --resume.")
            break
        try:
            rows, compiled = run_point(
                point, asked.contestants, asked.point_seconds, broken=store.broken(point), make=contestant
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
        record(store.state["rows"], store.state["kernels"])


def start_again(store: Store, point: Point, name: str, asked: argparse.Namespace, began: float) -> None:
    """Continue in a new process without the function that broke this one; exit if there is no --out."""
    store.state["broken"].append({**asdict(point), "contestant": name})
    store.write()
    print(f"{name} left the GPU in a broken state at {point_name(asdict(point))}.", flush=True)
    if store.path is None:
        sys.exit("Pass --out FILE, so that a new process can continue without it.")
    left = str(asked.budget - (time.perf_counter() - began))
    os.execv(sys.executable, [sys.executable, *sys.argv, "--resume", "--budget", left])


def record(rows: list[dict[str, Any]], kernels: list[dict[str, Any]]) -> None:
    """Store the rows as the record that lesson 09 draws, with the kernels' fingerprints.

    `workbook bench --against fusion/league` compares with this record, so what was compiled at each point is
    stored as well.

    Args:
        rows: the rows of all points.
        kernels: for each point its values (the fields of `Point`) and the kernels launched (`compiled`).
    """
    import triton

    from helpers import records
    from helpers.kernels import elementwise, softmax

    os.environ["WORKBOOK_RECORD"] = "1"
    sources = [
        value
        for module in (elementwise, softmax)
        for value in vars(module).values()
        if isinstance(value, triton.JITFunction) and value.fn.__module__ == module.__name__
    ]
    names = [field.name for field in fields(Point)]
    made = [{"point": {n: one[n] for n in names}, "compiled": one["compiled"]} for one in kernels]
    ordered = [{column: row[column] for column in COLUMNS} for row in rows]
    also = {"suite": LEAGUE, "kernels": made}
    records.measured("fusion/league", lambda: ordered, sources=sources, also=also)


if __name__ == "__main__":
    main()

"""What lab 05 takes from the recorded Nsight Compute reports: launches as rows of numbers, and measured squares.

The reports are those that lesson 05 recorded and that come with the workbook, whatever GPU this machine has:
hidden cases must not depend on what was profiled last.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import records

if TYPE_CHECKING:
    from helpers.ncu import Report

_SHIPPED = Path(records.__file__).parent / "h100" / "ncu"
REPORTS = ("five-grids", "advice", "alignment")
# Launches of a square that nothing holds up but memory and the launch itself: report -> {launch: (rows, columns)}.
GOOD_SQUARES = {
    "five-grids": {1: (8, 4096), 2: (64, 4096), 3: (512, 4096), 4: (4096, 4096)},
    "advice": {1: (4096, 4096), 3: (64, 4096)},
    "alignment": {1: (1823, 512), 2: (1823, 781), 4: (1823, 784)},
}
_ROW = (
    "duration_us",
    "compute_throughput_percent",
    "memory_throughput_percent",
    "waves_per_sm",
    "achieved_occupancy_percent",
    "registers_per_thread",
)


@functools.cache
def report(name: str) -> Report:
    """One of the recorded reports: "five-grids", "advice" or "alignment"."""
    from helpers import ncu

    return ncu.load_report(_SHIPPED / f"{name}.ncu-rep")


@functools.cache
def launches(name: str) -> tuple[dict[str, Any], ...]:
    """A recorded report's launches as plain rows: `ncu.summary`'s numbers, the grid, the blocks that an SM holds."""
    from helpers import ncu

    rows = []
    for kernel, row in zip(report(name), ncu.summary(report(name)).to_dict("records"), strict=True):
        numbers = {key: float(row[key]) for key in _ROW}
        limits = ncu.occupancy(kernel).attrs
        rows.append(
            numbers
            | {
                "function_name": kernel.name,
                "n_blocks": kernel.n_blocks,
                "threads_per_block": kernel.block[0],
            }
            | {"n_sms": int(kernel.metrics["launch__sm_count"]), "blocks_per_sm": limits["blocks_per_sm"]}
        )
    return tuple(rows)


def gpu(name: str = "advice") -> dict[str, Any]:
    """The recorded GPU, with `name` and `copy_gb_per_s`."""
    return json.loads((_SHIPPED / f"{name}.json").read_text())["cases"][-1]["provenance"]["gpu"]


def shortest_us() -> float:
    """How long the shortest recorded launch took: one row of 4096 numbers."""
    return launches("five-grids")[0]["duration_us"]


def measured_squares() -> Iterator[tuple[str, int, int, float]]:
    """(which launch, rows, columns, microseconds) of each recorded square that is as good as it gets."""
    for name, found in GOOD_SQUARES.items():
        for launch, (n_rows, n_cols) in found.items():
            yield f"launch {launch} of {name}", n_rows, n_cols, launches(name)[launch]["duration_us"]


def _limiter(row: dict[str, Any]) -> str:
    """ncu's own rule of thumb for a launch: 60 % of a peak is busy; less, and less than a wave, is a small grid."""
    memory, compute = row["memory_throughput_percent"], row["compute_throughput_percent"]
    if max(memory, compute) >= 60:
        return "memory" if memory > compute else "compute"
    return "too few blocks" if row["waves_per_sm"] < 1 else "latency"


def rows_to_judge(rng: random.Random) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Summary rows and their limiters: the recorded launches, and made-up ones with clear margins, mixed."""
    found = []
    for name in REPORTS:
        for i, row in enumerate(launches(name)):
            found.append((f"recorded: {row['function_name']}, launch {i} of {name}", row, _limiter(row)))

    def made(what: str, limiter: str, **numbers: float) -> tuple[str, dict[str, Any], str]:
        row = {"duration_us": rng.uniform(3, 900), "registers_per_thread": rng.randrange(16, 128)}
        row |= {"function_name": "a_kernel", "threads_per_block": rng.choice((128, 256, 512)), "n_sms": 132}
        row |= {"blocks_per_sm": rng.choice((2, 4, 8))} | numbers
        row["n_blocks"] = max(1, round(row.pop("waves") * row["n_sms"] * row["blocks_per_sm"]))
        row["waves_per_sm"] = row["n_blocks"] / row["n_sms"] / row["blocks_per_sm"]
        row["achieved_occupancy_percent"] = row.pop("occupancy")
        row["compute_throughput_percent"], row["memory_throughput_percent"] = row.pop("c"), row.pop("m")
        return f"made up: {what}", row, limiter

    u = rng.uniform
    for _ in range(3):
        found += [
            made("many exponentials", "compute", c=u(74, 95), m=u(8, 40), waves=u(3, 40), occupancy=u(40, 95)),
            made("a copy", "memory", c=u(4, 30), m=u(75, 94), waves=u(3, 40), occupancy=u(30, 95)),
            made("one warp a block", "latency", c=u(5, 30), m=u(8, 35), waves=u(4, 30), occupancy=u(4, 24)),
            made("chains of loads", "latency", c=u(5, 25), m=u(10, 42), waves=u(4, 30), occupancy=u(70, 98)),
            made("a short vector", "too few blocks", c=u(0.1, 8), m=u(3, 38), waves=u(0.01, 0.6), occupancy=u(5, 60)),
            # less than a wave, and busy all the same: its blocks loop over the work
            made("persistent blocks", "memory", c=u(5, 30), m=u(78, 93), waves=u(0.25, 0.9), occupancy=u(20, 60)),
            made("persistent products", "compute", c=u(78, 93), m=u(20, 45), waves=u(0.25, 0.9), occupancy=u(10, 30)),
            made("both busy, memory more", "memory", c=u(61, 68), m=u(82, 94), waves=u(3, 40), occupancy=u(30, 95)),
            made("both busy, compute more", "compute", c=u(82, 94), m=u(61, 68), waves=u(3, 40), occupancy=u(30, 95)),
        ]  # fmt: skip
    rng.shuffle(found)
    yield from found

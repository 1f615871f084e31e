"""Data of lab 05 from recorded Nsight Compute reports: launches as rows of numbers, and measured squares.

Lesson 05 recorded these reports. They are always those that come with the workbook, because hidden cases must
not depend on what was profiled last.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import records

if TYPE_CHECKING:
    from helpers.ncu import Report

_SHIPPED = Path(records.__file__).parent / "h200" / "ncu"
REPORTS = ("five-grids", "advice", "alignment")
# Launches of a square that is limited only by memory and the launch itself: report -> {launch: (rows,
# columns)}.
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
    """A recorded report's launches as dicts: numbers of `ncu.summary`, the grid, and the blocks per SM."""
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
    """How long the shortest launch took, which squares one row of 4,096 numbers, in microseconds."""
    return launches("five-grids")[0]["duration_us"]


def measured_squares() -> Iterator[tuple[str, int, int, float]]:
    """(which launch, rows, columns, microseconds) of each recorded square in `GOOD_SQUARES`."""
    for name, found in GOOD_SQUARES.items():
        for launch, (n_rows, n_cols) in found.items():
            yield f"launch {launch} of {name}", n_rows, n_cols, launches(name)[launch]["duration_us"]

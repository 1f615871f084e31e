"""The summary rows that learners classify in lab 05, and what limits each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from helpers.exercises.lab05 import reports


def limiter(row: dict[str, Any]) -> str:
    """Nsight Compute's rule of thumb: 60 % of a peak is busy; if nothing is, less than a wave is a small
    grid.
    """
    memory, compute = row["memory_throughput_percent"], row["compute_throughput_percent"]
    if max(memory, compute) >= 60:
        return "memory" if memory > compute else "compute"
    return "too few blocks" if row["waves_per_sm"] < 1 else "latency"


def rows_to_judge(rng: random.Random) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Summary rows and their limiters: the recorded launches, and made-up ones with clear margins, mixed."""
    found = []
    for name in reports.REPORTS:
        for i, row in enumerate(reports.launches(name)):
            found.append((f"recorded: {row['function_name']}, launch {i} of {name}", row, limiter(row)))

    def made(what: str, limit: str, **numbers: float) -> tuple[str, dict[str, Any], str]:
        row = {"duration_us": rng.uniform(3, 900), "registers_per_thread": rng.randrange(16, 128)}
        row |= {"function_name": "a_kernel", "threads_per_block": rng.choice((128, 256, 512)), "n_sms": 132}
        row |= {"blocks_per_sm": rng.choice((2, 4, 8))} | numbers
        row["n_blocks"] = max(1, round(row.pop("waves") * row["n_sms"] * row["blocks_per_sm"]))
        row["waves_per_sm"] = row["n_blocks"] / row["n_sms"] / row["blocks_per_sm"]
        row["achieved_occupancy_percent"] = row.pop("occupancy")
        row["compute_throughput_percent"], row["memory_throughput_percent"] = row.pop("c"), row.pop("m")
        return f"made up: {what}", row, limit

    u = rng.uniform
    for _ in range(3):
        found += [
            made(
                "many exponentials", "compute", c=u(74, 95), m=u(8, 40), waves=u(3, 40), occupancy=u(40, 95)
            ),
            made("a copy", "memory", c=u(4, 30), m=u(75, 94), waves=u(3, 40), occupancy=u(30, 95)),
            made("one warp a block", "latency", c=u(5, 30), m=u(8, 35), waves=u(4, 30), occupancy=u(4, 24)),
            made("chains of loads", "latency", c=u(5, 25), m=u(10, 42), waves=u(4, 30), occupancy=u(70, 98)),
            made(
                "a short vector",
                "too few blocks",
                c=u(0.1, 8),
                m=u(3, 38),
                waves=u(0.01, 0.6),
                occupancy=u(5, 60),
            ),
            # less than a wave, but busy, because its blocks loop over the work
            made(
                "persistent blocks",
                "memory",
                c=u(5, 30),
                m=u(78, 93),
                waves=u(0.25, 0.9),
                occupancy=u(20, 60),
            ),
            made(
                "persistent products",
                "compute",
                c=u(78, 93),
                m=u(20, 45),
                waves=u(0.25, 0.9),
                occupancy=u(10, 30),
            ),
            made(
                "both busy, memory more",
                "memory",
                c=u(61, 68),
                m=u(82, 94),
                waves=u(3, 40),
                occupancy=u(30, 95),
            ),
            made(
                "both busy, compute more",
                "compute",
                c=u(82, 94),
                m=u(61, 68),
                waves=u(3, 40),
                occupancy=u(30, 95),
            ),
        ]
    rng.shuffle(found)
    yield from found

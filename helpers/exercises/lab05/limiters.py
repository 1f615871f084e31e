"""The summary rows that learners classify in lab 05, and what limits each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from helpers.exercises.lab05 import reports

# Made-up launches with clear margins: what the kernel does, its limiter, and the ranges of the compute and
# memory throughput (% of the peak), the waves per SM, and the occupancy (%).
_MADE_UP = (
    ("many exponentials", "compute", (74, 95), (8, 40), (3, 40), (40, 95)),
    ("a copy", "memory", (4, 30), (75, 94), (3, 40), (30, 95)),
    ("one warp per block", "latency", (5, 30), (8, 35), (4, 30), (4, 24)),
    ("chains of loads", "latency", (5, 25), (10, 42), (4, 30), (70, 98)),
    ("a short vector", "too few blocks", (0.1, 8), (3, 38), (0.01, 0.6), (5, 60)),
    # less than a wave, but busy, because its blocks loop over the work
    ("persistent blocks", "memory", (5, 30), (78, 93), (0.25, 0.9), (20, 60)),
    ("persistent products", "compute", (78, 93), (20, 45), (0.25, 0.9), (10, 30)),
    ("both busy, memory more", "memory", (61, 68), (82, 94), (3, 40), (30, 95)),
    ("both busy, compute more", "compute", (82, 94), (61, 68), (3, 40), (30, 95)),
)


def limiter(row: dict[str, Any]) -> str:
    """What limits a launch. As in Nsight Compute, a unit is busy from 60 % of its peak on."""
    memory, compute = row["memory_throughput_percent"], row["compute_throughput_percent"]
    if max(memory, compute) >= 60:
        return "memory" if memory > compute else "compute"
    return "too few blocks" if row["waves_per_sm"] < 1 else "latency"


def rows_to_judge(rng: random.Random) -> Iterator[tuple[str, dict[str, Any], str]]:
    """(label, row, limiter) of the recorded launches and of three draws of each made-up one, shuffled."""
    found = []
    for name in reports.REPORTS:
        for i, row in enumerate(reports.launches(name)):
            found.append((f"recorded: {row['function_name']}, launch {i} of {name}", row, limiter(row)))
    for what, limit, *ranges in 3 * _MADE_UP:
        found.append((f"made up: {what}", _made_up(rng, *ranges), limit))
    rng.shuffle(found)
    yield from found


def _made_up(rng: random.Random, *ranges: tuple[float, float]) -> dict[str, Any]:
    compute, memory, waves, occupancy = (rng.uniform(*one) for one in ranges)
    n_sms, blocks_per_sm = 132, rng.choice((2, 4, 8))
    n_blocks = max(1, round(waves * n_sms * blocks_per_sm))
    return {
        "function_name": "a_kernel",
        "duration_us": rng.uniform(3, 900),
        "registers_per_thread": rng.randrange(16, 128),
        "threads_per_block": rng.choice((128, 256, 512)),
        "n_sms": n_sms,
        "blocks_per_sm": blocks_per_sm,
        "n_blocks": n_blocks,
        "waves_per_sm": n_blocks / n_sms / blocks_per_sm,
        "achieved_occupancy_percent": occupancy,
        "compute_throughput_percent": compute,
        "memory_throughput_percent": memory,
    }

"""Pairs of sweeps of one kernel on two GPUs: recorded ones, and simulated ones that are in no record."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from helpers import records
from helpers.exercises.lab10 import tables
from helpers.lessons import cross_gpu

Launch = tuple[int, int]
_BLOCKS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
_WARPS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Pair:
    """A sweep on a known GPU, and the times of the same launches on a new one.

    Attributes:
        label: What it is, for messages.
        rows: The sweep on the known GPU, as `tables.rows_of` returns it.
        n_bytes: How many bytes each launch moves.
        known, new: The GPUs, as `tables.facts` returns them.
        known_us, new_us: The time of each launch, by (block_size, num_warps).
        starts_per_ns: How many programs the new GPU starts per nanosecond.
    """

    label: str
    rows: list[dict[str, Any]]
    n_bytes: int
    known: dict[str, float]
    new: dict[str, float]
    known_us: dict[Launch, float]
    new_us: dict[Launch, float]
    starts_per_ns: float

    @property
    def args(self) -> tuple:
        """The arguments of the learner's function: nothing measured on the new GPU except for its copy."""
        return [dict(row) for row in self.rows], self.n_bytes, dict(self.known), dict(self.new)

    def loss(self, launch: Launch, *, new: bool = True) -> float:
        """How many percent slower a launch is than the best one on that GPU."""
        times = self.new_us if new else self.known_us
        return 100 * (times[launch] / min(times.values()) - 1)


def recorded() -> Iterator[Pair]:
    """Lesson 03's flat kernel on an H100 and on an H200."""
    sets = records.stored_by_gpu(tables.SWEEP)
    frames = {gpu: sets[gpu] for gpu in ("h100", "h200")}
    keys = ["kernel", *cross_gpu.LAUNCH, *cross_gpu.SHAPE]
    both = frames["h100"].merge(frames["h200"], on=keys, suffixes=("_h100", "_h200"))
    provenance = {gpu: frame.attrs["provenance"] for gpu, frame in frames.items()}
    both.attrs |= {"gpus": list(frames), "provenance": provenance}
    known, new = (tables.facts(one.gpu) for one in provenance.values())
    for n_cols, dtype in tables.RECORDED:
        launches = cross_gpu.launches(both, n_cols, dtype)
        times = launches.set_index(cross_gpu.LAUNCH)
        yield Pair(
            f"the H100's sweep of 4,096 × {n_cols:,} {dtype}, for the H200",
            tables.rows_of(launches, "h100"),
            launches.attrs["n_bytes"],
            known,
            new,
            times.us_h100.to_dict(),
            times.us_h200.to_dict(),
            cross_gpu.starts_per_ns(launches, "h200"),
        )


def simulated(rng: random.Random, slow_starts_kb: int = 0, heavy: float = 1.0) -> Pair:
    """Simulate two GPUs that have the same multiprocessors and clock, but different memories.

    A launch takes as long as the slowest of its bytes, its programs and its warps, or a little longer near
    a tie. Both GPUs start programs and warps at the same rates.

    Args:
        rng: The source of everything random.
        slow_starts_kb: If not 0, programs start so slowly that the new GPU waits for those with up to this
            many KiB of input. On an H100, it hardly waits for programs with 2 KiB.
        heavy: How many times as long programs of 32 warps take on both GPUs.
    """
    starts, warps_per_ns = rng.uniform(1.2, 2.2), rng.uniform(10.0, 15.0)
    old_gb_per_s = rng.uniform(1500, 3500)
    gpus = [old_gb_per_s, old_gb_per_s * rng.uniform(1.35, 1.9)]
    if slow_starts_kb:
        starts = gpus[1] / (2 * slow_starts_kb * 1024) / rng.uniform(1.15, 1.35)
    sms, size = rng.choice((108, 114, 132, 144)), rng.choice((2, 4))
    n_elements = 4096 * rng.randrange(6000, 24000)
    n_bytes = 2 * n_elements * size
    rows, times = [], ({}, {})
    for block in _BLOCKS:
        for warps in _WARPS:
            programs = -(-n_elements // block)
            longer = 1.8 if block * size // 4 >= 256 * 32 * warps else 1.0  # a thread has 255 registers
            longer *= heavy if warps == 32 else 1.0
            for gb_per_s, took in zip(gpus, times, strict=True):
                parts = (n_bytes / gb_per_s, programs / starts, programs * warps / warps_per_ns)
                us = 1.5 + sum(part**8 for part in parts) ** (1 / 8) / 1e3 * longer
                took[block, warps] = round(us * (1 + rng.gauss(0, 0.003)), 3)
            us = times[0][block, warps]
            rows.append({"block_size": block, "num_warps": warps, "programs": programs, "us": us})
    rng.shuffle(rows)
    known, new = ({"copy_gb_per_s": round(gb, 1), "sm_count": sms, "l2_bytes": 50 << 20} for gb in gpus)
    faster = gpus[1] / gpus[0]
    label = f"a simulated GPU with {faster:.2f} times the bandwidth, {n_bytes / 1e6:,.0f} MB"
    if slow_starts_kb:
        label += ", where programs start slowly"
    return Pair(label, rows, n_bytes, known, new, *times, starts)

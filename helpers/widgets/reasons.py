"""Why a kernel is as fast as it is at a point, in one line: registers, occupancy, waves, vector width, spills."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helpers import device
from helpers.widgets.table import Table


def occupancy(spec: device.GpuSpec, threads: int, registers: int, shared_bytes: int) -> tuple[int, str]:
    """How many blocks an SM holds at once, and what keeps it from holding more.

    Registers are given to a warp in units of 256 (CUDA Occupancy Calculator, compute capability 7.0 to 9.0).
    """
    warps = math.ceil(threads / spec.warp_size)
    per_warp = math.ceil(registers * spec.warp_size / 256) * 256
    limits = {
        "threads": spec.max_threads_per_sm // (warps * spec.warp_size),
        "blocks": spec.max_blocks_per_sm,
        "registers": spec.registers_per_sm // (per_warp * warps) if per_warp else 10**6,
    }
    if shared_bytes:
        limits["shared memory"] = spec.shared_bytes_per_sm // (shared_bytes + 1024)  # 1 KiB is the system's
    tightest = min(limits, key=limits.get)
    return limits[tightest], tightest


def reason(table: Table, row: Mapping[str, Any] | None) -> str:
    """The line under a figure."""
    if row is None:
        return table.refusal or "not measured yet"
    if row["verdict"] != "ok":
        return f"{row['verdict']}: {row['reason']}"
    if not row.get("registers"):
        return "a library's kernel: nothing here compiled it"
    held = _residence(table, row)
    spills = f"{row['spill_bytes']} bytes spilled" if row["spill_bytes"] else "none spilled"
    return (
        f"{row['registers']} registers a thread ({spills}) · {row['loads']} × {row['load_bytes']}-byte loads · "
        f"{held.blocks} blocks an SM, {held.percent:.0f} % of its threads (limit: {held.limit}) · {held.waves:,.1f} waves"
    )


def brief(table: Table, row: Mapping[str, Any] | None) -> str:
    """The same for a hover text, of which a figure holds hundreds."""
    if row is None or row["verdict"] != "ok" or not row.get("registers"):
        return reason(table, row)[:90]
    held = _residence(table, row)
    spills = f", {row['spill_bytes']} B spilled" if row["spill_bytes"] else ""
    return (
        f"{row['registers']} registers{spills}, {row['loads']} × {row['load_bytes']} B loads<br>"
        f"{held.percent:.0f} % occupied, {held.waves:,.1f} waves"
    )


@dataclass(frozen=True)
class _Residence:
    """How a launch lies on the GPU: blocks an SM at once, what limits them, per cent of its threads, waves."""

    blocks: int
    limit: str
    percent: float
    waves: float


def _residence(table: Table, row: Mapping[str, Any]) -> _Residence:
    spec = table.spec
    blocks, limit = occupancy(spec, row["threads"], row["registers"], row["shared_bytes"] or 0)
    percent = 100 * blocks * row["threads"] / spec.max_threads_per_sm
    return _Residence(blocks, limit, percent, table.space.n_blocks(row) / max(1, blocks * spec.sm_count))

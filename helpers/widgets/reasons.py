"""Why a kernel is as fast as it is at a point, in one line: registers, occupancy, waves, vector width,
spills.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helpers.widgets.residence import occupancy, percent_held
from helpers.widgets.table import Table

RIGHT = ("ok", "right")  # timed, and checked without being timed


def reason(table: Table, row: Mapping[str, Any] | None) -> str:
    """The line under a figure."""
    if row is None:
        return table.refusal or "not measured yet"
    checked = f"{row['reason']} · " if row["reason"] else ""
    if row["verdict"] not in RIGHT:
        if row["verdict"] != "unchecked" or not row["registers"]:
            return f"{row['verdict']}: {row['reason']}"
        checked = f"unchecked: {checked}"
    if not row.get("registers"):
        return f"{checked}what the compiler made of it is not seen here"
    held = _residence(table, row)
    spills = f"{row['spill_bytes']} bytes spilled" if row["spill_bytes"] else "none spilled"
    shared = f" · {row['shared_bytes']:,} bytes of shared memory" if row["shared_bytes"] else ""
    waves = f" · {held.waves:,.1f} waves" if table.spec.sm_count else ""
    return (
        f"{checked}{row['registers']} registers a thread ({spills}){shared} · "
        f"{row['loads']} × {row['load_bytes']}-byte loads · "
        f"{held.blocks} blocks an SM, {held.percent} % of its threads (limit: {held.limit}){waves}"
    )


def brief(table: Table, row: Mapping[str, Any] | None) -> str:
    """The same for a hover text, of which a figure holds hundreds."""
    if row is None or row["verdict"] not in RIGHT or not row.get("registers"):
        return reason(table, row)[:90]
    held = _residence(table, row)
    spills = f", {row['spill_bytes']} B spilled" if row["spill_bytes"] else ""
    return (
        f"{row['registers']} registers{spills}, {row['loads']} × {row['load_bytes']} B loads<br>"
        f"{held.percent} % occupied" + (f", {held.waves:,.1f} waves" if table.spec.sm_count else "")
    )


def waves_of(table: Table, row: Mapping[str, Any]) -> float | None:
    """How often a launch's blocks fill the GPU; None of a GPU whose number of SMs is not known."""
    return _residence(table, row).waves if table.spec.sm_count else None


@dataclass(frozen=True)
class _Residence:
    """How a launch lies on the GPU: blocks an SM at once, what limits them, per cent of its
    threads, waves.
    """

    blocks: int
    limit: str
    percent: int
    waves: float


def _residence(table: Table, row: Mapping[str, Any]) -> _Residence:
    spec = table.spec
    blocks, limit = occupancy(spec, row["threads"], row["registers"], row["shared_bytes"] or 0)
    percent = percent_held(spec, blocks, row["threads"])
    return _Residence(blocks, limit, percent, table.space.n_blocks(row) / max(1, blocks * spec.sm_count))

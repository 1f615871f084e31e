"""The folder of a batch's outputs: the run that owns it, the plan, and what killed runs left behind.

A run owns its folder, or a shard of it, through one lock file in `OUT/.workbook`. The lock ends with the
process, however it ends. The plan in the same folder lists all points of the batch, so that
`workbook index` knows what is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbook import locks
from workbook.batch.plan import Job, PlannedPoint
from workbook.batch.point import RUNNING
from workbook.batch.shards import Shard
from workbook.outputs import replace
from workbook.usage import UsageError

_FOLDER = ".workbook"


@dataclass(frozen=True)
class Owner:
    """A run that is writing into a folder.

    Attributes:
        shard: Its part of the batch; 1/1 for the whole folder.
        host: Its machine.
        pid: Its process.
        since: When it began, ISO 8601.
    """

    shard: Shard
    host: str = ""
    pid: int = 0
    since: str = ""

    def __str__(self) -> str:
        who = "another run" if self.shard.of == 1 else f"shard {self.shard}"
        since = self.since[:16].replace("T", " ")
        return f"{who} on {self.host} (process {self.pid}, since {since})" if self.host else who


@dataclass(frozen=True)
class Plan:
    """All points of a batch, and into how many shards they are divided."""

    points: tuple[PlannedPoint, ...]
    shards: int = 1


def point_lock(out: Path, name: str) -> Path:
    """The lock of one point, for workers that run points on several machines."""
    return out / _FOLDER / "points" / f"{name}.lock"


@contextlib.contextmanager
def own_folder(out: Path, shard: Shard, jobs: Sequence[Job], started: str) -> Iterator[bool]:
    """Own a folder, or a shard of it, for a block; write the plan, and remove what killed runs left.

    Args:
        out: The folder.
        shard: The part that this run writes.
        jobs: All points of the batch, of all shards.
        started: When the run began, ISO 8601.

    Yields:
        Whether the file system has locks. Without them, nothing protects the folder from a second run.

    Raises:
        UsageError: Another run owns it.
        OSError: It can't be written.
    """
    plan = Plan(tuple(PlannedPoint.of(job) for job in jobs), shard.of)
    with _opening_lock(out):
        owners = _owners(out)
        _require_free(out, shard, owners)
        _write_plan(out, plan, owners)
        lock = locks.take(_run_lock(out, shard))
        lock.write(json.dumps({"host": platform.node(), "pid": os.getpid(), "since": started}))
    with contextlib.closing(lock):
        _clean(out, shard, {job.name for job in shard.part(jobs)})
        yield lock.real


def read(out: Path) -> tuple[Plan, list[Owner]]:
    """The plan of a folder, and the runs that are writing into it.

    Raises:
        UsageError: No run has written into it.
    """
    if (plan := _read_plan(out)) is None:
        raise UsageError(f"{out} has no plan of a batch; name the folder that `workbook run` had as --out.")
    with _opening_lock(out):
        return plan, _owners(out)


def remove_partial_files(out: Path) -> None:
    """Remove files that killed processes had begun to write."""
    locks.sweep(out, out / "assets", out / RUNNING, out / _FOLDER)


def _opening_lock(out: Path) -> contextlib.AbstractContextManager[locks.Lock]:
    """Keep other runs from taking or inspecting locks for a moment."""
    return locks.hold(out / _FOLDER / "opening.lock")


def _run_lock(out: Path, shard: Shard) -> Path:
    name = "run" if shard.of == 1 else f"shard-{shard.number}-of-{shard.of}"
    return out / _FOLDER / f"{name}.lock"


def _owners(out: Path) -> list[Owner]:
    found = []
    for path in sorted((out / _FOLDER).glob("*.lock")):
        match = re.fullmatch(r"run|shard-(\d+)-of-(\d+)", path.stem)
        if match and locks.is_held(path):
            shard = Shard(int(match[1]), int(match[2])) if match[1] else Shard()
            found.append(Owner(shard, **_written(path)))
    return found


def _written(path: Path) -> dict[str, Any]:
    """What the holder of a lock wrote into it: nothing if the disk was full."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def _require_free(out: Path, shard: Shard, owners: Sequence[Owner]) -> None:
    for owner in owners:
        if owner.shard.of != shard.of or owner.shard.number == shard.number:
            raise UsageError(f"{out} is in use by {owner}: wait until it ends, or choose another --out.")


def _write_plan(out: Path, plan: Plan, owners: Sequence[Owner]) -> None:
    before = _read_plan(out)
    if before == plan:
        return
    if owners:
        raise UsageError(
            f"{out} is in use by {owners[0]}, which has other notebooks or points: give both the same "
            "command, or choose another --out."
        )
    replace(out / _FOLDER / "plan.json", json.dumps(asdict(plan), ensure_ascii=False) + "\n")


def _read_plan(out: Path) -> Plan | None:
    try:
        saved = json.loads((out / _FOLDER / "plan.json").read_text("utf-8"))
        return Plan(tuple(PlannedPoint(**one) for one in saved["points"]), saved["shards"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _clean(out: Path, shard: Shard, names: set[str]) -> None:
    """Remove what killed runs left: of a shard, only what belongs to its own points."""
    remove_partial_files(out)
    if shard.of == 1:
        for path in (out / _FOLDER).glob("*.lock"):
            if path.stem.startswith("shard-"):
                locks.remove_if_free(path)
    for path in (out / _FOLDER / "points").glob("*.lock"):
        locks.remove_if_free(path)
    for path in (out / RUNNING).glob("*.ipynb"):
        if path.stem in names:
            path.unlink(missing_ok=True)

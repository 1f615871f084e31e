"""What the runs of one folder share, in `OUT/.workbook`: a lock for each point, one for the index, the rows of each run.

Several runs may write into a folder at once, from several machines. Each has a file of its own for its rows, named with
its host and a uuid and locked while it lives, so that no run writes over another's. A row is a line, written whole. The
plan of a run, which the shards of a batch share, is a file named by its hash.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import platform
import re
import time
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.workshop import locks
from helpers.workshop.batch.parameters import for_json
from helpers.workshop.batch.plan import Job
from helpers.workshop.batch.point import RUNNING
from helpers.workshop.batch.results import NotebookRun, RunReport
from helpers.workshop.batch.shards import Shard
from helpers.workshop.outputs import replace

_FOLDER = ".workbook"


def point_lock(out: Path, name: str) -> Path:
    """The lock that is held while a point's outputs are made."""
    return out / _FOLDER / "points" / f"{name}.lock"


def index_lock(out: Path) -> Path:
    """The lock that is held while the index of the folder is written."""
    return out / _FOLDER / "index.lock"


def is_used(out: Path) -> bool:
    """Whether a run has ever begun there."""
    return (out / _FOLDER / "runs").is_dir()


def sweep(out: Path) -> None:
    """Remove what killed runs had begun to write."""
    locks.sweep(out, out / "assets", out / RUNNING, out / _FOLDER / "plans")


class Rows:
    """The rows of this run: the file and its lock."""

    def __init__(self, out: Path, plan: Sequence[Job], shard: Shard, started: str) -> None:
        """Begin the file.

        Args:
            out: The folder.
            plan: All points of the batch, those of other shards too.
            shard: Which of them are this run's.
            started: ISO 8601.

        Raises:
            OSError: It cannot be written.
        """
        host = re.sub(r"[^\w.-]", "_", platform.node())[:64] or "host"
        self.out, self.run = out, f"{host}-{uuid.uuid4().hex}"
        self.path = out / _FOLDER / "runs" / f"{self.run}.jsonl"
        self.written: dict[str, float] = {}  # name to when
        rows = [_planned(job) for job in plan]
        text = json.dumps(rows, ensure_ascii=False)
        works = [[row["name"], row["work"]] for row in rows]
        digest = hashlib.sha256(json.dumps(works).encode()).hexdigest()[:32]
        kept = _plan(out, digest)
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            replace(kept, text + "\n")
        with contextlib.ExitStack() as failed:
            self._lock = failed.enter_context(contextlib.closing(locks.wait(self.path)))
            self.locked = self._lock.real  # whether this file system has locks
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            failed.callback(os.close, self._file)
            # By the clock of the file system, as what the points write.
            self.began_ns = os.fstat(self._file).st_mtime_ns
            self._append({
                "run": self.run, "host": platform.node(), "pid": os.getpid(), "started": started,
                "began_ns": self.began_ns, "plan": digest, "shard": [shard.number, shard.of],
            })  # fmt: skip
            failed.pop_all()

    def add(self, run: NotebookRun) -> None:
        """Write a row. Raises `OSError` where it cannot be written, and leaves none half written."""
        self.written[run.name] = time.time()
        self._append({"at": self.written[run.name], "row": run.as_dict()})

    def close(self) -> None:
        """The run has ended."""
        os.close(self._file)
        self._lock.close(keep=True)

    def _append(self, values: dict[str, Any]) -> None:
        line = (json.dumps(values, ensure_ascii=False) + "\n").encode()
        before = os.fstat(self._file).st_size
        if os.write(self._file, line) != len(line):
            os.ftruncate(self._file, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@dataclass(frozen=True)
class PastRun:
    """What a run of the folder has written, one that lives or one that has ended.

    Attributes:
        run: Its host with a uuid.
        host: The machine.
        started: When it began, ISO 8601.
        began_ns: The same by the file system's clock.
        ended_ns: When it wrote last, by that clock.
        lives: Whether it still runs.
        plan: The hash of its plan.
        shard: Which points of the plan are its own.
        rows: Name to when and what.
        path: Its file.
    """

    run: str
    host: str
    started: str
    began_ns: int
    ended_ns: int
    lives: bool
    plan: str
    shard: Shard
    rows: dict[str, tuple[float, NotebookRun]] = field(repr=False)
    path: Path = field(repr=False)


def past_runs(out: Path, but: Collection[str] = ()) -> list[PastRun]:
    """The runs of a folder in the order in which they began, without those named in `but`."""
    found = []
    for path in (out / _FOLDER / "runs").glob("*.jsonl"):
        # One that ends meanwhile may take away another's; a killed one may have left half a line.
        if path.stem not in but:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                found.append(_read(path))
    return sorted(found, key=lambda run: (run.began_ns, run.run))


def read_plan(out: Path, digest: str, shard: Shard) -> list[dict[str, Any]]:
    """The points of a shard of a plan: name, source, title, parameters, work, refusal."""
    planned = json.loads(_plan(out, digest).read_text("utf-8"))
    mine = shard.names(row["name"] for row in planned)
    return [row for row in planned if row["name"] in mine]


def beside(mine: Rows, runs: Iterable[PastRun]) -> list[PastRun]:
    """The runs that share an index with `mine`: those that ran at the same time, with it or with one another."""
    runs = [run for run in runs if run.run != mine.run]
    spans = {run.run: (run.began_ns, float("inf") if run.lives else run.ended_ns) for run in runs}
    spans[mine.run] = mine.began_ns, float("inf")
    group, grows = {mine.run}, True
    while grows:
        near = {
            name for name, (began, ended) in spans.items()
            if name not in group and any(began <= spans[g][1] and spans[g][0] <= ended for g in group)
        }  # fmt: skip
        group, grows = group | near, bool(near)
    return [run for run in runs if run.run in group]


def newest(runs: Iterable[PastRun]) -> dict[str, tuple[float, NotebookRun]]:
    """For each name the last row that says something of it."""
    rows: dict[str, tuple[float, NotebookRun]] = {}
    for run in runs:
        for name, row in run.rows.items():
            if name not in rows or rows[name][0] <= row[0]:
                rows[name] = row
    return rows


def unfinished(planned: dict[str, Any], *, waiting: bool) -> NotebookRun:
    """The row of a planned point that has none."""
    shown = {key: planned[key] for key in ("name", "source", "title", "parameters")}
    return NotebookRun(**shown, status="waiting" if waiting else "not run")


def with_others(report: RunReport, mine: Rows, others: Sequence[PastRun]) -> RunReport:
    """The report of a run with the points of those that ran at the same time; each point once, by its last row."""
    others = beside(mine, others)
    rows = {run.name: run for run in report.runs}
    for other in others:
        with contextlib.suppress(OSError, ValueError):  # its plan may have gone with it
            for planned in read_plan(mine.out, other.plan, other.shard):
                rows.setdefault(planned["name"], unfinished(planned, waiting=other.lives))
    for name, (at, run) in newest(others).items():
        if at > mine.written.get(name, 0):
            rows[name] = run
    return dataclasses.replace(report, runs=tuple(rows.values()))


def drop_repeated(mine: Rows) -> None:
    """Take away the rows of ended runs whose points have all been run, or kept, again by this one."""
    kept, plans = set(), set()
    for run in past_runs(mine.out):
        if not run.lives and all(at <= mine.written.get(name, 0) for name, (at, _) in run.rows.items()):
            run.path.unlink(missing_ok=True)
            plans.add(run.plan)
        else:
            kept.add(run.plan)
    for plan in plans - kept:
        _plan(mine.out, plan).unlink(missing_ok=True)


def _plan(out: Path, digest: str) -> Path:
    return out / _FOLDER / "plans" / f"{digest}.json"


def _planned(job: Job) -> dict[str, Any]:
    return {
        "name": job.name, "source": str(job.source), "title": job.title,
        "parameters": for_json(job.parameters), "work": job.same_work, "refusal": job.refusal,
    }  # fmt: skip


def _read(path: Path) -> PastRun:
    lives = locks.is_held(path)  # before its rows are read: what ends meanwhile has them all
    with path.open(encoding="utf-8") as file:
        ended_ns = os.fstat(file.fileno()).st_mtime_ns
        head = json.loads(file.readline())
        rows: dict[str, tuple[float, NotebookRun]] = {}
        for line in file:
            if line.endswith("\n"):
                values = json.loads(line)
                rows[values["row"]["name"]] = values["at"], NotebookRun.from_dict(values["row"])
    return PastRun(
        head["run"], head["host"], head["started"], head["began_ns"], ended_ns, lives,
        head["plan"], Shard(*head["shard"]), rows, path,
    )  # fmt: skip

"""The report of a folder from the executed notebooks that are there: `workbook index OUT`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from workbook.batch import executed, output_folder
from workbook.batch.notebook_runs import Failure, NotebookRun, RunReport
from workbook.batch.output_folder import Owner
from workbook.batch.plan import PlannedPoint
from workbook.batch.report import write_index
from workbook.batch.shards import Shard
from workbook.usage import UsageError

_MISSING = ("not run", "waiting")
_LISTED = 10  # missing points that are named


@dataclass(frozen=True)
class FolderIndex:
    """A folder's report, and what is missing from it, in sentences."""

    report: RunReport
    missing: tuple[str, ...]

    @property
    def exit_status(self) -> int:
        """3 if a point is missing, 1 if one failed, 0 if all are there and ok."""
        return 3 if self.missing else self.report.exit_status

    def __repr__(self) -> str:
        return "\n".join([repr(self.report), *(["", *self.missing] if self.missing else [])])


def index_folder(out: Path | str) -> FolderIndex:
    """Write `index.html`, `report.json` and `results.csv` of a folder that shards, or a run that was killed,
    have written.

    Shards may be running meanwhile.

    Args:
        out: The folder that they had as `--out`.

    Raises:
        UsageError: No run has written there, one that writes the report itself is running, or the report
            can't be written.
    """
    out = Path(out).resolve()
    plan, owners = output_folder.read(out)
    if any(owner.shard.of == 1 for owner in owners):
        raise UsageError(f"{out} is in use by {owners[0]}, which writes the report itself.")
    by_shard = {
        k: Shard(k, plan.shards).names(p.name for p in plan.points) for k in range(1, plan.shards + 1)
    }
    running = {name for owner in owners for name in by_shard[owner.shard.number]}
    runs = tuple(_row(out, point, waiting=point.name in running) for point in plan.points)
    started = min((run.date for run in runs if run.date), key=datetime.fromisoformat, default="")
    report = RunReport(
        out,
        started or datetime.now().astimezone().isoformat(timespec="seconds"),
        round(sum(run.seconds for run in runs), 1),
        runs,
    )
    try:
        write_index(report)
    except OSError as error:
        raise UsageError(f"The report can't be written: {error.strerror} ({error.filename}).") from error
    return FolderIndex(report, _missing(runs, by_shard, owners))


def _row(out: Path, point: PlannedPoint, *, waiting: bool) -> NotebookRun:
    if found := executed.read(out / f"{point.name}.ipynb", point.work):
        run = found[0]
        page_error = "" if (out / f"{point.name}.html").exists() else "its page is missing"
        return dataclasses.replace(run, parameters=point.parameters, page_error=page_error)
    if point.refusal:
        return NotebookRun.failed(point, Failure("start", point.refusal, ""))
    return NotebookRun.not_run(point, waiting=waiting)


def _missing(
    runs: Sequence[NotebookRun], by_shard: dict[int, set[str]], owners: Sequence[Owner]
) -> tuple[str, ...]:
    """What is missing, and which shards run it."""
    missing = [run for run in runs if run.status in _MISSING]
    if not missing:
        return ()
    sentences = [f"{len(missing)} of {len(runs)} points are missing: {_listed([r.name for r in missing])}."]
    if waiting := sum(run.status == "waiting" for run in missing):
        sentences.append(f"Running now, with {waiting} of them: {', '.join(map(str, owners))}.")
    if names := {run.name for run in missing if run.status == "not run"}:
        shards = [f"--shard {k}/{len(by_shard)}" for k, names_of in by_shard.items() if names_of & names]
        option = f"{_listed(shards)} and " if len(by_shard) > 1 else ""
        sentences.append(f"To run the others, give the same command with {option}--resume.")
    return tuple(sentences)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more

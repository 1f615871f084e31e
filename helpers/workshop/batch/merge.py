"""One report from the rows of a folder's runs: `workbook merge OUT`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from helpers.workshop import locks
from helpers.workshop.batch import folder, report
from helpers.workshop.batch.results import NotebookRun, RunReport
from helpers.workshop.batch.shards import Shard
from helpers.workshop.batch.work import read_finished
from helpers.workshop.usage import UsageError

_UNUSED = "No run has written into {out}; name the folder that `workbook run --shard` had as --out."
MISSING = 3  # the exit status where points have not run


@dataclass(frozen=True)
class Merged:
    """A batch whose parts ran in several processes: its report, and in sentences what is not there."""

    report: RunReport
    says: tuple[str, ...]

    @property
    def exit_status(self) -> int:
        """3 where a point is missing, 1 where one failed, 0 where all are there."""
        missing = any(run.status in ("not run", "waiting") for run in self.report.runs)
        return MISSING if missing else self.report.exit_status

    def __repr__(self) -> str:
        return "\n".join([repr(self.report), *(["", *self.says] if self.says else [])])


def merge(out: Path | str) -> Merged:
    """Write `index.html` and `report.json` of a folder from what its runs have written, at work or ended.

    The last plan that was begun there is reported on. A point whose run was killed before it wrote its row is read from its
    executed notebook.

    Args:
        out: The folder that the runs had as `--out`.

    Raises:
        UsageError: No run has written there, or the report cannot be written.
    """
    out = Path(out).resolve()
    if not folder.is_used(out):
        raise UsageError(_UNUSED.format(out=out))
    try:
        with locks.hold(folder.index_lock(out)):
            merged = _merged(out)
            report.write_index(merged.report)
    except OSError as error:
        raise UsageError(f"{out} cannot be merged: {error.strerror} ({error.filename}).") from error
    return merged


def _merged(out: Path) -> Merged:
    everything = folder.past_runs(out)
    if not everything:
        raise UsageError(_UNUSED.format(out=out))
    last = everything[-1]
    runs = [run for run in everything if run.plan == last.plan]
    rows = folder.newest(runs)
    to_come = {name for run in runs if run.lives for name in _names(out, run)}
    found: list[NotebookRun] = []
    for planned in folder.read_plan(out, last.plan, Shard()):
        name = planned["name"]
        if name in rows:
            found.append(rows[name][1])
        elif finished := read_finished(out / f"{name}.ipynb", planned["work"]):
            found.append(finished[0])
        else:
            found.append(folder.unfinished(planned, waiting=name in to_come))
    seconds = (max(run.ended_ns for run in runs) - min(run.began_ns for run in runs)) / 1e9
    started = min((run.started for run in runs), key=datetime.fromisoformat)
    says = [*_missing(found, runs, last.shard.of), *_left_out(everything, runs)]
    return Merged(RunReport(out, started, round(seconds, 1), tuple(found)), tuple(says))


def _names(out: Path, run: folder.PastRun) -> set[str]:
    return {planned["name"] for planned in folder.read_plan(out, run.plan, run.shard)}


def _missing(found: list[NotebookRun], runs: list[folder.PastRun], of: int) -> list[str]:
    """What is missing, and which shards could bring it."""
    counts = Counter(run.status for run in found)
    if not counts["not run"] and not counts["waiting"]:
        return []
    says = [f"{counts['not run'] + counts['waiting']} of {len(found)} points are missing."]
    if alive := [
        f"shard {run.shard} on {run.host}" if of > 1 else f"on {run.host}" for run in runs if run.lives
    ]:
        says.append(f"{counts['waiting']} of them may still come from what runs now: {', '.join(alive)}.")
    if counts["not run"]:
        names = {run.name for run in found if run.status == "not run"}
        which = [
            str(shard) for k in range(1, of + 1)
            if names & (shard := Shard(k, of)).names(run.name for run in found)
        ]  # fmt: skip
        again = f"with --shard {', '.join(which)} and --resume" if of > 1 else "with --resume"
        says.append(f"To run the others, give the same command {again}.")
    return says


def _left_out(everything: list[folder.PastRun], runs: list[folder.PastRun]) -> list[str]:
    others = len(everything) - len(runs)
    if not others:
        return []
    what = "a run" if others == 1 else f"{others} runs"
    return [
        f"The rows of {what} with other notebooks or parameters are left out: the plan that was begun last is reported on."
    ]

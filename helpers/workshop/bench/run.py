"""The command's work: measure points on this GPU, keep them in a file, and compare them with a record."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import device, records
from helpers.records.files import as_text, read_cases
from helpers.records.origin import live_provenance
from helpers.records.sets import record_names
from helpers.workshop import outputs
from helpers.workshop.bench import against, compiled, measure, suites, texts
from helpers.workshop.usage import UsageError

Say = Callable[[str], None]


@dataclass(frozen=True)
class Record:
    """What is measured again: a league's or a sweep's record, or a file that `workbook bench --save` wrote."""

    name: str
    provenance: records.Provenance
    suite: str
    rows: Sequence[Mapping[str, Any]]
    kernels: Sequence[Mapping[str, Any]] = ()
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, asked: str) -> Record:
        """The record of a name ("fusion/league", of this machine's GPU) or of a path.

        Raises:
            UsageError: there is none, it is damaged, or it has no rows.
        """
        path = Path(asked)
        if not path.is_file():
            if asked.endswith(".json"):
                raise UsageError(f"There is no file {path}: `workbook bench --save {path}` writes one.")
            having = [gpu for gpu in records.sets() if asked in record_names(gpu)]
            if not having:
                raise UsageError(
                    f"There is no record {asked!r} and no file of that name: `workbook records` lists the records."
                )
            spec = device.gpu_spec()
            own = records.gpu_folder_name(spec.name) if spec else having[0]
            if own not in having:
                raise UsageError(
                    f"{asked} was recorded on {', '.join(having)}, and this machine has {spec.name}: times of different "
                    f"GPUs do not show a regression; records.compare sets them side by side."
                )
            path = records.folder() / own / f"{asked}.json"
        try:
            case = read_cases(path)[-1]
            if "rows" not in case:
                raise ValueError(f"{path} holds a file instead of rows: nothing in it can be measured again.")
            provenance = records.Provenance(**case["provenance"])
        except (ValueError, TypeError) as error:
            raise UsageError(str(error)) from error
        return cls(
            asked,
            provenance,
            case.get("suite", asked),
            case["rows"],
            case.get("kernels", ()),
            case.get("texts", {}),
        )


def bench(
    file: Path | None,
    *,
    only: Mapping[str, Sequence[Any]],
    save: Path | None,
    baseline: str | None,
    least: float,
    budget_s: float,
    say: Say = print,
) -> int:
    """Measure, save, compare. Returns the exit status: 0, 1 for a regression.

    Args:
        file: a Python file whose `cases()` yields what to measure; None for the league, or the record's own.
        only: of each parameter the values to keep.
        save: the JSON file to write.
        baseline: the record to measure again and compare with, a name or a path; only its points are measured.
        least: the smallest change that counts, as a share.
        budget_s: seconds of timing a point.
        say: prints a line.

    Raises:
        UsageError: nothing can be measured, or nothing compared; exit status 2.
    """
    record = Record.read(baseline) if baseline else None
    suite = suites.find(str(file) if file else record.suite if record else suites.LEAGUE)
    then = [m for m in suite.read(record.rows, record.kernels) if _chosen(m.point, only)] if record else []
    if record and not then:
        raise UsageError(f"{record.name} has no point with {_words(only)}.")
    if save:
        _require_ours(save, suite)
    try:
        device.require("gpu")
    except device.Missing as missing:
        raise UsageError(str(missing)) from missing
    here = device.gpu_spec().name
    if record and record.provenance.gpu["name"] != here:
        raise UsageError(
            f"{record.name} was measured on {record.provenance.gpu['name']}, and this machine has {here}: times of different "
            "GPUs do not show a regression; measure it again here and --save it."
        )
    rows, kept, findings = _measure(suite, then, record, only, least, budget_s, say)
    if not rows:
        raise UsageError(
            f"Nothing to measure: {suite.name} has no point {f'with {_words(only)}' if only else 'in common'}."
        )
    also = suites.kept_with(suite.name, kept)
    sources = suites.sources_of(also["kernels"]) or suites.today(suite)
    now = dataclasses.replace(live_provenance(), sources=sources)
    if save:
        case = {
            "params": {},
            "provenance": dataclasses.asdict(now),
            "rows": rows,
            "columns": list(dict.fromkeys(column for row in rows for column in row)),
            **also,
        }
        outputs.replace(save, as_text(f"bench/{save.stem}", [case]))
        say(f"Saved: {save}")
    if record is None:
        return 0
    recompile = functools.partial(_recompile, record)
    report = against.Report(record.name, suite.reference, record.provenance, now, findings, recompile)
    say(str(report))
    if report.exit_status == 2:
        raise UsageError(
            f"No point of {record.name} has a time both in the record and here: nothing was compared."
        )
    return report.exit_status


@dataclass(frozen=True)
class _Once:
    """One measurement of a point."""

    rows: list[dict]
    compiled: list[dict]
    now: suites.Measured
    finding: against.Finding | None


def _measure(
    suite: suites.Suite,
    then: Sequence[suites.Measured],
    record: Record | None,
    only: Mapping[str, Sequence[Any]],
    least: float,
    budget_s: float,
    say: Say,
) -> tuple[list[dict], list[tuple[suites.Task, list[dict]]], list[against.Finding]]:
    """Measure the suite's points, or those of `then`, one after the other.

    A point that looks slower is measured once more, and the milder of the two counts: what does not repeat is no regression.
    """
    wanted = {suites.key(m.point): m for m in then}
    same = record is not None and against.is_same_torch(record.provenance, live_provenance())

    def once(task: suites.Task, before: suites.Measured | None, function: Callable | None) -> _Once:
        rows, compiled = task.measure(function, budget_s)
        now = suite.read(rows, [{"point": task.point, "compiled": compiled}])[-1]
        rows = [row for row in rows if row.get("contestant") != measure.THEN]
        if before is None:
            return _Once(rows, compiled, now, None)
        finding = against.compare(before, now, n_points=len(then), least=least, same_torch=same)
        return _Once(rows, compiled, now, finding)

    made: list[tuple[suites.Task, _Once]] = []
    for task in suite.tasks():
        before = wanted.pop(suites.key(task.point), None)
        if (record and before is None) or not _chosen(task.point, only):
            continue
        edited = before is not None and {**record.texts, **texts.texts_of(task.entry)} != record.texts
        function = texts.function_at(_loaded(record), before.entry) if edited else None
        found = once(task, before, function)
        if found.finding and found.finding.verdict == "slower":
            found = min(found, once(task, before, function), key=lambda o: o.finding.worst)
        made.append((task, found))
        measure.free_memory()
        say(_line(found.now, suite.reference, found.finding))
    if wanted:
        say(f"{len(wanted)} points of {record.name} are not measured: {suite.name} has them no more.")
    rows = [row for _, found in made for row in found.rows]
    findings = [found.finding for _, found in made if found.finding]
    return rows, [(task, found.compiled) for task, found in made], findings


def _line(now: suites.Measured, reference: str, finding: against.Finding | None) -> str:
    words = ", ".join(f"{k} {v}" for k, v in now.point.items() if v is not None)
    if now.us is None:
        return f"{words}: not timed: {now.note}"
    text = f"{words}: {now.us.value:,.2f} µs, {now.ratio} {reference}"
    return f"{text}; {finding.verdict}" if finding else text


def _chosen(point: Mapping[str, Any], only: Mapping[str, Sequence[Any]]) -> bool:
    """Whether the point has one of the values of each parameter; a record may hold 4096 as 4096.0."""

    def text(value: Any) -> str:
        return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)

    return all(name in point and text(point[name]) in map(text, values) for name, values in only.items())


def _words(only: Mapping[str, Sequence[Any]]) -> str:
    return (
        " and ".join(f"{name}={','.join(map(str, values))}" for name, values in only.items())
        or "anything to measure"
    )


def _require_ours(path: Path, suite: suites.Suite) -> None:
    """Refuse to save a sweep, whose records lessons draw, and to write over a file that is none of these."""
    if suite.read is not suites.read_rows:
        raise UsageError(
            f"--save keeps the league's points and your own; {suite.name} is kept by `make record`."
        )
    if path.suffix != ".json" or not path.resolve().parent.is_dir():
        raise UsageError(f"--save {path} must name a .json file in a folder that is there.")
    if path.exists():
        try:
            ours = "suite" in read_cases(path)[-1]
        except ValueError:
            ours = False
        if not ours:
            raise UsageError(
                f"--save {path} would write over a file that `workbook bench` did not write; name another."
            )


@functools.lru_cache(maxsize=1)
def _load(items: tuple[tuple[str, str], ...]) -> Mapping[str, Any]:
    try:
        return texts.load(dict(items))
    except (
        Exception
    ):  # an old text may need what a new release no longer has: then it cannot be run, and is not
        return {}


def _loaded(record: Record) -> Mapping[str, Any]:
    return _load(tuple(sorted(record.texts.items())))


def _recompile(record: Record, kernel: Mapping[str, Any]) -> dict[str, int] | None:
    """The recorded text of a kernel by today's compiler."""
    for module in _loaded(record).values():
        found = getattr(module, kernel["kernel"], None)
        if found is not None and "request" in kernel:
            return compiled.compile_again(found, kernel)
    return None

"""Run `workbook bench`: measure points on this GPU, save them, and compare them with an earlier run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import device, records
from helpers.records.files import as_text, read_cases
from helpers.records.origin import live_provenance
from workbook import outputs
from workbook.bench import comparison, measure, points
from workbook.options import BenchOptions
from workbook.usage import UsageError

_LEAGUE_RECORD = "fusion/league"
Say = Callable[[str], None]


@dataclass(frozen=True)
class EarlierRun:
    """A file that `--save` wrote, or the record fusion/league.

    Attributes:
        name: what the user called it.
        suite: what was measured: "league", or the path of a Python file.
        provenance: where the results come from.
        results: one for each point.
    """

    name: str
    suite: str
    provenance: records.Provenance
    results: Sequence[points.PointResult]

    @classmethod
    def read(cls, name: str) -> EarlierRun:
        """Read an earlier run.

        Raises:
            UsageError: there is no such run, or the file is damaged or something else.
        """
        path = _path_of_league() if name == _LEAGUE_RECORD else Path(name)
        if not path.is_file():
            raise UsageError(
                f"There is no file {path}. Write one with `workbook bench --save {path}`, or compare with "
                f"{_LEAGUE_RECORD}."
            )
        try:
            case = read_cases(path)[-1]
            suite = points.LEAGUE if name == _LEAGUE_RECORD else case["suite"]
            provenance = records.Provenance(**case["provenance"])
            results = points.read_rows(case["rows"], case.get("kernels", ()))
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} was not written by `workbook bench --save`, or is damaged.") from error
        return cls(name, suite, provenance, results)


def _path_of_league() -> Path:
    """The record of this machine's GPU."""
    gpu = records.gpu_folder_name(device.gpu_spec().name)
    return records.folder() / gpu / f"{_LEAGUE_RECORD}.json"


@dataclass(frozen=True)
class _Measurement:
    """The new rows of one point, and its comparison with the earlier run, if there is one."""

    rows: list[dict]
    kernels: dict[str, Any]
    compared: comparison.PointComparison | None


def bench(options: BenchOptions, only: Mapping[str, Sequence[Any]], say: Say = print) -> int:
    """Measure, save and compare.

    Args:
        options: the command's options.
        only: the values of `options.only`, by name: only points with one of them are measured.
        say: prints a line.

    Returns:
        The exit status: 1 if a point is slower or fails, otherwise 0.

    Raises:
        UsageError: nothing can be measured or compared.
    """
    try:
        device.require("gpu")
    except device.Missing as missing:
        raise UsageError(str(missing)) from missing
    before = EarlierRun.read(options.against) if options.against else None
    if before:
        _require_same_gpu(before)
    if options.save:
        _require_replaceable(options.save)
    suite = str(options.file) if options.file else before.suite if before else points.LEAGUE
    measured = _measure(points.tasks(suite), before, options, only, say)
    if not measured:
        raise UsageError(
            f"Nothing was measured: {suite} has no point with {_in_words(only) or 'the same values'}"
            f"{f' that {before.name} has as well' if before else ''}."
        )
    now = dataclasses.replace(live_provenance(), sources=_sources(measured))
    if options.save:
        _save(options.save, suite, now, measured)
        say(f"Saved {options.save}.")
    if before is None:
        return 0
    report = comparison.Report(before.name, before.provenance, now, [one.compared for one in measured])
    say(str(report))
    if report.exit_status == 2:
        raise UsageError(f"Nothing was compared: {before.name} has no time for any of these points.")
    return report.exit_status


def _require_same_gpu(before: EarlierRun) -> None:
    """Refuse to compare the times of two different GPUs."""
    gpu = device.gpu_spec().name
    if before.provenance.gpu["name"] != gpu:
        raise UsageError(
            f"{before.name} was measured on {before.provenance.gpu['name']}, but this machine has {gpu}. "
            "Times of different GPUs don't show a regression; measure on this GPU with --save first."
        )


def _measure(
    tasks: Iterable[points.Task],
    before: EarlierRun | None,
    options: BenchOptions,
    only: Mapping[str, Sequence[Any]],
    say: Say,
) -> list[_Measurement]:
    """Measure the chosen points that the earlier run has as well.

    A point that looks slower is measured again, and the smaller change counts, because a change that does
    not repeat is not a regression.
    """
    earlier = {points.key(r.point): r for r in before.results if _chosen(r.point, only)} if before else {}
    compare = _comparer(before, options, len(earlier))
    measured = []
    for task in tasks:
        result = earlier.pop(points.key(task.point), None)
        if not _chosen(task.point, only) or (before and result is None):
            continue
        one = _measure_once(task, result, options.seconds, compare)
        if one.compared and one.compared.verdict == "slower":
            again = _measure_once(task, result, options.seconds, compare)
            one = min(one, again, key=_slowdown)
        measured.append(one)
        measure.free_memory()
        say(_progress(one))
    if earlier:
        say(f"{len(earlier)} points of {before.name} no longer exist and were not measured.")
    return measured


def _comparer(before: EarlierRun | None, options: BenchOptions, n_points: int) -> Callable:
    """A function that compares two results of one point, as this run's options ask."""
    same_torch = before is not None and comparison.is_same_torch(before.provenance, live_provenance())

    def compare(earlier: points.PointResult, now: points.PointResult) -> comparison.PointComparison:
        return comparison.compare(
            earlier, now, n_points=n_points, least=options.least / 100, same_torch=same_torch
        )

    return compare


def _measure_once(
    task: points.Task, earlier: points.PointResult | None, budget_s: float, compare: Callable
) -> _Measurement:
    rows, compiled = task.measure(budget_s)
    kernels = {"point": dict(task.point), "compiled": compiled}
    (now,) = points.read_rows(rows, [kernels])
    return _Measurement(rows, kernels, compare(earlier, now) if earlier else None)


def _slowdown(one: _Measurement) -> float:
    """The measured slowdown; infinite if the point fails now."""
    return one.compared.change.ratio.value if one.compared.change else float("inf")


def _progress(one: _Measurement) -> str:
    """One line about a point that was just measured."""
    (now,) = points.read_rows(one.rows)
    name = ", ".join(f"{key} {value}" for key, value in now.point.items())
    if now.us is None:
        return f"{name}: not timed: {now.note}"
    text = f"{name}: {now.us.value:,.2f} µs, {now.ratio} the copy's time"
    return f"{text}; {one.compared.verdict}" if one.compared else text


def _chosen(point: Mapping[str, Any], only: Mapping[str, Sequence[Any]]) -> bool:
    """Whether the point has one of the wanted values of each parameter."""
    return all(name in point and str(point[name]) in map(str, values) for name, values in only.items())


def _in_words(only: Mapping[str, Sequence[Any]]) -> str:
    return " and ".join(f"{name}={','.join(map(str, values))}" for name, values in only.items())


def _sources(measured: Sequence[_Measurement]) -> dict[str, str]:
    """The hash of each Triton kernel that was measured, by name."""
    return {made["kernel"]: made["sha256"] for one in measured for made in one.kernels["compiled"]}


def _save(path: Path, suite: str, now: records.Provenance, measured: Sequence[_Measurement]) -> None:
    rows = [row for one in measured for row in one.rows]
    case = {
        "params": {},
        "provenance": dataclasses.asdict(now),
        "rows": rows,
        "columns": list(dict.fromkeys(column for row in rows for column in row)),
        "suite": suite,
        "kernels": [one.kernels for one in measured],
    }
    outputs.replace(path, as_text(f"bench/{path.stem}", [case]))


def _require_replaceable(path: Path) -> None:
    """Refuse to overwrite a file that `--save` did not write."""
    if path.suffix != ".json" or not path.resolve().parent.is_dir():
        raise UsageError(f"--save {path} must be the name of a .json file in an existing folder.")
    if path.exists():
        try:
            written_by_bench = "suite" in read_cases(path)[-1]
        except ValueError:
            written_by_bench = False
        if not written_by_bench:
            raise UsageError(f"--save {path} would overwrite a file that `workbook bench` did not write.")

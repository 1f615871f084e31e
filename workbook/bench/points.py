"""The points that can be measured, and the rows of a run read back as one result for each point."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from helpers.timing.changes import Estimate
from workbook.bench import contestants
from workbook.bench.cases import Case
from workbook.bench.measure import BrokenGpu
from workbook.bench.table import COPY, OURS, RESULTS
from workbook.usage import UsageError, first_line

LEAGUE = "league"
_NAMES = (COPY, "eager", "compile", OURS)


@dataclass(frozen=True)
class Task:
    """A point to measure.

    Attributes:
        point: the values that identify it.
        measure: `measure(budget_s)` returns the point's rows and the descriptions of its kernels.
    """

    point: Mapping[str, Any]
    measure: Callable[[float], tuple[list[dict], list[dict]]]


@dataclass(frozen=True)
class PointResult:
    """The result of one point in one run.

    Attributes:
        point: the values that identify it.
        us: the time of "ours" in µs; None if it was not timed, and then `note` gives the reason.
        ratio: its time divided by the copy's.
        peers: the same ratio for each other function.
        compiled: a description of each Triton kernel, see `compiled.describe_kernels`.
    """

    point: Mapping[str, Any]
    us: Estimate | None
    ratio: Estimate | None
    note: str = ""
    peers: Mapping[str, Estimate] = field(default_factory=dict)
    compiled: Sequence[Mapping[str, Any]] = ()


def tasks(suite: str) -> Iterator[Task]:
    """The points of a suite: "league", or the path of a Python file with `cases()`.

    Raises:
        UsageError: there is no such file, or it fails, or it yields something else than cases.
    """
    return _tasks_of_league() if suite == LEAGUE else _tasks_of_file(Path(suite))


def _tasks_of_league() -> Iterator[Task]:
    for point in contestants.all_points():
        yield Task(asdict(point), functools.partial(contestants.run_point, point, _NAMES))


def _tasks_of_file(path: Path) -> Iterator[Task]:
    if not path.is_file():
        raise UsageError(f"There is no file {path}; name a Python file with a function cases().")
    folder = str(path.parent.resolve())
    sys.path.insert(0, folder)
    try:
        for case in _load(path).cases():
            if not isinstance(case, Case):
                raise UsageError(f"{path}: cases() yielded a {type(case).__name__} instead of a Case.")
            yield Task(dict(case.point), case.measure)
    except (UsageError, BrokenGpu):
        raise
    except Exception as error:
        raise UsageError(f"{path} failed: {type(error).__name__}: {first_line(error)}") from error
    finally:
        sys.path.remove(folder)


def _load(path: Path) -> Any:
    """Import a Python file that has a function `cases`."""
    spec = importlib.util.spec_from_file_location(f"bench_{path.stem}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "cases"):
        raise UsageError(
            f"{path} has no function cases(); write one that yields workbook.bench.Case objects."
        )
    return module


def key(point: Mapping[str, Any]) -> frozenset:
    """Identify a point independently of the order of its values."""
    return frozenset(point.items())


def read_rows(rows: Iterable[Mapping], kernels: Iterable[Mapping] = ()) -> list[PointResult]:
    """Read the rows of a run.

    Args:
        rows: rows as `table.rows_of` makes them.
        kernels: for each point the descriptions of its kernels: {"point": …, "compiled": […]}.

    Returns:
        One result for each point. Times are relative to the copy's in the same run: the copy's row has its
        time relative to ours, so our ratio is the inverse of that.
    """
    points: dict[frozenset, tuple[dict, dict]] = {}
    for row in rows:
        point = {name: value for name, value in row.items() if name not in RESULTS}
        points.setdefault(key(point), (point, {}))[1][row["contestant"]] = row
    compiled = {key(one["point"]): one["compiled"] for one in kernels}
    return [_result(point, by_name, compiled.get(at, ())) for at, (point, by_name) in points.items()]


def _result(
    point: Mapping[str, Any], by_name: Mapping[str, Mapping], compiled: Sequence[Mapping]
) -> PointResult:
    ours, copy = by_name.get(OURS, {}), by_name.get(COPY, {})
    if not (ours.get("median_us") and copy.get("median_us")):
        note = ours.get("note") or copy.get("note") or "the kernel or the copy was not timed"
        return PointResult(point, None, None, note, compiled=compiled)
    over_copy = _over_ours(copy).inverse()
    peers = {
        name: _over_ours(row).over(_over_ours(copy))
        for name, row in by_name.items()
        if row.get("median_us") and name not in (OURS, COPY)
    }
    us = Estimate(ours["median_us"], ours["ci95_low_us"], ours["ci95_high_us"])
    return PointResult(point, us, over_copy, peers=peers, compiled=compiled)


def _over_ours(row: Mapping[str, Any]) -> Estimate:
    return Estimate(row["ours_ratio"], row["ratio_low"], row["ratio_high"])

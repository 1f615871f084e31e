"""What can be measured again: the league, the sweeps behind the sliders, and a file of yours; and how each is recorded."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from helpers import records
from helpers.timing import league as table
from helpers.timing.changes import Estimate
from helpers.workshop.bench import league, measure, texts
from helpers.workshop.usage import UsageError, first_line

LEAGUE = "league"
_PEERS = ("eager", "compile")
_FACTS = ("registers", "spill_bytes", "shared_bytes", "loads", "load_bytes")


@dataclass(frozen=True)
class Task:
    """One point that can be measured here.

    Attributes:
        point: what says which it is.
        measure: `measure(then, budget_s)` gives the point's rows and its kernels as they were compiled; `then` is the
            entry's recorded text as a function, or None.
        entry: the function whose module's text is kept with the record; None where none is.
    """

    point: Mapping[str, Any]
    measure: Callable[[Callable | None, float], tuple[list[dict], list[dict]]]
    entry: Callable | None = None


@dataclass(frozen=True)
class Measured:
    """One point as it came out in one run.

    Attributes:
        point: what says which it is.
        us: the time of the kernel under watch, in µs; None where it was not timed, and `note` says why.
        ratio: its time over the reference's in that run.
        over_then: its time over its recorded text's, timed in turns in that run.
        peers: the other functions' times over the reference's.
        compiled: of each kernel its name, its text's hash and its counts.
        entry: the function whose text is in the record, as "module:name".
    """

    point: Mapping[str, Any]
    us: Estimate | None
    ratio: Estimate | None
    note: str = ""
    over_then: Estimate | None = None
    peers: Mapping[str, Estimate] | None = None
    compiled: Sequence[Mapping[str, Any]] = ()
    entry: str = ""


@dataclass(frozen=True)
class Suite:
    """Points that belong together.

    Attributes:
        name: as a record keeps it: "league", a sweep's record, or the path of a file.
        reference: what times are compared over.
        tasks: gives the points; on a GPU only, for a file of yours.
        read: turns rows and kernels, of a record or of a run, into what was measured.
    """

    name: str
    reference: str
    tasks: Callable[[], Iterator[Task]]
    read: Callable[[Iterable[Mapping], Iterable[Mapping]], list[Measured]]


def key(point: Mapping[str, Any]) -> frozenset:
    """What tells a point from others, whatever the order and whether a number was kept as 64 or 64.0."""
    return frozenset((k, v) for k, v in point.items() if v is not None and v == v)


def find(name: str) -> Suite:
    """The suite of a record or a file.

    Raises:
        UsageError: nothing of that name can be measured again, or no such file.
    """
    from helpers.widgets import softmax, square

    sweeps = {space.record: space for space in (*square.SPACES.values(), softmax.SPACE)}
    if name in (LEAGUE, "fusion/league"):
        return Suite(LEAGUE, "PyTorch's copy", lambda: map(league_task, league.all_points()), read_rows)
    if name in sweeps:
        return sweep(sweeps[name])
    if name.endswith(".py"):
        return Suite(name, "PyTorch's copy", functools.partial(_tasks_of_file, Path(name)), read_rows)
    known = ", ".join(["fusion/league", *sweeps])
    raise UsageError(
        f"{name!r} holds no points that can be measured again; these do: {known}, and what `workbook bench --save` wrote."
    )


def league_task(point: league.Point) -> Task:
    """A point of the league, with the copy, eager and torch.compile beside ours."""
    names = [table.COPY, *_PEERS, table.OURS]
    run = lambda then, budget_s: league.run_point(point, names, set(), budget_s, then=then)  # noqa: E731
    return Task(asdict(point), run, league.entry_of_op(point.op))


def _tasks_of_file(path: Path) -> Iterator[Task]:
    if not path.is_file():
        raise UsageError(
            f"There is no file {path}: name the Python file whose cases() yields what to measure."
        )
    spec = importlib.util.spec_from_file_location(f"bench_{path.stem}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
        cases = getattr(module, "cases", None)
        if cases is None:
            raise UsageError(
                f"{path} has no function cases(): let it yield a helpers.workshop.bench.Case a point."
            )
        for case in cases():
            if not isinstance(case, measure.Case):
                raise UsageError(f"{path}: cases() yielded a {type(case).__name__} instead of a Case.")
            yield Task(dict(case.point), case.measure, case.kernel)
    except (UsageError, measure.BrokenGpu):
        raise
    except Exception as error:
        raise UsageError(f"{path} failed: {type(error).__name__}: {first_line(error)}") from error
    finally:
        sys.path.remove(str(path.parent.resolve()))


def read_rows(rows: Iterable[Mapping], kernels: Iterable[Mapping]) -> list[Measured]:
    """What rows with the league's result columns say, over the copy of the same run.

    The copy's own row has its time over ours, from the same rounds: the ratio is the inverse of that. A peer's is made of
    two such ratios.
    """
    points: dict[frozenset, tuple[dict, dict]] = {}
    for row in rows:
        point = {k: v for k, v in row.items() if k not in table.RESULTS}
        points.setdefault(key(point), (point, {}))[1][row["contestant"]] = row
    kept = {key(k["point"]): k for k in kernels}
    found = []
    for at, (point, by) in points.items():
        ours, copy = by.get(table.OURS, {}), by.get(table.COPY, {})
        more = kept.get(at, {})
        common = {"compiled": more.get("compiled", ()), "entry": more.get("entry", "")}
        if not (ours.get("median_us") and copy.get("median_us")):
            note = ours.get("note") or (
                copy.get("note") or "the copy was not timed" if ours else "it was not asked for"
            )
            found.append(Measured(point, None, None, note, **common))
            continue
        ratio = _over_ours(copy).inverse()
        peers = {
            name: _over_ours(row).over(_over_ours(copy))
            for name, row in by.items()
            if row.get("median_us") and name not in (table.OURS, table.COPY, measure.THEN)
        }
        then = by.get(measure.THEN, {})
        over_then = _over_ours(then).inverse() if then.get("median_us") else None
        us = Estimate(ours["median_us"], ours["ci95_low_us"], ours["ci95_high_us"])
        found.append(Measured(point, us, ratio, then.get("note", ""), over_then, peers, **common))
    return found


def _over_ours(row: Mapping[str, Any]) -> Estimate:
    return Estimate(row["ours_ratio"], row["ratio_low"], row["ratio_high"])


def sweep(space: Any) -> Suite:
    """A sweep behind sliders (`helpers.widgets.space.Space`), over torch's own function at the same size and dtype.

    Its rows were timed one after the other, so within a run too the two are independent.
    """
    from helpers.widgets.measure import measure as measure_row
    from helpers.widgets.space import COMPILED

    reference = next(k for k in (*space.mapped, *space.rivals) if k.startswith("torch.") and k != COMPILED)
    ruled = space.axes if reference in space.mapped else ("n_cols", "dtype")

    def tasks() -> Iterator[Task]:
        seen: dict[tuple, dict] = {}

        def run(kernel: str, point: dict, then: Callable | None, budget_s: float) -> tuple[list, list]:
            at = tuple(point[axis] for axis in ruled)
            if at not in seen:
                seen[at] = measure_row(space, reference, point, budget_s=budget_s)
            return [seen[at], measure_row(space, kernel, point, budget_s=budget_s)], []

        for kernel, point in space.points():
            if kernel not in (reference, COMPILED):
                yield Task({"kernel": kernel, **point}, functools.partial(run, kernel, point))

    def read(rows: Iterable[Mapping], kernels: Iterable[Mapping]) -> list[Measured]:
        rows = list(rows)
        base = {tuple(r[axis] for axis in ruled): _time(r) for r in rows if r["kernel"] == reference}
        found = []
        for row in rows:
            if row["kernel"] in (reference, COMPILED):
                continue
            point, us = {"kernel": row["kernel"], **{axis: row[axis] for axis in space.axes}}, _time(row)
            over = base.get(tuple(row[axis] for axis in ruled))
            ratio = us.over(over) if us and over else None
            counts = {
                fact: int(row[fact])
                for fact in _FACTS
                if row.get(fact) is not None and row[fact] == row[fact]
            }
            made = [{"kernel": row["kernel"], "counts": counts}] if counts else []
            found.append(Measured(point, us if over else None, ratio, row.get("reason") or "", compiled=made))
        return found

    return Suite(space.record, reference, tasks, read)


def _time(row: Mapping[str, Any]) -> Estimate | None:
    if row.get("verdict") != "ok":
        return None
    return Estimate(row["median_us"], row["ci_low_us"], row["ci_high_us"])


def kept_with(suite: str, measured: Iterable[tuple[Task, list[dict]]]) -> dict[str, Any]:
    """What a record keeps beside its rows: the suite, each point's kernels as compiled, and the texts they came from."""
    kernels, kept = [], {}
    for task, compiled in measured:
        own = texts.texts_of(task.entry)
        kept |= own
        entry = texts.entry_of(task.entry) if own else ""
        kernels.append({"point": dict(task.point), "entry": entry, "compiled": compiled})
    return {"suite": suite, "kernels": kernels, "texts": kept}


def sources_of(kernels: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Kernel name to its text's sha256, from what `kept_with` gives."""
    return {made["kernel"]: made["sha256"] for k in kernels for made in k["compiled"] if "sha256" in made}


def today(suite: Suite) -> dict[str, str]:
    """The hashes of the kernels that a sweep measures, as its record names them; empty for other suites."""
    from helpers.widgets import softmax, square

    for space in (*square.SPACES.values(), softmax.SPACE):
        if space.record == suite.name:
            return dict(records.fingerprint(source) for source in space.sources())
    return {}

"""Measure here and store the result, or replay a stored one: a single decision for tables and files."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from helpers import atomic, capabilities, device
from helpers.records.files import write_case
from helpers.records.fingerprints import UNNAMED, fingerprint
from helpers.records.origin import Provenance, live_provenance, show
from helpers.records.sets import NoRecord, folder, gpu_folder_name, replay_order

if TYPE_CHECKING:
    import pandas as pd


class CannotMeasure(RuntimeError):
    """This machine has a GPU but cannot make a measurement (no tool, no permission); replay the record."""


class KernelChanged(NoRecord):
    """The records measured another version of a kernel. A notebook shows this message instead of a
    traceback.

    Attributes:
        kernels: the names of the kernels that have changed.
    """

    def __init__(self, kernels: Iterable[str], why: str = ""):
        self.kernels = tuple(sorted(kernels))
        names = ["The source measured here" if name == UNNAMED else name for name in self.kernels]
        end = "" if why else "; on a GPU your version would be measured"
        super().__init__(
            f"{why}{' and '.join(names)} {'has' if len(names) == 1 else 'have'} changed since the recording, "
            f"so the recorded figures do not apply{end}."
        )

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def measured(
    name: str,
    live: Callable[[], pd.DataFrame | Iterable[Mapping[str, Any]]],
    *,
    sources: Iterable = (),
    params: Mapping[str, Any] | None = None,
    also: Mapping[str, Any] | None = None,
    stand_in: str = "",
    optional: bool = False,
) -> pd.DataFrame:
    """Measure on this GPU, or replay what was recorded on another one, and display where the result comes
    from.

    Args:
        name: the record, "lesson/what".
        live: called only if there is a GPU; returns a DataFrame or a list of dicts of plain values. It may
            raise `CannotMeasure`.
        sources: the measured kernels (Triton kernels, functions, source texts). The record stores their
            hashes, and only a record of exactly these sources is replayed.
        params: what the measurement depends on (sizes, dtype). A replay uses the nearest recorded case and
            names it.
        also: plain data to store with the rows, for tools that read the record's file.
        stand_in: for a lab that times the learner's code, whose hash would never match: what was recorded
            instead, such as "the solution's kernel". A replay states this.
        optional: without a GPU and a record, display a sentence and return a table without rows. The cells
            below must not need rows.

    Returns:
        A DataFrame whose `.attrs["provenance"]` is a `Provenance`.

    Raises:
        NoRecord: there is no GPU here and no record of that name, and it isn't optional.
        KernelChanged: there is no GPU here, and the record is of other versions of `sources`.
        ValueError: the name is not of the form "lesson/what".

    Example:
        >>> from helpers import records
        >>> rows = records.measured("profiling/three-timers", lambda: [])
        Replayed, not measured here: ...
        >>> rows.attrs["provenance"].gpu["warp_size"]
        32
    """
    request = replace(_Request.of(name, sources, params), stand_in=stand_in)

    def replayed(why: str) -> pd.DataFrame:
        try:
            return _replayed_table(request, why)
        except KernelChanged:
            raise
        except NoRecord:
            if not optional:
                raise
            print(f"{why}Not measured yet on this course's GPUs; run this cell on one.")
            return _frame([])

    return _live_or_replayed(name, lambda: _live_table(request, live, also or {}), replayed)


def measured_file(
    name: str,
    live: Callable[[Path], object],
    suffix: str,
    *,
    sources: Iterable = (),
    params: Mapping[str, Any] | None = None,
) -> Path:
    """Like `measured`, for a result that is a file: a report, a trace, generated code.

    Args:
        name: the record, "lesson/what".
        live: called only if there is a GPU, with the path of the file to write. It may raise
            `CannotMeasure`.
        suffix: how the file's name ends, such as ".ncu-rep".
        sources: as in `measured`.
        params: as in `measured`.

    Returns:
        The file's path.

    Raises:
        NoRecord: there is no GPU here and no record of that name.
        KernelChanged: as in `measured`.
        RuntimeError: `live` wrote no file.
        ValueError: the name is not of the form "lesson/what".
    """
    request = _Request.of(name, sources, params)
    return _live_or_replayed(
        name, lambda: _live_file(request, live, suffix), lambda why: _replayed_file(request, why)
    )


def stored(name: str, *, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Read what was recorded earlier, even if there is a GPU: for measurements that take too long for a
    lesson.

    Args:
        name: the record, "lesson/what".
        params: as in `measured`.

    Returns:
        A DataFrame: this GPU's own record if it has one, otherwise the replayed GPU's. Its origin is
            displayed.

    Raises:
        NoRecord: there is no record of that name.

    Example:
        >>> from helpers import records
        >>> rows = records.stored("profiling/bandwidths", params={"n_rows": 10_000, "n_cols": 10_000})
        Too long for a lesson. Replayed, not measured here: ...
        >>> list(rows.columns[:2])
        ['operation', 'median_us']
    """
    own_gpu = gpu_folder_name(device.gpu_spec().name) if device.has_gpu() else None
    return _replayed_table(_Request(name, {}, dict(params or {})), "Too long for a lesson. ", own_gpu)


def stored_by_gpu(name: str, *, sources: Iterable = ()) -> dict[str, pd.DataFrame]:
    """A record of every GPU that measured these sources, by the name of the set, in the order of replay.

    Nothing is displayed: the caller must state where the rows come from, using `.attrs["provenance"]`.

    Args:
        name: the record, "lesson/what", with one case.
        sources: as in `measured`.

    Example:
        >>> from helpers import records
        >>> sorted(records.stored_by_gpu("profiling/bandwidths"))
        ['h100', 'h200']
    """
    import pandas as pd

    request, found = _Request.of(name, sources, None), {}
    for gpu in replay_order():
        path = gpu / f"{name}.json"
        try:
            text = path.read_text() if path.is_file() else ""
        except PermissionError:  # the grader hides it while it runs a lab
            continue
        if text and (case := json.loads(text)["cases"][0]):
            provenance = Provenance(**case["provenance"])
            if all(provenance.sources.get(kernel) == sha for kernel, sha in request.hashes.items()):
                found[gpu.name] = pd.DataFrame(case["rows"], columns=case["columns"])
                found[gpu.name].attrs["provenance"] = provenance
    return found


@dataclass(frozen=True)
class _Request:
    """The record that a lesson asks for: name, hashes of the kernels, parameters, and what stands in."""

    name: str
    hashes: dict[str, str]
    params: dict[str, Any]
    stand_in: str = ""

    @classmethod
    def of(cls, name: str, sources: Iterable, params: Mapping[str, Any] | None) -> _Request:
        if not re.fullmatch(r"[a-z0-9_]+(/[a-z0-9._-]+)+", name):
            raise ValueError(f'A record is named "lesson/what" in lowercase, not {name!r}.')
        return cls(name, dict(fingerprint(s) for s in sources), dict(params or {}))


_Result = TypeVar("_Result")


def _live_or_replayed(name: str, live: Callable[[], _Result], replayed: Callable[[str], _Result]) -> _Result:
    """`live()` if there is a GPU; `replayed(why)` if there is none, or if it cannot measure this."""
    decision = capabilities.decide(name)
    if decision.action != capabilities.RUN:
        return replayed(f"{decision.why} " if decision.why else "")
    try:
        return live()
    except CannotMeasure as why:
        return replayed(f"{why} ")


def _live_table(request: _Request, live: Callable, also: Mapping[str, Any]) -> pd.DataFrame:
    provenance = _provenance_of(request)
    frame = _frame(live())
    rows = json.loads(frame.to_json(orient="records", double_precision=15))
    _store(request, provenance, {"rows": rows, "columns": list(frame.columns), **also})
    frame.attrs["provenance"] = provenance
    return frame


def _live_file(request: _Request, live: Callable[[Path], object], suffix: str) -> Path:
    provenance = _provenance_of(request)
    base = _live_base(request, provenance)
    target = base.with_name(f"{base.name}{_case_suffix(request.params)}{suffix}")
    with atomic.atomic_write(target) as file:
        live(file)
        if not file.is_file():
            raise RuntimeError(f"Record {request.name!r}: the measurement wrote no file {file.name}.")
        if _recording():
            _hide_checkout_path(file)
    _store(request, provenance, {"file": target.name})
    return target


def _hide_checkout_path(path: Path) -> None:
    """Replace this checkout's path, which ncu's reports contain, by a neutral one of the same length."""
    here = os.fsencode(Path(__file__).resolve().parents[2])
    neutral = b"/notebooks".ljust(len(here), b"_")[: len(here)]
    content = path.read_bytes()
    if here + b"/" in content:
        path.write_bytes(content.replace(here + b"/", neutral + b"/"))


def _provenance_of(request: _Request) -> Provenance:
    return replace(live_provenance(), sources=request.hashes)


def _recording() -> bool:
    return os.environ.get("WORKBOOK_RECORD") == "1"


def _live_base(request: _Request, provenance: Provenance) -> Path:
    """The path of a live result without its suffix: among the records, or in the cache if not recording."""
    where = folder() if _recording() else device.cache_folder() / "live"
    return where / gpu_folder_name(provenance.gpu["name"]) / request.name


def _store(request: _Request, provenance: Provenance, result: dict) -> None:
    """Store what was measured, if this run records, and display that it was measured here."""
    if _recording():
        base = _live_base(request, provenance)
        case = {"params": request.params, "provenance": asdict(provenance), **result}
        write_case(base.with_name(base.name + ".json"), request.name, case)
    show("live", request.name, f"Measured here: {provenance}.", provenance)


def _case_suffix(params: dict) -> str:
    """The part of a file record's name that distinguishes its cases; empty without parameters."""
    return "".join(f"-{re.sub(r'[^A-Za-z0-9.]+', '_', str(v))}" for _, v in sorted(params.items()))


def _frame(rows) -> pd.DataFrame:
    import pandas as pd

    return rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))


def _replayed_table(request: _Request, why: str, own_gpu: str | None = None) -> pd.DataFrame:
    import pandas as pd

    found = _recorded(request, why, own_gpu)
    frame = pd.DataFrame(found.case["rows"], columns=found.case["columns"])
    frame.attrs["provenance"] = _show_replayed(request, found, why)
    return frame


def _replayed_file(request: _Request, why: str) -> Path:
    found = _recorded(request, why)
    _show_replayed(request, found, why)
    return found.path.parent / found.case["file"]


@dataclass(frozen=True)
class _Found:
    """A record's file, its case with the nearest parameters, and why it is from another set, if it is."""

    path: Path
    case: dict
    fallback_note: str


def _recorded(request: _Request, why: str, own_gpu: str | None = None) -> _Found:
    """The record to replay: the first set's whose nearest case measured the requested sources.

    Args:
        request: the record.
        why: why it isn't measured here, a sentence and a space; "" if there is no GPU.
        own_gpu: the set of this machine's GPU, which is preferred to the replayed one.
    """
    order = sorted(replay_order(), key=lambda gpu: gpu.name != own_gpu)
    changed_in: dict[Path, list[str]] = {}
    for gpu in order:
        path = gpu / f"{request.name}.json"
        if not path.is_file():
            continue
        cases = json.loads(path.read_text())["cases"]
        case = min(cases, key=lambda c: _distance(request.params, c["params"]))
        changed = [n for n, h in request.hashes.items() if case["provenance"]["sources"].get(n) != h]
        if not changed:
            is_first_choice = own_gpu or gpu == order[0]
            return _Found(
                path, case, "" if is_first_choice else _fallback_note(order[0], changed_in.get(order[0]))
            )
        changed_in[gpu] = changed
    if changed_in:
        raise KernelChanged(next(iter(changed_in.values())), why)
    raise NoRecord(
        f"{why or 'There is no GPU here. '}There is no record of {request.name!r} in {folder()} either; "
        "run this lesson once on a GPU with WORKBOOK_RECORD=1 (make record)."
    )


def _fallback_note(gpu: Path, changed: list[str] | None) -> str:
    """Why a record isn't taken from the replayed set: it has none, or one of another kernel version."""
    if changed:
        return f" The records of {gpu.name} measured another version of {', '.join(sorted(changed))}."
    return f" Most records are of the {gpu.name.upper()}, but not this one."


def _show_replayed(request: _Request, found: _Found, why: str) -> Provenance:
    """Display where a replayed case comes from, and how it differs from what was requested."""
    case = found.case
    provenance = Provenance(**case["provenance"])
    text = f"{why}Replayed, not measured here: {provenance}.{found.fallback_note}"
    if request.stand_in:
        text += f" The figures are those of {request.stand_in}, not of yours."
    nearest = ""
    if case["params"] != request.params:
        wanted = ", ".join(f"{k}={v}" for k, v in request.params.items())
        nearest = ", ".join(f"{k}={v}" for k, v in case["params"].items())
        text += (
            f" {wanted or 'A case without parameters'} was never recorded; this is the nearest record, "
            f"{nearest}."
        )
    show("replayed", request.name, text, provenance, nearest=nearest)
    return provenance


def _distance(wanted: Mapping, recorded: Mapping) -> float:
    """How far apart two sets of parameters are: octaves for numbers, a large step for anything else."""
    total = 0.0
    for name in set(wanted) | set(recorded):
        a, b = wanted.get(name), recorded.get(name)
        if a == b:
            continue
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0 for v in (a, b))
        total += abs(math.log2(a / b)) if numbers else 1000.0
    return total

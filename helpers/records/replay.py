"""Measure here and keep the result, or replay what was kept: one decision for tables and files."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from helpers import device, whole
from helpers.records.files import write_case
from helpers.records.origin import UNNAMED, Provenance, fingerprint, live_provenance, show
from helpers.records.sets import NoRecord, folder, gpu_folder_name, replay_order

if TYPE_CHECKING:
    import pandas as pd


class CannotMeasure(RuntimeError):
    """A measurement cannot be made on this GPU machine (no tool, no permission): the record is shown instead."""


class KernelChanged(NoRecord):
    """What was recorded is of another text of a kernel. A notebook shows the sentence instead of a traceback.

    Attributes:
        kernels: the names of those that have changed.
    """

    def __init__(self, kernels: Iterable[str], why: str = ""):
        self.kernels = tuple(sorted(kernels))
        names = ["The text measured here" if name == UNNAMED else name for name in self.kernels]
        end = "so they are not shown" if why else "and a GPU measures yours"
        super().__init__(
            f"{why}{' and '.join(names)} {'has' if len(names) == 1 else 'have'} changed: "
            f"the recorded figures are of another text, {end}."
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
) -> pd.DataFrame:
    """Measure on this GPU, or replay what was recorded on another; say which, and show where it comes from.

    Args:
        name: the record, "lesson/what".
        live: called only where a GPU is; returns a DataFrame or a list of dicts of plain values. It may raise
            `CannotMeasure`.
        sources: the kernels measured (Triton kernels, functions, texts): their hashes go into the record, and only
            a record of these very texts is replayed.
        params: what the measurement depends on (sizes, dtype). A replay takes the nearest recorded case and
            names it.
        also: plain data to keep with the rows, for tools that read the record's file.
        stand_in: for a lab that times what the learner wrote, so that `sources` would never agree: what was recorded
            instead, such as "the solution's kernel". A replay says that its figures are of that.

    Returns:
        A DataFrame whose `.attrs["provenance"]` is a `Provenance`.

    Raises:
        NoRecord: no GPU here and nothing recorded under that name.
        KernelChanged: no GPU here, and what was recorded is of other texts of `sources`.
        ValueError: a name that is not "lesson/what".

    Example:
        >>> from helpers import records
        >>> rows = records.measured("profiling/three-timers", lambda: [])
        Replayed, not measured here: ...
        >>> rows.attrs["provenance"].gpu["warp_size"]
        32
    """
    asked = replace(_Asked.of(name, sources, params), stand_in=stand_in)
    return _live_or_replayed(
        lambda: _live_table(asked, live, also or {}), lambda why: _replayed_table(asked, why)
    )


def measured_file(
    name: str,
    live: Callable[[Path], object],
    suffix: str,
    *,
    sources: Iterable = (),
    params: Mapping[str, Any] | None = None,
) -> Path:
    """`measured` for a result that is a file: a report, a trace, generated code.

    Args:
        name: the record, "lesson/what".
        live: called only where a GPU is, with the path of the file that it has to write. It may raise
            `CannotMeasure`.
        suffix: how the file's name ends, such as ".ncu-rep".
        sources: as in `measured`.
        params: as in `measured`.

    Returns:
        The file's path.

    Raises:
        NoRecord: no GPU here and nothing recorded under that name.
        KernelChanged: as in `measured`.
        RuntimeError: `live` wrote no file.
        ValueError: a name that is not "lesson/what".
    """
    asked = _Asked.of(name, sources, params)
    return _live_or_replayed(lambda: _live_file(asked, live, suffix), lambda why: _replayed_file(asked, why))


def stored(name: str, *, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """What was recorded earlier, also where a GPU is: for what takes longer to measure than a lesson may.

    Args:
        name: the record, "lesson/what".
        params: as in `measured`.

    Returns:
        A DataFrame: this GPU's own record where it has one, else the recorded GPU's; where it comes from is shown.

    Raises:
        NoRecord: nothing was recorded under that name.

    Example:
        >>> from helpers import records
        >>> rows = records.stored("profiling/bandwidths", params={"n_rows": 10_000, "n_cols": 10_000})
        Too long for a lesson. Replayed, not measured here: ...
        >>> list(rows.columns[:2])
        ['operation', 'median_us']
    """
    own = gpu_folder_name(device.gpu_spec().name) if device.has_gpu() else None
    return _replayed_table(_Asked(name, {}, dict(params or {})), "Too long for a lesson. ", own)


def stored_by_gpu(name: str, *, sources: Iterable = ()) -> dict[str, pd.DataFrame]:
    """A record of every GPU that has it of these texts, by the names of the sets, in the order of replay.

    Nothing is shown: who draws the rows says where they come from, by `.attrs["provenance"]`.

    Args:
        name: the record, "lesson/what", with one case.
        sources: as in `measured`.

    Example:
        >>> from helpers import records
        >>> sorted(records.stored_by_gpu("profiling/bandwidths"))
        ['h100', 'h200']
    """
    import pandas as pd

    asked, found = _Asked.of(name, sources, None), {}
    for gpu in replay_order():
        path = gpu / f"{name}.json"
        try:
            text = path.read_text() if path.is_file() else ""
        except PermissionError:  # kept back while a lab is graded
            continue
        if text and (case := json.loads(text)["cases"][0]):
            provenance = Provenance(**case["provenance"])
            if all(provenance.sources.get(kernel) == sha for kernel, sha in asked.prints.items()):
                found[gpu.name] = pd.DataFrame(case["rows"], columns=case["columns"])
                found[gpu.name].attrs["provenance"] = provenance
    return found


@dataclass(frozen=True)
class _Asked:
    """The record that a lesson asks for: its name, the kernels' hashes, the parameters, what stands in for a learner's."""

    name: str
    prints: dict[str, str]
    params: dict[str, Any]
    stand_in: str = ""

    @classmethod
    def of(cls, name: str, sources: Iterable, params: Mapping[str, Any] | None) -> _Asked:
        if not re.fullmatch(r"[a-z0-9_]+(/[a-z0-9._-]+)+", name):
            raise ValueError(f'A record is named "lesson/what" in small letters; this one is {name!r}.')
        return cls(name, dict(fingerprint(s) for s in sources), dict(params or {}))


_Result = TypeVar("_Result")


def _live_or_replayed(live: Callable[[], _Result], replayed: Callable[[str], _Result]) -> _Result:
    """`live()` where a GPU is; `replayed(why)` where none is, or where it cannot measure this."""
    if not device.has_gpu():
        return replayed("")
    try:
        return live()
    except CannotMeasure as why:
        return replayed(f"{why} ")


def _live_table(asked: _Asked, live: Callable, also: Mapping[str, Any]) -> pd.DataFrame:
    provenance = _provenance_of(asked)
    frame = _frame(live())
    rows = json.loads(frame.to_json(orient="records", double_precision=15))
    _keep(asked, provenance, {"rows": rows, "columns": list(frame.columns), **also})
    frame.attrs["provenance"] = provenance
    return frame


def _live_file(asked: _Asked, live: Callable[[Path], object], suffix: str) -> Path:
    provenance = _provenance_of(asked)
    base = _live_base(asked, provenance)
    target = base.with_name(f"{base.name}{_case_suffix(asked.params)}{suffix}")
    with whole.written(target) as file:
        live(file)
        if not file.is_file():
            raise RuntimeError(f"Record {asked.name!r}: the measurement wrote no file {file.name}.")
        if _recording():
            _forget_the_checkout(file)
    _keep(asked, provenance, {"file": target.name})
    return target


def _forget_the_checkout(path: Path) -> None:
    """Write another folder of as many bytes where a record's file names this checkout, as ncu's reports do."""
    here = os.fsencode(Path(__file__).resolve().parents[2])
    neutral = b"/notebooks".ljust(len(here), b"_")[: len(here)]
    content = path.read_bytes()
    if here + b"/" in content:
        path.write_bytes(content.replace(here + b"/", neutral + b"/"))


def _provenance_of(asked: _Asked) -> Provenance:
    return replace(live_provenance(), sources=asked.prints)


def _recording() -> bool:
    return os.environ.get("WORKBOOK_RECORD") == "1"


def _live_base(asked: _Asked, provenance: Provenance) -> Path:
    """The path of a live result, without its suffix: among the records, or in the cache when nothing is recorded."""
    where = folder() if _recording() else device.cache_folder() / "live"
    return where / gpu_folder_name(provenance.gpu["name"]) / asked.name


def _keep(asked: _Asked, provenance: Provenance, result: dict) -> None:
    """Write what was measured into its record, if this run records; say that it was measured here."""
    if _recording():
        base = _live_base(asked, provenance)
        case = {"params": asked.params, "provenance": asdict(provenance), **result}
        write_case(base.with_name(base.name + ".json"), asked.name, case)
    show("live", asked.name, f"Measured here: {provenance}.", provenance)


def _case_suffix(params: dict) -> str:
    """Part of a file record's name that keeps cases apart; empty where there are no parameters."""
    return "".join(f"-{re.sub(r'[^A-Za-z0-9.]+', '_', str(v))}" for _, v in sorted(params.items()))


def _frame(rows) -> pd.DataFrame:
    import pandas as pd

    return rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))


def _replayed_table(asked: _Asked, why: str, own: str | None = None) -> pd.DataFrame:
    import pandas as pd

    found = _recorded(asked, why, own)
    frame = pd.DataFrame(found.case["rows"], columns=found.case["columns"])
    frame.attrs["provenance"] = _show_replayed(asked, found, why)
    return frame


def _replayed_file(asked: _Asked, why: str) -> Path:
    found = _recorded(asked, why)
    _show_replayed(asked, found, why)
    return found.path.parent / found.case["file"]


@dataclass(frozen=True)
class _Found:
    """A record's file, its case with the nearest parameters, and why it is not of the set that is replayed, if so."""

    path: Path
    case: dict
    elsewhere: str


def _recorded(asked: _Asked, why: str, own: str | None = None) -> _Found:
    """The record that is replayed: the first set's whose nearest case was measured with the texts asked for.

    Args:
        asked: the record.
        why: why it is not measured here, a sentence and a space; "" where there is no GPU.
        own: the set of this machine's GPU, which goes before the one that is replayed.
    """
    order = sorted(replay_order(), key=lambda gpu: gpu.name != own)
    changed_in: dict[Path, list[str]] = {}
    for gpu in order:
        path = gpu / f"{asked.name}.json"
        if not path.is_file():
            continue
        cases = json.loads(path.read_text())["cases"]
        case = min(cases, key=lambda c: _distance(asked.params, c["params"]))
        changed = [n for n, h in asked.prints.items() if case["provenance"]["sources"].get(n) != h]
        if not changed:
            here = own or gpu == order[0]
            return _Found(path, case, "" if here else _elsewhere(order[0], changed_in.get(order[0])))
        changed_in[gpu] = changed
    if changed_in:
        raise KernelChanged(next(iter(changed_in.values())), why)
    raise NoRecord(
        f"{why or 'There is no GPU here. '}There is no record of {asked.name!r} in {folder()} either: "
        "run this lesson once on a GPU with WORKBOOK_RECORD=1 (make record)."
    )


def _elsewhere(gpu: Path, changed: list[str] | None) -> str:
    """Why a record is not taken from the set that is replayed: it has none, or one of other texts."""
    if changed:
        return f" The records of {gpu.name} are of another text of {', '.join(sorted(changed))}."
    return f" The records of {gpu.name} have no such measurement."


def _show_replayed(asked: _Asked, found: _Found, why: str) -> Provenance:
    """Say where a replayed case comes from, and what differs from what was asked."""
    case = found.case
    provenance = Provenance(**case["provenance"])
    text = f"{why}Replayed, not measured here: {provenance}.{found.elsewhere}"
    if asked.stand_in:
        text += f" The figures are of {asked.stand_in}, not of yours."
    nearest = ""
    if case["params"] != asked.params:
        wanted = ", ".join(f"{k}={v}" for k, v in asked.params.items())
        nearest = ", ".join(f"{k}={v}" for k, v in case["params"].items())
        text += f" {wanted or 'A case without parameters'} was never recorded; this is the nearest record, {nearest}."
    show("replayed", asked.name, text, provenance, nearest=nearest)
    return provenance


def _distance(wanted: Mapping, recorded: Mapping) -> float:
    """How far two sets of parameters are apart: octaves for numbers, a large step for anything else."""
    total = 0.0
    for name in set(wanted) | set(recorded):
        a, b = wanted.get(name), recorded.get(name)
        if a == b:
            continue
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0 for v in (a, b))
        total += abs(math.log2(a / b)) if numbers else 1000.0
    return total

"""Measure live and keep the result, or replay what was recorded, with its provenance.

`measured` (a table) and `measured_file` decide which of the two it is, everywhere.

A record is a JSON file `helpers/records/<gpu>/<name>.json` with the cases that were measured (their parameters,
rows and provenance). A file record (a report, a trace, generated code) stands beside its JSON.
"""

from __future__ import annotations

import functools
import hashlib
import html
import inspect
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from helpers import device

if TYPE_CHECKING:
    import pandas as pd

_SHIPPED = Path(__file__).parent / "records"
PROVENANCE_MIME = "application/vnd.kernel-workbook.provenance+json"
HEADLINE_MIME = "application/vnd.kernel-workbook.headline+json"


class NoRecord(LookupError):
    """What cannot be measured here was not recorded either."""


class CannotMeasure(RuntimeError):
    """A measurement cannot be made on this GPU machine (no tool, no permission): the record is shown instead."""


@dataclass(frozen=True)
class Provenance:
    """Where a figure comes from: the GPU, the day, the versions, and the sha256 of each kernel measured."""

    gpu: dict
    driver: str | None
    cuda: str | None
    torch: str
    triton: str | None
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    date: str
    sources: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.gpu['name']}, {self.date}, torch {self.torch}, triton {self.triton}, CUDA {self.cuda}"


def folder() -> Path:
    """Where records are: `helpers/records`, or the folder that WORKBOOK_RECORDS names."""
    return Path(os.environ.get("WORKBOOK_RECORDS") or _SHIPPED)


def gpu_folder_name(gpu_name: str) -> str:
    """A folder's name for a GPU: "NVIDIA H100 80GB HBM3" gives "h100"."""
    words = [w for w in re.split(r"[^a-z0-9]+", gpu_name.lower()) if w]
    model = [
        w for w in words if re.fullmatch(r"[a-z]*\d+[a-z]*", w) and not re.fullmatch(r"\d+gb|hbm\d.*", w)
    ]
    return model[0] if model else "-".join(words)


def _replay_folder() -> Path | None:
    """The recorded GPU that is replayed: WORKBOOK_REPLAY names its folder, otherwise the one with most records."""
    wanted = os.environ.get("WORKBOOK_REPLAY")
    folders = [f for f in folder().glob("*") if f.is_dir() and (not wanted or f.name == wanted)]
    return max(folders, key=lambda f: len(list(f.rglob("*.json"))), default=None)


def fingerprint(source: Any) -> tuple[str, str]:
    """The name and the sha256 of a kernel's source: a Triton kernel, a Python function, a module or a text."""
    target = getattr(source, "fn", source)  # Triton's JITFunction and Autotuner keep the function in .fn
    target = getattr(target, "fn", target)
    if isinstance(target, str):
        name = re.search(r"__global__[^(]*?(\w+)\s*\(", target)
        name, text = (name.group(1) if name else "source"), target
    else:
        name, text = target.__name__, inspect.getsource(target)
    return name, hashlib.sha256(text.strip().encode()).hexdigest()


@functools.cache
def _live_provenance() -> Provenance:
    import torch

    sm = memory = None
    if nvml := device.nvml_handle():
        pynvml, handle = nvml
        sm = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
        memory = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)
    return Provenance(
        gpu=device.gpu_spec().as_dict(),
        driver=device.driver_version(),
        cuda=torch.version.cuda,
        torch=torch.__version__,
        triton=device.package_version("triton"),
        sm_clock_mhz=sm,
        memory_clock_mhz=memory,
        date=date.today().isoformat(),
    )


def gpu_spec() -> device.GpuSpec:
    """The GPU that this session's figures come from: this machine's, or the recorded one.

    Raises:
        NoRecord: no GPU here and no record at all.
    """
    spec = device.gpu_spec()
    if spec:
        return spec
    chosen = _replay_folder()
    for path in sorted(chosen.rglob("*.json")) if chosen else ():
        cases = json.loads(path.read_text())["cases"]
        if cases:
            return device.GpuSpec.from_dict(cases[-1]["provenance"]["gpu"])
    raise NoRecord(f"There is no GPU here and no record in {folder()}: run `make record` on a GPU first.")


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


def _show(mode: str, name: str, text: str, provenance: Provenance) -> None:
    from IPython.display import publish_display_data

    colour = "#0072B2" if mode == "live" else "#D55E00"
    publish_display_data(
        {
            "text/plain": text,
            "text/html": f'<div style="border-left:4px solid {colour};padding:2px 8px;font-size:90%">'
            f"{html.escape(text)}</div>",
            PROVENANCE_MIME: {
                "record": name,
                "mode": mode,
                "gpu": provenance.gpu["name"],
                "date": provenance.date,
                "text": text,
            },
        }
    )


def headline(label: str, value: str) -> None:
    """Show one headline figure; the index page of a batch run collects them.

    Args:
        label: what was measured, such as "square, 10,000 × 10,000 fp32".
        value: the figure with its unit, such as "266 µs · 2,959 GB/s".
    """
    from IPython.display import publish_display_data

    spec = gpu_spec()
    source = f"{'live' if device.has_gpu() else 'replayed'}, {spec.name}"
    publish_display_data(
        {
            "text/plain": f"{label}: {value} ({source})",
            "text/html": f"<b>{html.escape(label)}</b>: {html.escape(value)} <small>({html.escape(source)})</small>",
            HEADLINE_MIME: {"label": label, "value": value, "source": source},
        }
    )


def measured(
    name: str,
    live: Callable[[], pd.DataFrame | Iterable[Mapping[str, Any]]],
    *,
    sources: Iterable = (),
    params: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Measure on this GPU, or replay what was recorded on another; say which, and show where it comes from.

    Args:
        name: the record, "lesson/what".
        live: called only where a GPU is; returns a DataFrame or a list of dicts of plain values. It may raise
            `CannotMeasure`.
        sources: the kernels measured (Triton kernels, functions, texts): their hashes go into the record, and a
            replay says when one has changed since.
        params: what the measurement depends on (sizes, dtype). A replay takes the nearest recorded case and
            names it.

    Returns:
        A DataFrame whose `.attrs["provenance"]` is a `Provenance`.

    Raises:
        NoRecord: no GPU here and nothing recorded under that name.
        ValueError: a name that is not "lesson/what".
    """
    asked = _Asked.of(name, sources, params)
    return _live_or_replayed(lambda: _live_table(asked, live), lambda why: _replayed_table(asked, why))


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
    """
    own = None
    if device.has_gpu():
        own = folder() / gpu_folder_name(device.gpu_spec().name)
    chosen = own if own and (own / f"{name}.json").is_file() else _replay_folder()
    return _replayed_table(_Asked(name, {}, dict(params or {})), "Too long for a lesson. ", chosen)


@dataclass(frozen=True)
class _Asked:
    """The record that a lesson asks for: its name, the hashes of the kernels' sources and the parameters."""

    name: str
    prints: dict[str, str]
    params: dict[str, Any]

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


def _live_table(asked: _Asked, live: Callable) -> pd.DataFrame:
    provenance = _provenance_of(asked)
    frame = _frame(live())
    rows = json.loads(frame.to_json(orient="records", double_precision=15))
    _keep(asked, provenance, {"rows": rows, "columns": list(frame.columns)})
    frame.attrs["provenance"] = provenance
    return frame


def _live_file(asked: _Asked, live: Callable[[Path], object], suffix: str) -> Path:
    provenance = _provenance_of(asked)
    base = _live_base(asked, provenance)
    target = base.with_name(f"{base.name}{_case_suffix(asked.params)}{suffix}")
    partial = target.with_name(f".{os.getpid()}-{target.name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        live(partial)
        if not partial.is_file():
            raise RuntimeError(f"Record {asked.name!r}: the measurement wrote no file {partial.name}.")
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    _keep(asked, provenance, {"file": target.name})
    return target


def _provenance_of(asked: _Asked) -> Provenance:
    return replace(_live_provenance(), sources=asked.prints)


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
        _write_case(base.with_name(base.name + ".json"), asked.name, case)
    _show("live", asked.name, f"Measured here: {provenance}.", provenance)


def _case_suffix(params: dict) -> str:
    """Part of a file record's name that keeps cases apart; empty where there are no parameters."""
    return "".join(f"-{re.sub(r'[^A-Za-z0-9.]+', '_', str(v))}" for _, v in sorted(params.items()))


def _write_case(path: Path, name: str, case: dict) -> None:
    cases = json.loads(path.read_text())["cases"] if path.exists() else []
    cases = [c for c in cases if c["params"] != case["params"]] + [case]
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{os.getpid()}-{path.name}")
    partial.write_text(_as_text(name, cases))
    os.replace(partial, path)


def _as_text(name: str, cases: list[dict]) -> str:
    """A record as JSON, one row a line: a diff shows which measurement changed."""
    texts = ",\n".join(_case_text(case) for case in cases)
    return f'{{\n "name": {json.dumps(name)},\n "cases": [\n{texts}\n ]\n}}\n'


def _case_text(case: dict) -> str:
    members = ",\n".join(f"   {json.dumps(key)}: {_member_text(key, value)}" for key, value in case.items())
    return f"  {{\n{members}\n  }}"


def _member_text(key: str, value: object) -> str:
    if key == "rows" and value:
        rows = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in value)
        return f"[\n{rows}\n   ]"
    # JSON has no raw line break inside a text, so every one is layout.
    return json.dumps(value, indent=1, ensure_ascii=False).replace("\n", "\n   ")


def _frame(rows) -> pd.DataFrame:
    import pandas as pd

    return rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))


def _replayed_table(asked: _Asked, why: str, chosen: Path | None = None) -> pd.DataFrame:
    import pandas as pd

    _, case = _recorded(asked, why, chosen)
    frame = pd.DataFrame(case["rows"], columns=case["columns"])
    frame.attrs["provenance"] = _show_replayed(asked, case, why)
    return frame


def _replayed_file(asked: _Asked, why: str) -> Path:
    path, case = _recorded(asked, why)
    _show_replayed(asked, case, why)
    return path.parent / case["file"]


def _recorded(asked: _Asked, why: str, chosen: Path | None = None) -> tuple[Path, dict]:
    """A record's path, and its case with the nearest parameters.

    Args:
        asked: the record.
        why: why it is not measured here, a sentence and a space; "" where there is no GPU.
        chosen: the GPU's folder; by default the one that is replayed.
    """
    chosen = chosen or _replay_folder()
    path = chosen / f"{asked.name}.json" if chosen else None
    if path is None or not path.is_file():
        raise NoRecord(
            f"{why or 'There is no GPU here. '}There is no record of {asked.name!r} in {chosen or folder()} either: "
            "run this lesson once on a GPU with WORKBOOK_RECORD=1 (make record)."
        )
    cases = json.loads(path.read_text())["cases"]
    return path, min(cases, key=lambda c: _distance(asked.params, c["params"]))


def _show_replayed(asked: _Asked, case: dict, why: str) -> Provenance:
    """Say where a replayed case comes from, and what differs from what was asked."""
    provenance = Provenance(**case["provenance"])
    text = f"{why}Replayed, not measured here: {provenance}."
    if case["params"] != asked.params:
        wanted = ", ".join(f"{k}={v}" for k, v in asked.params.items())
        nearest = ", ".join(f"{k}={v}" for k, v in case["params"].items())
        text += f" {wanted or 'These parameters'} was never recorded; this is the nearest record, {nearest}."
    changed = [n for n, h in asked.prints.items() if provenance.sources.get(n) != h]
    if changed:
        text += f" The source of {', '.join(sorted(changed))} has changed since it was measured."
    _show("replayed", asked.name, text, provenance)
    return provenance

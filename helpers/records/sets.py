"""The sets of records, one folder per GPU, and which of them is replayed."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from helpers import device

_SHIPPED = Path(__file__).parent
# The first part of the names of each core lesson's records.
_CORE = ("profiling", "load_inline", "triton", "ptx", "ncu", "fusion")
# The set that is replayed by default, because the lessons' text quotes its figures.
_DEFAULT = "h200"


class NoRecord(LookupError):
    """There is no record of something that cannot be measured here."""


def folder() -> Path:
    """The folder of the records: `helpers/records`, or the folder in WORKBOOK_RECORDS."""
    return Path(os.environ.get("WORKBOOK_RECORDS") or _SHIPPED)


def gpu_folder_name(gpu_name: str) -> str:
    """The name of a GPU's folder.

    Example:
        >>> from helpers import records
        >>> records.gpu_folder_name("NVIDIA H100 80GB HBM3")
        'h100'
    """
    words = [w for w in re.split(r"[^a-z0-9]+", gpu_name.lower()) if w]
    model = [
        w for w in words if re.fullmatch(r"[a-z]*\d+[a-z]*", w) and not re.fullmatch(r"\d+gb|hbm\d.*", w)
    ]
    return model[0] if model else "-".join(words)


@functools.lru_cache(maxsize=1024)
def _dates(path: Path, changed_ns: int) -> tuple[str, ...]:
    """The dates of a record's cases, such as "2026-11-21"; `changed_ns` invalidates the cache."""
    try:
        return tuple(re.findall(r'^ +"date": "([\d-]+)"', path.read_text(), re.MULTILINE))
    except PermissionError:  # the grader hides it while it runs a lab
        return ()


def _newest(gpu: Path) -> str:
    """The date of the last measurement in a GPU's folder; "" if there is none."""
    return max(
        (date for path in gpu.rglob("*.json") for date in _dates(path, path.stat().st_mtime_ns)), default=""
    )


def _rank(gpu: Path) -> tuple[bool, bool, int, str]:
    """What sorts the sets: is it complete, is it the default, how many records of core lessons it has, and
    the newest's date.
    """
    n_records = [sum(1 for _ in (gpu / lesson).glob("*.json")) for lesson in _CORE]
    return all(n_records), gpu.name == _DEFAULT, sum(n_records), _newest(gpu)


def sets() -> list[str]:
    """The GPUs that have records, as folder names: complete sets first, and among those the default one.

    A set is complete if it has records of every core lesson. A set that a single lesson has started is
    incomplete, so it isn't replayed instead of a complete one. The other sets follow by the number of core
    lessons' records; of two sets of one size, the newer is first.

    Example:
        >>> from helpers import records
        >>> "h100" in records.sets()
        True
    """
    gpus = [path for path in folder().glob("*") if path.is_dir() and any(path.rglob("*.json"))]
    return sorted((gpu.name for gpu in gpus), key=lambda name: _rank(folder() / name), reverse=True)


def record_names(gpu: str) -> list[str]:
    """The names of the records in a set, "lesson/what", sorted."""
    top = folder() / gpu
    return sorted(path.relative_to(top).with_suffix("").as_posix() for path in top.rglob("*.json"))


def replay_order() -> list[Path]:
    """The folders of all sets: first the one that WORKBOOK_REPLAY names, by default the H200's.

    Raises:
        NoRecord: WORKBOOK_REPLAY names a set that doesn't exist.
    """
    names, wanted = sets(), os.environ.get("WORKBOOK_REPLAY")
    if wanted and wanted not in names:
        available = ", ".join(sorted(names)) or "none"
        raise NoRecord(
            f"WORKBOOK_REPLAY is {wanted!r}, but {folder()} has no set of that name; available: {available}."
        )
    return [folder() / name for name in sorted(names, key=lambda name: name != wanted)]


def gpu_spec() -> device.GpuSpec:
    """The GPU that this session's figures come from: this machine's, or the recorded one.

    Raises:
        NoRecord: there is no GPU here and no record at all.

    Example:
        >>> from helpers import records
        >>> records.gpu_spec().warp_size
        32
    """
    spec = device.gpu_spec()
    if spec:
        return spec
    for recorded in gpu_specs():
        return recorded
    raise NoRecord(f"There is no GPU here and no record in {folder()}; run `make record` on a GPU first.")


def gpu_specs() -> Iterator[device.GpuSpec]:
    """The GPUs of the sets, in the order in which they are replayed."""
    for gpu in replay_order():
        for path in sorted(gpu.rglob("*.json")):
            cases = json.loads(path.read_text())["cases"]
            if cases:
                yield device.GpuSpec.from_dict(cases[-1]["provenance"]["gpu"])
                break

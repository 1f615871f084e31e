"""The sets of records: one folder for each GPU, and which of them is replayed."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from helpers import device

_SHIPPED = Path(__file__).parent
# The first part of the names of the records that each core lesson keeps.
_CORE = ("profiling", "load_inline", "triton", "ptx", "ncu", "fusion")


class NoRecord(LookupError):
    """What cannot be measured here was not recorded either."""


def folder() -> Path:
    """Where records are: `helpers/records`, or the folder that WORKBOOK_RECORDS names."""
    return Path(os.environ.get("WORKBOOK_RECORDS") or _SHIPPED)


def gpu_folder_name(gpu_name: str) -> str:
    """A folder's name for a GPU: "NVIDIA H100 80GB HBM3" gives "h100".

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
    """The days on which a record's cases were measured, as "2026-11-21"; `changed_ns` renews what is remembered."""
    try:
        return tuple(re.findall(r'^ +"date": "([\d-]+)"', path.read_text(), re.MULTILINE))
    except PermissionError:  # kept back while a lab is graded
        return ()


def _newest(gpu: Path) -> str:
    """The day of the last measurement in a GPU's folder; "" where there is none."""
    return max(
        (date for path in gpu.rglob("*.json") for date in _dates(path, path.stat().st_mtime_ns)), default=""
    )


def sets() -> list[str]:
    """The GPUs of which records are kept, as folder names: complete sets first, the newest first among them.

    A set is complete when each core lesson has kept something in it. One that a single lesson has begun is not, so it
    is not replayed in the place of a whole one.

    Example:
        >>> from helpers import records
        >>> "h100" in records.sets()
        True
    """
    gpus = [path for path in folder().glob("*") if path.is_dir() and any(path.rglob("*.json"))]
    key = {gpu.name: (all((gpu / lesson).is_dir() for lesson in _CORE), _newest(gpu)) for gpu in gpus}
    return sorted(key, key=key.__getitem__, reverse=True)


def record_names(gpu: str) -> list[str]:
    """The names of the records in a set, "lesson/what", sorted. Traces and generated code beside them are theirs."""
    top = folder() / gpu
    return sorted(path.relative_to(top).with_suffix("").as_posix() for path in top.rglob("*.json"))


def replay_order() -> list[Path]:
    """The folders of all sets: first the one that WORKBOOK_REPLAY names, otherwise the newest complete one.

    Raises:
        NoRecord: WORKBOOK_REPLAY names a set that is not there.
    """
    names, wanted = sets(), os.environ.get("WORKBOOK_REPLAY")
    if wanted and wanted not in names:
        there = ", ".join(sorted(names)) or "none"
        raise NoRecord(
            f"WORKBOOK_REPLAY is {wanted!r}, and {folder()} has no set of that name; there: {there}."
        )
    return [folder() / name for name in sorted(names, key=lambda name: name != wanted)]


def gpu_spec() -> device.GpuSpec:
    """The GPU that this session's figures come from: this machine's, or the recorded one.

    Raises:
        NoRecord: no GPU here and no record at all.

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
    raise NoRecord(f"There is no GPU here and no record in {folder()}: run `make record` on a GPU first.")


def gpu_specs() -> Iterator[device.GpuSpec]:
    """The GPUs of the sets, in the order in which they are replayed."""
    for gpu in replay_order():
        for path in sorted(gpu.rglob("*.json")):
            cases = json.loads(path.read_text())["cases"]
            if cases:
                yield device.GpuSpec.from_dict(cases[-1]["provenance"]["gpu"])
                break

"""Check the provenance, the figures and the size of a set of records."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from helpers import records
from helpers.machine import GpuSpec
from workbook.catalogue import KernelSources, changed_kernels
from workbook.records_check.complete import Problem, Records

_LARGE = 4  # L2 sizes; of fewer bytes, a large part may stay in the cache
_FASTEST, _FASTEST_LARGE = 10, 1.5  # times the bandwidth of the GPU's copy
_SET_BYTES = 16_000_000
_VERSION, _DATE = r"\d.*", r"\d{4}-\d\d-\d\d"
_PATTERNS = dict.fromkeys(("torch", "triton", "cuda", "driver"), _VERSION) | {"date": _DATE}
_SHA256 = re.compile("[0-9a-f]{64}")
_GPU_FIELDS = {field.name for field in dataclasses.fields(GpuSpec)}


def problems(folder: Path, own: Records, today: KernelSources) -> Iterator[Problem]:
    """Find gaps in the provenance, kernels that have changed since, impossible figures, and too much data."""
    for record, cases in own.items():
        for sentence in dict.fromkeys(s for case in cases for s in _of_case(case, folder.name)):
            yield Problem("implausible", record, f"{record}: {sentence}; record it again.")
        if names := changed_kernels(cases, today):
            sentence = f"{record} measured older versions of {', '.join(names)}; record it again."
            yield Problem("text", record, sentence)
    n_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if n_bytes > _SET_BYTES:
        size, limit = (f"{n / 1e6:.1f} MB" for n in (n_bytes, _SET_BYTES))
        yield Problem("size", "", f"{folder} has {size}, but may have at most {limit}.")


def _of_case(case: Mapping[str, Any], folder_name: str) -> Iterator[str]:
    provenance = case["provenance"]
    yield from _gaps(provenance)
    gpu = provenance.get("gpu")
    if not isinstance(gpu, dict) or not gpu.keys() >= _GPU_FIELDS or not _is_positive(gpu["copy_gb_per_s"]):
        yield "its provenance does not describe the GPU completely"
        return
    if records.gpu_folder_name(gpu["name"]) != folder_name:
        yield f"it was measured on {gpu['name']}, but the folder is named {folder_name}"
    for row in case.get("rows") or ():
        yield from _impossible(row, gpu)


def _gaps(provenance: Mapping[str, Any]) -> Iterator[str]:
    """What a provenance lacks, apart from the GPU."""
    for name, pattern in _PATTERNS.items():
        if not re.fullmatch(pattern, str(provenance.get(name))):
            yield f"the {name} in its provenance is {provenance.get(name)!r}"
    sources = provenance.get("sources")
    if not isinstance(sources, dict) or not all(map(_SHA256.fullmatch, sources.values())):
        yield "its provenance has no sha256 of each kernel's source"


def _impossible(row: Mapping[str, Any], gpu: Mapping[str, Any]) -> Iterator[str]:
    """Which figures of a row cannot be true on this GPU."""
    us, gb_per_s = row.get("median_us", 1), row.get("gb_per_s", 1)
    for name, value in (("median_us", us), ("gb_per_s", gb_per_s)):
        if value is not None and not _is_positive(value):
            yield f"a {name} is {value!r}, but must be above 0"
            return
    if us and gb_per_s:
        is_large = gb_per_s * us * 1e3 > _LARGE * gpu["l2_bytes"]
        limit = gpu["copy_gb_per_s"] * (_FASTEST_LARGE if is_large else _FASTEST)
        if gb_per_s > limit:
            yield f"a gb_per_s is {gb_per_s:,.0f}, but this GPU can reach at most {limit:,.0f}"


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0

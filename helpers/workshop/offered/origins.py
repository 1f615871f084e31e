"""Does each case say where it comes from: GPU, day, versions, the hashes of its kernels?"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from helpers import records
from helpers.machine import GpuSpec
from helpers.workshop.catalogue import Texts
from helpers.workshop.offered.reading import Offer, Problem

_TORCH = re.compile(r"\d+\.\d+[\w.+-]*")
_FIRST_DAY = date(2026, 1, 1)  # the workbook is not older


def problems(offer: Offer, beside: Sequence[Offer], today: Texts) -> Iterator[Problem]:
    """What is missing or wrong in the provenance of any case; each sentence once a record."""
    kept = {
        item
        for one in beside
        for _, case in one.cases()
        for item in (case["provenance"].get("sources") or {}).items()
    }
    names = set()
    for record, cases in offer.records.items():
        said = set()
        for case in cases:
            provenance = case["provenance"]
            found = [*_of(provenance), *_gpu(provenance.get("gpu"))]
            for sentence in found:
                if sentence not in said:
                    said.add(sentence)
                    yield Problem("provenance", record, f"{record}: {sentence}")
            sources = provenance.get("sources")
            if isinstance(sources, Mapping):
                stale = sorted(
                    kernel
                    for kernel, sha in sources.items()
                    if kernel in today.functions and kernel != records.UNNAMED and sha not in today.shas
                )
                if stale:
                    yield Problem(
                        "text",
                        record,
                        f"{record} is of another text of {', '.join(stale)} than stands here: record it again with this "
                        "version of the workbook.",
                    )
                unknown = sorted(
                    kernel
                    for kernel, sha in sources.items()
                    if kernel not in today.functions
                    and kernel != records.UNNAMED
                    and sha not in today.shas
                    and (kernel, sha) not in kept
                )
                if unknown and _has(beside, record):
                    yield Problem(
                        "text",
                        record,
                        f"{record} is of a text of {', '.join(unknown)} that stands neither here nor in another set: record "
                        "it again from a checkout without changes.",
                    )
            if isinstance(provenance.get("gpu"), Mapping):
                names.add(str(provenance["gpu"].get("name")))
    if len(names) > 1:
        yield Problem(
            "provenance",
            "",
            f"The set is of several GPUs, {', '.join(sorted(names))}: a folder holds one GPU's.",
        )
    for name in sorted(names):
        if records.gpu_folder_name(name) != offer.name:
            yield Problem(
                "provenance",
                "",
                f"The folder is named {offer.name}, and its records are of {name}: name it {records.gpu_folder_name(name)}.",
            )


def _has(beside: Sequence[Offer], record: str) -> bool:
    return any(record in one.records for one in beside)


def _of(provenance: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with day, versions, clocks and hashes."""
    if not isinstance(provenance.get("torch"), str) or not _TORCH.fullmatch(provenance["torch"]):
        yield "its provenance names no version of torch: record it again."
    for package in ("driver", "cuda", "triton"):
        version = provenance.get(package)
        if not isinstance(version, str) or not re.match(r"\d", version):
            yield f"its provenance names no version of {package}: record it again."
    day = provenance.get("date")
    try:
        measured = date.fromisoformat(day)
    except (TypeError, ValueError):
        yield f"its day is {day!r}, and a day is written as 2026-11-22."
    else:
        # A day ahead may be today in another time zone.
        if not _FIRST_DAY <= measured <= date.today() + timedelta(days=1):
            yield f"its day is {day}, which cannot be: set the machine's clock and record it again."
    for clock in ("sm_clock_mhz", "memory_clock_mhz"):
        mhz = provenance.get(clock)
        # None: NVML tells no clock on some virtual GPUs.
        if mhz is not None and not (isinstance(mhz, int) and 50 <= mhz <= 20_000):
            yield f"{clock} is {mhz!r}, and no GPU runs at that."
    sources = provenance.get("sources")
    if not isinstance(sources, Mapping):
        yield "its provenance has no hashes of the kernels' texts (`sources`, which may be empty): record it again."
    elif bad := [k for k, sha in sources.items() if not re.fullmatch(r"[0-9a-f]{64}", str(sha))]:
        yield f"the hash of {', '.join(sorted(bad))} is no sha256: record it again."


def _gpu(gpu: Any) -> Iterator[str]:
    """What is wrong with the description of the GPU."""
    fields = {one.name for one in dataclasses.fields(GpuSpec)}
    if not isinstance(gpu, Mapping) or fields - gpu.keys():
        lacking = sorted(fields - gpu.keys()) if isinstance(gpu, Mapping) else ["everything"]
        yield f"its provenance does not describe the GPU (lacking: {', '.join(lacking)}): record it again."
        return
    if not isinstance(gpu["name"], str) or not gpu["name"].strip():
        yield "its GPU has no name: record it again."
    optional = {"peak_gb_per_s", "copy_gb_per_s"}
    for name in sorted(fields - {"name", "compute_capability"} - optional):
        if not isinstance(gpu[name], int) or gpu[name] <= 0:
            yield f"its GPU's {name} is {gpu[name]!r}, and must be a whole number above 0."
    copy, peak = gpu["copy_gb_per_s"], gpu["peak_gb_per_s"]
    if not isinstance(copy, (int, float)) or copy <= 0:
        yield "its GPU has no copy_gb_per_s, which every figure is held against: record it again."
    elif isinstance(peak, (int, float)) and not 0.4 * peak <= copy <= 1.01 * peak:
        yield (
            f"its GPU copies {copy:,.0f} GB/s where its memory delivers {peak:,.0f} at most: a copy reaches 40 to 100 % of "
            "that, unless something else runs there; record it on an idle GPU."
        )

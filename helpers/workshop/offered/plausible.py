"""Can the figures be true? Held against the GPU's own copy, and sizes against what fits into a repository."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from helpers.workshop.offered.reading import Offer, Problem

MARGIN = 0.10  # above the roofline of the copy; the highest of the two sets here stands 3 % above it
_IN_CACHE = 10  # times the copy: no L2 delivers more
_LONGEST_US = 60e6  # no kernel of the course takes a minute
_SET_BYTES, _FILE_BYTES, _PLAIN_BYTES = 12_000_000, 6_000_000, 1_000_000
_EFFECTIVE = ("gb_per_s", "really_gb_per_s")  # what lessons show to be a lie has other names
_TIMES = (
    "median_us",
    "mean_us",
    "ci_low_us",
    "ci_high_us",
    "ci95_low_us",
    "ci95_high_us",
    "alone_us",
    "watched_us",
)


def problems(offer: Offer) -> Iterator[Problem]:
    """Figures that cannot be, reports of another GPU, and files that are too large."""
    for record, case in offer.cases():
        gpu = case["provenance"].get("gpu")
        for number, row in enumerate(case.get("rows") or (), 1):
            if isinstance(row, Mapping):
                for sentence in _row(row, gpu if isinstance(gpu, Mapping) else {}):
                    yield Problem("figure", record, f"{record}, row {number}: {sentence}")
        path = offer.file_of(record, case)
        if path is not None and path.is_file() and isinstance(gpu, Mapping):
            yield from _opened(record, path, str(gpu.get("name")))
    yield from _sizes(offer)


def roofline_gb_per_s(copy_gb_per_s: float, n_bytes: float | None, l2_bytes: float) -> float:
    """The most effective bandwidth that a kernel can have, decimal GB/s, without a margin.

    A kernel that moves much more than the L2 holds is as fast as the memory. What fits may never leave the cache. Between the
    two, up to an L2 full of writes is still there when the kernel ends, and does not count into its time.

    Args:
        copy_gb_per_s: what a copy reaches on the GPU.
        n_bytes: what the operation must move; None where the record does not tell.
        l2_bytes: the size of the L2.
    """
    cached = _IN_CACHE * copy_gb_per_s
    if n_bytes is None or n_bytes <= l2_bytes:
        return cached
    return min(cached, copy_gb_per_s * n_bytes / (n_bytes - l2_bytes))


def _row(row: Mapping[str, Any], gpu: Mapping[str, Any]) -> Iterator[str]:
    times = {name: row[name] for name in _TIMES if row.get(name) is not None}
    for name, us in times.items():
        if not _number(us) or not 0 < us < _LONGEST_US:
            yield f"{name} is {us!r}, and a kernel takes more than nothing and less than a minute; record it again."
            return
    for low, high in (("ci_low_us", "ci_high_us"), ("ci95_low_us", "ci95_high_us")):
        if {low, high, "median_us"} <= times.keys() and not times[low] <= times["median_us"] <= times[high]:
            yield f"its median of {times['median_us']} µs lies outside its own interval; record it again."
    copy, l2 = gpu.get("copy_gb_per_s"), gpu.get("l2_bytes")
    for name, value in row.items():
        if value is None or not (name in _EFFECTIVE or name.endswith("(GB/s)")):
            continue
        if not _number(value) or value <= 0:
            yield f"{name} is {value!r}, and must be a number above 0; record it again."
            continue
        if not _number(copy) or not _number(l2):
            continue  # said once, by `origins`
        us = row.get("median_us")
        n_bytes = value * us * 1e3 if us is not None and name in _EFFECTIVE else None
        most = roofline_gb_per_s(copy, n_bytes, l2)
        if value > (1 + MARGIN) * most:
            yield (
                f"{name} is {value:,.0f}, more than {MARGIN:.0%} above the {most:,.0f} GB/s that this GPU's copy of "
                f"{copy:,.0f} GB/s allows: the kernel leaves work out, or the GPU was not idle when it copied."
            )


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _opened(record: str, path: Path, gpu: str) -> Iterator[Problem]:
    """Whether a record's file opens, and is of its GPU."""
    again = "record it again."
    try:
        if path.suffix == ".ncu-rep":
            from helpers import ncu

            device = ncu.load_report(path).gpu
            if device != gpu:
                yield Problem(
                    "file", record, f"{path.name} is a report of {device}, and {record} says {gpu}: {again}"
                )
        elif path.suffixes[-2:] == [".json", ".gz"]:
            json.loads(gzip.decompress(path.read_bytes()))
        elif path.suffix == ".py":
            compile(path.read_text("utf-8"), path.name, "exec")
    except Exception as error:  # NVIDIA's reader raises its own kinds
        yield Problem("file", record, f"{path.name} does not open ({type(error).__name__}): {again}")


def _sizes(offer: Offer) -> Iterator[Problem]:
    total = 0
    for path in offer.files():
        size, where = path.stat().st_size, path.relative_to(offer.folder).as_posix()
        total += size
        most = _FILE_BYTES if path.suffix == ".ncu-rep" else _PLAIN_BYTES
        if size > most:
            yield Problem(
                "size",
                where,
                f"{where} has {size / 1e6:.1f} MB, and may have {most / 1e6:.0f}: record fewer launches.",
            )
    if total > _SET_BYTES:
        yield Problem(
            "size",
            "",
            f"The set has {total / 1e6:.1f} MB, and may have {_SET_BYTES / 1e6:.0f}: leave out what is largest.",
        )

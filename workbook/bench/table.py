"""The columns of a benchmark's rows: one row for each function at each point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.timing.interleaved import RelativeTiming

OURS, COPY = "ours", "copy"
POINT = ("op", "dtype", "n_rows", "n_cols")  # of the league; a file of your own chooses its own columns
RESULTS = (
    "contestant",
    "median_us",
    "ci95_low_us",
    "ci95_high_us",
    "gb_per_s",
    "of_copy",
    "ours_ratio",
    "ratio_low",
    "ratio_high",
    "host_us",
    "added_us",
    "note",
)
COLUMNS = (*POINT, *RESULTS)


def rows_of(
    point: Mapping[str, Any],
    n_bytes: int,
    timings: Mapping[str, RelativeTiming],
    host: Mapping[str, float],
    notes: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Make the rows of one point.

    Args:
        point: the columns that identify the point.
        n_bytes: the bytes that the operation must move.
        timings: the functions that were timed, relative to "ours".
        host: the CPU time of a call in µs, by function.
        notes: a remark for each function, such as why it was not timed.

    Returns:
        One row for each function in `timings`, then one for each other function in `notes`.
    """
    copy = timings.get(COPY)
    rows = []
    for label in dict.fromkeys([*timings, *notes]):
        row: dict[str, Any] = {**point, **dict.fromkeys(RESULTS)}
        row |= {"contestant": label, "note": notes.get(label, "")}
        if timing := timings.get(label):
            row |= {
                "median_us": timing.median_us,
                "ci95_low_us": timing.ci95_us[0],
                "ci95_high_us": timing.ci95_us[1],
                "gb_per_s": n_bytes / timing.median_us / 1e3,
                "of_copy": copy.median_us / timing.median_us if copy else None,
                "ours_ratio": timing.ratio,
                "ratio_low": timing.ratio_ci95[0],
                "ratio_high": timing.ratio_ci95[1],
                "host_us": host.get(label),
                "added_us": timing.added_us,
            }
        rows.append(row)
    return rows


def point_name(row: Mapping[str, Any]) -> str:
    """Describe a point of the league: "softmax bfloat16 32,768 × 8,192", "gelu float32 4,096"."""
    rows = f"{int(row['n_rows']):,} × " if row["n_rows"] != 1 else ""
    return f"{row['op']} {row['dtype']} {rows}{int(row['n_cols']):,}"

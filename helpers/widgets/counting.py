"""Run Nsight Compute on the points of a `Space`: bytes, utilization and stall reasons.

`ncu` only profiles a process that it starts itself, so that process launches the points again. Functions of
the notebook are sent to it as source, as `%%ncu` does, and the course's own are imported. `ncu` flushes the
caches and replays each launch several times, so its times differ from those that the bars show.
"""

from __future__ import annotations

import ast
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers import ncu, records
from helpers.widgets.measure import empty_row, inputs_of
from helpers.widgets.space import Candidate, Space

Point = Mapping[str, Any]
# From column to ncu's metric. If one call has several launches, these are added, or averaged by their times.
ADDED = {
    "read_bytes": "dram__bytes_read.sum",
    "write_bytes": "dram__bytes_write.sum",
    "instructions": "smsp__inst_executed.sum",
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
}
AVERAGED = {
    "dram_percent": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_percent": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "occupancy_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
_TIME, _WAVES = "gpu__time_duration.sum", "launch__waves_per_multiprocessor"
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_COLUMNS = ("ncu_us", *ADDED, *AVERAGED, "waves", "launches", "stalls")
_PCSAMP = {"no_instruction": "no_instructions"}  # the sampler's name for it, as in `ncu.STALLS`
_RANGE = "counted"
_POINTS_PER_REPORT = 200


def name_of(space: Space) -> str:
    """The name of the record with a space's counters; "" if it has none."""
    return f"{space.record}-counters" if space.record else ""


def count(
    space: Space, points: Sequence[tuple[str, Point]], *, timeout_s: float = 300
) -> list[dict[str, Any] | None]:
    """Launch points under Nsight Compute, all in one process.

    Args:
        space: the space of the points.
        points: (kernel, point) pairs.
        timeout_s: stop after this many seconds.

    Returns:
        A row per point, or None if it could not be launched: `ncu_us`, bytes, requests and sectors,
        percentages of the peak, waves, the number of launches, and the three most common stall reasons with
        the cycles that a warp spent in each per issued instruction, such as "long_scoreboard 12.6, drain 3.1,
        wait 0.9".

    Raises:
        helpers.ncu.NcuError: Nsight Compute cannot run here, or the process failed; the message says what to
            do.
        ValueError: a function or a value cannot be sent to another process.
    """
    code, files = space.launching() if space.launching else (_imported(space.candidates), {})
    given = [(kernel, dict(point), space.rows(point["n_cols"])) for kernel, point in points]
    path_here = [os.path.abspath(folder) for folder in sys.path]
    script = (
        f"import sys\n\nsys.path += {path_here!r}\nfrom helpers import device\n\ndevice.prepare()\n"
        f"{code}\nfrom helpers.widgets.counting import launch\n\nlaunch(candidates, {_literal(given)})\n"
    )
    metrics = [_TIME, _WAVES, *ADDED.values(), *AVERAGED.values()]
    with tempfile.TemporaryDirectory() as folder:
        path = ncu.run(
            script, out=Path(folder, "counted.ncu-rep"), files=files, nvtx=_RANGE, metrics=metrics,
            sections=["WarpStateStats"], import_source=False, import_sass=False, timeout_s=timeout_s,
        )  # fmt: skip
        return rows_of(ncu.load_report(path), len(points))


def _imported(candidates: Callable) -> str:
    return f"from {candidates.__module__} import {candidates.__qualname__} as candidates"


def _literal(given: Any) -> str:
    """Plain values as Python source."""
    try:
        if ast.literal_eval(repr(given)) == given:
            return repr(given)
    except (ValueError, SyntaxError):
        pass
    raise ValueError(
        "Nsight Compute launches the kernel in another process, so launch parameters must be numbers, "
        "strings or tuples of them."
    )


def launch(candidates: Callable[[str, Point], Candidate], points: Sequence[tuple[str, Point, int]]) -> None:
    """Launch each point once to compile it and once to be profiled; this runs in the profiled process.

    Args:
        candidates: as in `Space`.
        points: (kernel, point, number of rows) of each.
    """
    import torch

    for index, (kernel, point, n_rows) in enumerate(points):
        try:
            candidate = candidates(kernel, point)
            shape = (n_rows, point["n_cols"])
            inputs = inputs_of(candidate, shape, "cuda", getattr(torch, point["dtype"]))
            candidate.run(*inputs)
            torch.cuda.synchronize()
            with torch.cuda.nvtx.range(_RANGE), torch.cuda.nvtx.range(str(index)):
                candidate.run(*inputs)
                torch.cuda.synchronize()
        except Exception as error:  # of any kind: the other points can still be counted
            print(f"{kernel} {point}: {type(error).__name__}: {error}")


def rows_of(report: Iterable[ncu.Kernel], n_points: int) -> list[dict[str, Any] | None]:
    """The rows of a report in which each launch is in an NVTX range named after its point's index."""
    launches: list[list[ncu.Kernel]] = [[] for _ in range(n_points)]
    for kernel in report:
        numbers = [int(name) for name in kernel.nvtx if name.isdigit()]
        if numbers and numbers[-1] < n_points:
            launches[numbers[-1]].append(kernel)
    return [row_of(of_point) if of_point else None for of_point in launches]


def row_of(launches: Sequence[ncu.Kernel]) -> dict[str, Any]:
    """The counters of one call's launches as one row."""
    times = [kernel.metrics[_TIME] for kernel in launches]
    longest = launches[times.index(max(times))].metrics
    row: dict[str, Any] = {"ncu_us": sum(times) / 1e3}
    for column, counter in ADDED.items():
        row[column] = sum(kernel.metrics[counter] for kernel in launches)
    for column, counter in AVERAGED.items():
        total = sum(t * kernel.metrics[counter] for t, kernel in zip(times, launches, strict=True))
        row[column] = total / sum(times)
    row |= {"waves": longest[_WAVES], "launches": len(launches), "stalls": _stalls(longest)}
    return {column: float(f"{v:.4g}") if isinstance(v, float) else v for column, v in row.items()}


def _stalls(metrics: Mapping[str, Any]) -> str:
    """The three reasons that stalled warps for the most cycles."""
    before, after = _STALL.split("{}")
    waited = {
        _PCSAMP.get(short := name.removeprefix(before).removesuffix(after), short): metrics[name]
        for name in metrics
        if name.startswith(before) and name.endswith(after)
    }
    waited.pop("selected", None)  # the warp issued, so it did not stall
    most = sorted(waited, key=waited.get, reverse=True)[:3]
    return ", ".join(f"{reason} {waited[reason]:.1f}" for reason in most if waited[reason] >= 0.05)


def record(space: Space, points: Iterable[tuple[str, Point]]) -> list[dict[str, Any]]:
    """Count many points and return the rows of the record: kernel, point and counters."""
    from tqdm.auto import tqdm

    plan = list(points)
    parts = [plan[i : i + _POINTS_PER_REPORT] for i in range(0, len(plan), _POINTS_PER_REPORT)]
    rows = []
    for part in tqdm(parts, desc=name_of(space), unit="report", leave=False):
        for (kernel, point), row in zip(part, count(space, part, timeout_s=1200), strict=True):
            if row is not None:
                rows.append(empty_row(space, kernel, point) | row)
    return rows


def known(space: Space, gpu_name: str) -> dict[tuple, dict[str, Any]]:
    """The counters that are recorded for a GPU and the current kernel sources, by `Space.key`."""
    if not space.record:
        return {}
    frames = records.stored_by_gpu(name_of(space), sources=space.sources())
    frame = frames.get(records.gpu_folder_name(gpu_name))
    if frame is None:
        return {}
    found = {}
    for row in frame.to_dict("records"):
        point = {axis: int(v) if isinstance(v := row[axis], float) and v == v else v for axis in space.axes}
        found[space.key(row["kernel"], point)] = {column: row[column] for column in _COLUMNS}
    return found


def stalls(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The stall reasons of a row with their cycles, largest first."""
    return [
        (reason, float(cycles))
        for reason, cycles in (part.split(" ") for part in row["stalls"].split(", ") if part)
    ]

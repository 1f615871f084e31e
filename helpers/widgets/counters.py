"""What Nsight Compute counts of the points of a `Space`: bytes, how busy each part was, what warps waited
for.

ncu starts the process that it watches. So the points are launched there again: a function of the notebook
goes along as text, as with `%%ncu`, and what the course has is imported. ncu empties the caches before each
pass and counts a launch in several passes, so its time is not the bars' time.
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
# Column to ncu's counter. Those of one call's launches are added, or averaged over the time that each took.
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
_PCSAMP = {"no_instruction": "no_instructions"}  # the sampler's name for it, which `ncu.STALLS` has
_RANGE = "counted"
_AT_ONCE = 200  # points that one report holds


def name_of(space: Space) -> str:
    """The record of a space's counters; "" where it has none."""
    return f"{space.record}-counters" if space.record else ""


def count(
    space: Space, points: Sequence[tuple[str, Point]], *, timeout_s: float = 300
) -> list[dict[str, Any] | None]:
    """Launch points under Nsight Compute, a process for all of them.

    Args:
        space: where they are.
        points: kernels with their points.
        timeout_s: stop after this many seconds.

    Returns:
        For each point a row: `ncu_us`, bytes, requests and sectors, per cents of the peak, waves, the number
            of launches,
        and the three largest stall reasons with the cycles a warp spent in each for every instruction that it
        issued, as "long_scoreboard 12.6, drain 3.1, wait 0.9". None where the point could not be launched.

    Raises:
        helpers.ncu.NcuError: Nsight Compute cannot run here, or the process failed; the message says what to
            do.
        ValueError: a function that cannot go along to another process.
    """
    code, files = space.launching() if space.launching else (_imported(space.candidates), {})
    given = [(kernel, dict(point), space.rows(point["n_cols"])) for kernel, point in points]
    path_here = [os.path.abspath(folder) for folder in sys.path]
    script = (
        f"import sys\n\nsys.path += {path_here!r}\nfrom helpers import device\n\ndevice.prepare()\n"
        f"{code}\nfrom helpers.widgets.counters import launch\n\nlaunch(candidates, {_literal(given)})\n"
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
    """Plain values as Python text."""
    try:
        if ast.literal_eval(repr(given)) == given:
            return repr(given)
    except (ValueError, SyntaxError):
        pass
    raise ValueError(
        "Counting launches the kernel in a process of its own, and only numbers, texts and tuples of them "
        "go along as "
        "launch parameters."
    )


def launch(candidates: Callable[[str, Point], Candidate], points: Sequence[tuple[str, Point, int]]) -> None:
    """What the watched process does: launch each point once to compile it, then once to be counted.

    Args:
        candidates: as a space's.
        points: kernel, point, and the matrix's rows.
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
        except Exception as error:  # of whatever kind: this point has no counters, the next may have
            print(f"{kernel} {point}: {type(error).__name__}: {error}")


def rows_of(report: Iterable[ncu.Kernel], n_points: int) -> list[dict[str, Any] | None]:
    """The rows of a report whose launches lie in ranges with the points' numbers."""
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
    """The three reasons for which warps waited longest."""
    before, after = _STALL.split("{}")
    waited = {
        _PCSAMP.get(short := name.removeprefix(before).removesuffix(after), short): metrics[name]
        for name in metrics
        if name.startswith(before) and name.endswith(after)
    }
    waited.pop("selected", None)  # that one issued
    most = sorted(waited, key=waited.get, reverse=True)[:3]
    return ", ".join(f"{reason} {waited[reason]:.1f}" for reason in most if waited[reason] >= 0.05)


def record(space: Space, points: Iterable[tuple[str, Point]]) -> list[dict[str, Any]]:
    """The counters of many points, each as a row of the record: kernel, point, counters."""
    from tqdm.auto import tqdm

    plan = list(points)
    parts = [plan[i : i + _AT_ONCE] for i in range(0, len(plan), _AT_ONCE)]
    rows = []
    for part in tqdm(parts, desc=name_of(space), unit="report", leave=False):
        for (kernel, point), row in zip(part, count(space, part, timeout_s=1200), strict=True):
            if row is not None:
                rows.append(empty_row(space, kernel, point) | row)
    return rows


def known(space: Space, gpu_name: str) -> dict[tuple, dict[str, Any]]:
    """What is recorded of a GPU for the kernels' texts of now, by `Space.key`; nothing where there is no
    record.
    """
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

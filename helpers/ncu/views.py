"""Tables from an Nsight Compute report: hot lines, roofline, sectors, occupancy, and the launch over time.

Every function takes a report or a launch from `ncu.load_report` and returns a table. A counter that was not
collected is NaN. If a table needs a section that was not collected, the function raises a `ReportError` that
names it.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers.ncu.reader import Kernel, Report, ReportError, launches_of, number

if TYPE_CHECKING:
    import pandas as pd

_STALL = "smsp__pcsamp_warps_issue_stalled_"
# What a warp waits for in each state (Kernel Profiling Guide, "Warp Stall Reasons"), limited to the states
# that occur in these kernels.
STALLS = {
    "long_scoreboard": "a load from L1, L2 or DRAM",
    "drain": "stores to drain before the warp may exit",
    "lg_throttle": "room in the queue for global memory instructions",
    "mio_throttle": "room in the queue for memory input and output",
    "short_scoreboard": "shared memory or a special register",
    "wait": "a fixed latency of the instruction before",
    "selected": "nothing: it issued",
    "not_selected": "its turn: another warp issued",
    "no_instructions": "the instruction cache",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "dispatch_stall": "the dispatcher",
    "branch_resolving": "a branch target",
    "barrier": "other warps at a barrier",
    "imc_miss": "the constant cache",
    "membar": "a memory barrier",
    "sleeping": "the end of its own sleep",
}


def instructions(kernel: Kernel) -> pd.DataFrame:
    """Returns one row per SASS instruction in program order.

    The columns include the source line, PTX, executions, stall samples and sectors. `samples` counts how
    often the sampler found a warp waiting at (or issuing) the instruction, and `top_stall` is the most common
    reason. A wait for a load is attributed to the first instruction that needs the value, not to the load.
    `sectors` counts the 32-byte pieces of memory that the instruction's addresses touch, and `sectors_ideal`
    is the minimum possible.

    Raises:
        ReportError: the section SourceCounters was not collected.

    Example:
        >>> from helpers import ncu, records
        >>> report = ncu.load_report(records.folder() / "h100" / "ncu" / "five-grids.ncu-rep")
        >>> found = ncu.instructions(report[4])
        >>> list(found.columns[:4])
        ['address', 'sass', 'file', 'line']
    """
    import pandas as pd

    m, action = kernel.metrics, kernel._action
    executed = m.instances("inst_executed")
    if not executed:
        raise ReportError(
            "This launch has no counters for individual instructions: profile with --set full or --section "
            "SourceCounters."
        )
    samples = m.instances("smsp__pcsamp_sample_count")
    reasons = str(m.get("group:smsp__pcsamp_warp_stall_reasons", "")).split(",")
    stalls = {
        name.strip().removeprefix(_STALL): m.instances(name.strip()) for name in reasons if name.strip()
    }
    touched = m.instances("memory_l2_theoretical_sectors_global")
    ideal = m.instances("memory_l2_theoretical_sectors_global_ideal")
    width = m.instances("memory_access_size_type")
    texts = kernel.sources()
    start = min(executed)
    rows = []
    # Warps that have exited and wait for their stores are sampled just past the last instruction, at an
    # address that no warp executes.
    for pc in sorted(executed | samples):
        info = action.source_info(pc)
        file, line = (info.file_name(), int(info.line())) if info else ("", 0)
        here = {reason: counts.get(pc) or 0 for reason, counts in stalls.items()}
        top = max(here, key=here.get, default="")
        rows.append(
            {
                "address": pc - start,
                # A branch's absolute target differs between runs.
                "sass": re.sub(r" 0x[0-9a-f]{9,}$", "", " ".join(action.sass_by_pc(pc).split())),
                "file": Path(file).name,
                "line": line,
                "source": _line_of(texts.get(file, ""), line),
                "ptx": " ".join(action.ptx_by_pc(pc).split()),
                "inst_executed": executed.get(pc) or 0,
                "samples": samples.get(pc) or 0,
                "top_stall": top if here.get(top) else "",
                "access_bits": width.get(pc) or 0,
                "sectors": touched.get(pc) or 0,
                "sectors_ideal": ideal.get(pc) or 0,
            }
        )
    table = pd.DataFrame(rows)
    total = table["samples"].sum()
    table.insert(8, "samples_percent", 100 * table["samples"] / total if total else 0.0)
    table["sectors_excess"] = table["sectors"] - table["sectors_ideal"]
    return table


def source_lines(kernel: Kernel) -> pd.DataFrame:
    """Returns one row per source line that has instructions, with samples, executions and sectors.

    The line with the most samples comes first. `top_instruction` is the instruction of the line with the most
    samples, and `top_stall` is its most common stall reason.

    Raises:
        ReportError: the section SourceCounters was not collected.

    Example:
        >>> from helpers import ncu, records
        >>> report = ncu.load_report(records.folder() / "h100" / "ncu" / "five-grids.ncu-rep")
        >>> ncu.source_lines(report[4]).top_stall[0]
        'long_scoreboard'
    """
    import pandas as pd

    rows = []
    for (file, line), group in instructions(kernel).groupby(["file", "line"], sort=False):
        hottest = group.loc[group["samples"].idxmax()]
        rows.append(
            {
                "file": file,
                "line": line,
                "source": group["source"].iloc[0],
                "samples": group["samples"].sum(),
                "samples_percent": group["samples_percent"].sum(),
                "top_instruction": hottest["sass"],
                "top_stall": hottest["top_stall"],
                "instructions": len(group),
                "inst_executed": group["inst_executed"].sum(),
                "sectors": group["sectors"].sum(),
                "sectors_excess": group["sectors_excess"].sum(),
            }
        )
    return pd.DataFrame(rows).sort_values("samples", ascending=False, kind="stable").reset_index(drop=True)


def _line_of(text: str, line: int) -> str:
    lines = text.splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def sectors(report: Report | Kernel, kernel: int | Kernel | None = None) -> pd.DataFrame:
    """Returns the memory transactions of each launch, from the threads down to DRAM. A sector is 32 bytes.

    `sectors_asked` counts the sectors that the addresses of each warp touch, `sectors_ideal` is the count if
    the addresses were contiguous, and `excess_percent` is the difference as a share of `sectors_asked`.
    `l2_sectors` counts the sectors requested from the L2 cache.

    Example:
        >>> from helpers import ncu, records
        >>> report = ncu.load_report(records.folder() / "h100" / "ncu" / "alignment.ncu-rep")
        >>> ncu.sectors(report).excess_percent.round().tolist()
        [18.0, 18.0, 0.0, 74.0, 0.0]
    """
    import pandas as pd

    rows = []
    for k in launches_of(report, kernel):
        asked = number(k, "memory_l2_theoretical_sectors_global")
        ideal = number(k, "memory_l2_theoretical_sectors_global_ideal")
        row: dict[str, Any] = {
            "launch": k.index,
            "function_name": k.name,
            "grid_size": ", ".join(map(str, k.grid)),
        }
        for what in ("ld", "st"):
            requests = number(k, f"l1tex__t_requests_pipe_lsu_mem_global_op_{what}.sum")
            touched = number(k, f"l1tex__t_sectors_pipe_lsu_mem_global_op_{what}.sum")
            row[f"{what}_requests"] = requests
            row[f"{what}_sectors"] = touched
            row[f"{what}_sectors_per_request"] = touched / requests if requests else float("nan")
        row |= {
            "sectors_asked": asked,
            "sectors_ideal": ideal,
            "sectors_excess": asked - ideal,
            "excess_percent": 100 * (asked - ideal) / asked if asked else float("nan"),
            "l2_sectors": number(k, "lts__t_sectors_srcunit_tex.sum"),
            "dram_read_bytes": number(k, "dram__bytes_read.sum"),
            "dram_write_bytes": number(k, "dram__bytes_write.sum"),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def predicted_sectors(
    n_rows: int,
    n_cols: int,
    stride: int,
    block_size: int,
    *,
    per_thread: int = 1,
    vector: int = 1,
    num_warps: int = 4,
    element_bytes: int = 4,
) -> dict[str, int]:
    """Computes the requests and sectors of an element-wise kernel with one program per row, without a report.

    The counts include loads and stores. A request is one instruction of one warp. Its sectors are the 32-byte
    pieces that its addresses touch; `ideal` is the count if the addresses were contiguous and aligned.

    Args:
        n_rows: the number of rows, and of programs.
        n_cols: the number of elements per row that are not masked off.
        stride: the number of elements from the start of one row to the start of the next.
        block_size: elements per program, including masked ones; a multiple of 32 · num_warps · per_thread.
        per_thread: the number of adjacent elements per thread.
        vector: how many of them one instruction moves.
        num_warps: warps per program.
        element_bytes: bytes per element.

    Example:
        >>> from helpers import ncu
        >>> ncu.predicted_sectors(n_rows=8, n_cols=781, stride=781, block_size=1024)
        {'requests': 400, 'sectors': 1912, 'ideal': 1568}
    """
    import numpy as np

    # Axes: repeats, warps, lanes, pieces, vector. Swapping lanes and pieces makes each row one request.
    elements = np.arange(block_size).reshape(-1, num_warps, 32, per_thread // vector, vector)
    requests = elements.swapaxes(2, 3).reshape(-1, 32 * vector)
    active = [request[request < n_cols] for request in requests if request[0] < n_cols]
    starts = np.arange(n_rows)[:, None] * stride
    asked = sum(
        int((np.diff((starts + columns) * element_bytes // 32, axis=1) > 0).sum()) + n_rows
        for columns in active
    )
    ideal = n_rows * sum(-(-len(columns) * element_bytes // 32) for columns in active)
    return {"requests": 2 * n_rows * len(active), "sectors": 2 * asked, "ideal": 2 * ideal}


def roofline_points(report: Report | Kernel) -> pd.DataFrame:
    """Returns each launch as a point for `plots.roofline`, computed from its counters.

    An addition or a multiplication counts as one operation and a fused multiply-add as two, as in ncu's own
    roofline. `.attrs` contains the ceilings of the same GPU: "peak_gb_per_s" at the memory clock of the
    longest launch, and "peak_gflop_per_s" at the highest SM clock of the device. (Dividing cycles by time
    does not give a reliable clock for a launch of a few microseconds: on an H100 the result was 2,101 MHz,
    but the maximum is 1,980 MHz.)

    Raises:
        ReportError: the section SpeedOfLight_RooflineChart was not collected.

    Example:
        >>> from helpers import ncu, records
        >>> report = ncu.load_report(records.folder() / "h100" / "ncu" / "five-grids.ncu-rep")
        >>> list(ncu.roofline_points(report).columns)
        ['name', 'flop_per_byte', 'gflop_per_s', 'dram_gb_per_s']
    """
    import pandas as pd

    rows, launches = [], launches_of(report)
    for k in launches:
        per_cycle = sum(
            weight * number(k, f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum.per_cycle_elapsed")
            for op, weight in (("fadd", 1), ("fmul", 1), ("ffma", 2))
        )
        gflop = per_cycle * number(k, "smsp__cycles_elapsed.avg.per_second", 1e-9)
        gbyte = number(k, "dram__bytes.sum.per_second", 1e-9)
        rows.append(
            {
                "name": f"{k.name}, {k.n_blocks:,} block{'s' if k.n_blocks != 1 else ''}",
                "flop_per_byte": gflop / gbyte if gbyte else float("nan"),
                "gflop_per_s": gflop,
                "dram_gb_per_s": gbyte,
            }
        )
    table = pd.DataFrame(rows)
    if table["gflop_per_s"].isna().all():
        raise ReportError(
            "These launches have no roofline counters: profile with --set full or --section "
            "SpeedOfLight_RooflineChart."
        )
    longest = max(launches, key=lambda k: k.duration_us or 0)
    sm_ghz = number(longest, "device__attribute_clock_rate", 1e-6)
    if math.isnan(sm_ghz):
        sm_ghz = number(longest, "sm__cycles_elapsed.avg.per_second", 1e-9)
    memory_ghz = number(longest, "dram__cycles_elapsed.avg.per_second", 1e-9)
    ffma_per_cycle = number(longest, "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained")
    table.attrs["peak_gb_per_s"] = number(longest, "dram__bytes.sum.peak_sustained") * memory_ghz
    table.attrs["peak_gflop_per_s"] = 2 * ffma_per_cycle * sm_ghz
    return table


def occupancy(kernel: Kernel) -> pd.DataFrame:
    """Returns what limits this kernel's blocks per SM, one row per resource, the tightest limit first.

    `.attrs` contains "blocks_per_sm", "warps_per_block", "theoretical_percent" and "achieved_percent".

    Example:
        >>> from helpers import ncu, records
        >>> report = ncu.load_report(records.folder() / "h100" / "ncu" / "five-grids.ncu-rep")
        >>> ncu.occupancy(report[4]).attrs["blocks_per_sm"]
        8
    """
    import pandas as pd

    limits = {
        what: kernel.metrics.get(f"launch__occupancy_limit_{what}")
        for what in ("registers", "shared_mem", "warps", "blocks", "barriers")
    }
    rows = [
        {"resource": what.replace("_mem", " memory"), "blocks_per_sm": int(v)}
        for what, v in limits.items()
        if v is not None
    ]
    if not rows:
        raise ReportError(
            "This launch has no occupancy counters: profile with --set full or --section Occupancy."
        )
    table = pd.DataFrame(rows).sort_values("blocks_per_sm", kind="stable").reset_index(drop=True)
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    table.attrs |= {
        "blocks_per_sm": int(table["blocks_per_sm"].iloc[0]),
        "warps_per_block": -(-threads // 32),
        "theoretical_percent": kernel.metrics.get("sm__maximum_warps_per_active_cycle_pct"),
        "achieved_percent": kernel.metrics.get("sm__warps_active.avg.pct_of_peak_sustained_active"),
    }
    return table


_CURVES = {
    "threads a block": "derived__pct_occupancy_per_block_size",
    "registers a thread": "derived__pct_occupancy_per_register_count",
    "shared bytes a block": "derived__pct_occupancy_per_shared_mem_size",
}


def occupancy_curves(kernel: Kernel) -> pd.DataFrame:
    """Returns ncu's occupancy calculator for this kernel: theoretical occupancy as one resource changes.

    Columns: `what` ("threads a block", "registers a thread", "shared bytes a block"), `value`, and
    `occupancy_percent`. For each `what`, the other resources stay fixed.
    """
    import pandas as pd

    rows = [
        {"what": what, "value": int(value), "occupancy_percent": float(percent)}
        for what, name in _CURVES.items()
        for value, percent in sorted(kernel.metrics.instances(name).items())
    ]
    return pd.DataFrame(rows, columns=["what", "value", "occupancy_percent"])


_OVER_TIME = {
    "blocks_launched": "gr__ctas_launched_realtime.sum",
    "dram_read_percent": "dramc__read_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_write_percent": "dramc__write_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_active_cycles": "TPC.TriageCompute.sm__cycles_active.avg",
}


def over_time(kernel: Kernel) -> pd.DataFrame:
    """Returns the launch over time from ncu's PM sampling, one row per sample while the SMs were active.

    Columns: `time_us` since the first sample, `blocks_launched` during the sample, `dram_read_percent` and
    `dram_write_percent` of the peak, and `sm_active_percent` of the busiest sample. The table is empty if the
    report has no PM sampling (GPUs before Turing, or a profile without the section PmSampling).
    """
    import pandas as pd

    columns = ["time_us", "blocks_launched", "dram_read_percent", "dram_write_percent", "sm_active_percent"]
    series = {}
    for column, ending in _OVER_TIME.items():
        # The prefix of the name (FE_B, FBSP, …) differs between chips.
        name = next((n for n in kernel.metrics if n.endswith(ending)), None)
        series[column] = kernel.metrics.instances(name) if name else {}
    active = {t for t, v in (series["sm_active_cycles"] or series["blocks_launched"]).items() if t and v}
    if not active:
        return pd.DataFrame(columns=columns)
    times = sorted(t for t in series["dram_read_percent"] or active if min(active) <= t <= max(active))
    table = pd.DataFrame({column: [values.get(t, 0.0) for t in times] for column, values in series.items()})
    table.insert(0, "time_us", [(t - times[0]) / 1e3 for t in times])
    busiest = table.pop("sm_active_cycles")
    table["sm_active_percent"] = 100 * busiest / busiest.max() if busiest.max() else 0.0
    return table


def moments(kernel: Kernel) -> dict[str, float]:
    """Returns when the phases of a launch began, in µs on the time axis of `over_time`.

    "writes_from_us": DRAM writes first exceed 5% of their peak. "last_start_us": the last sample in which a
    block started. "tail_from_us": the first sample after that with SM activity below 95% of the busiest
    sample. "end_us": the last sample. A value is NaN if the event did not occur or was not sampled.

    Example:
        >>> from helpers import ncu, records
        >>> report = ncu.load_report(records.folder() / "h100" / "ncu" / "five-grids.ncu-rep")
        >>> sorted(ncu.moments(report[4]))
        ['end_us', 'last_start_us', 'tail_from_us', 'writes_from_us']
    """
    time = over_time(kernel)

    def first(rows: pd.DataFrame) -> float:
        return float(rows["time_us"].iloc[0]) if len(rows) else math.nan

    started = time[time["blocks_launched"] > 0]
    last_start_us = first(started.tail(1))
    after = time[time["time_us"] > last_start_us]
    return {
        "writes_from_us": first(time[time["dram_write_percent"] > 5]),
        "last_start_us": last_start_us,
        "tail_from_us": first(after[after["sm_active_percent"] < 95]),
        "end_us": first(time.tail(1)),
    }

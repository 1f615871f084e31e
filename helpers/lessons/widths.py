"""The cost of 4-byte loads compared with 16-byte loads in lesson 04: the launches, their times, and Nsight
Compute's counters.

The record ptx/load-widths has a row per launch: five launch shapes, each with both widths. All of them square
the same 10,000 × 10,000 floats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers import ncu, timing
from helpers.kernels.square import square_flat_kernel, square_rows_kernel
from helpers.ncu import Report, sectors
from helpers.ptx import from_compiled

if TYPE_CHECKING:
    import pandas as pd
    import torch

SIDE = 10_000  # rows and columns
WIDTHS = (4, 16)  # bytes per load
SOURCES = (square_rows_kernel, square_flat_kernel)
_SECTIONS = (
    *("SpeedOfLight", "LaunchStats", "Occupancy", "MemoryWorkloadAnalysis"),
    *("MemoryWorkloadAnalysis_Tables", "SourceCounters"),
)
_SCRIPT = "from helpers.lessons import widths\nwidths.launch_each()\n"
_STALLS = "smsp__pcsamp_warps_issue_stalled_"
_IDLE = 60.0  # percent: a unit that is less busy than this is not a bottleneck


@dataclass(frozen=True)
class Shape:
    """The shape of a launch: the kernel, its block size and its warps."""

    kernel: str
    block_size: int
    num_warps: int

    @property
    def elements(self) -> int:
        """Elements per thread."""
        return self.block_size // (32 * self.num_warps)


SHAPES = (
    *(Shape("flat", 1024, 4), Shape("flat", 2048, 4), Shape("flat", 4096, 4)),
    *(Shape("rows", 16384, 32), Shape("rows", 16384, 16)),
)


def launcher(x: torch.Tensor, y: torch.Tensor, shape: Shape, n_bytes: int) -> Callable[[], Any]:
    """Returns a launch that squares x into y with 16-byte or 4-byte loads.

    For 4-byte loads, the kernel isn't specialized for its integer arguments, so the compiler can't assume
    that they are multiples of 16.
    """
    import triton

    if shape.kernel == "rows":
        kernel, integers = square_rows_kernel, ["input_row_stride", "output_row_stride", "n_cols"]
        grid, arguments = (x.shape[0],), (y, x, x.stride(0), y.stride(0), x.shape[1])
    else:
        kernel, integers = square_flat_kernel, ["n_elements"]
        grid, arguments = (triton.cdiv(x.numel(), shape.block_size),), (x, y, x.numel())
    if n_bytes == 4:
        kernel = triton.jit(kernel.fn, do_not_specialize=integers)
    return lambda: kernel[grid](*arguments, BLOCK_SIZE=shape.block_size, num_warps=shape.num_warps)


def _all_launches() -> list[tuple[Shape, int, Callable[[], Any]]]:
    import torch

    x = torch.randn(SIDE, SIDE, device="cuda")
    y = torch.empty_like(x)
    return [(shape, n, launcher(x, y, shape, n)) for shape in SHAPES for n in WIDTHS]


def of_rows(wide: Any, narrow: Any) -> list[dict[str, Any]]:
    """Measures the rows of ptx/vector-width on this GPU: a row kernel with wide and with narrow loads, on
    three inputs.
    """
    cases = ((10_000, 10_000, "cold"), (4096, 1024, "cold"), (4096, 1024, "warm"))
    return [row for n_rows, n_cols, l2 in cases for row in _of_rows(wide, narrow, n_rows, n_cols, l2)]


def _of_rows(wide: Any, narrow: Any, n_rows: int, n_cols: int, l2: str) -> list[dict[str, Any]]:
    import torch
    import triton

    x = torch.randn(n_rows, n_cols, device="cuda")
    y = torch.empty_like(x)
    block = triton.next_power_of_2(n_cols)
    options = {"BLOCK_SIZE": block, "num_warps": max(4, min(16, block // 512))}

    def launch(kernel: Any) -> Any:
        return kernel[(n_rows,)](y, x, x.stride(0), y.stride(0), n_cols, **options)

    load_bytes = []
    for kernel in (narrow, wide):
        y.fill_(float("nan"))
        compiled = launch(kernel)
        if not torch.equal(y, x * x):
            raise RuntimeError("The row kernel returns wrong squares; fix it before you time it.")
        load_bytes.append(max(i.n_bytes for i in from_compiled(kernel, compiled).reading.loads))
    both = timing.compare(lambda: launch(narrow), lambda: launch(wide), labels=("narrow", "wide"), l2=l2)
    case = {"n_rows": n_rows, "n_cols": n_cols, "l2": l2}
    ratio = {"narrow_over_wide": both.ratio, "ratio_low": both.ci95[0], "ratio_high": both.ci95[1]}
    rows = []
    for n_bytes, one in zip(load_bytes, (both.a, both.b), strict=True):
        times = {
            "median_us": one.median_us,
            "ci95_us": list(one.ci95_us),
            "gb_per_s": one.gb_per_s(2 * x.nbytes),
        }
        rows.append({**case, "load_bytes": n_bytes, **times, **ratio})
    return rows[::-1]  # the wide one first


def launch_each() -> None:
    """Launches each shape and width once, in order, for Nsight Compute."""
    for _, _, launch in _all_launches():
        launch()


def measured() -> list[dict[str, Any]]:
    """Measures the rows of ptx/load-widths on this GPU.

    Raises:
        records.CannotMeasure: Nsight Compute can't count on this machine.
    """
    counted = _counted()
    rows = []
    for shape in SHAPES:
        timed = {n: launch for s, n, launch in _all_launches() if s == shape}
        both = timing.compare(timed[4], timed[16], labels=("narrow", "wide"), l2="cold")
        for n, one in zip(WIDTHS, (both.a, both.b), strict=True):
            row = {"kernel": shape.kernel, "block_size": shape.block_size, "num_warps": shape.num_warps}
            row |= {
                "elements": shape.elements,
                "load_bytes": _checked_load_bytes(shape, n),
                "median_us": one.median_us,
            }
            row |= {"narrow_over_wide": both.ratio, "ratio_low": both.ci95[0], "ratio_high": both.ci95[1]}
            rows.append(row | counted[len(rows)])
    return rows


def _checked_load_bytes(shape: Shape, n_bytes: int) -> int:
    """Checks one launch with poisoned output memory, and returns the widest load in its PTX."""
    import torch

    x = torch.randn(SIDE, SIDE, device="cuda")
    y = torch.full_like(x, float("nan"))
    compiled = launcher(x, y, shape, n_bytes)()
    if not torch.equal(y, x * x):
        raise RuntimeError(f"The {shape.kernel} kernel returns wrong squares with {shape}.")
    kernel = square_rows_kernel if shape.kernel == "rows" else square_flat_kernel
    return max(i.n_bytes for i in from_compiled(kernel, compiled).reading.loads)


def _counted() -> list[dict[str, Any]]:
    """Returns what the hardware counted in each launch."""
    return counters(ncu.count(_SCRIPT, kernel="square_", set=None, sections=_SECTIONS))


def counters(report: Report) -> list[dict[str, Any]]:
    """Returns the counters that may explain a difference between the widths, one dictionary per launch."""
    asked = sectors(report)
    rows = []
    for kernel, row in zip(report, asked.to_dict("records"), strict=True):
        m = kernel.metrics
        samples = {
            name: float(m[name]) for name in m
            if name.startswith(_STALLS) and not name.endswith("_not_issued")
        }  # fmt: skip
        full = float(m[f"{_STALLS}lg_throttle"])
        rows.append(
            {
                "ncu_us": kernel.duration_us,
                "instructions": float(m["inst_executed"]),
                "requests": row["ld_requests"] + row["st_requests"],
                "sectors": row["ld_sectors"] + row["st_sectors"],
                "dram_mb": (row["dram_read_bytes"] + row["dram_write_bytes"]) / 1e6,
                "issue_percent": float(m["sm__issue_active.avg.pct_of_peak_sustained_elapsed"]),
                "requests_percent": float(m["l1tex__lsuin_requests.avg.pct_of_peak_sustained_elapsed"]),
                "queue_percent": 100 * full / max(1.0, sum(samples.values())),
                "warps_percent": float(m["sm__warps_active.avg.pct_of_peak_sustained_active"]),
                "registers": int(m["launch__registers_per_thread"]),
            }
        )
    return rows


def pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per launch shape: ratios of the 4-byte launch to the 16-byte launch, and both values
    where a column is a share.
    """
    import pandas as pd

    found = []
    for (kernel, block_size, num_warps), pair in rows.groupby(
        ["kernel", "block_size", "num_warps"], sort=False
    ):
        narrow, wide = (pair[pair.load_bytes == n].iloc[0] for n in WIDTHS)
        row = {"launch": f"{kernel}, {block_size:,} in {num_warps} warps", "elements": narrow.elements}
        row |= {"time": narrow.narrow_over_wide, "low": narrow.ratio_low, "high": narrow.ratio_high}
        for name in ("sectors", "requests", "instructions", "dram_mb"):
            row[name] = narrow[name] / wide[name]
        row["a_request"] = narrow.sectors / narrow.requests
        for name in ("issue_percent", "requests_percent", "queue_percent", "warps_percent", "registers"):
            row[f"{name}_4"], row[f"{name}_16"] = narrow[name], wide[name]
        found.append(row)
    return pd.DataFrame(found)


def verdict(rows: pd.DataFrame) -> str:
    """Returns the counters' verdict on the two widths in Markdown. Every sentence follows from the rows."""
    p = pairs(rows)
    least, most = p.loc[p.time.idxmin()], p.loc[p.time.idxmax()]
    paragraphs = [
        f"**Time.** 4-byte loads take between {_times(least.time)} ({least.launch}) and {_times(most.time)} "
        f"({most.launch}) as long as 16-byte loads.",
        _work(p),
        _sectors(p),
        _limits(p),
        _queue(p),
        _registers(p),
    ]
    return "\n\n".join(filter(None, paragraphs))


def _times(ratio: float) -> str:
    return f"{ratio:.3f} times"


def _work(p: pd.DataFrame) -> str:
    requests = f"{p.requests.min():.1f} to {p.requests.max():.1f} times"
    if p.requests.max() - p.requests.min() < 0.05:
        requests = f"{p.requests.mean():.1f} times"
    instructions = f"{p.instructions.min():.1f} to {p.instructions.max():.1f} times the instructions"
    dram = (p.dram_mb - 1).abs().max()
    dram_sentence = (
        "the same bytes from DRAM within 2 %"
        if dram < 0.02
        else f"DRAM traffic that differs by up to {100 * dram:.0f} %"
    )
    return f"**Work.** 4-byte loads need {requests} the requests, {instructions}, and {dram_sentence}."


def _sectors(p: pd.DataFrame) -> str:
    """Describes whether a warp's narrow load uses the sectors that it touches, and whether that explains the
    launches' times.
    """
    partial_use = p.a_request > 4.5
    if not partial_use.any():
        return "**Sectors.** A warp's 4-byte load touches 4 sectors and uses all of each, in every launch."
    kernels = sorted({launch.split(",")[0] for launch in p.launch[partial_use]})
    sentence = (
        f"**Sectors.** In the {' and the '.join(kernels)} kernel a warp's 4-byte load touches "
        f"{p.a_request[partial_use].max():.0f} sectors "
        "and uses a part of each: Triton gave a thread four neighbors, and where it may not load them at "
        "once it loads "
        "them one after the other."
    )
    if partial_use.all():
        return sentence
    first, second = p.time[partial_use], p.time[~partial_use]
    sentence += f" Elsewhere such a load touches {p.a_request[~partial_use].max():.0f} and uses all. "
    spans = (
        f"{first.min():.3f} to {first.max():.3f} times as long as wide loads, the second "
        f"{second.min():.3f} to {second.max():.3f}"
    )
    separated = first.min() > second.max()
    end = "this is what parts the two places" if separated else "so this alone does not part the two places"
    return f"{sentence}The first kind takes {spans}: {end}."


def _limits(p: pd.DataFrame) -> str:
    issue, requests = p.issue_percent_4.max(), p.requests_percent_4.max()
    sentence = (
        f"**Limits.** The schedulers issue in at most {issue:.0f} % of cycles, and the load units take a "
        f"request in at most {requests:.0f} %"
    )
    if max(issue, requests) < _IDLE:
        return (
            f"{sentence}: neither is used up, so neither the instructions nor the requests are what costs "
            "time."
        )
    return (
        f"{sentence}: one of them is close to its limit, and there more instructions or requests are more "
        "time."
    )


def _queue(p: pd.DataFrame) -> str:
    slow, rest = p[p.time > 1.01], p[p.time <= 1.01]
    if not len(slow) or not len(rest):
        return ""
    slow_change, other_change = ((g.queue_percent_4 - g.queue_percent_16).mean() for g in (slow, rest))
    sentence = (
        "**The queue.** A warp whose next load finds the queue of the load unit full waits (`lg_throttle`). "
        f"Over the 16-byte version its share of all waits changes by {slow_change:+.0f} points where 4-byte "
        f"loads are over 1 % slower, and by {other_change:+.0f} elsewhere"
    )
    if slow_change > other_change + 5:
        return f"{sentence}: the slower launches are those whose requests queue."
    return f"{sentence}: so the queue does not tell the two places apart."


def _registers(p: pd.DataFrame) -> str:
    rows = p[p.launch.str.startswith("rows")]
    few, many = rows.loc[rows.elements.idxmin()], rows.loc[rows.elements.idxmax()]
    sentence = (
        f"**Registers.** The row kernel's ratio is {few.time:.3f} with {few.elements} elements a thread and "
        f"{many.time:.3f} with "
        f"{many.elements}. There 4-byte loads need {many.registers_4:.0f} registers a thread instead of "
        f"{many.registers_16:.0f}, so "
        f"{many.warps_percent_4:.0f} % of an SM's warp slots were filled instead of "
        f"{many.warps_percent_16:.0f} %"
    )
    if many.time > few.time + 0.01 and many.warps_percent_4 < many.warps_percent_16:
        return f"{sentence}: fewer warps wait for the same memory."
    return f"{sentence}; it made no difference of 1 %."

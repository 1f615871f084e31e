"""Figures that the lessons' prose states for a named GPU, and how each follows from that GPU's record.

A sentence that names a GPU and a figure belongs here: `text` is its fragment with `{}` where the figures
stand, and `figures` computes them, as they are written, from the rows of the record, or from its Nsight
Compute report.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd
from commands import ROOT

from helpers import ncu
from helpers.lessons import ladder


@dataclass(frozen=True)
class Prose:
    """A fragment of a notebook's text whose figures come from a record.

    Attributes:
        notebook: its file's stem, such as "01_profiling".
        text: the fragment as it stands there, with `{}` for each figure.
        gpu: the set, such as "h100".
        record: the record's name.
        figures: the figures as they are written, from the record's rows, or from its `ncu.Report`.
        params: which case of the record; the only one where there are no parameters.
    """

    notebook: str
    text: str
    gpu: str
    record: str
    figures: Callable[[pd.DataFrame], tuple] | Callable[[ncu.Report], tuple]
    params: dict = field(default_factory=dict)

    def stated(self) -> str:
        """The fragment with the record's figures in it."""
        path = ROOT / "helpers" / "records" / self.gpu / f"{self.record}.json"
        cases = json.loads(path.read_text())["cases"]
        case = next(c for c in cases if self.params.items() <= c["params"].items())
        if "file" in case:
            return self.text.format(*self.figures(ncu.load_report(path.parent / case["file"])))
        return self.text.format(*self.figures(pd.DataFrame(case["rows"], columns=case["columns"])))


def _first_clock(clocks: pd.DataFrame) -> tuple:
    """What a host's clock that doesn't wait reads, as a bandwidth, and as a multiple of the H200's peak."""
    us = clocks.set_index("clock").us["host, no waiting"]
    tb_per_s = 8 * 10_000**2 / us / 1e6
    return f"{us:.1f}", f"{tb_per_s:.0f}", f"{tb_per_s / 4.8:.0f}"


def _tflop(products: pd.DataFrame) -> pd.Series:
    return products.set_index("kernel").tflop_per_s


def _naive_and_torch(cuda: pd.DataFrame) -> tuple:
    return f"{_tflop(cuda)['naive']:.1f}", f"{_tflop(cuda)['torch (cuBLAS)']:.0f}"


def _naive_and_tiled(cuda: pd.DataFrame) -> tuple:
    return f"{_tflop(cuda)['naive']:.1f}", f"{_tflop(cuda)['tiles of 32 × 32']:.1f}"


def _tiled_gain(cuda: pd.DataFrame) -> tuple:
    return (f"{_tflop(cuda)['tiles of 32 × 32'] / _tflop(cuda)['naive']:.1f}",)


def _smallest_copy(league: pd.DataFrame) -> tuple:
    copies = league.query("op == 'square' and contestant == 'copy' and dtype == 'float32'")
    return (f"{copies.median_us.min():.1f}",)


def _smallest_square(truth: pd.DataFrame) -> tuple:
    """The least and the most that a timer reports for the smallest square, in µs."""
    us = truth[truth.kernel == "square_flat 8 × 1,024"].us
    return f"{us.min():.1f}", f"{us.max():.1f}"


def _most_by_do_bench(truth: pd.DataFrame) -> tuple:
    """What do_bench adds at most, in µs."""
    return (f"{truth[truth.timer == 'do_bench'].error_us.max():.1f}",)


def _gap_of_long_kernels(truth: pd.DataFrame) -> tuple:
    """What the timers with events around a call add from 400 µs on at most, in %, rounded up."""
    rows = truth[truth.timer.isin(["do_bench", "nvbench"]) & truth.truth_us.gt(400)]
    return (math.ceil((100 * rows.error_us / rows.truth_us).max()),)


def _compiled_inside(inside: pd.DataFrame) -> tuple:
    """The compiled square at 256 columns, then do_bench of it with torch.compile inside the lambda, in µs."""
    us = inside[inside.n_cols == 256].set_index("torch.compile").us
    return f"{us['outside, device clock']:.1f}", f"{us['inside the lambda, do_bench']:,.0f}"


def _compiled_outside(inside: pd.DataFrame) -> tuple:
    us = inside[inside.n_cols == 256].set_index("torch.compile").us
    return (f"{us['outside, do_bench']:.1f}",)


def _witnesses_agree(truth: pd.DataFrame) -> tuple:
    """By how much ncu and CUPTI differ at most where CUPTI's time is the truth, in µs, then by how many %:
    where ncu's time is the truth, and for the others from 60 µs on and for the smallest.
    """
    rows = truth.assign(us_apart=(truth.ncu_us - truth.cupti_us).abs())
    percent = 100 * rows.us_apart / rows.cupti_us
    by_cupti = rows.truth_by == "CUPTI"
    return (
        f"{rows.us_apart[by_cupti].max():.1f}",
        f"{percent[~by_cupti].max():.0f}",
        f"{percent[by_cupti & rows.cupti_us.ge(60)].max():.1f}",
        f"{percent[rows.cupti_us.idxmin()]:.0f}",
    )


def _small_square(truth: pd.DataFrame) -> tuple:
    """The small square in a Python loop, in a CUDA graph, and with a cold L2, in µs."""
    us = truth[truth.kernel == "square_flat 8 × 1,024"].set_index("timer").us
    return tuple(f"{us[timer]:.1f}" for timer in ("torch.utils.benchmark", "do_bench_cudagraph", "time_gpu"))


def _truths_by_cupti(truth: pd.DataFrame) -> tuple:
    """For how many functions CUPTI's time is the truth, and of how many."""
    by = truth.groupby("kernel").truth_by.first()
    return (by == "CUPTI").sum(), len(by)


def _narrow_loads(widths: pd.DataFrame) -> tuple:
    """The row kernel's time with 4-byte loads, in percent of that with 16-byte loads: a large matrix from
    memory, and a small one from the L2 cache.
    """
    large = widths.query("n_rows == 10_000 and l2 == 'cold'").iloc[0]
    small = widths.query("n_rows == 4_096 and l2 == 'warm'").iloc[0]
    return tuple(f"{100 * row.narrow_over_wide:.0f}" for row in (large, small))


def _exp_and_softmax(five: pd.DataFrame) -> tuple:
    """The exponential alone, and the whole softmax in one kernel."""
    times = five.set_index("kernel").median_us
    return f"{times['3 exp']:.0f}", f"{times['softmax_rows']:.0f}"


def _online_falls(curve: pd.DataFrame) -> tuple:
    """The online softmax at the two largest widths, in % of the H200's copy at 4,246 GB/s."""
    speeds = curve[curve.kernel == "online"].set_index("n_cols").gb_per_s
    return tuple(f"{100 * speeds[n_cols] / 4246.1:.0f}" for n_cols in (131_072, 262_144))


def _first_square(squares: pd.DataFrame) -> tuple:
    """What share of torch.square's speed a kernel in blocks of 16 × 16 reaches, in %."""
    gb_per_s = squares.set_index("kernel").gb_per_s
    return (f"{100 * gb_per_s['blocks of 16 × 16'] / gb_per_s['torch.square']:.0f}",)


def _fastest_launches(launches: pd.DataFrame) -> tuple:
    """Launches per shape, shapes, and at how many the fastest launch has a lower median than torch.square."""
    flat = launches[launches.kernel == "Triton flat"].groupby(["n_cols", "dtype"]).median_us
    torch = launches[launches.kernel == "torch.square"].set_index(["n_cols", "dtype"]).median_us
    assert flat.size().nunique() == 1
    return flat.size().iloc[0], len(torch), (flat.min().sort_index() < torch.sort_index()).sum()


def _twenty_launches(graphs: pd.DataFrame) -> tuple:
    """The CPU's time for twenty sines and for each, by calls and by a graph, and the graph's whole time."""
    calls, graph = (graphs.set_index("launched").loc[name] for name in ("one call per kernel", "one graph"))
    by_calls = f"{calls.host_us:.0f}", f"{calls.host_us / 20:.0f}"
    return *by_calls, f"{graph.host_us:.1f}", f"{graph.host_us / 20:.0f}", f"{graph.median_us:.0f}"


def _loss(launches: pd.DataFrame) -> tuple:
    """By how many % 1,024 elements and 8 warps exceed the fastest launch, at 4,096 × 8,192 fp32."""
    rows = launches.query("kernel == 'Triton flat' and n_cols == 8192 and dtype == 'float32'")
    at = rows.set_index(["block_size", "num_warps"]).median_us
    return (f"{100 * (at[1024, 8] / at.min() - 1):.1f}",)


def _claimed(fast: pd.DataFrame) -> tuple:
    """The wrong benchmark's largest figure, and how often the H200's peak of 4,814 GB/s is in it."""
    most = fast.claimed_gb_per_s.max()
    return f"{most:,.0f}", f"{most / 4814.3:.0f}"


def _end_of_the_curve(curve: pd.DataFrame) -> tuple:
    """The three squares at the widest size, the slowest one's distance from the fastest, and what the row
    kernel loses at 8,193 columns, in %.
    """
    speeds = curve.pivot(index="n_cols", columns="kernel", values="gb_per_s")
    rows, torch, compiled = (
        speeds[name] for name in ("Triton, a program a row", "torch.square", "torch.compile")
    )
    widest = [column[12672] for column in (rows, torch, compiled)]
    loses = 1 - rows[8193] / rows[rows.index > 8193].iloc[0]
    return (
        *(f"{speed:,.0f}" for speed in widest),
        f"{100 * (1 - widest[0] / max(widest)):.0f}",
        f"{100 * loses:.0f}",
    )


def _padded(sweep: pd.DataFrame, kernel: str) -> tuple:
    """A kernel on 4,096 columns of fp32 without padding, and with one element between the rows."""
    rows = sweep[(sweep.kernel == kernel) & (sweep.n_cols == 4096) & (sweep.dtype == "float32")]
    speeds = rows[rows.offset == 0].set_index("padding").gb_per_s
    return f"{speeds[0]:,.0f}", f"{speeds[1]:,.0f}"


def _padded_square(sweep: pd.DataFrame) -> tuple:
    """torch.square on 4,096 columns of fp32 without padding, and in the mean of all paddings, to hundreds."""
    rows = sweep.query("kernel == 'torch.square' and n_cols == 4096 and dtype == 'float32'")
    padded = rows[rows.padding > 0].gb_per_s
    assert padded.min() > 0.97 * padded.mean() and padded.max() < 1.03 * padded.mean()
    return _padded(sweep, "torch.square")[0], f"{round(padded.mean(), -2):,.0f}"


def _eight_loads(rungs: pd.DataFrame) -> tuple:
    """By how many % the rate falls from four loads per thread to eight."""
    gb_per_s = rungs.set_index("kernel").gb_per_s
    return (f"{100 * (1 - gb_per_s['eight, loads first'] / gb_per_s['four, loads first']):.1f}",)


def _best_shape(shapes: pd.DataFrame) -> tuple:
    """By how many % blocks of 256 × 1 are faster than blocks of 16 × 16."""
    gb_per_s = shapes.set_index("kernel").gb_per_s
    return (f"{100 * (gb_per_s['256 × 1'] / gb_per_s['16 × 16'] - 1):.0f}",)


def _ns_per_load(rungs: pd.DataFrame) -> tuple:
    """The time per load of `one` by Little's law, if all places for threads of an H200 are taken, in ns."""
    _, ns = ladder.loads_under_way(1, rungs.set_index("kernel").gb_per_s["one"], 132, 2048)
    return (f"{ns:.0f}",)


def _tuned(rows: pd.DataFrame) -> tuple:
    """What the tuner gains over the rule of thumb at most, in %."""
    return (f"{100 * (rows.by_rule_us / rows.tuned_us - 1).max():.1f}",)


def _shared_rows(wide: pd.DataFrame) -> tuple:
    """The three kernels at the widest rows, in % of the H200's copy at 4,243 GB/s."""
    speeds = wide[wide.n_cols.eq(262_144)].set_index("kernel").gb_per_s
    return tuple(f"{100 * speeds[k] / 4242.8:.0f}" for k in ("online", "shared, plain", "shared, tuned"))


def _steps_to_the_tuned(steps: pd.DataFrame) -> tuple:
    """The plain and the tuned kernel, then the plain one with each change, in % of a copy."""
    share = steps.set_index("kernel").percent_of_copy
    names = ("plain", "tuned", "plain, at most 96 registers", "plain, parts of 4,096")
    return tuple(f"{share[name]:.0f}" for name in names)


def _largest_estimate(five: ncu.Report) -> tuple:
    """The largest estimate for the time of the launch with 4,096 rows, in %. It isn't the tail's."""
    advice = ncu.advice(five, 4).query("speedup_type == 'global'").set_index("title").est_speedup_percent
    assert advice["Long Scoreboard Stalls"] == advice.max() > advice["Tail Effect"]
    return (f"{advice.max():.0f}",)


def _last_sum_and_copy(fifth: ncu.Report) -> tuple:
    """How busy version 5 keeps DRAM, and a copy's 4,257 GB/s, in % of the H200's peak of 4,814 GB/s."""
    busy = fifth[0].metrics["dram__cycles_active.avg.pct_of_peak_sustained_elapsed"]
    return f"{busy:.0f}", f"{100 * 4257.1 / 4814.3:.0f}"


def _masked(layouts: ncu.Report) -> tuple:
    """How long C and A take, in µs."""
    return tuple(f"{layouts[launch].duration_us:.1f}" for launch in (3, 2))


THIS_LESSONS = "this lesson's kernel"


def _us(rows):
    return rows.set_index("kernel")["median_us"]


def _three_kernels(forward):
    return tuple(f"{_us(forward)[name]:,.0f}" for name in (THIS_LESSONS, "torch, flash", "torch, cuDNN"))


def _order_of_64_by_128(sweep: pd.DataFrame) -> tuple[str, ...]:
    """How much longer the order GROUP_M = 1 takes than 8, for the tile that depends most on it."""
    at = {"block_m": 64, "block_n": 128, "num_warps": 8, "num_stages": 3, "n_cols": 8192}
    us = sweep[(sweep[list(at)] == pd.Series(at)).all(axis=1)].set_index("group_m")["median_us"]
    return (f"{100 * (us[1] / us[8] - 1):.0f}",)


def _fused_gains(rows):
    """For k = 4,096 the product, the rest, the limit of the gain, the gain, and how much longer the fused
    kernel takes than the product; the last two, in the other order, for k = 256.
    """
    us = rows.set_index(["k", "kernel"])["median_us"]
    alone, both = us[4096, "the product alone"], us[4096, "torch"]
    gains = [100 * (us[k, "torch"] / us[k, "fused"] - 1) for k in (4096, 256)]
    longer = [us[k, "fused"] - us[k, "the product alone"] for k in (4096, 256)]
    most = 100 * (both / alone - 1)
    figures = alone, both - alone, most, gains[0], *longer, gains[1]
    return tuple(f"{figure:.0f}" for figure in figures)


def _behind_cudnn(sweep):
    """How much longer the fastest position takes than cuDNN, without a mask, in percent."""
    sweep = sweep[(sweep.verdict == "ok") & (sweep.causal == "no")]
    fastest = sweep.groupby(["head_size", "kernel"])["median_us"].min().unstack()
    slower = 100 * (fastest["Triton descriptors"] / fastest["torch cuDNN"] - 1)
    return tuple(f"{slower[size]:.0f}" for size in (64, 128))


def _mask_gains(causal):
    long = causal[causal.n == 8192].set_index("kernel")
    assert (causal[causal.n == 512].gain < 1).all()
    return tuple(f"{long.gain[name]:.2f}" for name in ("ours", "torch, flash"))


def _busy_together(busy):
    both = (busy.tensor_percent + busy.exp_percent).set_axis(busy.kernel)
    return tuple(f"{both[name]:.0f}" for name in ("the workbook's", "torch, cuDNN"))


PROSE: list[Prose] = [
    Prose(
        "05_ncu",
        "On the recorded H200, the table's {} % comes from another rule, about waiting for memory",
        "h200",
        "ncu/five-grids",
        _largest_estimate,
    ),
    Prose(
        "05_ncu",
        "on the recorded H200, version 5 reaches {} % of DRAM's peak, and a copy {} %",
        "h200",
        "ncu/column-sum-5",
        _last_sum_and_copy,
    ),
    Prose("05_ncu", "on the recorded H200, C takes {} µs, and A {}", "h200", "ncu/alignment", _masked),
    Prose(
        "02_load_inline",
        "on the recorded H200 blocks of 256 × 1 are {} % faster than 16 × 16",
        "h200",
        "load_inline/block-shapes",
        _best_shape,
    ),
    Prose(
        "02_load_inline",
        "on the recorded H200 a load took less than the {} ns shown",
        "h200",
        "load_inline/rungs",
        _ns_per_load,
        {"n_rows": 10_000, "n_cols": 10_000, "threads": 256},
    ),
    Prose(
        "02_load_inline",
        "on the recorded H200 the rate fell by {} %",
        "h200",
        "load_inline/rungs",
        _eight_loads,
        {"n_rows": 10_000, "n_cols": 10_000, "threads": 256},
    ),
    Prose(
        "03_triton",
        "The gain over the rule of thumb is at most {} % on the recorded H200",
        "h200",
        "triton/autotune",
        _tuned,
    ),
    Prose(
        "03_triton",
        "On the recorded H100 it is {} % at 256 columns",
        "h100",
        "triton/autotune",
        _tuned,
    ),
    Prose(
        "04_ptx",
        "On the recorded H200, narrow loads took {} % of the time for the large matrix, and {} % for a small",
        "h200",
        "ptx/vector-width",
        _narrow_loads,
    ),
    Prose(
        "02_load_inline",
        "A two-dimensional version in blocks of 16 × 16 reaches {} % of PyTorch's speed on the recorded H200",
        "h200",
        "load_inline/rungs",
        _first_square,
        {"n_rows": 10_000, "n_cols": 10_000, "threads": 256},
    ),
    Prose(
        "09_wide_rows",
        "On the recorded H200, a softmax with one program per row reaches {} % of a copy's speed at this "
        "width. With 32 programs per row it reaches {} %, and after some tuning {} %.",
        "h200",
        "wide_rows/shared",
        _shared_rows,
        {"curve_elements": 2**26},
    ),
    Prose(
        "09_wide_rows",
        "On the recorded H200, the plain kernel reaches {} % of a copy in this second measurement, and the "
        "tuned one {} %. With at most 96 registers, the plain kernel reaches {} %, in spite of the spill. "
        "Smaller parts take it to {} %, nearly as far.",
        "h200",
        "wide_rows/steps",
        _steps_to_the_tuned,
    ),
    Prose(
        "03_triton",
        "on the recorded H200 its benchmark reports **{} GB/s**. That is {} times",
        "h200",
        "triton/fixed-block",
        _claimed,
    ),
    Prose(
        "03_triton",
        "On the recorded H200, your row kernel moves {} GB/s at 12,672 columns, `torch.square` {}, "
        "and `torch.compile` {}: a difference of {} %. At 8,193 columns the row kernel is {} % slower than "
        "at the next larger size",
        "h200",
        "triton/curve",
        _end_of_the_curve,
    ),
    Prose(
        "03_triton",
        "On the recorded H200 the row kernel doesn't slow down ({} GB/s with padding, {} without).",
        "h200",
        "triton/alignment-sweep",
        lambda rows: _padded(rows, "Triton rows")[::-1],
    ),
    Prose(
        "03_triton",
        "`torch.square` falls from {} to about {} GB/s with any padding",
        "h200",
        "triton/alignment-sweep",
        _padded_square,
    ),
    Prose(
        "01_profiling",
        "On the H200 whose timings we recorded, a clock around that line reads {} µs. That would be {} TB/s, "
        "{} times what its memory can deliver.",
        "h200",
        "profiling/six-clocks",
        _first_clock,
        {"n_rows": 10_000, "n_cols": 10_000},
    ),
    Prose(
        "01_profiling",
        "The kernel itself takes {} µs on the recorded H200",
        "h200",
        "profiling/six-clocks",
        lambda clocks: (f"{clocks.set_index('clock').us['timing.time_gpu']:.0f}",),
        {"n_rows": 10_000, "n_cols": 10_000},
    ),
    Prose(
        "07_timers",
        "On the recorded H200, five timers report between {} and {} µs for one and the same kernel",
        "h200",
        "timer/truth",
        _smallest_square,
    ),
    Prose(
        "07_timers",
        "(In lesson 01, `do_bench` reported only {} µs on the recorded H200:",
        "h200",
        "profiling/three-timers",
        lambda three: (f"{three['do_bench'].iloc[0]:.2f}",),
    ),
    Prose(
        "07_timers",
        "`do_bench` adds up to {} µs on the recorded H200",
        "h200",
        "timer/truth",
        _most_by_do_bench,
    ),
    Prose(
        "07_timers",
        "On the recorded H200, that is at most {} % from 400 µs on",
        "h200",
        "timer/truth",
        _gap_of_long_kernels,
    ),
    Prose(
        "07_timers",
        "a kernel of {} µs seems to take {} µs at 256 columns on the recorded H200",
        "h200",
        "triton/compile-inside",
        _compiled_inside,
    ),
    Prose(
        "07_timers",
        "`do_bench` reports a mean of {} µs for this kernel on the recorded H200",
        "h200",
        "triton/compile-inside",
        _compiled_outside,
    ),
    Prose(
        "07_timers",
        "On the recorded H200, ncu and CUPTI differ by at most {} µs, except for two softmaxes, where ncu "
        "reports up to {} % less. For the other kernels of 60 µs or more, they differ by at most {} %, so "
        "ncu confirms them. For the smallest it is {} %",
        "h200",
        "timer/truth",
        _witnesses_agree,
    ),
    Prose(
        "07_timers",
        "For the other {} of {} functions, CUPTI is both the clock of `time_gpu` and the truth",
        "h200",
        "timer/truth",
        _truths_by_cupti,
    ),
    Prose(
        "07_timers",
        "{} µs is right for a Python loop: there the kernel won't be any faster. In a CUDA graph, {} µs "
        "remain. That is more than the {} µs with a cold L2",
        "h200",
        "timer/truth",
        _small_square,
    ),
    Prose(
        "06_fusion",
        "On the recorded H200, `exp` of 16,384 × 8,192 floats takes {} µs. A softmax of that matrix is `exp` "
        "and four more operations, and a kernel of seven lines does all five in {} µs.",
        "h200",
        "fusion/five-operations",
        _exp_and_softmax,
        {"n_rows": 16384, "n_cols": 8192},
    ),
    Prose(
        "06_fusion",
        "On the recorded H200, *online* falls from {} to {} % of a copy there",
        "h200",
        "fusion/curve",
        _online_falls,
        {"curve_elements": 2**26},
    ),
    Prose(
        "10_another_gpu",
        "On the recorded H100, squaring 10,000 × 10,000 floats takes {} µs",
        "h100",
        "profiling/bandwidths",
        lambda table: (f"{table.set_index('operation').median_us['torch.square(a)']:.0f}",),
        {"n_rows": 10_000, "n_cols": 10_000},
    ),
    Prose(
        "10_another_gpu",
        "On the recorded H100, we timed {} launches of lesson 03's flat kernel at each of {} matrix shapes "
        "(eight widths of 4,096 rows, in two dtypes). At all {} shapes, the fastest launch beats "
        "`torch.square` by its median.",
        "h100",
        "triton/launch-sweep",
        _fastest_launches,
    ),
    Prose("10_another_gpu", "with 8 warps: {} % on the H100", "h100", "triton/launch-sweep", _loss),
    Prose("10_another_gpu", " and {} % on the H200", "h200", "triton/launch-sweep", _loss),
    Prose(
        "10_another_gpu",
        "On the recorded H100's machine, the calls keep the CPU busy for {} µs, {} µs per call. The graph "
        "removes most of that: {} µs remain, about {} µs per kernel. (From start to end it takes {} µs,",
        "h100",
        "cross_gpu/graphs",
        _twenty_launches,
    ),
    Prose(
        "10_another_gpu",
        "On the recorded H100, it takes {} µs.",
        "h100",
        "fusion/league",
        _smallest_copy,
    ),
    Prose(
        "11_matmul",
        "On the recorded H200, the obvious CUDA kernel multiplies two matrices of 2,048 × 2,048 floats at "
        "{} TFLOP/s, and PyTorch at {}.",
        "h200",
        "matmul/cuda",
        _naive_and_torch,
    ),
    Prose(
        "11_matmul",
        "PyTorch reaches {}",
        "h200",
        "matmul/tiles",
        lambda tiles: (f"{_tflop(tiles)['torch']:.0f}",),
    ),
    Prose(
        "11_matmul",
        "a short Triton kernel {}.",
        "h200",
        "matmul/stages",
        lambda stages: (f"{_tflop(stages)['4']:.0f}",),
    ),
    Prose(
        "11_matmul",
        "than the naive kernel, and are {} times as fast, on the recorded H200",
        "h200",
        "matmul/cuda",
        _tiled_gain,
    ),
    Prose(
        "11_matmul",
        "On the recorded H200, tiles in shared memory bring the naive kernel from {} to {} TFLOP/s.",
        "h200",
        "matmul/cuda",
        _naive_and_tiled,
    ),
    Prose(
        "11_matmul",
        "four stages bring {}, at n = 4,096",
        "h200",
        "matmul/stages",
        lambda stages: (f"{_tflop(stages)['4']:.0f}",),
    ),
    Prose(
        "11_matmul",
        "`GROUP_M` = 1 takes {} % longer on the recorded H200.",
        "h200",
        "matmul/tile-sweep",
        _order_of_64_by_128,
    ),
    Prose(
        "12_attention",
        "On the recorded H200, our kernel takes {} µs, FlashAttention-2 {} and cuDNN {}.",
        "h200",
        "attention/forward",
        _three_kernels,
    ),
    Prose(
        "12_attention",
        "lesson 11's kernel reached {} TFLOP/s on this GPU",
        "h200",
        "matmul/stages",
        lambda stages: (f"{_tflop(stages)['4']:.0f}",),
    ),
    Prose(
        "12_attention",
        "on this GPU, and ours only {}.",
        "h200",
        "attention/forward",
        lambda forward: (f"{_tflop(forward)[THIS_LESSONS]:.0f}",),
    ),
    Prose(
        "12_attention",
        "without a mask, the fastest position takes {} % longer than cuDNN with a head size of 64, and {} % "
        "longer with 128",
        "h200",
        "attention/launch-sweep",
        _behind_cudnn,
    ),
    Prose(
        "11_matmul",
        "On the recorded H200, the product alone takes {} µs and the rest {}, so fusing could gain {} %. "
        "Compared with *torch*, it gains {} %, because the epilogue adds {} µs to the product. With k = 256, "
        "it adds {} µs, and fusing gains {} %.",
        "h200",
        "matmul/epilogue",
        _fused_gains,
    ),
    Prose(
        "12_attention",
        "On the recorded H200, with 8,192 tokens, our kernel is {} times as fast with the mask, not 1.97 "
        "times. FlashAttention-2 gets {}, because",
        "h200",
        "attention/causal",
        _mask_gains,
    ),
    Prose(
        "12_attention",
        "On the recorded H200, 16 parts give nearly every SM work, and the time falls from {} to {} µs. "
        "More parts don't help. PyTorch's own kernel takes {} µs.",
        "h200",
        "attention/decode",
        lambda decode: tuple(f"{_us(decode)[name]:.0f}" for name in ("1 parts", "16 parts", "torch")),
    ),
    Prose(
        "12_attention",
        "the two shares add up to {} % for the workbook's kernel and {} % for cuDNN's",
        "h200",
        "attention/busy-units",
        _busy_together,
    ),
]

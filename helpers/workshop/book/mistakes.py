"""The page "Mistakes of the field, measured": what is often said of this material, and what came out.

Each figure is computed from the records, for every GPU that has the record; what needs no GPU is said in words. The cell that
shows it is one click away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import records
from helpers.records.files import read_cases
from helpers.workshop.book import places

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Kept:
    """What one GPU's record of a mistake holds.

    Attributes:
        gpu, day: where and when it was measured.
        copy_gb_per_s: what a copy reached on that GPU, decimal GB/s.
        peak_gb_per_s: what its memory delivers at most; None where the driver does not tell.
        case: the record's first case.
        file: the report or trace that it names; None for a table.
    """

    gpu: str
    day: str
    copy_gb_per_s: float
    peak_gb_per_s: float | None
    case: dict[str, Any]
    file: Path | None

    @property
    def rows(self) -> pd.DataFrame:
        """The record's table."""
        import pandas as pd

        table = pd.DataFrame(self.case["rows"], columns=self.case["columns"])
        table.attrs["provenance"] = records.Provenance(**self.case["provenance"])
        return table


@dataclass(frozen=True)
class Mistake:
    """Something that is often said.

    Attributes:
        claim: what is said.
        is_so: what is so instead, without a measured figure.
        lesson, cell: the cell that shows it, and `about`, which stands in it.
        record: the record that the figures are computed from; "" where none are.
        figures: makes a sentence from what one GPU has kept.
    """

    claim: str
    is_so: str
    lesson: str
    cell: str
    about: str
    record: str = ""
    figures: Callable[[Kept], str] | None = None


def kept(record: str) -> list[Kept]:
    """What each GPU has of a record, in the order in which sets are replayed."""
    found = []
    for gpu in records.sets():
        path = records.folder() / gpu / f"{record}.json"
        if path.is_file():
            case = read_cases(path)[0]
            provenance = case["provenance"]
            spec = provenance["gpu"]
            file = path.parent / case["file"] if "file" in case else None
            found.append(
                Kept(
                    spec["name"], provenance["date"], spec["copy_gb_per_s"], spec["peak_gb_per_s"], case, file
                )
            )
    return found


def pages(root: Path) -> dict[str, str]:
    """The page of mistakes.

    Args:
        root: the checkout.

    Returns:
        {"mistakes.md": MyST Markdown}.

    Raises:
        KeyError: a mistake names a cell that its lesson does not have.
    """
    lines = [
        "# Mistakes of the field, measured",
        "",
        f"{len(MISTAKES)} things that are often said of this material, and what came out when they were tried. Each links the "
        "cell that shows it, so that you can try it too.",
        "",
    ]
    for number, one in enumerate(MISTAKES, 1):
        where = places.link(root, one.lesson, one.cell, f"Lesson {one.lesson[:2]}")
        lines += [f"## {number}. {one.claim}", "", f"{one.is_so} {where}", ""]
        if one.figures is not None:
            lines += [f"- {k.gpu}, {k.day}: {one.figures(k)}" for k in kept(one.record)]
            lines.append("")
    return {"mistakes.md": "\n".join(lines)}


# ------------------------------------------------------------------------------- what the records say


def _grid(k: Kept) -> str:
    plain, bf16 = k.rows.iloc[0], k.rows.iloc[-1]
    return (
        f"`vectorized_elementwise_kernel<4, …>` squared {plain.n_elements:,} floats in {plain.grid[0]:,} blocks of "
        f"{plain.block[0]}; for bf16 the number was {bf16['name'].split('<')[1].split(',')[0]} and the grid "
        f"{'the same' if bf16.grid == plain.grid else 'another'}."
    )


def _fixed_block(k: Kept) -> str:
    last = k.rows.iloc[-1]
    passed = "passed" if last.allclose_passes else "failed"
    return (
        f"at {last.n_cols:,} columns the benchmark claims {last.claimed_gb_per_s:,.0f} GB/s{_of_peak(k, last.claimed_gb_per_s)}; "
        f"{last.columns_written:,} columns were written, at {last.really_gb_per_s:,.0f} GB/s, and `torch.allclose` {passed}."
    )


def _of_peak(k: Kept, gb_per_s: float) -> str:
    return f", {gb_per_s / k.peak_gb_per_s:.1f} times the memory's peak" if k.peak_gb_per_s else ""


def _stays_in_l2(k: Kept) -> str:
    from helpers import ncu

    said = []
    for launch in ncu.load_report(k.file):
        rows, us = launch.grid[0], launch.duration_us
        n_bytes = rows * 4096 * 4
        dram = launch.metrics["dram__bytes_read.sum"] + launch.metrics["dram__bytes_write.sum"]
        if rows in (512, 4096):
            said.append(
                f"{rows:,} rows {2 * n_bytes / us / 1e3:,.0f} GB/s effective, {dram / us / 1e3:,.0f} GB/s at the DRAM, which "
                f"had got {launch.metrics['dram__bytes_write.sum'] / n_bytes:.0%} of the output when the kernel ended"
            )
    return "; ".join(said) + "."


def _winner(k: Kept) -> str:
    means = k.rows
    fast, slow = means.loc[means.mean_us.idxmin()], means.loc[means.mean_us.idxmax()]
    return (
        f"of three races of one and the same kernel, {fast.kernel} “wins” over {slow.kernel} by "
        f"{slow.mean_us / fast.mean_us - 1:.0%} in the mean of ten; {slow.kernel}'s first run took {slow.first_us:,.0f} µs, "
        f"its median is {slow.median_us:,.0f} µs."
    )


def _compiled_inside(k: Kept) -> str:
    of = k.rows.pivot(index="n_cols", columns="torch.compile", values="gb_per_s").iloc[-1]
    return (
        f"{of['inside the lambda, do_bench']:,.0f} GB/s where the same code reaches {of['outside, device clock']:,.0f} "
        f"(4,096 × {of.name:,} fp32)."
    )


def _timers(k: Kept) -> str:
    tiny, fits = k.rows.iloc[0], k.rows.iloc[1]
    return (
        f"a kernel of {tiny['trace']:.1f} µs takes {tiny['do_bench']:.1f} µs by `do_bench`; one of {fits['trace']:.1f} µs, whose "
        f"data fits into the L2, {fits['do_bench_cudagraph']:.1f} µs by `do_bench_cudagraph`."
    )


def _doubles(k: Kept) -> str:
    us = k.rows.set_index("kernel").median_us
    return (
        f"with `0.5` {us['0.5'] / us['0.5f']:.2f} times as long as with `0.5f`, with `pow` beside it "
        f"{us['0.5 and pow'] / us['0.5f']:.2f} times."
    )


def _sectors(k: Kept) -> str:
    from helpers import ncu

    excess = ncu.sectors(ncu.load_report(k.file)).excess_percent
    return (
        f"rows of 781 floats side by side ask for {excess[0]:.0f}% too many sectors, with nothing masked off "
        f"{excess[1]:.0f}%; the same rows 792 floats apart, masked, {excess[2]:.0f}%."
    )


def _copied(k: Kept) -> str:
    from helpers import trace

    moved = trace.kernels(trace.load_trace(k.file))
    copy_us, square_us = moved.duration_us[moved.kind.isin(["memcpy", "kernel"])][:2]
    return (
        f"`Memcpy HtoD (Pageable -> Device)` took {copy_us / 1e3:,.1f} ms, the square {square_us / 1e3:,.2f} ms: "
        f"{square_us / (copy_us + square_us):.1%} of the two."
    )


def _padded(k: Kept) -> str:
    from helpers import ncu

    # fp32 and bf16, each at 8,192 and at 8,320 columns; time an element, so that the longer row is no slower by itself
    us = [launch.duration_us / n for launch, n in zip(ncu.load_report(k.file), (8192, 8320) * 2, strict=True)]
    return (
        f"GB/s change by {us[0] / us[1] - 1:+.1%} in fp32 and by {us[2] / us[3] - 1:+.1%} in bf16, from 8,192 columns to 8,320 in "
        "a block of 16,384."
    )


def _buffers(k: Kept) -> str:
    of = k.rows.set_index("input").gb_per_s
    warm = of["fits the L2, warm"]
    return (
        f"{warm:,.0f} GB/s on a buffer that stays in the L2{_of_peak(k, warm)}, {of['fits the L2, cold']:,.0f} when it is cold; "
        f"{of['big, zeros, cold']:,.0f} on zeros against {of['big, random, cold']:,.0f} on random numbers."
    )


def _more_warps(k: Kept) -> str:
    from helpers.lessons import resident

    launches = resident.launches(k.rows)
    wins, pairs = resident.faster_with_more(launches)
    few = launches[launches.warps_percent < 25].nsmallest(1, "ncu_us").iloc[0]
    many = launches[launches.warps_percent > 60].nlargest(1, "ncu_us").iloc[0]
    return (
        f"of {pairs:,} pairs of launches of one kernel on one matrix, the one with more resident warps was faster in {wins / pairs:.0%}. "
        f"One with {few.warps_percent:.0f}% of the warps, each thread with {4 * few.BLOCK_SIZE / few.num_warps / 32:.0f} bytes on their "
        f"way, took {few.ncu_us:,.0f} µs, one with {many.warps_percent:.0f}% and {4 * many.BLOCK_SIZE / many.num_warps / 32:.0f} bytes {many.ncu_us:,.0f}."
    )


MISTAKES = (
    Mistake(
        "“In `vectorized_elementwise_kernel<4, …>` the 4 is the number of blocks”",
        "It is the vector width: how many elements one load moves.",
        "01_profiling", "vector-widths", "plain.grid", "profiling/vector-widths", _grid,
    ),
    Mistake(
        "“Fixing `BLOCK_SIZE` at 1024 makes Triton much faster”",
        "With one program a row it squares the first 1,024 columns and leaves the rest. The check passes because `empty_like` got "
        "back the memory of an earlier right answer.",
        "03_triton", "claimed-table", "claimed_gb_per_s", "triton/fixed-block", _fixed_block,
    ),
    Mistake(
        "“`triton.jit(interpret=True)` runs a kernel in Python”",
        "There is no such argument any more: a TypeError. `TRITON_INTERPRET=1`, set before Triton is imported, does it.",
        "03_triton", "interpret-argument", "triton.jit(interpret=True)",
    ),
    Mistake(
        "“`profile(use_cuda=True)`”",
        "It is deprecated, and gone in newer releases: `activities` says what `torch.profiler.profile` records.",
        "01_profiling", "use-cuda", "use_cuda=True",
    ),
    Mistake(
        "“Eight loads: the GPU has eight registers”",
        "A block of 1,024 elements over the 128 threads of four warps is eight a thread. With eight warps it is four.",
        "04_ptx", "eight-warps", "1024 / threads",
    ),
    Mistake(
        "“`tl.load` brings the row into SRAM”",
        "No instruction of the square's PTX names shared memory: the row is in registers.",
        "04_ptx", "where-is-the-row", "uses_shared",
    ),
    Mistake(
        "“`and.b32 …, 127` is the mask”",
        "It keeps seven bits: the thread's index within 128. The mask is a comparison with `n_cols`.",
        "04_ptx", "the-127", "& 127",
    ),
    Mistake(
        "“GB/s is what the memory delivered”",
        "Effective bandwidth counts what the operation must move. What a small kernel writes is still in the L2 when it ends.",
        "05_ncu", "bandwidth-table", "effective (GB/s)", "ncu/five-grids", _stays_in_l2,
    ),
    Mistake(
        "“Higher occupancy is faster”",
        "Occupancy counts the warps that wait. How busy memory is follows the bytes that they wait for at once.",
        "05_ncu", "reveal-more-warps", "faster_with_more", "triton/launch-sweep-counters", _more_warps,
    ),
    Mistake(
        "“Ten runs each, and the best mean wins”",
        "A mean that holds the first run, or a single timing, gives equals a winner. A median of many, with an interval, and a "
        "comparison of a thing with itself do not.",
        "01_profiling", "mean-with-first-run", "mean_us", "profiling/mean-with-first-run", _winner,
    ),
    Mistake(
        "“`do_bench(lambda: torch.compile(f)(x))` times compiled code”",
        "It times what `torch.compile` does in Python at each call. Compile outside.",
        "03_triton", "compile-inside", "inside the lambda", "triton/compile-inside", _compiled_inside,
    ),
    Mistake(
        "“`do_bench` says how long the kernel takes”",
        "It says how long from mark to mark, which holds the gap of a launch. `do_bench_cudagraph` says how long again and again, "
        "with what the cache still has. Both answer other questions.",
        "01_profiling", "do-bench", "do_bench_cudagraph", "profiling/three-timers", _timers,
    ),
    Mistake(
        "“A missing `f` costs nothing”",
        "`0.5` is a double, and makes `tanh` one. The result is right, the time another. `pow` for a cube costs more.",
        "02_load_inline", "gelu-time", "gelu-rungs", "load_inline/gelu-rungs", _doubles,
    ),
    Mistake(
        "“Softmax in five operations reads 5MN + M elements”",
        "It reads 5MN + 2M, since the last division reads the denominators too, and writes 3MN + 2M, and M indices of 8 bytes "
        "that `max` returns beside.",
        "06_fusion", "count-traffic", "count_traffic",
    ),
    Mistake(
        "“The mask makes accesses uncoalesced”",
        "The stride does: rows of 3,124 bytes begin off a boundary of 32 in seven rows of eight.",
        "05_ncu", "mask-table", "counted", "ncu/alignment", _sectors,
    ),
    Mistake(
        "“A profile of `square(randn(…).cuda())` shows the square”",
        "It shows the copy from the host. Make the data on the GPU, or move it once before.",
        "01_profiling", "made-on-host", "pageable", "profiling/made-on-host", _copied,
    ),
    Mistake(
        "“Padding to a power of two is free”, and “it doubles the time”",
        "Masked lanes load nothing, but they compute and sit in registers. What that costs depends on what there was to spare.",
        "06_fusion", "read-padding", "8320", "fusion/padding", _padded,
    ),
    Mistake(
        "“Any buffer will do for a benchmark”",
        "One that fits into the L2 shows the cache. Zeros do not change the time of a kernel that waits for memory, but they hide "
        "wrong results.",
        "01_profiling", "wrong-buffers", "l2_bytes", "profiling/wrong-buffers", _buffers,
    ),
)  # fmt: skip

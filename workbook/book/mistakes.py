"""The page of common mistakes, each with the figures that every recorded GPU has for it.

`docs/book/mistakes.yaml` has the text. Here each record that it names has a function, which computes the
values for the placeholders in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import records
from helpers.records.files import read_cases
from workbook.book.course import SOURCES, cell_link, read_yaml

if TYPE_CHECKING:
    import pandas as pd

_INTRODUCTION = (
    "# Common mistakes, measured\n\n"
    "People often say these {count} things about GPU kernels. Here is what we measured. Each answer links to "
    "the cell that shows it, so that you can try it yourself.\n"
)


@dataclass(frozen=True)
class Measured:
    """One GPU's record of a mistake.

    Attributes:
        gpu, day: Where and when it was measured.
        peak_gb_per_s: The peak bandwidth of its memory, in decimal GB/s.
        case: The record's first case.
        file: The report or trace that the record names; None for a table.
    """

    gpu: str
    day: str
    peak_gb_per_s: float
    case: dict[str, Any]
    file: Path | None

    @property
    def rows(self) -> pd.DataFrame:
        """The record's table."""
        import pandas as pd

        table = pd.DataFrame(self.case["rows"], columns=self.case["columns"])
        table.attrs["provenance"] = records.Provenance(**self.case["provenance"])
        return table


def mistakes(root: Path) -> list[dict[str, str]]:
    """The entries of `docs/book/mistakes.yaml`; none if the checkout has no such file."""
    return read_yaml(root / SOURCES / "mistakes.yaml") or []


def measured(record: str) -> Iterator[Measured]:
    """Each GPU's measurement of a record, in the order in which the sets are replayed."""
    for gpu in records.sets():
        path = records.folder() / gpu / f"{record}.json"
        if path.is_file():
            case = read_cases(path)[0]
            spec = case["provenance"]["gpu"]
            file = path.parent / case["file"] if "file" in case else None
            yield Measured(spec["name"], case["provenance"]["date"], spec["peak_gb_per_s"], case, file)


def page(root: Path) -> str:
    """The page as Markdown.

    Raises:
        KeyError: An entry names a record or a value that this module doesn't compute.
    """
    found = mistakes(root)
    parts = [_INTRODUCTION.format(count=len(found))]
    for number, one in enumerate(found, 1):
        parts.append(f"## {number}. {one['claim']}\n\n{one['answer']} {cell_link(one['cell'])}\n")
        if "record" in one:
            parts.append("".join(f"- {line}\n" for line in figures(one)))
    return "\n".join(parts)


def figures(mistake: dict[str, str]) -> Iterator[str]:
    """A line per GPU: its name, the day, and the entry's text with the values from the record."""
    values = _VALUES[mistake["record"]]
    for one in measured(mistake["record"]):
        yield f"{one.gpu}, {one.day}: {mistake['measured'].format(**values(one))}"


# ------------------------------------------------------------------------------- values from the records


def _vector_widths(one: Measured) -> dict[str, Any]:
    plain, bf16 = one.rows.iloc[0], one.rows.iloc[-1]
    return {
        "elements": plain.n_elements,
        "blocks": plain.grid[0],
        "threads": plain.block[0],
        "bf16_width": bf16["name"].split("<")[1].split(",")[0],
        "bf16_blocks": bf16.grid[0],
    }


def _fixed_block(one: Measured) -> dict[str, Any]:
    widest = one.rows.iloc[-1]
    return {
        "columns": widest.n_cols,
        "claimed": widest.claimed_gb_per_s,
        "times_peak": widest.claimed_gb_per_s / one.peak_gb_per_s,
        "written": widest.columns_written,
        "actual": widest.really_gb_per_s,
        "verdict": "passed" if widest.allclose_passes else "failed",
    }


def _five_grids(one: Measured) -> dict[str, Any]:
    from helpers import ncu

    sizes = {512: "small", 4096: "large"}
    values = {}
    for launch in ncu.load_report(one.file):
        if size := sizes.get(rows := launch.grid[0]):
            n_bytes, written = rows * 4096 * 4, launch.metrics["dram__bytes_write.sum"]
            moved = launch.metrics["dram__bytes_read.sum"] + written
            values[f"{size}_effective"] = 2 * n_bytes / launch.duration_us / 1e3
            values[f"{size}_dram"] = moved / launch.duration_us / 1e3
            values[f"{size}_written"] = written / n_bytes
    return values


def _more_warps(one: Measured) -> dict[str, Any]:
    from helpers.lessons import occupancy

    pair = occupancy.same_warps(occupancy.launches(one.rows))
    narrow, wide = pair.itertuples()
    return {"warps": wide.warps, "narrow_us": narrow.ncu_us, "wide_us": wide.ncu_us}


def _equal_race(one: Measured) -> dict[str, Any]:
    times = one.rows
    wins = times.idxmin(axis=1).value_counts()
    means = times.head(10).mean()
    return {
        "rounds": len(times),
        "wins": ", ".join(f"{name} {wins.get(name, 0)}" for name in times.columns),
        "lead": means.max() / means.min() - 1,
    }


def _compile_inside(one: Measured) -> dict[str, Any]:
    widest = one.rows.pivot(index="n_cols", columns="torch.compile", values="gb_per_s").iloc[-1]
    return {
        "inside": widest["inside the lambda, do_bench"],
        "outside": widest["outside, device clock"],
        "columns": widest.name,
    }


def _three_timers(one: Measured) -> dict[str, Any]:
    tiny, cached = one.rows.iloc[0], one.rows.iloc[1]
    return {
        "tiny_us": tiny["trace"],
        "tiny_do_bench_us": tiny["do_bench"],
        "cached_us": cached["trace"],
        "cached_graph_us": cached["do_bench_cudagraph"],
    }


def _gelu_rungs(one: Measured) -> dict[str, Any]:
    us = one.rows.set_index("kernel").median_us
    return {"double": us["0.5"] / us["0.5f"], "double_and_pow": us["0.5 and pow"] / us["0.5f"]}


def _alignment(one: Measured) -> dict[str, Any]:
    from helpers import ncu

    excess = ncu.sectors(ncu.load_report(one.file)).excess_percent
    return {"masked": excess[0], "unmasked": excess[1], "aligned": excess[2]}


def _made_on_host(one: Measured) -> dict[str, Any]:
    from helpers import trace

    found = trace.kernels(trace.load_trace(one.file))
    copy_us, square_us = found.duration_us[found.kind.isin(["memcpy", "kernel"])][:2]
    return {
        "copy_ms": copy_us / 1e3,
        "square_ms": square_us / 1e3,
        "share": square_us / (copy_us + square_us),
    }


def _padding(one: Measured) -> dict[str, Any]:
    from helpers import ncu

    # The report has fp32 and bf16, each at 8,192 and at 8,320 columns. Per column, the rows compare.
    columns = (8192, 8320) * 2
    us = [launch.duration_us / n for launch, n in zip(ncu.load_report(one.file), columns, strict=True)]
    return {"fp32": us[0] / us[1] - 1, "bf16": us[2] / us[3] - 1}


def _wrong_buffers(one: Measured) -> dict[str, Any]:
    speed = one.rows.set_index("input").gb_per_s
    warm = speed["fits the L2, warm"]
    return {
        "warm": warm,
        "times_peak": warm / one.peak_gb_per_s,
        "cold": speed["fits the L2, cold"],
        "zeros": speed["big, zeros, cold"],
        "random": speed["big, random, cold"],
    }


_VALUES: dict[str, Callable[[Measured], dict[str, Any]]] = {
    "profiling/vector-widths": _vector_widths,
    "triton/fixed-block": _fixed_block,
    "ncu/five-grids": _five_grids,
    "triton/launch-sweep-counters": _more_warps,
    "profiling/equal-race": _equal_race,
    "triton/compile-inside": _compile_inside,
    "profiling/three-timers": _three_timers,
    "load_inline/gelu-rungs": _gelu_rungs,
    "ncu/alignment": _alignment,
    "profiling/made-on-host": _made_on_host,
    "fusion/padding": _padding,
    "profiling/wrong-buffers": _wrong_buffers,
}

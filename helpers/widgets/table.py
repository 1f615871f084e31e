"""What the sliders of `helpers.widgets` move over: launch parameters crossed with sizes, checked and timed.

A `Space` is a grid of points for some kernels that square a matrix of 4,096 rows, or do something else to one. Its table has a row for each kernel
and point; `Table` finds rows in it, and on a GPU measures those that are still missing. Each row also holds what the
compiler made of the kernel that was timed, so that the sentence under a figure is about that very kernel.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from helpers import device, records

if TYPE_CHECKING:
    import pandas as pd

N_ROWS = 4096
ROWS, FLAT, CUDA = "Triton rows", "Triton flat", "CUDA C++"
TORCH, COMPILED = "torch.square", "torch.compile"
BYTES = {"float32": 4, "bfloat16": 2}
FACTS = ("threads", "registers", "spill_bytes", "shared_bytes", "loads", "load_bytes")
RESULTS = ("median_us", "ci_low_us", "ci_high_us", "gb_per_s", "verdict", "reason")
WORDS = {
    "block_size": "BLOCK_SIZE",
    "num_warps": "num_warps",
    "n_cols": "columns, N",
    "dtype": "dtype",
    "block_x": "block, x",
    "block_y": "block, y",
    "padding": "row padding",
    "offset": "first element",
}
UNITS = {"block_size": "elements", "block_x": "threads", "block_y": "threads", "padding": "elements",
         "offset": "elements", "num_warps": "warps a program"}  # fmt: skip


@dataclass(frozen=True)
class Space:
    """A grid of points and the kernels that are compared on it.

    Attributes:
        name: how `explore(over=...)` calls it.
        record: the record that holds its table.
        x, y: the two axes of the heat map.
        axes: every slider with its values; `n_cols` and `dtype` are always among them.
        mapped: the kernels that depend on all axes.
        rivals: the kernels that depend on size and dtype only.
        start: the sliders' first positions.
        operation: what the kernels compute, in a word or two for titles.
        n_elements: of every matrix, so that rows grow fewer as they grow wide; None where there are 4,096 rows.
    """

    name: str
    record: str
    x: str
    y: str
    axes: Mapping[str, tuple]
    mapped: tuple[str, ...]
    rivals: tuple[str, ...]
    start: Mapping[str, Any]
    operation: str = "square"
    n_elements: int | None = None

    def rows(self, n_cols: int) -> int:
        """The rows of a matrix of so many columns."""
        return N_ROWS if self.n_elements is None else max(1, self.n_elements // n_cols)

    def key(self, kernel: str, point: Mapping[str, Any]) -> tuple:
        """What tells this kernel's row at a point from all others."""
        axes = self.axes if kernel in self.mapped else ("n_cols", "dtype")
        return kernel, *(point[a] for a in axes)

    def points(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every kernel with each of its points, grouped so that neighbours share a compiled kernel."""
        small = {name: self.axes[name] for name in ("dtype", "n_cols")}
        for kernel in (*self.mapped, *self.rivals):
            axes = {n: v for n, v in self.axes.items() if n not in small} if kernel in self.mapped else {}
            for values in itertools.product(*axes.values(), *small.values()):
                yield kernel, dict(zip((*axes, *small), values, strict=True))


_DTYPES = ("float32", "bfloat16")
SPACES = {
    space.name: space
    for space in (
        Space(
            "launch",
            "triton/launch-sweep",
            "num_warps",
            "block_size",
            {
                "block_size": tuple(2**i for i in range(6, 14)),
                "num_warps": (1, 2, 4, 8, 16, 32),
                "n_cols": (256, 512, 781, 1024, 1536, 2048, 4096, 8192),
                "dtype": _DTYPES,
            },
            (ROWS, FLAT),
            (CUDA, TORCH, COMPILED),
            {"block_size": 4096, "num_warps": 8, "n_cols": 4096, "dtype": "float32"},
        ),
        Space(
            "shape",
            "load_inline/shape-sweep",
            "block_x",
            "block_y",
            {
                "block_x": tuple(2**i for i in range(11)),
                "block_y": (1, 2, 4, 8, 16, 32, 64, 128, 256),
                "n_cols": (256, 781, 1024, 4096, 8192),
                "dtype": ("float32",),
            },
            (CUDA,),
            (ROWS, FLAT, TORCH),
            {"block_x": 16, "block_y": 16, "n_cols": 4096, "dtype": "float32"},
        ),
        Space(
            "alignment",
            "triton/alignment-sweep",
            "offset",
            "padding",
            {
                "padding": (0, 1, 2, 4, 8, 16, 32),
                "offset": (0, 1, 2, 4, 8, 16),
                "n_cols": (1024, 4096),
                "dtype": _DTYPES,
            },
            (ROWS, TORCH),
            (),
            {"padding": 0, "offset": 0, "n_cols": 4096, "dtype": "float32"},
        ),
    )
}


# ------------------------------------------------------------------------------------------- the table


@dataclass
class Table:
    """The rows of a space that are known, and whether this machine can measure the others."""

    space: Space
    spec: device.GpuSpec
    live: bool
    date: str = ""
    rows: dict[tuple, dict[str, Any]] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """Where the figures come from, for the figure itself."""
        return f"live on {self.spec.name}" if self.live else f"replayed: {self.spec.name}, {self.date}"

    def row(self, kernel: str, point: Mapping[str, Any]) -> dict[str, Any] | None:
        """A known row, or None."""
        return self.rows.get(self.space.key(kernel, point))

    def measured(self, kernel: str, point: Mapping[str, Any]) -> dict[str, Any] | None:
        """A row; on a GPU one that is missing is checked and timed first."""
        key = self.space.key(kernel, point)
        if key not in self.rows and self.live:
            from helpers.widgets import measure as widgets_measure

            self.rows[key] = widgets_measure.measure(self.space, kernel, point)
        return self.rows.get(key)


def load(space: Space, *, replay: bool = False) -> Table:
    """The space's table: recorded where there is no GPU, empty and to be filled where there is one.

    While records are being made (`make record`) the whole space is measured.

    Args:
        space: which one.
        replay: take the record even on a GPU, for a figure that can measure nothing itself.

    Raises:
        helpers.records.NoRecord: nothing recorded, and no GPU here or `replay`.
    """
    from helpers.widgets import measure as widgets_measure

    here, recording = device.has_gpu(), os.environ.get("WORKBOOK_RECORD") == "1"
    if here and not recording and not replay:
        return Table(space, device.gpu_spec(), live=True)

    def measure() -> list[dict[str, Any]]:
        if not recording:
            raise records.CannotMeasure(
                "These sliders move over a whole sweep, which is not measured in passing."
            )
        return widgets_measure.record(space)

    frame = records.measured(space.record, measure, sources=widgets_measure.sources(space))
    return from_frame(space, frame, live=here and recording)


def from_frame(space: Space, frame: pd.DataFrame, *, live: bool = False) -> Table:
    """A table from rows that `records.measured` returned."""
    provenance = frame.attrs["provenance"]
    table = Table(space, device.GpuSpec.from_dict(provenance.gpu), live, provenance.date)
    for row in frame.to_dict("records"):
        clean = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
        for name in (*space.axes, *FACTS):
            if isinstance(clean.get(name), float):
                clean[name] = int(clean[name])
        table.rows[space.key(clean["kernel"], clean)] = clean
    return table


# ------------------------------------------------------------------------------------------- the sentence


def n_blocks(space: Space, row: Mapping[str, Any]) -> int:
    """Blocks (programs) that the launch behind a row has."""
    n = row["n_cols"]
    if row["kernel"] == CUDA:
        bx, by = row.get("block_x") or 32, row.get("block_y") or 8
        return math.ceil(n / bx) * math.ceil(space.rows(n) / by)
    if row["kernel"] == FLAT:
        return math.ceil(space.rows(n) * n / (row.get("block_size") or 1024))
    return space.rows(n)


def occupancy(spec: device.GpuSpec, threads: int, registers: int, shared_bytes: int) -> tuple[int, str]:
    """How many blocks an SM holds at once, and what keeps it from holding more.

    Registers are given to a warp in units of 256 (CUDA Occupancy Calculator, compute capability 7.0 to 9.0).
    """
    warps = math.ceil(threads / spec.warp_size)
    per_warp = math.ceil(registers * spec.warp_size / 256) * 256
    limits = {
        "threads": spec.max_threads_per_sm // (warps * spec.warp_size),
        "blocks": spec.max_blocks_per_sm,
        "registers": spec.registers_per_sm // (per_warp * warps) if per_warp else 10**6,
    }
    if shared_bytes:
        limits["shared memory"] = spec.shared_bytes_per_sm // (shared_bytes + 1024)  # 1 KiB is the system's
    tightest = min(limits, key=limits.get)
    return limits[tightest], tightest


def reason(table: Table, row: Mapping[str, Any] | None) -> str:
    """One line on why a kernel is as fast as it is at a point: registers, occupancy, waves, vector width, spills."""
    if row is None:
        return "not measured yet"
    if row["verdict"] != "ok":
        return f"{row['verdict']}: {row['reason']}"
    if not row.get("registers"):
        return "a library's kernel: nothing here compiled it"
    at_once, tightest, busy, waves = _residence(table, row)
    spills = f"{row['spill_bytes']} bytes spilled" if row["spill_bytes"] else "none spilled"
    return (
        f"{row['registers']} registers a thread ({spills}) · {row['loads']} × {row['load_bytes']}-byte loads · "
        f"{at_once} blocks an SM, {busy:.0f} % of its threads (limit: {tightest}) · {waves:,.1f} waves"
    )


def brief(table: Table, row: Mapping[str, Any] | None) -> str:
    """The same for a hover text, of which a figure holds hundreds."""
    if row is None or row["verdict"] != "ok" or not row.get("registers"):
        return reason(table, row)[:90]
    _, _, busy, waves = _residence(table, row)
    spills = f", {row['spill_bytes']} B spilled" if row["spill_bytes"] else ""
    return (
        f"{row['registers']} registers{spills}, {row['loads']} × {row['load_bytes']} B loads<br>"
        f"{busy:.0f} % occupied, {waves:,.1f} waves"
    )


def _residence(table: Table, row: Mapping[str, Any]) -> tuple[int, str, float, float]:
    """Blocks an SM, what limits them, per cent of its threads, waves of the launch."""
    spec = table.spec
    at_once, tightest = occupancy(spec, row["threads"], row["registers"], row["shared_bytes"] or 0)
    busy = 100 * at_once * row["threads"] / spec.max_threads_per_sm
    return at_once, tightest, busy, n_blocks(table.space, row) / max(1, at_once * spec.sm_count)

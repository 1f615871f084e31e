"""The table behind sliders: a row per kernel and point of a `Space`, recorded or measured on demand.

Each row also has facts about the compiled code of the kernel that was timed, so the sentence under a figure
describes exactly that kernel.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from helpers import capabilities, device, records
from helpers.widgets import compile_only, counting, measure
from helpers.widgets.residence import spec_for
from helpers.widgets.space import FACTS, LOOP_FACTS, Space

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class Table:
    """The known rows of a space, and whether this machine can measure the others.

    Attributes:
        space: the space.
        spec: the GPU of the rows.
        live: whether this machine measures what is missing.
        date: the record's date.
        rows: the rows by `Space.key`.
        refusal: a sentence that says why there can't be any rows; "" otherwise.
        timed: False if there is neither a GPU nor a record: what is missing is then compiled for `spec` and
            checked on the CPU.
    """

    space: Space
    spec: device.GpuSpec
    live: bool
    date: str = ""
    rows: dict[tuple, dict[str, Any]] = field(default_factory=dict)
    refusal: str = ""
    timed: bool = True

    @functools.cached_property
    def counted(self) -> dict[tuple, dict[str, Any]]:
        """Nsight Compute's counters by `Space.key`: recorded, or added by `count`."""
        return {} if self.live else counting.known(self.space, self.spec.name)

    def count(self, kernels: Sequence[str], point: Mapping[str, Any]) -> None:
        """Have Nsight Compute count kernels at a point, and store the counters.

        Raises:
            helpers.ncu.NcuError, ValueError: see `counting.count`.
        """
        found = counting.count(self.space, [(kernel, point) for kernel in kernels])
        for kernel, row in zip(kernels, found, strict=True):
            if row is not None:
                self.counted[self.space.key(kernel, point)] = row

    @property
    def origin(self) -> str:
        """Where the figures come from, or why there are none."""
        if self.refusal:
            return self.refusal
        if not self.timed:
            missing = "there is no GPU and no record yet" if self.space.record else "no GPU is here"
            return (
                f"not timed, since {missing} · compiled for {self.spec.target}, occupancy of {self.spec.name}"
            )
        return f"live on {self.spec.name}" if self.live else f"replayed: {self.spec.name}, {self.date}"

    @property
    def note(self) -> str:
        """The origin, and what was checked."""
        checked = "every kernel was checked before it was timed" if self.timed else "every point is checked"
        return f"{self.origin} · {checked}"

    @property
    def unit(self) -> str:
        """The unit of maps: GB/s or TFLOP/s, or percent of an SM's threads if nothing is timed."""
        return self.space.speed.unit if self.timed else "% occupied"

    def value(self, row: Mapping[str, Any] | None) -> float | None:
        """The value of a row in bars; None if the kernel isn't right, or nothing is known.

        If nothing is timed, it is the occupancy. A kernel that arithmetic limits then has no bar, because a
        fast product occupies an SM with a few warps only.
        """
        return self.shade(row) if self.timed or self.space.n_flops is None else None

    def shade(self, row: Mapping[str, Any] | None) -> float | None:
        """The value of a row in the map: as in bars, but always the occupancy if nothing is timed."""
        if row is None:
            return None
        if self.timed:
            return row[self.space.speed.column] if row["verdict"] == "ok" else None
        return row["occupancy"] if row["verdict"] == compile_only.RIGHT else None

    def ceiling(self, dtype: str) -> float | None:
        """What was measured as the most that kernels of a dtype can reach on this GPU; None if unknown."""
        if not self.timed or self.space.n_flops is None:
            return self.spec.copy_gb_per_s
        peaks = (row.get("peak_tflop_per_s") for row in self.rows.values() if row["dtype"] == dtype)
        return next((peak for peak in peaks if peak), None)

    def row(self, kernel: str, point: Mapping[str, Any]) -> dict[str, Any] | None:
        """A known row, or None."""
        return self.rows.get(self.space.key(kernel, point))

    def measured(
        self, kernel: str, point: Mapping[str, Any], *, budget_s: float = 0.1
    ) -> dict[str, Any] | None:
        """A row. A missing one is checked and timed on a GPU; without one, it is compiled and checked."""
        key = self.space.key(kernel, point)
        if key not in self.rows and self.live:
            if self.timed:
                self.rows[key] = measure.measure(self.space, kernel, point, budget_s=budget_s)
            else:
                self.rows[key] = compile_only.inspect(self.space, kernel, point, self.spec)
        return self.rows.get(key)


def load(space: Space, *, replay: bool = False) -> Table:
    """The table of a space: empty and to be filled on a GPU, and the record without one.

    If a kernel has changed since it was recorded, the table is empty and has a `refusal`. If nothing is
    recorded, points are compiled and checked without a GPU. `make record` measures the whole space.

    Args:
        space: the space.
        replay: use the record even on a GPU, for a figure that can't measure anything itself.

    """
    decision = capabilities.decide(space.record)
    here, recording = decision.action == capabilities.RUN, os.environ.get("WORKBOOK_RECORD") == "1"
    if here and not recording and not replay:
        return Table(space, device.gpu_spec(), live=True)

    def whole_space() -> list[dict[str, Any]]:
        if not recording:
            raise records.CannotMeasure(
                "These sliders need a whole sweep, which takes too long to measure here."
            )
        return measure.record(space)

    try:
        frame = records.measured(space.record, whole_space, sources=space.sources())
    except records.KernelChanged as changed:
        return Table(space, records.gpu_spec(), live=False, refusal=str(changed))
    except records.NoRecord as missing:
        if device.has_gpu():
            return Table(space, records.gpu_spec(), live=False, refusal=str(missing))
        return own_table(space, None)
    return from_frame(space, frame, live=here and recording)


def from_frame(space: Space, frame: pd.DataFrame, *, live: bool = False) -> Table:
    """A table from rows that `records.measured` returned."""
    provenance = frame.attrs["provenance"]
    table = Table(space, device.GpuSpec.from_dict(provenance.gpu), live, provenance.date)
    for row in frame.to_dict("records"):
        clean = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
        for name in (*space.axes, *FACTS, *LOOP_FACTS[:2]):
            if isinstance(clean.get(name), float):
                clean[name] = int(clean[name])
        table.rows[space.key(clean["kernel"], clean)] = clean
    return table


def own_table(space: Space, target: str | int | None) -> Table:
    """An empty table for a learner's function: timed on this GPU or, without one, compiled for another.

    Raises:
        ValueError: `target` is not this machine's GPU.
    """
    if not device.has_gpu():
        # A copy's speed is no reference for what was never timed.
        return Table(space, replace(spec_for(target), copy_gb_per_s=None), live=True, timed=False)
    here = device.gpu_spec()
    if target is not None and spec_for(target).target != here.target:
        raise ValueError(
            f"target={target!r} is for machines without a GPU; here positions are timed on {here.name}."
        )
    return Table(space, here, live=True)


def by_gpu(table: Table) -> dict[str, Table]:
    """A table, and those of other GPUs with a record of the same sweep, by short names such as "H100"."""
    space = table.space
    if not space.record:
        return {"this machine": table}
    kept = records.stored_by_gpu(space.record, sources=space.sources())
    mine = records.gpu_folder_name(table.spec.name)
    first = {"this machine" if table.live else mine.upper(): table}
    others = {gpu.upper(): frame for gpu, frame in kept.items() if table.live or gpu != mine}
    return first | {name: from_frame(space, frame) for name, frame in others.items()}

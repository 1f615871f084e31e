"""The league's table as a whole: the goals it meets, and one row per point."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers.timing.sol import sol_scores
from workbook.bench.table import COPY, OURS, point_name

if TYPE_CHECKING:
    import pandas as pd

WIDE = 65536  # columns from which the goals against eager and torch.compile apply
_LARGE = 64 << 20  # elements from which square and GELU are compared with the copy


@dataclass(frozen=True)
class Goal:
    """One goal: how many points it applies to, and which of them miss it."""

    text: str
    n_points: int
    missed: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """ "pass", "fail", or "not measured" if the goal applies to no point of the table."""
        if not self.n_points:
            return "not measured"
        return "fail" if self.missed else "pass"

    def __repr__(self) -> str:
        met = self.n_points - len(self.missed)
        head = f"{self.verdict:<12} {self.text} ({met} of {self.n_points} points)"
        return "\n".join([head, *(f"{'':<13}{miss}" for miss in self.missed)])


def goals(table: pd.DataFrame) -> list[Goal]:
    """Check every goal against the league's table.

    Our speed relative to another function is `ours_ratio`, that function's time divided by ours. A point
    misses a goal of "1.0 ×" only if the whole interval lies below 1; otherwise it is a tie or a win.
    """
    timed = table[table.median_us.notna()]
    softmax, elementwise = timed[timed.op == "softmax"], timed[timed.op.isin(["square", "gelu"])]
    wide, large = softmax[softmax.n_cols >= WIDE], elementwise[elementwise.n_cols >= _LARGE]
    compiled = ("compile", "compile-max")
    return [
        _at_least("softmax ≥ 0.97 × copy at N ≥ 1,024", _of(softmax[softmax.n_cols >= 1024], [COPY]), 0.97),
        _at_least("softmax ≥ 1.0 × the best peer at every point", _peers(softmax), 1.0),
        _at_least(f"softmax ≥ 1.9 × eager at N ≥ {WIDE:,}", _of(wide, ["eager"]), 1.9),
        _at_least(f"softmax ≥ 1.5 × torch.compile at N ≥ {WIDE:,}", _of(wide, compiled), 1.5),
        _no_cliff(_of(softmax, [OURS])),
        _at_least("square and GELU ≥ 0.99 × copy from 64 M elements", _of(large, [COPY]), 0.99),
        _at_least("square and GELU ≥ 1.0 × eager and compile from 4 K elements", _peers(elementwise), 1.0),
    ]


def _of(rows: pd.DataFrame, names: Collection[str]) -> pd.DataFrame:
    return rows[rows.contestant.isin(names)]


def _peers(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[~rows.contestant.isin([OURS, COPY])]


def _at_least(text: str, rows: pd.DataFrame, least: float) -> Goal:
    edge = rows.ratio_high if least == 1.0 else rows.ours_ratio
    missed = rows[edge < least].sort_values("ours_ratio")
    return Goal(
        text,
        len(rows),
        tuple(
            f"{point_name(row)}: {row['ours_ratio']:.3f} × {row['contestant']} "
            f"({row['ratio_low']:.3f} to {row['ratio_high']:.3f})"
            for row in missed.to_dict("records")
        ),
    )


def _no_cliff(ours: pd.DataFrame) -> Goal:
    """Compare 8,192 columns with 8,320 for each dtype and amount of work."""
    work = (ours.n_rows * ours.n_cols / (1 << 28)).round()
    before, after = (
        ours.assign(work=work)[ours.n_cols == n].set_index(["dtype", "work"]).gb_per_s for n in (8192, 8320)
    )
    steps = (after / before).dropna()
    return Goal(
        "softmax without a cliff: 8,320 columns within 5 % of 8,192",
        len(steps),
        tuple(
            f"{dtype}: 8,320 columns run at {step:.3f} × the GB/s of 8,192"
            for (dtype, _), step in steps.items()
            if step < 0.95
        ),
    )


def summary(table: pd.DataFrame, peak_gb_per_s: float | None = None) -> pd.DataFrame:
    """Summarize the league's table in one row per point.

    Args:
        table: rows with the columns of `table.COLUMNS`.
        peak_gb_per_s: the GPU's peak memory bandwidth; with it the summary has a column `sol_score`.

    Returns:
        Our time and GB/s at each point, and how many times as fast as each other function ours is.
    """
    table = table.assign(point=[point_name(r) for r in table.to_dict("records")])
    columns = ["median_us", "gb_per_s", "host_us"]
    if peak_gb_per_s:
        table["sol_score"] = sol_scores(table, peak_gb_per_s)
        columns.append("sol_score")
    order = list(dict.fromkeys(table.point))
    ours = table[table.contestant == OURS].set_index("point")
    ratios = table.pivot_table(index="point", columns="contestant", values="ours_ratio", aggfunc="last")
    ratios = ratios[[c for c in dict.fromkeys(table.contestant) if c in ratios and c != OURS]]
    figures = ours[columns].join(ratios)
    return figures.reindex([p for p in order if p in figures.index])

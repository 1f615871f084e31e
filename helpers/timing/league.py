"""Many functions that compute the same, timed in turns at one point, and what the table of all points says.

Everything at a point is measured in one run: every round calls each function once behind a flushed L2 cache (a b c, then
c b a, …), so that drift falls on all alike. A ratio is the median over rounds of one function's time over another's in
the same round, with its 95 % interval. What the profiler adds to a function's time is taken off (`helpers.timing.overhead`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers.timing import cupti
from helpers.timing.clock import now_s, wait_for_gpu
from helpers.timing.collect import collect, take_off
from helpers.timing.overhead import suspected_overhead
from helpers.timing.samples import Run
from helpers.timing.stats import median_interval, ratio_interval

if TYPE_CHECKING:
    import pandas as pd
    import torch

COLUMNS = (
    "op",
    "dtype",
    "n_rows",
    "n_cols",
    "contestant",
    "median_us",
    "ci95_low_us",
    "ci95_high_us",
    "gb_per_s",
    "of_copy",
    "ours_ratio",
    "ratio_low",
    "ratio_high",
    "host_us",
    "added_us",
    "note",
)
OURS, COPY = "ours", "copy"
RESULTS = COLUMNS[COLUMNS.index("contestant") :]
PYTORCH = ("eager", "compile", "compile-max")  # the fastest of them is the SOL score's baseline
WIDE = 65536  # columns: from here on the goals against eager and torch.compile hold
_LARGE = 64 << 20  # elements: from here on square and GELU are measured against the copy


@dataclass(frozen=True)
class Standing:
    """One function at one point. `ratio` is its time over the reference function's: above 1, the reference is faster.

    `added_us` is what CUPTI had added to its time, which has been taken off.
    """

    label: str
    median_us: float
    ci95_us: tuple[float, float]
    ratio: float
    ratio_ci95: tuple[float, float]
    n_samples: int
    added_us: float = 0.0


def compare_many(
    functions: Mapping[str, Callable[[], Any]],
    *,
    against: str,
    l2: str = "cold",
    budget_s: float = 0.6,
    min_rounds: int = 20,
) -> dict[str, Standing]:
    """Time several functions in turns and give each one's time over that of `against`.

    Args:
        functions: label to a function without arguments that launches kernels on the current stream. Call each once
            before: what it compiles must be compiled.
        against: the label of the function that the ratios are taken to.
        l2: what a call finds in the L2 cache, as in `timing.time_gpu`.
        budget_s: seconds to measure for; it ends sooner when every ratio's interval is narrower than ±0.2 %.
        min_rounds: rounds to measure at least, whatever the budget.

    Returns:
        A `Standing` for each label, in the order given.

    Raises:
        KeyError: `against` is none of the labels.
        helpers.device.Missing: no GPU.
        helpers.timing.TimingError: a function fails, launches nothing, launches on another stream, or does something else
            when a profiler runs.
    """
    labels = list(functions)
    if against not in functions:
        raise KeyError(f"compare_many: {against!r} is none of the functions {', '.join(labels)}.")
    reference = labels.index(against)

    def narrow(run: Run) -> bool:
        widths = (s.ratio_ci95[1] - s.ratio_ci95[0] for s in standings(labels, run, reference))
        return run.n_rounds >= 50 and all(width <= 0.004 for width in widths)

    run, _ = collect(
        list(functions.values()),
        labels,
        l2=l2,
        budget_s=budget_s,
        narrow=narrow,
        min_rounds=min_rounds,
        max_rounds=200,
    )
    return {s.label: s for s in standings(labels, run, reference)}


def standings(labels: list[str], run: Run, reference: int) -> list[Standing]:
    """A `Standing` for each function, its ratios to the one at the index `reference`."""
    found, base = [], run.functions[reference]
    for i, (label, own) in enumerate(zip(labels, run.functions, strict=True)):
        ratio, interval = 1.0, (1.0, 1.0)
        if i != reference:
            ratio, interval = ratio_interval(
                own.times, base.times, resolution=run.step_us, offsets=(own.unsure_us, base.unsure_us)
            )
        found.append(
            Standing(
                label=label,
                median_us=own.median_us,
                ci95_us=median_interval(own.times, resolution=run.step_us + own.unsure_us),
                ratio=ratio,
                ratio_ci95=interval,
                n_samples=len(own.times),
                added_us=own.added_us,
            )
        )
    return found


def untimeable(functions: Mapping[str, Callable[[], Any]]) -> dict[str, str]:
    """Which of the functions the timer refuses when each is alone, and why."""
    flush, found = cupti.Flush("cold"), {}
    for label, call in functions.items():
        try:
            run = cupti.measure([call], flush, 4)
            take_off(run, suspected_overhead([call], flush, [run.functions[0].median_us]), [label])
        except cupti.TimingError as error:
            found[label] = str(error)
    return found


def host_us(call: Callable[[], Any], *, n_calls: int = 20, repeats: int = 7) -> float:
    """Microseconds of host time a call takes before it returns: the median over `repeats` runs of `n_calls`.

    The GPU is waited for between the runs only, so few calls of a long kernel do not fill its queue.
    """
    found = []
    for _ in range(repeats):
        wait_for_gpu()
        start = now_s()
        for _ in range(n_calls):
            call()
        found.append((now_s() - start) / n_calls * 1e6)
    wait_for_gpu()
    return statistics.median(found)


def on_poisoned_memory(call: Callable[[], Any], like: torch.Tensor) -> Any:
    """What `call()` returns, when the free memory that an output like `like` will get is filled with 0xFF bytes (NaN)."""
    import torch

    # the allocator keeps several small free blocks, and few large ones
    count = 8 if like.nbytes <= 64 << 20 else 1
    poison = [
        torch.empty(like.nbytes, dtype=torch.uint8, device=like.device).fill_(0xFF) for _ in range(count)
    ]
    del poison
    return call()


def check_large(
    name: str,
    call: Callable[[], torch.Tensor],
    reference: Callable[[torch.Tensor], torch.Tensor],
    x: torch.Tensor,
    tolerance: tuple[float, float] | None = None,
) -> None:
    """Raise `check.Mismatch` unless `call()` equals `reference(x)`, computed in float64 a piece at a time.

    The memory that the output will get is filled with 0xFF bytes (NaN) first. `reference` works on rows: it is given
    some of them at a time (some elements, where x is 1-D).
    """
    import torch

    from helpers import check

    got = on_poisoned_memory(call, x)
    if not isinstance(got, torch.Tensor) or (got.shape, got.dtype) != (x.shape, x.dtype):
        raise check.Mismatch(
            f"{name} returned {getattr(got, 'dtype', type(got).__name__)} of shape "
            f"{tuple(getattr(got, 'shape', ()))}; {x.dtype} of shape {tuple(x.shape)} was expected."
        )
    step = max(1, (1 << 25) // (x.shape[1] if x.ndim == 2 else 1))
    for start in range(0, x.shape[0], step):
        piece = slice(start, start + step)
        case = f"{tuple(x.shape)}, from row {start:,} on"
        check.assert_close(name, got[piece], reference(x[piece].double()), case=case, tolerance=tolerance)


def rows_of(
    point: Mapping[str, Any],
    n_bytes: int,
    timed: Mapping[str, Standing],
    host: Mapping[str, float],
    notes: Mapping[str, str],
) -> list[dict[str, Any]]:
    """The table's rows for one point: the contestants that were timed, then those that were not, with the reason as note."""
    copy = timed.get(COPY)
    rows = []
    for label in dict.fromkeys([*timed, *notes]):
        row: dict[str, Any] = {**point, **dict.fromkeys(RESULTS)}
        row |= {"contestant": label, "note": notes.get(label, "")}
        if s := timed.get(label):
            row |= {
                "median_us": s.median_us,
                "ci95_low_us": s.ci95_us[0],
                "ci95_high_us": s.ci95_us[1],
                "gb_per_s": n_bytes / s.median_us / 1e3,
                "of_copy": copy.median_us / s.median_us if copy else None,
                "ours_ratio": s.ratio,
                "ratio_low": s.ratio_ci95[0],
                "ratio_high": s.ratio_ci95[1],
                "host_us": host.get(label),
                "added_us": s.added_us,
            }
        rows.append(row)
    return rows


@dataclass(frozen=True)
class Goal:
    """One goal over a table: how many points it covers, and those that miss it."""

    text: str
    n_points: int
    missed: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """One of "pass", "fail", and "not measured" where no point falls under it."""
        if not self.n_points:
            return "not measured"
        return "fail" if self.missed else "pass"

    def __repr__(self) -> str:
        met = self.n_points - len(self.missed)
        head = f"{self.verdict:<12} {self.text} ({met} of {self.n_points} points)"
        return "\n".join([head, *(f"{'':<13}{miss}" for miss in self.missed)])


def point_name(row: Mapping[str, Any]) -> str:
    """A point in words: "softmax bfloat16 32,768 × 8,192", "gelu float32 4,096"."""
    rows = f"{int(row['n_rows']):,} × " if row["n_rows"] != 1 else ""
    return f"{row['op']} {row['dtype']} {rows}{int(row['n_cols']):,}"


def goals(table: pd.DataFrame) -> list[Goal]:
    """What the table says about each goal.

    A speed against a contestant is `ours_ratio`, that contestant's time over ours. Against "1.0 ×" a point misses only
    where the whole interval lies below 1: otherwise it is a tie or a win.
    """
    timed = table[table.median_us.notna()]
    softmax, elementwise = timed[timed.op == "softmax"], timed[timed.op.isin(["square", "gelu"])]
    wide, large = softmax[softmax.n_cols >= WIDE], elementwise[elementwise.n_cols >= _LARGE]

    def of(rows: pd.DataFrame, *names: str) -> pd.DataFrame:
        return rows[rows.contestant.isin(names)]

    def peers(rows: pd.DataFrame) -> pd.DataFrame:
        return rows[~rows.contestant.isin([OURS, COPY])]

    compiled = ("compile", "compile-max")
    return [
        _at_least("softmax ≥ 0.97 × copy at N ≥ 1,024", of(softmax[softmax.n_cols >= 1024], COPY), 0.97),
        _at_least("softmax ≥ 1.0 × the best peer at every point", peers(softmax), 1.0),
        _at_least(f"softmax ≥ 1.9 × eager at N ≥ {WIDE:,}", of(wide, "eager"), 1.9),
        _at_least(f"softmax ≥ 1.5 × torch.compile at N ≥ {WIDE:,}", of(wide, *compiled), 1.5),
        _no_cliff(of(softmax, OURS)),
        _at_least("square and GELU ≥ 0.99 × copy from 64 M elements", of(large, COPY), 0.99),
        _at_least("square and GELU ≥ 1.0 × eager and compile from 4 K elements", peers(elementwise), 1.0),
    ]


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
    """8,192 against 8,320 columns, a pair for each dtype and amount of work."""
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


def sol_score(candidate_us: float, baseline_us: float, sol_us: float) -> float:
    """SOL-ExecBench's score of a kernel: 0.5 where it takes the baseline's time, 1 at the speed of light, towards 0 above.

        S(T_k) = 1 / (1 + (T_k - T_SOL) / (T_b - T_SOL))

    Source: NVIDIA's SOL-ExecBench (arXiv:2603.19173, section 4.3; `src/sol_execbench/sol_score.py` of
    github.com/NVIDIA/SOL-ExecBench). Where the baseline is at the bound nothing is left to win: as there, 1 for a kernel at
    the bound, else 0. Below the bound either the bound or the time is wrong, and there is no score: NaN.

    Args:
        candidate_us: T_k, the kernel's time in µs.
        baseline_us: T_b, the time of the baseline in µs.
        sol_us: T_SOL, the least time that the hardware allows, in µs.
    """
    if candidate_us < sol_us:
        return math.nan
    gap = baseline_us - sol_us
    if gap <= 0:
        return 1.0 if candidate_us == sol_us else 0.0
    return 1 / (1 + (candidate_us - sol_us) / gap)


def sol_scores(table: pd.DataFrame, peak_gb_per_s: float) -> pd.Series:
    """The SOL score of every row, from the columns that are kept.

    T_SOL is the bytes that the operation must move, its input once and its output once, over the memory's peak. SOLAR, which
    makes SOL-ExecBench's bounds (github.com/NVlabs/SOLAR, the model "fused"), takes the larger of that and the
    multiply-adds of contractions over their peak; softmax, GELU and square have no contraction. T_b is to be an optimized
    PyTorch implementation: here the fastest of eager and torch.compile at that point, so the best of them has 0.5.

    Args:
        table: rows as `rows_of` makes them.
        peak_gb_per_s: the peak of the GPU that they were measured on.

    Returns:
        A score for each row, under the table's index; NaN for what was not timed, where none of PyTorch's was, and
        below T_SOL.
    """
    import pandas as pd

    point = ["op", "dtype", "n_rows", "n_cols"]
    timed = table[table.median_us.notna()].astype({"median_us": float, "gb_per_s": float})
    fastest = timed[timed.contestant.isin(PYTORCH)].groupby(point).median_us.min().rename("baseline_us")
    timed = timed.join(fastest, on=point).dropna(subset="baseline_us")
    sol_us = timed.gb_per_s * timed.median_us / peak_gb_per_s
    times = zip(timed.median_us, timed.baseline_us, sol_us, strict=True)
    scores = pd.Series([sol_score(*row) for row in times], timed.index, dtype=float)
    return scores.reindex(table.index).rename("sol_score")


def summary(table: pd.DataFrame, peak_gb_per_s: float | None = None) -> pd.DataFrame:
    """A row a point: our time and GB/s, and how many times as fast ours is as each contestant.

    With the GPU's peak, our SOL score (`sol_scores`) stands beside the ratio to the copy.
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

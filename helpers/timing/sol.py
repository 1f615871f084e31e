"""The SOL score: how close a kernel is to the speed of light, relative to a baseline.

Source: NVIDIA's SOL-ExecBench (arXiv:2603.19173, section 4.3; `src/sol_execbench/sol_score.py` in
github.com/NVIDIA/SOL-ExecBench).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

PYTORCH = ("eager", "compile", "compile-max")  # the fastest of these is the baseline


def sol_score(candidate_us: float, baseline_us: float, sol_us: float) -> float:
    """Compute SOL-ExecBench's score of a kernel.

        S(T_k) = 1 / (1 + (T_k - T_SOL) / (T_b - T_SOL))

    The score is 0.5 for a kernel that takes as long as the baseline, 1 at the speed of light, and approaches
    0 for slower kernels. If the baseline already reaches the bound, there is nothing left to gain, and the
    score is 1 for a kernel at the bound and 0 for any other, as in SOL-ExecBench. A time below the bound
    means that either the bound or the time is wrong, so the score is NaN.

    Args:
        candidate_us: T_k, the kernel's time in µs.
        baseline_us: T_b, the baseline's time in µs.
        sol_us: T_SOL, the shortest time that the hardware allows, in µs.
    """
    if candidate_us < sol_us:
        return math.nan
    gap = baseline_us - sol_us
    if gap <= 0:
        return 1.0 if candidate_us == sol_us else 0.0
    return 1 / (1 + (candidate_us - sol_us) / gap)


def sol_scores(table: pd.DataFrame, peak_gb_per_s: float) -> pd.Series:
    """Compute the SOL score of every row of the league's table (the record fusion/league).

    T_SOL is the number of bytes that the operation must move (its input once and its output once) divided by
    the memory's peak bandwidth. SOLAR, which computes SOL-ExecBench's bounds (github.com/NVlabs/SOLAR, the
    model "fused"), takes the larger of that and the time of the multiply-adds in contractions; softmax, GELU
    and square have no contractions. T_b should be an optimized PyTorch implementation. Here it is the fastest
    of eager and torch.compile at the same point, so the fastest of them scores 0.5.

    Args:
        table: rows with `op`, `dtype`, `n_rows`, `n_cols`, `contestant`, `median_us` and `gb_per_s`.
        peak_gb_per_s: the peak memory bandwidth of the GPU that measured them, in GB/s.

    Returns:
        One score per row, with the table's index. A row scores NaN if it was not timed, if none of PyTorch's
        implementations was timed at its point, or if it is faster than T_SOL.
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

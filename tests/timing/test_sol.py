"""helpers.timing.sol: SOL scores of single kernels and of the league's table."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest

from helpers.timing import sol


@pytest.mark.parametrize(
    ("candidate_us", "baseline_us", "score"),
    [
        (30, 30, 1 / 2),  # as fast as the baseline
        (10, 30, 1),  # at the speed of light, 10 µs
        (20, 30, 2 / 3),  # half of the gap: 1 / (1 + 10 / 20)
        (50, 30, 1 / 3),  # twice as far away: 1 / (1 + 40 / 20)
        (10, 10, 1),
        (12, 9, 0),  # the baseline left no gap
        (9, 30, math.nan),  # faster than light
        (8, 12, math.nan),  # the formula would divide by 0
    ],
)
def test_the_score_follows_the_definition(candidate_us, baseline_us, score):
    assert sol.sol_score(candidate_us, baseline_us, 10) == pytest.approx(score, nan_ok=True)


def table(**times: float | None) -> pd.DataFrame:
    """Rows of one point that moves 33,554,432 bytes."""
    point = {"op": "softmax", "dtype": "float32", "n_rows": 1024, "n_cols": 4096}
    return pd.DataFrame(
        point | {"contestant": name.replace("_", "-"), "median_us": us, "gb_per_s": us and 33_554.432 / us}
        for name, us in times.items()
    )


def test_the_baseline_is_the_fastest_of_pytorchs_own():
    """At a peak of 3,355.4432 GB/s the bound is 10 µs, and the baseline is "compile", not a faster peer."""
    rows = table(copy=12, eager=40, compile=30, compile_max=35, ours=20, quack=15, liger=None)
    scores = dict(zip(rows.contestant, sol.sol_scores(rows, 3355.4432), strict=True))
    assert scores == pytest.approx(
        {"copy": 10 / 11, "eager": 2 / 5, "compile": 1 / 2, "ours": 2 / 3, "quack": 4 / 5}
        | {"compile-max": 4 / 9, "liger": math.nan},
        nan_ok=True,
    )
    assert sol.sol_scores(table(copy=12, ours=20), 3355.4432).isna().all()


def test_the_recorded_league_has_sol_scores(root):
    """No kernel is faster than the speed of light, and PyTorch's fastest scores 0.5 at each point."""
    (case,) = json.loads((root / "helpers/records/h100/fusion/league.json").read_text())["cases"]
    rows = pd.DataFrame(case["rows"])
    scores = sol.sol_scores(rows, case["provenance"]["gpu"]["peak_gb_per_s"])
    assert (scores.notna() == rows.median_us.notna()).all() and (scores.dropna() < 1).all()
    best = rows.assign(score=scores)[rows.contestant.isin(sol.PYTORCH)]
    assert (best.groupby(["op", "dtype", "n_rows", "n_cols"]).score.max() == 0.5).all()

"""helpers.timing.league and benchmarks/kernels.py: what a table of ratios says, which points there are, what is kept."""

from __future__ import annotations

import importlib.util
import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from helpers import check
from helpers.timing import league
from helpers.timing.samples import Run, Samples

ROOT = Path(__file__).parents[2]


def load_script(name: str):
    """A file of benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(f"{name}_script", ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def kernels():
    return load_script("kernels")


def rows(op="softmax", dtype="float32", n_rows=1024, n_cols=4096, **times) -> list[dict]:
    """Rows of one point from each contestant's time in µs; the intervals are ±0.1 %."""
    standings = {
        name: league.Standing(
            name,
            us,
            (us * 0.999, us * 1.001),
            us / times["ours"],
            (us / times["ours"] * 0.999, us / times["ours"] * 1.001),
            50,
        )
        for name, us in times.items()
    }
    point = {"op": op, "dtype": dtype, "n_rows": n_rows, "n_cols": n_cols}
    return league.rows_of(
        point, 8 * n_rows * n_cols, standings, {"ours": 9.5}, {"liger": "refused: too wide"}
    )


def verdicts(*points: list[dict]) -> dict[str, str]:
    table = pd.DataFrame([row for point in points for row in point], columns=league.COLUMNS)
    return {goal.text: goal.verdict for goal in league.goals(table)}


def test_a_points_rows():
    (copy, ours, liger) = rows(copy=10.0, ours=11.0)
    assert list(ours) == list(league.COLUMNS)
    assert copy["of_copy"] == 1 and ours["of_copy"] == pytest.approx(10 / 11)
    assert copy["ours_ratio"] == pytest.approx(10 / 11) and ours["ours_ratio"] == 1
    assert ours["gb_per_s"] == pytest.approx(8 * 1024 * 4096 / 11e3)
    assert ours["host_us"] == 9.5 and copy["host_us"] is None
    assert liger["median_us"] is None and liger["note"] == "refused: too wide"


def test_goals_of_softmax():
    copy, peers, eager, compiled = (
        "softmax ≥ 0.97 × copy at N ≥ 1,024",
        "softmax ≥ 1.0 × the best peer at every point",
        "softmax ≥ 1.9 × eager at N ≥ 65,536",
        "softmax ≥ 1.5 × torch.compile at N ≥ 65,536",
    )
    good = verdicts(rows(copy=98, ours=100, eager=120, quack=100.05, n_cols=65536))
    assert (good[copy], good[peers]) == ("pass", "pass")
    assert (good[eager], good[compiled]) == ("fail", "not measured")
    assert verdicts(rows(copy=96, ours=100))[copy] == "fail"
    assert verdicts(rows(copy=50, ours=100, n_cols=512))[copy] == "not measured"
    assert verdicts(rows(ours=100, quack=99.95))[peers] == "pass"  # the interval holds 1: a tie
    assert verdicts(rows(ours=100, quack=99))[peers] == "fail"
    assert verdicts(rows(ours=100, quack=110), rows(ours=100, quack=99, n_cols=256))[peers] == "fail"
    wide = verdicts(rows(ours=100, eager=191, compile=160, n_cols=65536, **{"compile-max": 149}))
    assert (wide[eager], wide[compiled]) == ("pass", "fail")


def test_the_cliff_is_judged_for_each_dtype_and_amount_of_work():
    text = "softmax without a cliff: 8,320 columns within 5 % of 8,192"
    rows_8320 = (1 << 28) // 8320
    flat = [rows(n_rows=1 << 15, n_cols=8192, ours=100), rows(n_rows=rows_8320, n_cols=8320, ours=100)]
    steep = [
        rows(n_rows=1 << 15, n_cols=8192, ours=100, dtype="bfloat16"),
        rows(n_rows=rows_8320, n_cols=8320, ours=120, dtype="bfloat16"),
    ]
    assert verdicts(*flat)[text] == "pass"
    assert verdicts(*flat, *steep)[text] == "fail"
    assert verdicts(flat[0], steep[1])[text] == "not measured"


def test_goals_of_the_elementwise_operators():
    copy = "square and GELU ≥ 0.99 × copy from 64 M elements"
    peers = "square and GELU ≥ 1.0 × eager and compile from 4 K elements"
    found = verdicts(
        rows("gelu", n_rows=1, n_cols=4096, copy=5, ours=10, eager=10),
        rows("square", n_rows=1, n_cols=1 << 26, copy=99.5, ours=100, compile=101),
    )
    assert (found[copy], found[peers]) == ("pass", "pass")
    slow = rows("gelu", n_rows=1, n_cols=1 << 26, copy=98, ours=100, eager=99)
    assert (verdicts(slow)[copy], verdicts(slow)[peers]) == ("fail", "fail")


def test_a_missed_goal_names_the_point_and_by_how_much():
    table = pd.DataFrame(rows(ours=100, quack=90, n_rows=32768, n_cols=8192))
    goal = next(g for g in league.goals(table) if g.verdict == "fail")
    assert "softmax float32 32,768 × 8,192: 0.900 × quack (0.899 to 0.901)" in repr(goal)
    assert "0 of 1 points" in repr(goal)


def test_summary_has_a_row_a_point_in_the_order_measured():
    points = [rows(copy=9, ours=10, eager=20), rows("gelu", n_rows=1, n_cols=4096, copy=1, ours=2)]
    table = league.summary(pd.DataFrame([row for point in points for row in point], columns=league.COLUMNS))
    assert list(table.index) == ["softmax float32 1,024 × 4,096", "gelu float32 4,096"]
    assert table.loc["softmax float32 1,024 × 4,096", "eager"] == 2
    assert pd.isna(table.loc["gelu float32 4,096", "eager"])


@pytest.mark.parametrize(
    ("candidate_us", "baseline_us", "score"),
    [
        (30, 30, 1 / 2),  # as fast as the baseline
        (10, 30, 1),  # at the speed of light, 10 µs
        (20, 30, 2 / 3),  # half of the gap: 1 / (1 + 10 / 20)
        (50, 30, 1 / 3),  # twice as far from it: 1 / (1 + 40 / 20)
        (10, 10, 1),
        (12, 9, 0),  # the baseline left no gap
        (9, 30, math.nan),  # faster than light
        (8, 12, math.nan),  # the formula would divide by 0
    ],
)
def test_the_sol_score_by_hand(candidate_us, baseline_us, score):
    assert league.sol_score(candidate_us, baseline_us, 10) == pytest.approx(score, nan_ok=True)


def test_sol_scores_of_a_table():
    """8 · 1,024 · 4,096 bytes at a peak of 3,355.4432 GB/s take 10 µs; the baseline is PyTorch's fastest, not a peer's."""
    first = rows(copy=12, eager=40, compile=30, ours=20, quack=15, **{"compile-max": 35})
    alone = rows("gelu", n_rows=1, copy=12, ours=20)  # nothing of PyTorch's was timed there
    table = pd.DataFrame([*first, *alone], columns=league.COLUMNS)
    scores = league.sol_scores(table, 3355.4432)
    by_name = dict(zip(table.contestant[: len(first)], scores, strict=False))
    assert by_name == pytest.approx(
        {"copy": 10 / 11, "eager": 2 / 5, "compile": 1 / 2, "ours": 2 / 3, "quack": 4 / 5}
        | {"compile-max": 4 / 9, "liger": float("nan")},
        nan_ok=True,
    )
    assert scores[len(first) :].isna().all()
    summary = league.summary(table, 3355.4432)
    assert list(summary.columns)[3:5] == ["sol_score", "copy"]
    assert summary.sol_score.iloc[0] == pytest.approx(2 / 3) and pd.isna(summary.sol_score.iloc[1])


def test_the_kept_league_has_sol_scores(root):
    """It was kept without them. No kernel is faster than the speed of light, and PyTorch's fastest has 0.5 at each point."""
    (case,) = json.loads((root / "helpers/records/h100/fusion/league.json").read_text())["cases"]
    table = pd.DataFrame(case["rows"])
    scores = league.sol_scores(table, case["provenance"]["gpu"]["peak_gb_per_s"])
    assert (scores.notna() == table.median_us.notna()).all() and (scores.dropna() < 1).all()
    best = table.assign(score=scores)[table.contestant.isin(league.PYTORCH)]
    assert (best.groupby(["op", "dtype", "n_rows", "n_cols"]).score.max() == 0.5).all()


def test_a_standing_is_the_median_over_rounds():
    """A drift that both feel leaves the ratio alone; the interval holds the truth."""
    draw = random.Random(3)
    drift = [1 + 0.3 * i / 100 for i in range(101)]
    reference = [100 * d * draw.gauss(1, 0.002) for d in drift]
    own = [110 * d * draw.gauss(1, 0.002) for d in drift]
    run = Run((Samples(tuple(own), {}, ()), Samples(tuple(reference), {}, ())), step_us=0.032)
    found, same = league.standings(["other", "ours"], run, reference=1)
    low, high = found.ratio_ci95
    assert low <= 1.1 <= high and high - low < 0.006 and found.n_samples == 101
    assert (same.ratio, same.ratio_ci95) == (1, (1, 1))


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_a_wrong_row_is_found_in_a_large_tensor(dtype):
    x = torch.randn(300, 200_000, dtype=dtype)
    softmax = lambda t: torch.softmax(t, -1)  # noqa: E731
    tolerance = (1e-5, 1e-12) if dtype == torch.float32 else (8e-3, 1e-12)
    league.check_large("right", lambda: softmax(x), softmax, x, tolerance)

    def wrong():
        y = softmax(x)
        y[299, 5] *= 1.1  # a value near 1e-6: an absolute tolerance of that size would let it pass
        return y

    with pytest.raises(check.Mismatch, match=r"wrong on .*: 1 of"):
        league.check_large("wrong", wrong, softmax, x, tolerance)
    with pytest.raises(check.Mismatch, match="float64 of shape"):
        league.check_large("wrong", lambda: softmax(x[:2].double()), softmax, x[:2], tolerance)


def test_compare_many_names_what_it_does_not_know():
    with pytest.raises(KeyError, match="'c' is none of the functions a, b"):
        league.compare_many({"a": int, "b": int}, against="c")


# benchmarks/kernels.py -----------------------------------------------------------------------------------------------


def test_the_league_covers_the_claims(kernels):
    points = kernels.all_points()
    softmax = [p for p in points if p.op == "softmax"]
    assert len(set(points)) == len(points)
    for dtype in ("float32", "bfloat16"):
        widths = {p.n_cols for p in softmax if p.dtype == dtype}
        assert {256, 1024, 8192, 8320, 65536, 393216} <= widths
        for p in softmax:
            assert 0.99 * 2**28 < p.n_elements <= 2**30
        for op in ("square", "gelu"):
            sizes = {p.n_cols for p in points if (p.op, p.dtype) == (op, dtype)}
            assert {4096, 2**20, 2**26, 2**30} <= sizes and any(n % 2 for n in sizes)


def test_the_command_line_chooses(kernels):
    asked = kernels.parse(
        [
            "--op",
            "softmax",
            "--dtype",
            "float32",
            "--n",
            "8192,100",
            "--elements",
            "1048576",
            "--contestants",
            "eager",
        ]
    )
    assert asked.contestants == ["eager", "ours"]
    assert kernels.chosen_points(asked) == [
        kernels.Point("softmax", "float32", 128, 8192),
        kernels.Point("softmax", "float32", 10485, 100),
    ]
    asked = kernels.parse(["--op", "gelu", "--n", "4096,5000", "--dtype", "bfloat16"])
    assert [p.n_cols for p in kernels.chosen_points(asked)] == [4096, 5000]


def test_an_unknown_name_is_refused(kernels, capsys):
    with pytest.raises(SystemExit):
        kernels.parse(["--contestants", "eager,apex"])
    assert "'apex' is none of copy, eager, compile" in capsys.readouterr().err


def test_resuming_measures_the_rest(kernels, tmp_path, monkeypatch):
    gpu = type("Gpu", (), {"name": "Test GPU"})
    monkeypatch.setattr(kernels.device, "gpu_spec", lambda: gpu)
    path = tmp_path / "league.json"
    point, other = kernels.Point("softmax", "float32", 1024, 4096), kernels.Point("gelu", "float32", 1, 4096)
    store = kernels.Store(path, resume=False)
    store.add(point, rows(copy=1, ours=2), [{"kernel": "old"}])
    store.add(point, rows(copy=1, ours=3), [{"kernel": "new"}])
    again = kernels.Store(path, resume=True)
    assert [r["median_us"] for r in again.state["rows"]] == [1, 3, None]
    assert [k["compiled"] for k in again.state["kernels"]] == [[{"kernel": "new"}]]
    assert again.done(point, ["copy", "ours", "liger"])
    assert not again.done(point, ["ours", "eager"]) and not again.done(other, ["ours"])
    assert not kernels.Store(path, resume=False).state["rows"]
    kept = json.loads(path.read_text()) | {
        "sources": {"softmax": "others", "gelu": "others", "square": "others"}
    }
    path.write_text(json.dumps(kept))
    assert not kernels.Store(path, resume=True).state["rows"]


def test_the_league_is_recorded_with_what_a_later_run_is_compared_with(kernels, tmp_path, monkeypatch):
    """`workbook bench --against fusion/league` finds the suite, the kernels' texts, and what was compiled at each point."""
    from helpers import device, records
    from helpers.workshop.bench import run, suites

    provenance = records.Provenance(
        {"name": "NVIDIA H100 80GB HBM3"}, None, "13.0", "2.13.0", "3.7.1", 1980, 2619, "2026-12-01"
    )
    monkeypatch.setenv("WORKBOOK_RECORDS", str(tmp_path))
    monkeypatch.setenv("WORKBOOK_RECORD", "0")
    monkeypatch.setattr("helpers.records.replay.live_provenance", lambda: provenance)
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    made = {"kernel": "softmax_tiles_kernel", "sha256": "1", "counts": {"registers": 32}}
    point = {"op": "softmax", "dtype": "float32", "n_rows": 1024, "n_cols": 4096}
    kernels.record(rows(copy=1, ours=2), [(point, [made])])
    record = run.Record.read(str(tmp_path / "h100/fusion/league.json"))
    assert record.suite == suites.LEAGUE and "helpers.kernels.softmax" in record.texts
    (found,) = suites.find(record.suite).read(record.rows, record.kernels)
    assert found.compiled == [made] and found.entry == "helpers.kernels.softmax:softmax_forward"
    assert found.ratio.value == 2 and found.us.value == 2


def test_a_peer_that_is_not_here_is_an_import_error_and_one_without_the_operator_a_note(kernels):
    x = torch.randn(4, 8)
    assert kernels.contestant("quack", "gelu", x) == (None, "quack has no gelu of its own")
    for name in ("copy", "eager"):
        call, note = kernels.contestant(name, "softmax", x)
        assert call().shape == x.shape and not note


def test_without_a_gpu_it_says_so(root):
    from helpers import device

    if device.has_gpu():
        return
    done = subprocess.run([sys.executable, "benchmarks/kernels.py"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0 and "An NVIDIA GPU that torch can use is not here" in done.stdout


# benchmarks/sanitize.py ----------------------------------------------------------------------------------------------

BANNER = "========= COMPUTE-SANITIZER\n"


@pytest.mark.parametrize(
    ("tool", "run", "said", "errors", "fine"),
    [
        ("memcheck", "kernels", "kernels: done\n" + BANNER + "========= ERROR SUMMARY: 0 errors\n", 0, True),
        ("memcheck", "kernels", "kernels: done\n" + BANNER + "========= ERROR SUMMARY: 2 errors\n", 2, False),
        ("memcheck", "overrun", BANNER + "========= Invalid __global__ read\n========= ERROR SUMMARY: 24 errors\n", 24, True),
        ("memcheck", "overrun", "overrun: done\n" + BANNER + "========= ERROR SUMMARY: 0 errors\n", 0, False),
        ("racecheck", "kernels", "kernels: done\n" + BANNER + "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", 0, True),
        ("racecheck", "kernels", "kernels: done\n" + BANNER + "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n", 1, False),
        ("synccheck", "kernels", BANNER + "AssertionError\n========= ERROR SUMMARY: 0 errors\n", None, False),
        ("synccheck", "kernels", "", None, False),
    ],
)  # fmt: skip
def test_what_a_sanitizer_said(tool, run, said, errors, fine):
    """A run that did not end is never clean, and a control must be found."""
    found = load_script("sanitize").read(tool, run, said, 1.0)
    assert (found.errors, found.as_it_should_be) == (errors, fine)
    if "Invalid" in said:
        assert "Invalid __global__ read" in str(found)


@pytest.mark.gpu
def test_many_in_one_run_on_a_gpu():
    x = torch.randn(4096, 4096, device="cuda")
    functions = {
        "all": lambda: torch.square(x),
        "again": lambda: torch.square(x),
        "half": lambda: torch.square(x[:2048]),
    }
    found = league.compare_many(functions, against="all")
    assert list(found) == list(functions) and found["all"].ratio == 1
    assert 0.98 < found["again"].ratio < 1.02 and found["half"].ratio < 0.7
    assert found["half"].ci95_us[0] <= found["half"].median_us <= found["half"].ci95_us[1]


@pytest.mark.gpu
def test_a_small_league_runs_on_a_gpu(root, tmp_path):
    """Three points of a real run; peers that are not installed get a reason."""
    out = tmp_path / "league.json"
    command = [
        sys.executable,
        "benchmarks/kernels.py",
        "--dtype",
        "float32",
        "--n",
        "4096",
        "--elements",
        str(1 << 20),
    ]
    command += ["--contestants", "copy,eager,quack", "--point-seconds", "0.1", "--out", str(out)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    kept = json.loads(out.read_text())["rows"]
    assert {r["op"] for r in kept if r["contestant"] == "ours" and r["median_us"] > 0} == {
        "softmax",
        "gelu",
        "square",
    }
    assert all(r["median_us"] or r["note"] for r in kept)

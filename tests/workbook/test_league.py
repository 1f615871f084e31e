"""The league: the rows of a point, the goals over all points, and the script benchmarks/kernels.py."""

from __future__ import annotations

import json
import subprocess
import sys

import kernels
import pandas as pd
import pytest
import torch

from helpers import check
from helpers.timing.interleaved import RelativeTiming
from workbook.bench import goals, table
from workbook.bench.contestants import check_large


def rows(op="softmax", dtype="float32", n_rows=1024, n_cols=4096, **times) -> list[dict]:
    """Rows of one point from each contestant's time in µs; the intervals are ±0.1 %."""

    def exact(value: float) -> tuple[float, tuple[float, float]]:
        return value, (value * 0.999, value * 1.001)

    timings = {
        name: RelativeTiming(name, *exact(us), *exact(us / times["ours"]), 50) for name, us in times.items()
    }
    point = {"op": op, "dtype": dtype, "n_rows": n_rows, "n_cols": n_cols}
    return table.rows_of(point, 8 * n_rows * n_cols, timings, {"ours": 9.5}, {"liger": "refused: too wide"})


def verdicts(*points: list[dict]) -> dict[str, str]:
    made = pd.DataFrame([row for point in points for row in point], columns=table.COLUMNS)
    return {goal.text: goal.verdict for goal in goals.goals(made)}


def test_a_points_rows():
    (copy, ours, liger) = rows(copy=10.0, ours=11.0)
    assert list(ours) == list(table.COLUMNS)
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


def test_a_missed_goal_names_the_point_and_its_ratio():
    made = pd.DataFrame(rows(ours=100, quack=90, n_rows=32768, n_cols=8192))
    goal = next(g for g in goals.goals(made) if g.verdict == "fail")
    assert "softmax float32 32,768 × 8,192: 0.900 × quack (0.899 to 0.901)" in repr(goal)
    assert "0 of 1 points" in repr(goal)


def test_summary_has_a_row_per_point_in_the_order_measured():
    points = [rows(copy=9, ours=10, eager=20), rows("gelu", n_rows=1, n_cols=4096, copy=1, ours=2)]
    made = goals.summary(pd.DataFrame([row for point in points for row in point], columns=table.COLUMNS))
    assert list(made.index) == ["softmax float32 1,024 × 4,096", "gelu float32 4,096"]
    assert made.loc["softmax float32 1,024 × 4,096", "eager"] == 2
    assert pd.isna(made.loc["gelu float32 4,096", "eager"])


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_a_wrong_row_is_found_in_a_large_tensor(dtype):
    x = torch.randn(300, 200_000, dtype=dtype)
    softmax = lambda t: torch.softmax(t, -1)  # noqa: E731
    tolerance = (1e-5, 1e-12) if dtype == torch.float32 else (8e-3, 1e-12)
    check_large("right", lambda: softmax(x), softmax, x, tolerance)

    def wrong():
        y = softmax(x)
        y[299, 5] *= 1.1  # a value near 1e-6: an absolute tolerance of that size would let it pass
        return y

    with pytest.raises(check.Mismatch, match=r"wrong on .*: 1 of"):
        check_large("wrong", wrong, softmax, x, tolerance)
    with pytest.raises(check.Mismatch, match="float64 of shape"):
        check_large("wrong", lambda: softmax(x[:2].double()), softmax, x[:2], tolerance)


# benchmarks/kernels.py
# -----------------------------------------------------------------------------------------------


def test_the_league_covers_the_claims():
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


def test_the_command_line_chooses():
    options = "--op softmax --dtype float32 --n 8192,100 --elements 1048576 --contestants eager"
    asked = kernels.parse(options.split())
    assert asked.contestants == ["eager", "ours"]
    assert kernels.chosen_points(asked) == [
        kernels.Point("softmax", "float32", 128, 8192),
        kernels.Point("softmax", "float32", 10485, 100),
    ]
    asked = kernels.parse(["--op", "gelu", "--n", "4096,5000", "--dtype", "bfloat16"])
    assert [p.n_cols for p in kernels.chosen_points(asked)] == [4096, 5000]


def test_an_unknown_name_is_refused(capsys):
    with pytest.raises(SystemExit):
        kernels.parse(["--contestants", "eager,apex"])
    assert "'apex'" in capsys.readouterr().err


def test_resuming_measures_the_rest(tmp_path, monkeypatch):
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
    others = dict.fromkeys(("softmax", "gelu", "square"), "others")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sources": others}))
    assert not kernels.Store(path, resume=True).state["rows"]


def test_a_peer_without_the_operator_gets_a_note():
    x = torch.randn(4, 8)
    assert kernels.contestant("quack", "gelu", x) == (None, "quack has no gelu of its own")
    for name in ("copy", "eager"):
        call, note = kernels.contestant(name, "softmax", x)
        assert call().shape == x.shape and not note


@pytest.mark.gpu
def test_a_small_league_runs_on_a_gpu(root, tmp_path):
    """Three points of a real run; peers that are not installed get a reason."""
    out = tmp_path / "league.json"
    options = "--dtype float32 --n 4096 --elements 1048576 --contestants copy,eager,quack --point-seconds 0.1"
    command = [sys.executable, "benchmarks/kernels.py", *options.split(), "--out", str(out)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    kept = json.loads(out.read_text())["rows"]
    timed = {r["op"] for r in kept if r["contestant"] == "ours" and r["median_us"] > 0}
    assert timed == {"softmax", "gelu", "square"}
    assert all(r["median_us"] or r["note"] for r in kept)

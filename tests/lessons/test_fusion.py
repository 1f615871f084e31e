"""Lesson 06's helpers: the traffic that is counted, the picture, who wins the league, and the softmax sliders."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest
import torch

from helpers import device, widgets
from helpers.lessons import fusion
from helpers.widgets import figure, measure, softmax
from helpers.widgets.softmax import ONE_BLOCK, ONLINE, PLANNED, SPACE
from helpers.widgets.space import COMPILED, Refused
from helpers.widgets.square import SPACES
from helpers.widgets.table import Table

M, N = 7, 11


def softmax_five(x):
    largest = x.max(dim=1, keepdim=True).values
    powers = (x - largest).exp()
    return powers / powers.sum(dim=1, keepdim=True)


def counted(fn, *inputs):
    table = fusion.count_traffic(fn, *inputs)
    return [(row.op.split(".")[1], row.reads, row.writes) for row in table.itertuples()]


# ------------------------------------------------------------------------------------------- traffic


@pytest.mark.parametrize("where", ["cpu", "meta"])
def test_the_five_operations_of_a_softmax(where):
    table = fusion.count_traffic(softmax_five, torch.ones(M, N, device=where))
    assert list(table.op.str.split(".").str[1]) == ["max", "sub", "exp", "sum", "div"]
    assert table.reads.sum() == 5 * M * N + 2 * M and table.writes.sum() == 3 * M * N + 2 * M
    assert list(table.index_writes) == [M, 0, 0, 0, 0]  # max(dim) also writes int64 indices
    assert table.written_bytes.sum() == 4 * table.writes.sum() + 8 * M
    assert table.read_bytes.sum() == 4 * table.reads.sum()


def test_an_input_is_read_once_and_a_broadcast_one_has_the_elements_it_has():
    x = torch.ones(M, N)
    assert counted(lambda x: x * x, x) == [("mul", M * N, M * N)]
    assert counted(lambda x: x + x[0], x) == [("add", M * N + N, M * N)]
    assert counted(lambda x: torch.ones(1, N).expand(M, N) + x, x)[-1] == ("add", M * N + N, M * N)
    assert counted(lambda x: torch.cat([x, x]), x) == [("cat", M * N, 2 * M * N)]


def test_views_and_empty_tensors_move_nothing():
    x = torch.ones(M, N)
    assert counted(lambda x: torch.empty_like(x).copy_(x.T.reshape(N, M).T), x) == [("copy_", M * N, M * N)]
    with pytest.raises(ValueError, match="no torch operation"):
        fusion.count_traffic(lambda x: x.T.view(-1, 1) if x.numel() == 1 else x.T, x)


def test_in_place_and_out_arguments():
    x = torch.ones(M, N)
    assert counted(lambda x: x.add_(1), x) == [("add_", M * N, M * N)]
    assert counted(lambda x: x.zero_(), x) == [("zero_", 0, M * N)]
    assert counted(lambda x: torch.exp(x, out=torch.empty(M, N)), x) == [("exp", M * N, M * N)]


def test_bytes_follow_the_dtype():
    (row,) = fusion.count_traffic(lambda x: x.float(), torch.ones(M, N, dtype=torch.bfloat16)).itertuples()
    assert (row.read_bytes, row.written_bytes) == (2 * M * N, 4 * M * N)


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (5 * M * N + 2 * M, "5MN + 2M"),
        (M * N + M, "MN + M"),
        (3 * M, "3M"),
        (M * N + 1, "MN + 1"),
        (0, "0"),
    ],
)
def test_counts_in_words(n, words):
    assert fusion.in_words(n, M, N) == words


def test_the_table_ends_with_the_whole():
    table = fusion.traffic_table(fusion.count_traffic(softmax_five, torch.ones(M, N)), M, N)
    last = table.iloc[-1]
    assert (last.operation, last.reads, last.writes) == ("together", "5MN + 2M", "3MN + 2M")
    assert last["bytes (GB)"] == pytest.approx(table["bytes (GB)"][:-1].sum())
    with pytest.raises(ValueError, match="no elements"):
        fusion.in_words(3, 0, 5)


# ------------------------------------------------------------------------------------------- picture and league


def test_every_column_of_the_picture_is_held_once():
    fig = fusion.draw_holders(n_rows=3, n_cols=6, block=2, parts=3)
    for panel, width in (("x", 8), ("x2", 6), ("x3", 6)):
        for row in range(3):
            pieces = sorted((t.base[0], t.x[0]) for t in fig.data if t.xaxis == panel and t.y[0] == row)
            assert [start for start, _ in pieces] == [
                sum(w for _, w in pieces[:i]) for i in range(len(pieces))
            ]
            assert sum(w for _, w in pieces) == width
    assert len({t.marker.color for t in fig.data if t.xaxis == "x3" and t.y[0] == 0}) == 3
    with pytest.raises(ValueError, match="divide"):
        fusion.draw_holders(n_cols=7)


def league(**ratios):
    rows = [
        {"op": "softmax", "dtype": "float32", "n_rows": 4, "n_cols": 8, "contestant": name}
        | {"ours_ratio": r, "ratio_low": r and r - 0.01, "ratio_high": r and r + 0.01}
        for name, r in ratios.items()
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("ratios", "best", "fastest"),
    [
        ({"ours": 1.0, "copy": 0.9, "eager": 1.5, "quack": 0.97}, "quack", "quack"),
        ({"ours": 1.0, "eager": 1.5, "quack": 1.02}, "quack", "ours"),
        ({"ours": 1.0, "eager": 1.005, "liger": None}, "eager", "no difference seen"),
    ],
)
def test_who_wins(ratios, best, fastest):
    (row,) = fusion.league_gaps(league(**ratios)).itertuples()
    assert (row.best_peer, row.fastest) == (best, fastest)


def test_a_league_without_peers_is_no_league():
    with pytest.raises(ValueError, match="no point"):
        fusion.league_gaps(league(ours=1.0, copy=0.9))


# ------------------------------------------------------------------------------------------- sliders


@pytest.fixture
def table() -> Table:
    """Made-up rows: a figure for each kernel and point, "refused" where one block has too much for a thread."""
    spec = device.GpuSpec("H100", (9, 0), 132, 32, 2048, 32, 65536, 233472, 1, 1, 3352.0, 3000.0)
    table = Table(SPACE, spec, live=False, date="2026-11-21")
    for i, (kernel, point) in enumerate(SPACE.points()):
        row = {"kernel": kernel, **{axis: point.get(axis) for axis in SPACE.axes}, "reason": ""}
        row |= {"median_us": 100.0, "ci_low_us": 99.0, "ci_high_us": 101.0, "gb_per_s": 1000.0 + i}
        if kernel == ONE_BLOCK and point["n_cols"] // point["num_warps"] > 32 * 256:
            row |= {"verdict": "refused", "reason": "too much for a thread", "gb_per_s": None}
        else:
            row["verdict"] = "ok"
        facts = {
            "threads": 512,
            "registers": 40,
            "spill_bytes": 0,
            "shared_bytes": 0,
            "loads": 4,
            "load_bytes": 16,
        }
        table.rows[SPACE.key(kernel, row)] = row | facts
    return table


@pytest.mark.parametrize("form", ["widgets", "plain"])
def test_softmax_sliders_show_each_points_figure(table, form, monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", form)
    shown = widgets.explore(SPACE, table=table, n_cols=8320)
    assert all(kernel in repr(shown) for kernel in (ONE_BLOCK, ONLINE, PLANNED))
    if form == "plain":
        title = shown.plain.layout.title.text
        assert "softmax of 34 million elements" in title
        (slider,) = shown.plain.layout.sliders  # the maps hold every size already
        assert [step.label for step in slider.steps] == [f"{n:,}" for n in SPACE.axes["n_cols"]]
        step = slider.steps[2].args
        assert step[1]["shapes"][0]["x0"] == 4096
        return
    explorer = shown.explorer
    for n_cols, warps in itertools.product((256, 65536), (4, 32)):
        explorer.sliders["n_cols"].value, explorer.sliders["num_warps"].value = n_cols, warps
        for value, kernel in zip(explorer.figure.data[0].x, explorer.shown, strict=True):
            row = table.row(kernel, {"n_cols": n_cols, "num_warps": warps, "dtype": "float32"})
            assert value == (row["gb_per_s"] if row["verdict"] == "ok" else 0)
        assert explorer.figure.layout.title.text.startswith(f"softmax of {2**25 // n_cols:,} × {n_cols:,}")


def test_every_matrix_has_the_same_number_of_elements():
    assert SPACE.rows(1024) == 32768 and SPACE.rows(8320) * 8320 == pytest.approx(2**25, rel=1e-3)
    assert SPACE.n_blocks({"kernel": ONE_BLOCK, "n_cols": 1024}) == 32768
    assert all(space.rows(781) == 4096 for space in SPACES.values())


def test_one_block_refuses_what_a_thread_cannot_hold():
    with pytest.raises(Refused, match="a thread would hold 1,024 elements"):
        softmax.candidate(ONE_BLOCK, {"n_cols": 32768, "num_warps": 1, "dtype": "float32"})


@pytest.mark.parametrize("space", [SPACE, SPACES["launch"]])
def test_what_torch_compile_leaves_to_eager_is_refused(space, monkeypatch):
    import torch

    point = {"n_cols": 1024, "dtype": "bfloat16"}
    native = {"says": False}
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native["says"])
    with pytest.raises(Refused, match="leaves bfloat16 to eager on this GPU"):
        space.candidates(COMPILED, point)
    assert space.candidates(COMPILED, {**point, "dtype": "float32"})
    native["says"] = True
    assert space.candidates(COMPILED, point)


def test_a_space_of_ones_own_has_its_title(table):
    point = {"n_cols": 8320, "num_warps": 16, "dtype": "bfloat16"}
    assert figure.heading(table, point).startswith("softmax of 4,032 × 8,320 bfloat16")


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [*SPACE.mapped, *SPACE.rivals])
def test_a_point_is_checked_and_timed(kernel):
    point = {"n_cols": 8320, "num_warps": 16, "dtype": "float32"}
    row = measure.measure(SPACE, kernel, point)
    assert row["verdict"] == "ok", row["reason"]
    assert row["ci_low_us"] <= row["median_us"] <= row["ci_high_us"]
    assert (row["registers"] is not None) == (kernel in SPACE.mapped)

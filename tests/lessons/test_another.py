"""Lesson 10's figures and tables follow from the two GPUs' rows, and so do the sentences of its text."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from commands import cells

from helpers import device, records
from helpers.lessons import cross_gpu, cuda_graphs


@pytest.fixture(scope="module")
def both() -> pd.DataFrame:
    return cross_gpu.kernels_of_both("h100", "h200")


@pytest.fixture(scope="module")
def sweep() -> pd.DataFrame:
    return records.compare("triton/launch-sweep", ("h100", "h200"))


def text(id: str) -> str:
    return cells("notebooks/10_another_gpu.ipynb")[id]


def test_only_large_streams_gain_as_much_as_copies(both):
    ratio = cross_gpu.copy_ratio(both)
    large = both[both.n_bytes > 300e6].groupby("kernel").speedup.median() / ratio
    assert (large[["torch, a copy", "torch.square", "Triton, a program a row"]] > 0.95).all()
    assert large["CUDA, 16 × 16 threads"] < 0.9 and large["torch.softmax"] < 0.9
    assert both[both.n_bytes < 1e6].speedup.max() < 0.9 * ratio


def test_the_share_of_a_copy_tells_whether_bytes_predict_a_time_but_not_the_speedup(both):
    table = cross_gpu.large(both).set_index("kernel")
    near = table[table.share > 95]
    assert (near.speedup > 0.95 * cross_gpu.copy_ratio(both)).all() and len(near) == 3
    blocks, softmax = table.loc["CUDA, 16 × 16 threads"], table.loc["torch.softmax"]
    assert blocks.share == pytest.approx(100 * 2 / 3, abs=2), "two thirds of a copy's bandwidth"
    assert softmax.share == pytest.approx(blocks.share, rel=0.1) and softmax.speedup < blocks.speedup - 0.1


def test_a_copy_reaches_about_nine_tenths_of_the_peak():
    for provenance in records.compare("profiling/bandwidths").attrs["provenance"].values():
        assert provenance.gpu["copy_gb_per_s"] / provenance.gpu["peak_gb_per_s"] == pytest.approx(
            0.9, abs=0.03
        )


def test_with_a_warm_l2_a_kernel_is_faster_than_its_bytes_and_with_a_cold_one_slower(both):
    found = cross_gpu.from_the_cache()
    predicted, cold, warm = (float(us) for us in re.findall(r"([\d.]+) µs", found))
    assert warm < predicted < cold and found.startswith("H200: 40 MB")
    floor_us = cross_gpu.copies_by_size(both).attrs["floor_us"]
    assert floor_us > (cold - predicted) / 2, "the floor is more than half of what the bytes leave"


def test_both_gpus_measured_the_same_kernels():
    """Our kernels and CUDA texts in the figure are the same on both GPUs, so a difference is the
    GPU's alone.
    """
    assert len(records.compare("triton/curve", ("h100", "h200"))) > 50  # refuses records of different texts


def test_a_gpu_without_the_records_is_named():
    with pytest.raises(records.NoRecord, match=r"b300.* 'fusion/league'"):
        cross_gpu.kernels_of_both("h100", "b300")


def test_bytes_are_those_that_must_move(both):
    copies = both[both.kernel == "torch, a copy"].n_bytes
    assert copies.min() == pytest.approx(2 * 4 * 4096) and copies.max() == pytest.approx(2 * 4 * 2**30)
    squares = both[both.kernel == "torch.square"].n_bytes
    assert squares.min() == pytest.approx(2 * 4 * 4096 * 256)


def test_one_copy_is_far_from_its_prediction(both):
    """An odd number of floats: on both GPUs it takes longer than the larger copy below it."""
    assert "1,000,003 elements" in text("floor-end") and "within 20 %" in text("floor-end")
    found = cross_gpu.copies_by_size(both)
    copies = both[both.kernel == "torch, a copy"].sort_values("n_bytes").reset_index(drop=True)
    floor, spec = copies.known_us[0], both.attrs["provenance"]["h200"].gpu
    assert found.attrs["floor_us"] == floor
    off = (floor + copies.n_bytes / spec["copy_gb_per_s"] / 1e3) / copies.new_us - 1
    assert list(found.with_floor_off) == pytest.approx(list(100 * off))
    worst = off.abs().idxmax()
    assert copies.n_bytes[worst] == pytest.approx(8 * 1_000_003)
    assert off.drop(worst).abs().max() < 0.2
    larger = copies.loc[worst + 1]
    assert copies.known_us[worst] > larger.known_us and copies.new_us[worst] > larger.new_us


def test_losses_are_against_the_best_of_the_same_gpu(sweep):
    found = cross_gpu.launches(sweep)
    assert len(found) == 48 and found.attrs["n_bytes"] == 2 * 4 * 4096 * 8192
    for gpu in ("h100", "h200"):
        assert found[f"loss_{gpu}"].min() == 0
        row = found.iloc[7]
        assert row[f"loss_{gpu}"] == pytest.approx(100 * (row[f"us_{gpu}"] / found[f"us_{gpu}"].min() - 1))
    assert (found.programs * found.block_size == 4096 * 8192).all()
    odd = cross_gpu.launches(sweep, 781, "bfloat16")
    assert (odd.programs == -(-4096 * 781 // odd.block_size)).all()
    assert odd.attrs["n_bytes"] == 2 * 2 * 4096 * 781


def test_programs_start_at_one_rate_on_both(sweep):
    found = cross_gpu.launches(sweep)
    assert cross_gpu.starts_per_ns(found, "h100") == pytest.approx(
        cross_gpu.starts_per_ns(found, "h200"), rel=0.01
    )
    rates = cross_gpu.start_rates(found)
    assert list(rates.per_ns) == pytest.approx([1.65] * 4, abs=0.011), "about 1.65 on both GPUs"
    assert (rates.us > 1.5 * rates.bytes_us).all()


def test_starts_are_hidden_on_one_gpu_and_the_limit_on_the_other(sweep):
    found = cross_gpu.launches(sweep)
    row = found.set_index(["block_size", "num_warps"]).loc[(256, 1)]
    starts_us = row.programs / cross_gpu.starts_per_ns(found, "h100") / 1e3
    old, new = (
        cross_gpu.predicted_us(found.attrs["n_bytes"], found.attrs["provenance"][gpu].gpu)
        for gpu in ("h100", "h200")
    )
    assert new < starts_us < old and row.loss_h100 < 1
    assert row.us_h200 == pytest.approx(starts_us, rel=0.03)
    in_time = found[(found.loss_h100 < 1) & (found.block_size > 256)]
    assert (in_time.programs / cross_gpu.starts_per_ns(found, "h100") / 1e3 < 0.7 * new).all()
    assert in_time.loss_h200.max() > 5


def test_the_loss_of_the_other_gpus_fastest_launch_is_counted(sweep):
    moved = cross_gpu.transfer(sweep)
    assert len(moved) == 16 and (moved.loss_percent >= 0).all()
    row = moved[(moved.n_cols == 8192) & (moved.dtype == "float32")].iloc[0]
    found = cross_gpu.launches(sweep).set_index(["block_size", "num_warps"])
    assert (row.block_size, row.num_warps) == found.us_h100.idxmin()
    of_torch = sweep.kernel.eq("torch.square") & sweep.n_cols.eq(8192) & sweep.dtype.eq("float32")
    torchs = sweep[of_torch].iloc[0]
    at = found.loc[(row.block_size, row.num_warps)]
    assert row.over_torch_h100 == pytest.approx(torchs.median_us_h100 / at.us_h100)
    assert row.over_torch_h200 == pytest.approx(torchs.median_us_h200 / at.us_h200)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((1, 2), (3, 4), "faster"),
        ((3, 4), (1, 2), "slower"),
        ((1, 3), (2, 4), "tie"),
        ((1, 4), (2, 3), "tie"),
        ((1, 2), (2, 3), "tie"),
    ],
)
def test_intervals_that_overlap_are_a_tie(ours, theirs, expected):
    assert cross_gpu.order(ours, theirs) == expected


def test_one_order_flips_beyond_the_intervals(sweep):
    """What the text says about the claim at the top: medians ahead at all shapes, six ties, one flip."""
    moved = cross_gpu.transfer(sweep).set_index(["n_cols", "dtype"])
    assert (moved.over_torch_h100 > 1).all() and moved.order_h100.eq("tie").sum() == 6
    flipped = moved[moved.order_h100.eq("faster") & moved.order_h200.eq("slower")]
    assert list(flipped.index) == [(4096, "bfloat16")]
    lost = moved[moved.order_h100.eq("tie") & moved.order_h200.eq("slower")]
    assert list(lost.index) == [(8192, "float32")]
    wins = moved[moved.order_h100.eq("faster")]
    assert wins.order_h200.eq("faster").sum() > len(wins) / 2, "most of the clear wins remain"
    lines = cross_gpu.orders(cross_gpu.transfer(sweep)).splitlines()
    assert "faster than torch.square at 10 of 16 shapes, a tie at 6, slower at 0" in lines[0]
    assert "faster at 7, tie at 2, slower at 1" in lines[2] and "tie at 5, slower at 1" in lines[3]


def test_each_shape_has_48_correct_launches(sweep):
    flat = sweep[sweep.kernel.eq("Triton flat")]
    assert (flat.groupby(["n_cols", "dtype"]).size() == 48).all()
    assert flat.verdict_h100.eq("ok").all() and flat.verdict_h200.eq("ok").all()


def test_a_graph_saves_the_cpus_work_and_the_gaps_but_not_the_kernels_time() -> None:
    """What the lesson says of twenty sines, in the H100's record."""
    rows = records.stored_by_gpu("cross_gpu/graphs")["h100"].set_index("launched")
    calls, graph = rows.loc["one call per kernel"], rows.loc["one graph"]
    assert graph.host_us < calls.host_us / 5 and graph.high_us < calls.low_us / 5
    assert graph.kernels_us > 0.9 * calls.kernels_us


@pytest.mark.gpu
def test_a_graph_removes_the_host_s_work_and_not_the_kernels_time():
    names: dict = {}
    exec(text("graphs").rpartition("cuda_graphs.")[0], names)
    by_call, by_graph = cuda_graphs.measure(names["twenty_sines"], names["as_graph"])
    assert by_graph["host_us"] < by_call["host_us"] / 2 and by_graph["median_us"] < by_call["median_us"]
    assert by_graph["kernels_us"] == pytest.approx(by_call["kernels_us"], rel=0.3)
    assert by_graph["median_us"] > 0.9 * by_graph["kernels_us"]


@pytest.mark.skipif(device.has_gpu(), reason="tests a machine without a GPU")
def test_without_a_gpu_nothing_is_predicted_for_it():
    assert cross_gpu.square_here().startswith("There is no GPU here")


def test_facts_about_launches_that_suit_both_gpus(sweep):
    """Two to four kilobytes a program, several programs on an SM, the old table's launch the
    H100's fastest.
    """
    found = cross_gpu.launches(sweep)
    good = found[(found.loss_h100 < 1) & (found.loss_h200 < 1)]
    assert good.block_size.mul(4).isin([2048, 4096]).all() and (2048 // (32 * good.num_warps) > 2).all()
    rows = sweep[sweep.kernel.eq("Triton flat") & sweep.n_cols.eq(8192) & sweep.dtype.eq("float32")]
    wide = rows.merge(good[["block_size", "num_warps"]]).load_bytes_h200
    assert len(wide) == len(good) and wide.eq(16).all()
    # What the text calls a reason and no proof: they differ in bytes per thread, and most launches that
    # share all three properties lose more.
    assert sorted(4 * good.block_size // (32 * good.num_warps)) == [16, 64]
    alike = rows[rows.load_bytes_h200.eq(16) & rows.block_size.isin(good.block_size)]
    lost = found.merge(alike[["block_size", "num_warps"]]).loss_h200
    assert (lost > 1).sum() > len(lost) / 2
    spilled = rows[rows.spill_bytes_h200.gt(0)]
    assert spilled[["block_size", "num_warps"]].values.tolist() == [[8192, 1]]
    best = found.loc[found.us_h100.idxmin()]
    assert (best.block_size, best.num_warps) == (16 // 4 * 32 * 32, 32)
    at = found.set_index(["block_size", "num_warps"])[["loss_h100", "loss_h200"]]
    ranked = at.max(axis=1).sort_values()
    assert list(ranked.index[:2]) == [(1024, 8), (512, 1)]
    assert at.loc[[(1024, 8), (512, 1)]].round(1).to_numpy().tolist() == [[0.4, 0.0], [0.7, 0.5]]


def test_the_figures_show_every_row(both, sweep):
    found = cross_gpu.launches(sweep)
    drawn = cross_gpu.draw_speedups(both)
    assert sum(len(trace.x) for trace in drawn.data) == len(both)
    assert "H100, 2026-11-21 · H200, 2026-11-22" in drawn.layout.title.text
    floors = cross_gpu.draw_floors(found)
    steps = floors.layout.sliders[0].steps
    assert [step.label for step in steps] == ["1", "2", "4", "8", "16", "32"]
    for step in steps:
        shown = step.args[0]["visible"]
        assert len(shown) == len(floors.data) and sum(shown) == 5
        seen = [trace for trace, on in zip(floors.data, shown, strict=True) if on]
        rows = found[found.num_warps == int(step.label)].sort_values("block_size")
        assert list(seen[0].y) == list(rows.us_h100) and list(seen[1].y) == list(rows.us_h200)
    maps = cross_gpu.draw_losses(found)
    assert [trace.text[0][2] for trace in maps.data] == [
        f"{found.set_index(['block_size', 'num_warps'])[f'loss_{gpu}'][256, 1]:.{1 if gpu == 'h100' else 0}f}"
        for gpu in ("h100", "h200")
    ]

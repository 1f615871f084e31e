"""Lesson 10's figures and tables: what they say follows from the two GPUs' rows, and what its text says of
them holds.
"""

from __future__ import annotations

import pandas as pd
import pytest
from commands import cells

from helpers import records
from helpers.lessons import cross_gpu


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
    assert "1,000,003 elements" in text("floor-end")
    copies = both[both.kernel == "torch, a copy"].sort_values("n_bytes").reset_index(drop=True)
    floor, spec = copies.known_us[0], both.attrs["provenance"]["h200"].gpu
    off = (floor + copies.n_bytes / spec["copy_gb_per_s"] / 1e3) / copies.new_us - 1
    worst = off.abs().idxmax()
    assert copies.n_bytes[worst] == pytest.approx(8 * 1_000_003)
    assert off.drop(worst).abs().max() < 0.25
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
    # What the text calls a reason and no proof: unlike bytes a thread, and most that share all three lose
    # more.
    assert sorted(4 * good.block_size // (32 * good.num_warps)) == [16, 64]
    alike = rows[rows.load_bytes_h200.eq(16) & rows.block_size.isin(good.block_size)]
    lost = found.merge(alike[["block_size", "num_warps"]]).loss_h200
    assert (lost > 1).sum() > len(lost) / 2
    spilled = rows[rows.spill_bytes_h200.gt(0)]
    assert spilled[["block_size", "num_warps"]].values.tolist() == [[8192, 1]]
    best = found.loc[found.us_h100.idxmin()]
    assert (best.block_size, best.num_warps) == (16 // 4 * 32 * 32, 32)


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
        assert len(shown) == len(floors.data) and sum(shown) == 4
        seen = [trace for trace, on in zip(floors.data, shown, strict=True) if on]
        rows = found[found.num_warps == int(step.label)].sort_values("block_size")
        assert list(seen[0].y) == list(rows.us_h100) and list(seen[1].y) == list(rows.us_h200)
    maps = cross_gpu.draw_losses(found)
    assert [trace.text[0][2] for trace in maps.data] == [
        f"{found.set_index(['block_size', 'num_warps'])[f'loss_{gpu}'][256, 1]:.{1 if gpu == 'h100' else 0}f}"
        for gpu in ("h100", "h200")
    ]

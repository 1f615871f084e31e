"""What lesson 12 counts, draws and compiles without a GPU, and the functions that measure, on a CPU."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from helpers.lessons import attention as lesson
from helpers.lessons import attention_times as times
from helpers.lessons.attention_kernels import attention_specialized_kernel


def three_lines(q, k, v):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1) @ v


# ------------------------------------------------------------------------------------------------- counting


@pytest.mark.parametrize("window", [None, 1, 5, 16, 40])
@pytest.mark.parametrize(("block_m", "block_n"), [(8, 4), (4, 8), (8, 8)])
def test_a_tile_is_skipped_or_masked_as_its_scores_demand(block_m, block_n, window):
    i, j = torch.arange(48)[:, None], torch.arange(48)
    sees = (j <= i) if window is None else (j <= i) & (j > i - window)
    tiles = lesson.tiles_of(48, block_m, block_n, is_causal=True, window=window)
    for row, kinds in enumerate(tiles):
        for step, kind in enumerate(kinds):
            tile = sees[row * block_m : (row + 1) * block_m, step * block_n : (step + 1) * block_n]
            assert kind == (lesson.FULL if tile.all() else lesson.PARTLY if tile.any() else lesson.SKIPPED)


def test_without_a_mask_every_tile_is_computed():
    assert lesson.n_visited(lesson.tiles_of(64, 16, 8, is_causal=False)) == 4 * 8


def test_the_peak_is_two_matrices_and_the_result():
    q = torch.randn(2, 128, 16)
    assert lesson.peak_bytes(three_lines, q, q, q) == pytest.approx(
        4 * (2 * 2 * 128**2 + q.numel()), rel=0.01
    )


def test_nothing_measured_is_no_table():
    assert lesson.table(pd.DataFrame(), {"n": "tokens"}) is None
    assert "7" in lesson.table(pd.DataFrame([{"n": 7}]), {"n": "tokens"}).to_html()


# -------------------------------------------------------------------------------------------------- drawing


def test_the_slider_and_the_buttons_choose_one_picture():
    figure = lesson.draw_tiles(128, 64, lengths=(256, 512), window=128)
    slider, buttons = figure.layout.sliders[0].steps, figure.layout.updatemenus[0].buttons
    shown = {}
    for step in slider:
        for button in buttons:
            visible, opacity = step.args[0]["visible"], button.args[0]["opacity"]
            texts = [
                trace.text[0]
                for trace, on, seen in zip(figure.data, visible, opacity, strict=True)
                if on and seen and trace.type == "scatter"
            ]
            (shown[step.label, button.label],) = texts
    assert shown == {
        ("256", "causal"): "6 of 8 tiles, 4 masked",
        ("256", "none"): "8 of 8 tiles, 0 masked",
        ("256", "window of 128"): "6 of 8 tiles, 6 masked",
        ("512", "causal"): "20 of 32 tiles, 8 masked",
        ("512", "none"): "32 of 32 tiles, 0 masked",
        ("512", "window of 128"): "14 of 32 tiles, 14 masked",
    }


# ------------------------------------------------------------------------------------------------ compiling


def test_one_group_of_warps_loads_and_two_multiply():
    roles = lesson.roles(lesson.compile_specialized(attention_specialized_kernel))
    loading, multiplying = roles[roles.loads > 0], roles[roles.products > 0]
    assert len(loading) == 1 and len(multiplying) == 2
    assert loading.registers.iloc[0] < multiplying.registers.min()


# ------------------------------------------------------------------------------------------------ measuring


@pytest.fixture
def on_cpu(monkeypatch):
    """The measuring functions run on the CPU, and a function takes as many µs as its name has letters."""

    def compare_many(functions, *, against, budget_s):
        assert against in functions and budget_s > 0
        for function in functions.values():
            function()
        return {name: SimpleNamespace(median_us=float(len(name)), ci95_us=(1.0, 9.0)) for name in functions}

    monkeypatch.setattr("helpers.timing.interleaved.compare_many", compare_many)
    monkeypatch.setattr(times, "DEVICE", "cpu")
    monkeypatch.setattr(times, "backends", lambda: {"torch": scaled_dot_product_attention})


def test_forward_speed_counts_two_products(on_cpu):
    rows = times.time_forward({"ours": three_lines}, [(1, 2, 64, 16)])
    assert [row["kernel"] for row in rows] == ["torch", "ours"]
    assert rows[1]["tflop_per_s"] == pytest.approx(4 * 2 * 64 * 64 * 16 / 4.0 / 1e6)


def test_a_backend_that_refuses_is_left_out(on_cpu):
    def refuses(q, k, v):
        raise RuntimeError("No available kernel.")

    rows = times.time_forward({"ours": three_lines, "no": refuses}, [(1, 2, 64, 16)])
    assert [row["kernel"] for row in rows] == ["torch", "ours"]


def test_a_wrong_kernel_is_not_timed(on_cpu):
    with pytest.raises(ValueError, match="ours is wrong"):
        times.time_forward({"ours": lambda q, k, v: three_lines(2 * q, k, v)}, [(1, 2, 64, 16)])


def test_the_gain_of_a_mask_is_the_ratio_of_both_times(on_cpu):
    def causal(q, k, v):
        return scaled_dot_product_attention(q, k, v, is_causal=True)

    (row,) = times.time_masks({"ours": three_lines}, {"ours": causal}, [32])
    assert row == {"n": 32, "kernel": "ours", "full_us": 4.0, "causal_us": 4.0, "gain": 1.0}


def test_decoding_counts_the_cache_once(on_cpu):
    def grouped(q, k, v):
        return scaled_dot_product_attention(q, k, v, enable_gqa=True)

    sizes = {"heads": 4, "kv_heads": 2, "head_size": 16}
    rows = times.time_decoding({"4 parts": grouped}, batch=2, n_keys=64, **sizes)
    assert rows[1]["gb_per_s"] == pytest.approx(2 * 2 * 2 * 64 * 16 * 2 / 7.0 / 1e3)

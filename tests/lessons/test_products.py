"""What lesson 11 draws and computes without a GPU: the order of tiles, and what it loads."""

from __future__ import annotations

import pytest

from helpers import ncu, ptx, records
from helpers.lessons import products


@pytest.mark.parametrize("group", [1, 3, 8, 100])
def test_each_tile_has_one_program(group):
    tiles = [products.tile_of(program, 7, 5, group) for program in range(35)]
    assert sorted(tiles) == [(row, col) for row in range(7) for col in range(5)]


def test_a_band_is_filled_column_by_column():
    assert [products.tile_of(p, 4, 3, 2) for p in range(4)] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert products.tile_of(6, 4, 3, 2) == (2, 0)


def test_strips_that_the_first_programs_need():
    assert products.strips_loaded(64, 32, 1, at_once=132) == (5, 32)
    assert products.strips_loaded(64, 32, 8, at_once=132) == (8, 17)
    assert products.strips_loaded(2, 2, 1, at_once=132) == (2, 2)  # fewer tiles than places


def test_the_picture_shows_the_programs_that_run_at_once():
    figure = products.draw_order(8, 4, at_once=10, groups=(1, 4))
    for trace in figure.data:
        drawn = [number for row in trace.z for number in row if number is not None]
        assert sorted(drawn) == list(range(10))
    assert "3 strips of a and 4 of b" in figure.layout.title.text
    assert "4 strips of a and 3 of b" in figure.layout.sliders[0].steps[1].args[1]["title.text"]


def test_the_picture_of_a_block_shows_the_tiles_that_give_its_tile_of_c():
    """The rows of a's tiles are those of c's, and the columns of b's; both are at the same place along k."""
    for step in products.draw_tiles(32, (1, 8, 16)).layout.sliders[0].steps:
        a, b, *_, in_a, in_b, in_c = [
            tuple(one[at] for at in ("x0", "y0", "x1", "y1")) for one in step.args[0]["shapes"]
        ][-8:]
        assert (in_a[1], in_a[3]) == (in_c[1], in_c[3])
        assert (in_b[0], in_b[2]) == (in_c[0], in_c[2])
        assert in_a[0] - a[0] == in_b[1] - b[1]
        assert in_c[2] - in_c[0] == int(step.label)


def test_the_traffic_of_tiles_is_what_lesson_11_computes():
    """In every recorded set: the loads of a tile are 2n³ / tile numbers, to the byte."""
    paths = list(records.folder().glob("*/matmul/traffic-2048.ncu-rep"))
    assert paths
    for path in paths:
        computed = [8 * 2048**3, *(8 * 2048**3 / tile for tile in (8, 16, 32))]
        table = products.traffic_table(ncu.load_report(path), ["naive", "8", "16", "32"], computed)
        assert list(table.loaded[1:]) == pytest.approx(list(table.computed[1:]))
        assert table.loaded[0] == pytest.approx(table.computed[0] * 5 / 8)


def test_speed_counts_two_operations_per_product():
    row = products.speed(2 * 1000**3, 1000.0, (990.0, 1010.0))
    assert row["tflop_per_s"] == pytest.approx(2.0)
    assert row["tflop_per_s_low"] < 2.0 < row["tflop_per_s_high"]


def test_the_instructions_of_a_loop():
    text = r"""
    extern "C" __global__ void count(int* x, int n) {
        x[1] = n;
        #pragma unroll 1
        for (int i = 0; i < n; i++) atomicMax(x, i * i);
    }"""
    made = ptx.cuda_stages(text, target="sm_90")
    loop = products.longest_loop(made)
    assert [i.opcode for i in loop if i.parts[0] == "bra"] == ["bra"]
    assert any(i.parts[0] in ("atom", "red") for i in loop)
    assert not any(i.parts[0] == "st" for i in loop)
    row = products.count_steps({"mine": made}).iloc[0]
    assert (row["product"], row["loads"], row["all"]) == ("mine", 0, len(loop))
    assert 2 <= row["integer"] < row["all"]


def test_a_kernel_without_a_loop_has_no_steps():
    made = ptx.cuda_stages('extern "C" __global__ void one(int* x) { *x = 1; }', target="sm_90")
    assert products.longest_loop(made) == []

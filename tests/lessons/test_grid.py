"""The picture of who wrote each element, from accesses written by hand (traced runs are in
tests/cuda/test_emulator.py).
"""

from __future__ import annotations

import math

import pandas as pd
import pytest

from helpers.lessons import grid


def written(elements: list[int], n_bytes: int = 4, threads: int = 8) -> grid.GridTrace:
    """A launch of blocks of `threads` in a row, in which thread i wrote element i, for the elements named."""
    always = {"kernel": "fill", "argument": "out", "access": "write", "line": 1, "expression": "out[i]"}
    always |= {"n_bytes": n_bytes, "block_y": 0, "block_z": 0, "thread_y": 0, "thread_z": 0}
    rows = [
        always
        | {"element": i, "byte": i * n_bytes, "address": i * n_bytes, "request": i // 32}
        | {"block_x": i // threads, "thread_x": i % threads}
        | {"warp": i % threads // 32, "lane": i % threads % 32}
        for i in elements
    ]
    return grid.GridTrace(pd.DataFrame(rows), ((threads, 1, 1),), ((len(rows), 1, 1),))


def strokes(figure, colour: str) -> list[tuple[float, float, float, float]]:
    return [(s.x0, s.x1, s.y0, s.y1) for s in figure.layout.shapes if s.line.color == colour]


def test_lines_separate_sectors_and_blocks():
    """Rows of 24 elements of 4 bytes: a sector has 8 elements, a block 12."""
    figure = written(list(range(48)), threads=12).draw("out", (2, 24))
    assert strokes(figure, "white") == [(7.5, 7.5, -0.5, 1.5), (15.5, 15.5, -0.5, 1.5)]
    upright = [s for s in strokes(figure, "#333333") if s[0] == s[1]]
    assert upright == [(11.5, 11.5, -0.5, 1.5)]
    assert (-0.5, 23.5, 0.5, 0.5) in strokes(figure, "#333333")
    assert figure.layout.title.text.startswith("fill, blocks of 12 × 1")
    assert [tuple(cell[:2]) for cell in figure.data[0].customdata[1][:2]] == [(24, 2), (25, 2)]


def test_unwritten_elements_are_labeled():
    (map_, nobody) = written([0, 1, 3, 4, 5]).draw("out", (2, 3)).data
    assert math.isnan(map_.z[0][2]) and nobody.z[0][2] == 0
    assert "nobody wrote it" in nobody.hovertemplate


def test_writes_past_the_matrix_are_below_a_red_line():
    figure = written(list(range(20))).draw("out", (2, 8))
    assert figure.data[0].z.shape == (3, 8)
    assert strokes(figure, "#D55E00") == [(-0.5, 7.5, 1.5, 1.5)]
    assert figure.layout.annotations[0].text == "behind the matrix"


def test_a_corner_of_a_large_matrix():
    large = written(list(range(8192)))
    with pytest.raises(ValueError, match=r"8,192.*`corner`"):
        large.draw("out", (64, 128))
    assert large.draw("out", (64, 128), corner=(4, 200)).data[0].z.shape == (4, 128)

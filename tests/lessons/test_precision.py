"""What lesson 11 shows about precision: measured errors stay below the bounds that it derives."""

from __future__ import annotations

import pytest
import torch

from helpers.lessons import precision
from helpers.lessons.precision import Format

SINGLE, HALF = torch.Tensor.float, torch.Tensor.half
FORMATS = {
    "float32": Format(SINGLE, 0, SINGLE, 2**-24),
    "float16": Format(HALF, 2**-11, SINGLE, 2**-24),
    "float16, sums in float16": Format(HALF, 2**-11, HALF, 2**-11),
}


def product(a, b, inputs, sums):
    """A product of rounded factors, whose sums are rounded after each term."""
    a, b = inputs(a).double(), inputs(b).double()
    c = torch.zeros(len(a), b.shape[1])
    for i in range(a.shape[1]):
        c = sums(c.double() + a[:, i, None] * b[i])
    return c


@pytest.fixture(scope="module")
def found():
    return precision.errors(product, FORMATS, (16, 256))


def test_a_typical_error_is_below_its_bound_and_not_far(found):
    assert len(found) == 6
    assert (found.typical < found.bound).all()
    assert (found.typical > found.bound / 5).all()


def test_only_the_error_of_the_sums_grows_with_k(found):
    growth = found.pivot(index="format", columns="k", values="typical")
    growth = growth[256] / growth[16]
    assert growth["float16"] == pytest.approx(1, abs=0.2)
    assert growth["float32"] == pytest.approx(4, rel=0.3)
    assert growth["float16, sums in float16"] == pytest.approx(4, rel=0.3)


def test_the_picture_has_points_and_a_line_for_each_format(found):
    figure = precision.draw(found)
    points = {trace.name: trace for trace in figure.data if trace.mode == "markers"}
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert list(points) == list(FORMATS)
    assert [line.name for line in lines] == [f"bound of {name}" for name in FORMATS]
    for line, point in zip(lines, points.values(), strict=True):
        assert line.line.color == point.marker.color
        assert all(high > low for high, low in zip(line.y, point.y, strict=True))


def test_allclose_rejects_right_products_and_accepts_a_wrong_one():
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(shape, generator=generator) for shape in ((32, 1024), (1024, 32)))
    small = 1e-9 * a
    judged = precision.verdicts(
        {
            "another order": (product(a, b, SINGLE, SINGLE), a, b),
            "bfloat16 inside": (product(small, b, torch.Tensor.bfloat16, SINGLE), small, b),
        }
    )
    assert list(judged.allclose) == ["rejects", "accepts"]
    assert list(judged.checker) == ["accepts", "rejects"]

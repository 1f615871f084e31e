"""A wrong result is described by what is wrong with it: what was never written, or which elements differ."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from helpers import ptx
from helpers.check import Mismatch, assert_matches, poisoned
from helpers.check.finding import describe
from helpers.device import has_gpu
from helpers.timing.sweeps import sweep

DEVICE = "cuda" if has_gpu() else "cpu"


@triton.jit
def square_one_block(y_ptr, x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0) * n_cols
    columns = tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + row + columns, mask=columns < n_cols)
    tl.store(y_ptr + row + columns, x * x, mask=columns < n_cols)


def square(x, BLOCK_SIZE=128):
    y = torch.empty_like(x)
    square_one_block[(len(x),)](y, x, x.shape[1], BLOCK_SIZE=BLOCK_SIZE)
    return y


PART = "it writes only the first 128 of 4,096 columns in each row: 96.9 % of the output was never written"


def test_a_triton_kernel_that_writes_the_start_of_each_row():
    with ptx.launches(), pytest.raises(Mismatch) as caught:
        assert_matches(square, torch.square, shapes=[(3, 4096)], device=DEVICE)
    assert caught.value.finding == caught.value.reason == PART and PART[1:] in str(caught.value)


def test_the_row_of_a_sweep_has_the_finding():
    with ptx.launches():
        found = sweep(square, shapes=[(3, 4096)], reference=torch.square, n_bytes=1, device=DEVICE, timer=len)
    assert list(found.verdict) == ["wrong"] and list(found.reason) == [PART]


def written(shape: tuple[int, ...], index: object, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A poisoned tensor with ones at an index."""
    with poisoned():
        made = torch.empty(shape, dtype=dtype)
    made[index] = 1
    return made


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (written((5, 8), slice(3)), "it writes only the first 3 of 5 rows: 40.0 % of the output was"),
        (written((5, 8), [0, 2, 4]), "it writes only 3 of 5 rows: 40.0 %"),
        (written((40,), slice(20)), "it writes only the first 20 of 40 elements: 50.0 %"),
        (written((2, 4, 8), (..., slice(2))), "it writes only the first 2 of 8 columns in each row: 75.0 %"),
        (
            written((5, 8), (..., slice(None, None, 2))),
            "50.0 % of the output was never written, starting",
        ),
        (written((5, 8), slice(0)), "it never writes its output"),
        (written((5, 8), slice(3), torch.int32), "it writes only the first 3 of 5 rows"),
        (written((5, 8), slice(3), torch.bfloat16), "it writes only the first 3 of 5 rows"),
        (2 * written((5, 8), slice(5)), "every element is wrong; the first, at (0, 0), is 2 instead of 1"),
        (
            torch.tensor([[1.0, 0.0], [1.0, 0.0]]),
            "it computes only the first of 2 columns in each row correctly: 50.0 % of the elements are "
            "wrong; the first, at (0, 1), is 0 instead of 1",
        ),
        (torch.tensor([1.0, 3.0, 1.0]), "33.3 % of the elements are wrong; the first, at (1,), is 3 instead"),
    ],
)
def test_the_region_is_named(got, expected):
    assert describe(got, torch.ones(got.shape).double(), got != 1).startswith(expected)


def test_a_computed_nan_was_written():
    got = torch.zeros(4) / 0
    assert describe(got, torch.ones(4).double(), got != 1) == (
        "every element is wrong; the first, at (0,), is nan instead of 1"
    )


def test_wrong_elements_next_to_unwritten_ones_are_mentioned():
    got = written((4, 8), slice(2))
    got[0, 3] = 7
    assert describe(got, torch.ones(4, 8).double(), got != 1) == (
        "it writes only the first 2 of 4 rows: 50.0 % of the output was never written, and 6.2 % of the "
        "elements that it does write are wrong; the first, at (0, 3), is 7 instead of 1"
    )

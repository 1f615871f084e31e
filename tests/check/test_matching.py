"""A wrong kernel cannot pass `assert_matches`, and a right one does."""

import subprocess
import sys

import pytest
import torch
from commands import environment

from helpers.check import Mismatch, assert_close, assert_matches, poisoned, shapes_around


def first_1024_columns(x):
    """What a program per row with BLOCK_SIZE 1024 computes: the rest of the output is never written."""
    out = torch.empty_like(x)
    out[:, :1024] = x[:, :1024] ** 2
    return out


def test_right_kernels_pass():
    for kernel in (torch.square, lambda x: x * x, lambda x: torch.empty_like(x).copy_(x**2)):
        assert_matches(kernel, torch.square)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("block_size", [None, 512, 1024, 2048])
def test_fixed_block_never_passes(seed, block_size):
    with pytest.raises(Mismatch, match=r"first 1,024 of \d,\d+ columns"):
        assert_matches(first_1024_columns, torch.square, block_size=block_size, shapes=None, seed=seed)


def test_a_fixed_block_fails_at_the_timed_shape():
    with pytest.raises(Mismatch, match=r"shape \(16, 4096\)"):
        assert_matches(first_1024_columns, torch.square, shapes=[], timed_shape=(16, 4096))


def test_stale_right_answer_in_recycled_memory_cannot_pass():
    """A kernel that writes nothing, over a buffer in which an earlier right answer lies."""
    torch.manual_seed(0)
    x = torch.randn(64, 64)
    right = torch.square(x)
    del right

    with pytest.raises(Mismatch, match="never writes its output"):
        assert_matches(torch.empty_like, torch.square, shapes=[(64, 64)])


def test_one_unwritten_element_is_found():
    def all_but_last(x):
        out = torch.empty_like(x)
        out.view(-1)[:-1] = x.reshape(-1)[:-1] ** 2
        return out

    with pytest.raises(Mismatch, match=r"(?s)1 of 35 elements differ.*at \(4, 6\): got nan"):
        assert_matches(
            lambda x: all_but_last(x) if x.numel() else torch.empty_like(x), torch.square, shapes=[(5, 7)]
        )


def test_allocation_inside_cpp_operators_is_poisoned():
    with poisoned():
        assert torch.empty(3).isnan().all()
        assert torch.empty_strided((2, 2), (2, 1)).isnan().all()
        assert torch.zeros(3).new_empty(2).isnan().all()
        assert (torch.empty(2, dtype=torch.int32) == 0x5A5A5A5A).all()
        assert torch.equal(torch.zeros(3), torch.tensor([0.0, 0.0, 0.0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_other_dtypes(dtype):
    assert_matches(torch.square, torch.square, dtype=dtype)


def test_changing_the_input_is_an_error():
    with pytest.raises(Mismatch, match="changed its input 0"):
        assert_matches(lambda x: x.square_(), torch.square)


def test_nan_and_infinities_have_to_match():
    with pytest.raises(Mismatch, match="special values"):
        assert_matches(lambda x: torch.nan_to_num(torch.square(x), nan=0.0), torch.square)
    got = torch.tensor([float("inf"), float("nan"), 1.0])
    assert_close("same", got, torch.tensor([float("inf"), float("nan"), 1.0], dtype=torch.float64))
    with pytest.raises(Mismatch, match="got inf, expected -inf"):
        assert_close("sign", got, torch.tensor([float("-inf"), float("nan"), 1.0], dtype=torch.float64))
    with pytest.raises(Mismatch, match="expected 2"):
        assert_close("nan", got, torch.tensor([float("inf"), 2.0, 1.0], dtype=torch.float64))


def test_the_expected_value_is_shown_in_the_results_dtype():
    right = torch.tensor([3.196001e-66, 0.1], dtype=torch.float64)
    with pytest.raises(Mismatch, match=r"(?s)expected 0\n.*expected 0\.09997559$"):
        assert_close("half", torch.ones(2, dtype=torch.float16), right)


def test_overflow_is_expected_where_the_dtype_overflows():
    assert_close("overflow", torch.tensor([float("inf")]), torch.tensor([1e40], dtype=torch.float64))


def test_wrong_shape_and_no_tensor():
    with pytest.raises(Mismatch, match="was expected"):
        assert_matches(lambda x: x.square().view(-1), torch.square, shapes=[(3, 5)])
    with pytest.raises(Mismatch, match="not a tensor"):
        assert_matches(lambda x: None, torch.square)


def test_candidate_gets_copies_and_runs_before_the_reference():
    seen = []

    def kernel(x):
        seen.append("kernel")
        return torch.square(x)

    def reference(x):
        assert x.dtype is torch.float64
        seen.append("reference")
        return torch.square(x)

    assert_matches(kernel, reference, shapes=[(2, 3)])
    assert seen == ["kernel", "reference"]


def test_several_inputs():
    def make(shape, generator, device, dtype):
        return tuple(torch.randn(shape, generator=generator, device=device, dtype=dtype) for _ in range(2))

    assert_matches(torch.add, torch.add, shapes=[(3, 5), (0,)], make_inputs=make)
    with pytest.raises(Mismatch):
        assert_matches(torch.sub, torch.add, shapes=[(3, 5)], make_inputs=make)


def test_text_is_the_same_on_every_machine():
    text = repr(assert_matches(torch.square, torch.square, shapes=[(3, 5), (1, 1)]))
    assert text == "square agrees with its float64 reference: 2 shapes from (1, 1) to (3, 5), float32."
    text = repr(assert_matches(torch.square, torch.square, shapes=[(3, 5)]))
    assert text == "square agrees with its float64 reference: shape (3, 5), float32."


def test_shapes_include_the_block_size_and_its_neighbors():
    columns = {shape[1] for shape in shapes_around(256)}
    assert {0, 1, 255, 256, 257, 513, 781, 4096} <= columns


def test_an_empty_list_of_shapes_is_an_error():
    with pytest.raises(ValueError, match="no shape to try"):
        assert_matches(torch.square, torch.square, shapes=[])


def test_checking_a_kernel_does_not_import_torchs_compiler():
    code = (
        "import sys, torch; from helpers import check; "
        "check.assert_matches(lambda x: torch.empty_like(x).copy_(x * x), torch.square); "
        "print('torch._dynamo' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert ran.stdout == "False\n", ran.stdout + ran.stderr

"""Kernels of any form: outputs that they are given, several results, integers, complex numbers, arguments
that are no tensors.
"""

import math

import pytest
import torch

from helpers.check import Mismatch, assert_matches, assert_result

HERE = {"device": "cpu", "shapes": [(3, 40), (1, 1), (0, 5)]}


def pair(shape, generator, device, dtype):
    return tuple(torch.randn(shape, generator=generator, device=device).to(dtype) for _ in range(2))


# ------------------------------------------------------------------------------------------- outputs that are
# handed over


def add_into(x, y, out):
    out.copy_(x + y)


def test_an_output_by_position_or_by_name():
    for out in ("out", 2, -1, (2,), ["out"]):
        assert_matches(add_into, torch.add, make_inputs=pair, out=out, **HERE)
    assert_matches(lambda out, x, y: add_into(x, y, out), torch.add, make_inputs=pair, out=0, **HERE)
    assert_matches(torch.add, torch.add, make_inputs=pair, out="out", **HERE)


def test_the_return_value_is_ignored_if_there_is_an_output():
    assert_matches(lambda x, out: out.copy_(x * 2).sum(), lambda x: x * 2, out="out", **HERE)


def test_an_output_that_is_not_written_is_found():
    def all_but_one(x, out):
        out.copy_(x)
        if x.numel() > 1:
            out.view(-1)[-1:] = math.nan

    with pytest.raises(Mismatch, match="1 of 120 elements differ"):
        assert_matches(all_but_one, torch.clone, out="out", **HERE)
    with pytest.raises(Mismatch, match="never writes its output"):
        assert_matches(lambda x, out: torch.square(x), torch.square, out="out", **HERE)


def test_outputs_have_the_inputs_dtype_and_integers_their_own():
    seen = []

    def kernel(x, values, indices):
        seen.append((values.dtype, indices.dtype, values.isnan().all().item()))
        best = x.max(-1)
        values.copy_(best.values)
        indices.copy_(best.indices)

    how = {"device": "cpu", "shapes": [(3, 40)], "dtype": torch.bfloat16}
    assert_matches(kernel, lambda x: x.max(-1), out=("values", "indices"), **how)
    assert seen == [(torch.bfloat16, torch.int64, True)]


def test_a_kernel_with_out_must_not_change_its_inputs():
    def kernel(x, out):
        out.copy_(x.square_())

    with pytest.raises(Mismatch, match="changed its input 0"):
        assert_matches(kernel, torch.square, out=1, **HERE)


@pytest.mark.parametrize(
    ("out", "says"),
    [
        (("a", "b"), "out names 2 of add_into's parameters, but the reference has 1 result"),
        (3, "out=3 .* 3 arguments of add_into"),
        (-4, "out=-4 "),
    ],
)
def test_an_invalid_out_is_an_error(out, says):
    with pytest.raises(ValueError, match=says):
        assert_matches(add_into, torch.add, make_inputs=pair, out=out, **HERE)


# --------------------------------------------------------------------------------------------------------
# several results


def test_several_results_are_all_compared():
    def statistics(x):
        return x.mean(-1), x.var(-1, correction=0)

    how = {"device": "cpu", "shapes": [(5, 700)]}
    assert_matches(
        lambda x: (x.mean(-1), (x - x.mean(-1, keepdim=True)).square().mean(-1)), statistics, **how
    )
    with pytest.raises(Mismatch, match=r"result 1: 5 of 5 elements differ"):
        assert_matches(lambda x: [x.mean(-1), x.var(-1)], statistics, **how)
    with pytest.raises(Mismatch, match="2 results"):
        assert_matches(lambda x: x.mean(-1), statistics, **how)
    with pytest.raises(Mismatch, match=r"result 1: shape \(5, 1\), but \(5,\)"):
        assert_matches(lambda x: (x.mean(-1), x.var(-1, keepdim=True)), statistics, **how)
    with pytest.raises(Mismatch, match="it returned tuple, not a tensor"):
        assert_matches(lambda x: (x.mean(-1), None), statistics, **how)


def test_inputs_that_are_not_tensors_are_passed_on():
    def make(shape, generator, device, dtype):
        return torch.randn(shape, generator=generator, device=device, dtype=dtype), 3, "relu"

    def scaled(x, factor, what):
        return getattr(torch, what)(x * factor)

    assert_matches(scaled, scaled, make_inputs=make, **HERE)


def test_one_tensor_needs_no_tuple():
    assert_matches(
        torch.abs, torch.abs, make_inputs=lambda shape, g, device, dtype: torch.randn(shape), **HERE
    )


# Integers
# ------------------------------------------------------------------------------------------------------


def test_integers_that_depend_on_a_rounding_may_fall_on_either_side():
    """x / s in float32 and in float64 lie on different sides of a half now and then, and both are right."""

    def reference(x):
        return torch.round(x / 0.1).to(torch.int8)

    def make(shape, generator, device, dtype):
        halves = torch.arange(-100, 100, device=device, dtype=dtype) * 0.1 + 0.05
        return (halves,)

    assert not torch.equal(
        reference(make((), None, "cpu", torch.float32)[0]), torch.round(torch.arange(-100, 100) + 0.5)
    )
    how = {"device": "cpu", "shapes": [(200,)], "make_inputs": make}
    assert_matches(lambda x: torch.round(x * (1 / 0.1)).to(torch.int8), reference, **how)
    for wrong in (
        lambda x: torch.round(x / 0.1 + 1).to(torch.int8),
        lambda x: torch.round(x / 0.11).to(torch.int8),
    ):
        with pytest.raises(Mismatch):
            assert_matches(wrong, reference, **how)


def test_truncation_instead_of_rounding_is_wrong():
    def make(shape, generator, device, dtype):
        return (torch.randn(shape, generator=generator, device=device, dtype=dtype) * 20,)

    with pytest.raises(Mismatch, match="of 1,000 elements differ"):
        assert_matches(
            lambda x: x.to(torch.int32),
            lambda x: torch.round(x).to(torch.int32),
            shapes=[(1000,)],
            make_inputs=make,
            device="cpu",
        )


def test_an_argmax_is_exact():
    how = {"device": "cpu", "shapes": [(9, 500)]}
    assert_matches(lambda x: x.argmax(-1), lambda x: x.argmax(-1), **how)
    with pytest.raises(Mismatch, match="elements differ"):
        assert_matches(lambda x: x[:, :499].argmax(-1) + (x[:, 0] > 0), lambda x: x.argmax(-1), **how)


def test_a_reference_of_bits_needs_no_float64():
    def sign_bit(x):
        if x.dtype != torch.float32:
            raise RuntimeError("only float32 has these bits")
        return x.view(torch.int32) >> 31

    assert_matches(sign_bit, sign_bit, **HERE)
    with pytest.raises(Mismatch):
        assert_matches(lambda x: (x.view(torch.int32) >> 31) & 1, sign_bit, **HERE)


def test_a_float_reference_that_refuses_float64_keeps_its_error():
    def picky(x):
        if x.dtype == torch.float64:
            raise RuntimeError("no float64 here")
        return x * 2

    with pytest.raises(RuntimeError, match="no float64 here"):
        assert_matches(picky, picky, **HERE)


def test_integers_and_bools_without_any_float():
    how = {"device": "cpu", "shapes": [(100,)], "dtype": torch.int32}
    assert_matches(lambda x: x.cumsum(0), lambda x: x.cumsum(0), **how)
    assert_matches(lambda x: x > 3, lambda x: x > 3, **how)
    with pytest.raises(Mismatch, match=r"got \d+, expected \d+"):
        assert_matches(lambda x: (x * x).cumsum(0) + 1, lambda x: (x * x).cumsum(0), **how)
    with pytest.raises(Mismatch, match=r"got (True|False), expected"):
        assert_matches(lambda x: x >= 0, lambda x: x < 0, **how)


# -----------------------------------------------------------------------------------------------------
# complex, bad inputs


def test_complex_results_have_bounds_too():
    def make(shape, generator, device, dtype):
        return (torch.randn(shape, generator=generator, device=device, dtype=torch.complex64),)

    how = {"device": "cpu", "shapes": [(4, 1000)], "make_inputs": make}
    assert_matches(torch.fft.fft, torch.fft.fft, **how)
    with pytest.raises(Mismatch, match="1 of 8,000 elements differ"):

        def one_off(x):
            y = torch.fft.fft(x)
            y[2, 300] += 1.0
            return y

        assert_matches(one_off, torch.fft.fft, **how)


def test_an_unknown_precision_is_an_error():
    with pytest.raises(ValueError, match='precision must be "tf32", "ieee" or None'):
        assert_matches(torch.square, torch.square, precision="bf16", **HERE)


def test_a_reference_that_returns_no_tensor_is_an_error():
    with pytest.raises(ValueError, match="reference of square returned float"):
        assert_matches(torch.square, lambda x: 1.0, **HERE)


def test_a_precomputed_result_is_checked():
    x = torch.randn(50, 300)
    assert_result("it", x.cumsum(-1), lambda x: x.cumsum(-1), (x,))
    with pytest.raises(Mismatch, match=r"it on n=300: .*elements differ"):
        assert_result("it", x.cumsum(-1) * 1.001, lambda x: x.cumsum(-1), (x,), case="n=300")
    with pytest.raises(Mismatch, match="it returned NoneType, not a tensor"):
        assert_result("it", None, torch.square, (x,))

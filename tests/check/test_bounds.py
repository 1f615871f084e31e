"""A result may be as far off as its operation can reach, and no further; the message says which
bound it was.
"""

import math

import check_bounds
import check_kernels
import pytest
import seeds
import torch
from check_kernels import OPERATIONS, TF32, in_float32, with_factors

from helpers.check import Mismatch, assert_matches, assert_result
from helpers.check.bounds import in_layers_of_tf32, in_tf32
from helpers.check.closeness import outside
from helpers.check.measuring import bounds_of
from helpers.check.operation import Operation as Measured

HERE = {"device": "cpu"}


def one_row(shape, generator, device, dtype):
    return (torch.randn(shape, generator=generator, device=device).to(dtype),)


def factors(shape, generator, device, dtype):
    m, k, n = shape
    return tuple(torch.randn(s, generator=generator, device=device).to(dtype) for s in ((m, k), (k, n)))


def images(shape, generator, device, dtype):
    b, c, o, size = shape
    sizes = ((b, c, size, size), (o, c, 3, 3))
    return tuple(torch.randn(s, generator=generator, device=device).to(dtype) for s in sizes)


# ------------------------------------------------------------------------------------- many kernels, many
# random inputs


@pytest.mark.seeded
@pytest.mark.parametrize("name", OPERATIONS)
def test_right_kernels_pass_and_wrong_ones_never(name):
    """What `python tests/check_bounds.py --seeds 1000` does for long."""
    several = seeds.several(2)
    bad = [
        f"{which} {kernel} on {what}"
        for what, which, kernel, ones in check_bounds.tried([name], len(several), False, several.start)
        for one in ones
        if one.passed != (which == "right")
    ]
    assert not bad


@pytest.mark.seeded
def test_ten_million_terms():
    operation = OPERATIONS["sum of long rows"]
    shape, seed = (1, 10_000_000), seeds.several(1).start
    found = check_bounds.one_seed(operation, operation.right, shape, torch.float32, seed)
    assert all(one.passed for one in found.values())


def quantized(shape, generator, device, dtype):
    """Factors as fp8 with a scale for each row of the first and each column of the second."""
    found = []
    for one, dim in zip(factors(shape, generator, device, torch.float32), (1, 0), strict=True):
        scale = one.abs().amax(dim, keepdim=True) / torch.finfo(dtype).max
        found += [(one / scale).to(dtype), scale]
    a, scale_a, b, scale_b = found
    return a, b, scale_a, scale_b


def scaled(a, b, scale_a, scale_b):
    return a @ b * scale_a * scale_b


def scaled_in_float32(a, b, scale_a, scale_b, to=torch.bfloat16):
    return scaled(a.float(), b.float(), scale_a, scale_b).to(to)


def of_fp8(seed, **more):
    shapes = [(33, 31, 17), (17, 1024, 24), (9, 16_384, 8)]
    how = {"shapes": shapes, "make_inputs": quantized, "dtype": torch.float8_e4m3fn, "seed": seed, **HERE}
    return how | more


@pytest.mark.seeded
@pytest.mark.parametrize("to", [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_a_product_of_fp8_may_have_any_dtype(to):
    for seed in seeds.several(3):
        assert_matches(lambda *args: scaled_in_float32(*args, to=to), scaled, **of_fp8(seed))


@pytest.mark.seeded
@pytest.mark.parametrize("to", [torch.bfloat16, torch.float16])
def test_a_product_of_fp8_may_be_added_in_14_bits(to):
    """As compute capability 9.0 does for 128 terms, according to DeepSeek-V3 (arXiv 2412.19437), 3.3.2."""
    cut = check_kernels.narrowed(13, cut=True)

    def kernel(a, b, scale_a, scale_b):
        total = torch.zeros(len(a), b.shape[1])
        for first in range(0, a.shape[1], 128):
            part = torch.zeros_like(total)
            for k in range(first, min(first + 128, a.shape[1]), 32):
                part = cut(part + a[:, k : k + 32].float() @ b[k : k + 32].float())
            total += part
        return (total * scale_a * scale_b).to(to)

    for seed in seeds.several(3):
        assert_matches(kernel, scaled, **of_fp8(seed))


def _rounded_again(a, b, scale_a, scale_b):
    """The scales are applied first, and what they give is rounded to fp8 again."""
    a, b = ((x.float() * scale).to(x.dtype).float() for x, scale in ((a, scale_a), (b, scale_b)))
    return (a @ b).bfloat16()


def _added_in_bfloat16(a, b, scale_a, scale_b):
    acc = check_kernels.matmul_added_in(torch.bfloat16)(a.float(), b.float())
    return (acc.float() * scale_a * scale_b).bfloat16()


def _without_the_last_tile(a, b, scale_a, scale_b):
    a = a.float()
    a[:, -16:] = 0
    return scaled_in_float32(a, b, scale_a, scale_b)


def _scales_of_rows_only(a, b, scale_a, scale_b):
    return scaled_in_float32(a, b, scale_a, scale_b.mean())


@pytest.mark.seeded
@pytest.mark.parametrize(
    "kernel", [_rounded_again, _added_in_bfloat16, _without_the_last_tile, _scales_of_rows_only]
)
def test_a_wrong_product_of_fp8_is_rejected(kernel):
    for seed in seeds.several(3):
        with pytest.raises(Mismatch, match="elements differ"):
            assert_matches(kernel, scaled, **of_fp8(seed, shapes=[(9, 16_384, 8)]))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2])
def test_a_result_in_fp8_is_rounded_once(dtype):
    x = torch.randn(3, 40, generator=torch.Generator().manual_seed(0))
    rounded = x.to(dtype)
    assert_result("mine", rounded, lambda x: x * 1.0, [x])
    for at, sign in ((5, 1), (30, -1)):
        wrong = rounded.float()
        wrong[1, at] *= 1 + sign * torch.finfo(dtype).eps
        with pytest.raises(Mismatch, match=rf"1 of 120 elements differ\.\n  at \(1, {at}\)"):
            assert_result("mine", wrong.to(rounded.dtype), lambda x: x * 1.0, [x])


def test_a_result_between_two_numbers_of_fp8_may_become_either():
    x = torch.tensor([42.0, 20.0, 9.0]) / 3

    def quantized(x):
        return (x * 3).to(torch.float8_e4m3fn)

    below, above = (torch.tensor([one, 20.0, 9.0]).to(torch.float8_e4m3fn) for one in (40.0, 44.0))
    assert_result("mine", below, quantized, [x])
    assert_result("mine", above, quantized, [x])
    with pytest.raises(Mismatch, match="1 of 3 elements"):
        assert_result("mine", above, quantized, [x * (1 - 1e-4)])


def test_a_result_beyond_fp8_may_be_its_largest_number_or_nan():
    """Conversions differ: some saturate, others give NaN."""
    x = torch.tensor([300.0, 460.0, 1e4, -1e4, math.inf, math.nan])
    for beyond in (448.0, math.nan):
        result = torch.tensor([300.0, 448.0, beyond, -beyond, beyond, math.nan])
        assert_result("mine", result.to(torch.float8_e4m3fn), lambda x: x * 1.0, [x])
    for at, value in ((2, -448.0), (3, 448.0), (4, 2.0), (5, 448.0)):
        wrong = x.clamp(-448, 448)
        wrong[at] = value
        with pytest.raises(Mismatch, match=rf"1 of 6 elements differ\.\n  at \({at},\)"):
            assert_result("mine", wrong.to(torch.float8_e4m3fn), lambda x: x * 1.0, [x])


def test_an_unwritten_element_in_fp8_is_recognized():
    def half(x):
        y = torch.empty_like(x)
        y[:, :20] = x[:, :20]
        return y

    with pytest.raises(Mismatch, match="writes only the first 20 of 40 columns"):
        assert_matches(half, lambda x: x * 1.0, shapes=[(3, 40)], dtype=torch.float8_e4m3fn, **HERE)


def test_the_inputs_of_a_product_of_16_bits_are_exact():
    kernel = check_kernels.matmul_added_in(torch.float16)
    how = {"shapes": [(33, 4096, 24)], "make_inputs": factors, "dtype": torch.float16, **HERE}
    with pytest.raises(Mismatch, match="elements differ") as told:
        assert_matches(kernel, torch.matmul, seed=0, **how)
    assert "rounding of each input" not in str(told.value)


def test_a_convolution_in_tf32_passes_if_tf32_is_allowed():
    kernel = with_factors(TF32, check_kernels.conv)
    how = {"shapes": [(2, 16, 8, 20)], "make_inputs": images, "seed": 0, **HERE}
    assert_matches(kernel, check_kernels.conv, precision="tf32", **how)
    with pytest.raises(Mismatch, match=r'precision="tf32"'):
        assert_matches(kernel, check_kernels.conv, **how)
    with pytest.raises(Mismatch) as told:
        assert_matches(kernel, check_kernels.conv, precision="ieee", **how)
    assert "precision=" not in str(told.value)


def test_a_layer_in_tf32_is_right_where_a_relu_is_zero_all_around():
    """A rounding to TF32 moves single numbers above 0 where everything around them is 0."""

    def layer(convolved):
        return (convolved - 2.5 * convolved.std()).relu()

    inputs = images((4, 16, 8, 96), torch.Generator().manual_seed(0), "cpu", torch.float32)
    expected = layer(check_kernels.conv(*map(torch.Tensor.double, inputs)))
    operation = Measured(lambda *args: layer(check_kernels.conv(*args)), inputs)
    (bound,) = bounds_of(operation, [expected], [torch.float32], "ieee")
    by_tf32 = layer(with_factors(TF32, check_kernels.conv)(*inputs))
    by_bfloat16 = layer(with_factors(check_kernels.BF16, check_kernels.conv)(*inputs))
    assert not outside(by_tf32, expected, in_layers_of_tf32(bound, 1, expected).allowed).any()
    assert outside(by_tf32, expected, in_tf32(bound).allowed).any()
    assert outside(by_bfloat16, expected, in_layers_of_tf32(bound, 1, expected).allowed).any()


def test_tf32_is_only_suggested_for_products():
    with pytest.raises(Mismatch) as told:
        assert_matches(lambda x: x.half().square().float(), torch.square, shapes=[(100,)], **HERE)
    assert "TF32" not in str(told.value)


# ------------------------------------------------------------------------------------------------- what the
# message says


def test_the_message_names_the_bound_of_a_sum():
    kernel = check_kernels.one_block_in_a_thousand(check_kernels.sum_by_tree)
    with pytest.raises(Mismatch, match=r"Allowed at \(0,\): [\d.e-]+, .*20,000 terms"):
        assert_matches(kernel, lambda x: x.sum(-1), shapes=[(1, 20_000)], **HERE)


def test_the_message_names_the_rounding_of_the_inputs():
    def shifted(x):
        return x - 1000.0

    def make(shape, generator, device, dtype):
        return (1000 + torch.rand(shape, generator=generator, device=device, dtype=dtype),)

    with pytest.raises(Mismatch, match=r"rounding of each input to float32"):
        assert_matches(lambda x: shifted(x) + 1e-3, shifted, shapes=[(64,)], make_inputs=make, **HERE)


def test_the_message_names_the_references_own_error():
    def unstable(x):
        return ((x + 1e3) - 1e3) * 1.0

    assert_matches(lambda x: (x + 1e3) - 1e3, unstable, shapes=[(200,)], **HERE)
    with pytest.raises(Mismatch, match="error of the reference itself"):
        assert_matches(lambda x: unstable(x) + 0.5, unstable, shapes=[(200,)], **HERE)


def test_the_message_names_the_fixed_tolerance():
    with pytest.raises(Mismatch, match="fixed tolerance of float32"):
        assert_matches(lambda x: x * 1.0001, lambda x: x * 1.0, shapes=[(7,)], **HERE)


def test_the_message_has_no_bound_for_a_missing_number():
    with pytest.raises(Mismatch) as told:
        assert_matches(torch.empty_like, torch.square, shapes=[(5,)], **HERE)
    assert "Allowed" not in str(told.value)


# ----------------------------------------------------------------------------------------------------------
# the cap


def test_a_reference_that_rounds_to_bfloat16_itself_does_not_let_bfloat16_pass():
    def reference(a, b):
        if a.dtype == torch.float64:
            return a @ b
        return (a.bfloat16().float()) @ (b.bfloat16().float())

    with pytest.raises(Mismatch, match="the cap of float32"):
        assert_matches(reference, reference, shapes=[(33, 256, 65)], make_inputs=factors, **HERE)


def test_inputs_that_cannot_decide_are_reported():
    """Of sin(1e9 x) a float32 kernel can know nothing: that is no licence for any result."""

    def wild(x):
        return torch.sin(1e9 * x)

    with pytest.raises(Mismatch, match=r"cap of float32.* `tolerance`"):
        assert_matches(torch.zeros_like, wild, shapes=[(1000,)], **HERE)


# ------------------------------------------------------------------------------------------ zeros, tiny and
# huge numbers


def test_cancellation_may_leave_a_rounding_error():
    def centred(x):
        return x - x.mean(-1, keepdim=True)

    def make(shape, generator, device, dtype):
        return (torch.full(shape, 3.3, device=device, dtype=dtype),)

    assert_matches(lambda x: centred(x) + 3e-7, centred, shapes=[(4, 100)], make_inputs=make, **HERE)
    with pytest.raises(Mismatch):
        assert_matches(lambda x: centred(x) + 1e-3, centred, shapes=[(4, 100)], make_inputs=make, **HERE)


def test_a_kernel_may_be_more_accurate_than_float64_where_a_sum_with_1_cancels():
    """Below -8.3 GELU's 1 + erf(x / sqrt(2)) is 0 in float64; the true 1e-16 isn't."""
    gelu = torch.nn.functional.gelu

    def deep(shape, generator, device, dtype):
        return (-8 - 4 * torch.rand(shape, generator=generator, device=device, dtype=dtype),)

    def by_erfc(x):
        return 0.5 * x * torch.erfc(-x * 0.5**0.5)

    for n in seeds.several(20):
        assert_matches(by_erfc, gelu, shapes=[(3, 40)], make_inputs=deep, seed=n)
    with pytest.raises(Mismatch):
        assert_matches(lambda x: by_erfc(x) - 1e-14, gelu, shapes=[(3, 40)], make_inputs=deep)


def test_a_row_of_small_results_may_lose_what_adding_to_1_loses():
    """The float32 reference may be right there by chance, so its own error doesn't say it."""

    def rows(shape, generator, device, dtype):
        x = torch.randn(shape, generator=generator, device=device, dtype=dtype)
        x[1] = -5.3 - 0.2 * x[1].abs()
        return (x,)

    def in_steps(x):
        return x * (torch.erf(x * 0.5**0.5).add_(1) * 0.5)

    def exact(x):
        return 0.5 * x.double() * torch.erfc(-x.double() * 0.5**0.5)

    for n in seeds.several(20):
        assert_matches(in_steps, exact, shapes=[(2, 128)], make_inputs=rows, seed=n)
    with pytest.raises(Mismatch):
        assert_matches(lambda x: in_steps(x) - 2e-6, exact, shapes=[(2, 128)], make_inputs=rows)


def test_small_results_of_small_inputs_are_not_taken_for_zeros():
    def small(shape, generator, device, dtype):
        return (1e-9 * torch.randn(shape, generator=generator, device=device, dtype=dtype),)

    with pytest.raises(Mismatch):
        assert_matches(torch.zeros_like, torch.square, shapes=[(3, 40)], make_inputs=small)


def test_exact_zeros_have_to_stay_zeros():
    def upper(x):
        return torch.where(x > 0, x, 0.0) * 1.0

    assert_matches(upper, upper, shapes=[(33, 65)], **HERE)
    with pytest.raises(Mismatch, match="expected 0"):
        assert_matches(lambda x: upper(x) + 1e-3, upper, shapes=[(33, 65)], **HERE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_subnormal_results_may_be_flushed_to_zero(dtype):
    def tiny(x):
        return x * 1e-39

    assert_matches(lambda x: torch.zeros_like(x), tiny, shapes=[(50,)], dtype=dtype, **HERE)


def test_a_row_of_small_results_is_not_hidden_by_the_absolute_tolerance():
    """A softmax over a million columns has elements of about 1e-6, which today's 1e-6 would hide."""

    def one_off(x):
        y = torch.softmax(x, -1)
        y[0, 500_000] *= 1.01
        return y

    with pytest.raises(Mismatch, match="1 of 1,000,000 elements"):
        assert_matches(one_off, lambda x: torch.softmax(x, -1), shapes=[(1, 1_000_000)], **HERE)


def test_rows_of_different_size_have_their_own_bounds():
    def make(shape, generator, device, dtype):
        x = torch.randn(shape, generator=generator, device=device, dtype=dtype)
        return (x * torch.tensor([[1e6], [1e-6]], dtype=dtype),)

    def one_off(x):
        y = x.cumsum(-1)
        y[1, 300] += 0.05 * y[1].abs().max()
        return y

    assert_matches(
        check_kernels.in_a_row, lambda x: x.cumsum(-1), shapes=[(2, 400)], make_inputs=make, **HERE
    )
    with pytest.raises(Mismatch, match=r"1 of 800 elements differ\.\n  at \(1, 300\)"):
        assert_matches(one_off, lambda x: x.cumsum(-1), shapes=[(2, 400)], make_inputs=make, **HERE)


def test_nan_and_infinities_among_the_terms_leave_the_other_bounds_alone():
    def make(shape, generator, device, dtype):
        x = torch.randn(shape, generator=generator, device=device, dtype=dtype)
        x[0, 5], x[1, 7], x[2, 9] = math.nan, math.inf, -math.inf
        return (x,)

    how = {"shapes": [(6, 5000)], "make_inputs": make, **HERE}
    assert_matches(check_kernels.sum_in_a_row, lambda x: x.sum(-1), **how)
    with pytest.raises(Mismatch, match=r"1 of 6 elements differ\.\n  at \(4,\)"):
        assert_matches(
            lambda x: check_kernels.sum_in_a_row(x) + torch.tensor([0, 0, 0, 0, 0.5, 0]),
            lambda x: x.sum(-1),
            **how,
        )


# -----------------------------------------------------------------------------------------------------------
# what it costs


def test_a_right_elementwise_kernel_costs_one_evaluation_of_the_reference():
    asked = []

    def reference(x):
        asked.append(x.dtype)
        return torch.square(x)

    assert_matches(torch.square, reference, shapes=[(64, 64)], **HERE)
    assert asked == [torch.float64]


def test_every_element_is_compared():
    """Also beyond the first piece of 2**24 elements."""
    n = (1 << 24) + 3
    for at in (1 << 24, n - 1):

        def kernel(x, at=at):
            y = x + 1
            y[at] = math.inf
            return y

        with pytest.raises(Mismatch, match=rf"1 of {n:,} elements differ\.\n  at \({at},\)"):
            assert_matches(kernel, lambda x: x + 1, shapes=[(n,)], make_inputs=one_row, **HERE)


def test_terms_are_counted_only_if_that_can_matter():
    """A reference in Python loops may take a second, and counting takes dozens of calls."""
    x = torch.randn(4, 5000, generator=torch.Generator().manual_seed(0))
    n_calls = 0

    def reference(x):
        nonlocal n_calls
        n_calls += 1
        return torch.exp(20 * x)

    assert_result("powers", torch.exp(20 * x), reference, [x])
    assert 3 < n_calls < 10  # beyond the fixed tolerance
    n_calls = 0
    with pytest.raises(Mismatch):
        assert_result("powers", torch.exp(20 * x) * 1.0001, reference, [x])
    assert n_calls > 8


def test_a_number_between_two_integers_may_become_either_of_them():
    """Whatever the results' dtype; a GPU's fast division is off by two roundings."""
    x = 100 * torch.randn(1, 4096, generator=torch.Generator().manual_seed(0))
    x[0, :8] = 3 * torch.arange(1.5, 17, 2)  # whose quotients are ties
    got = (x / 3 * (1 - 2.0**-23)).round()
    assert (got != (x / 3).round()).any()
    assert_result("rounding", got, lambda x: (x / 3).round(), [x])
    assert_result("rounding", got.int(), lambda x: (x / 3).round().int(), [x])
    got[0, 50] += 1
    with pytest.raises(Mismatch, match="1 of 4,096 elements"):
        assert_result("rounding", got, lambda x: (x / 3).round(), [x])


def test_the_number_of_terms_is_counted():
    g = torch.Generator().manual_seed(0)
    cases = [
        (torch.matmul, factors((9, 70, 5), g, "cpu", torch.float32), 70),
        (lambda x: x.sum(-1), one_row((4, 321), g, "cpu", torch.float32), 321),
        (lambda x: x.cumsum(-1), one_row((1, 500), g, "cpu", torch.float32), 500),
        (torch.softmax, (*one_row((4, 50), g, "cpu", torch.float32), -1), 50),
        (torch.exp, one_row((4, 50), g, "cpu", torch.float32), 1),
        (lambda a, b, c, d, e: a + b + c + d @ e, [torch.randn(24, 24, generator=g) for _ in range(5)], 24),
    ]
    for reference, inputs, n_terms in cases:
        (bound,) = bounds_of(
            Measured(reference, inputs),
            [reference(*(getattr(x, "double", lambda x=x: x)() for x in inputs))],
            [torch.float32],
        )
        assert bound.n_terms == n_terms


def test_a_model_with_dozens_of_weights_is_called_dozens_of_times():
    n_calls = 0

    def experts(x, *weights):
        nonlocal n_calls
        n_calls += 1
        return sum(x @ one for one in weights)

    inputs = [torch.randn(16, 8), *(torch.randn(8, 8) for _ in range(50))]
    expected = [experts(*map(torch.Tensor.double, inputs))]
    (bound,) = bounds_of(Measured(experts, inputs), expected, [torch.float32])
    assert bound.n_terms == 8 and n_calls < 50


def test_a_reference_that_only_takes_float64_works():
    weight = torch.randn(300, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def reference(x):
        return x @ weight

    kernel = in_float32(lambda x: check_kernels.matmul_in_a_row(x, weight.float()))
    for dtype in (torch.float32, torch.bfloat16):
        assert_matches(kernel, reference, shapes=[(20, 300)], dtype=dtype, **HERE)

"""The checker on a GPU: torch's own kernels are right, TF32 is where it is allowed, and a check costs what it
did.
"""

import pytest
import torch
import torch.nn.functional as F

from helpers.check import Mismatch, assert_matches
from helpers.check.operation import without_tf32

pytestmark = pytest.mark.gpu
SEEDS = range(20)


def of_shapes(*sizes):
    def make(shape, generator, device, dtype):
        return tuple(torch.randn(s, generator=generator, device=device).to(dtype) for s in sizes)

    return make


IMAGES = of_shapes((8, 64, 56, 56), (64, 64, 3, 3))
FACTORS = of_shapes((512, 4096), (4096, 768))


def conv(x, w):
    return F.conv2d(x, w, padding=1)


@pytest.fixture
def tf32():
    """Products and convolutions in TF32, as `allow_tf32` has them."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("n", [1, 10_000, 1_000_000, 10_000_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_sums_and_scans_are_right(n, dtype):
    """torch's, but for its scan of 16-bit numbers: on an H200 that adds in 16 bits, and differently each
    time.
    """

    def scan(x):
        return x.float().cumsum(-1).to(x.dtype)

    pairs = [
        (lambda x: x.sum(-1),) * 2,
        (scan, lambda x: x.cumsum(-1)),
        (lambda x: torch.softmax(x, -1),) * 2,
    ]
    for kernel, reference in pairs:
        for seed in SEEDS if n <= 10_000 else range(2):
            assert_matches(kernel, reference, shapes=[(1, n)], dtype=dtype, seed=seed)


def test_atomics_in_any_order_are_right():
    def by_atomics(x):
        index = torch.arange(x.numel(), device=x.device) % 7
        return torch.zeros(7, device=x.device, dtype=x.dtype).index_add_(0, index, x)

    def reference(x):
        return torch.stack([x[i::7].sum() for i in range(7)])

    for seed in SEEDS:
        assert_matches(by_atomics, reference, shapes=[(100_000,)], seed=seed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_torchs_products_are_right(dtype):
    for seed in SEEDS:
        assert_matches(torch.matmul, torch.matmul, shapes=[()], make_inputs=FACTORS, dtype=dtype, seed=seed)


def test_a_convolution_is_right_with_tf32_and_without():
    for seed in SEEDS:
        how = {"shapes": [()], "make_inputs": IMAGES, "seed": seed}
        assert_matches(conv, conv, **how)  # cuDNN may use TF32 unless it is told otherwise
        with without_tf32():
            assert_matches(conv, conv, **how)


def test_a_product_in_tf32_is_right_where_torch_allows_it(tf32):
    for seed in SEEDS:
        assert_matches(torch.matmul, torch.matmul, shapes=[()], make_inputs=FACTORS, seed=seed)


def test_a_product_in_tf32_is_wrong_where_the_reference_does_not_use_it():
    def in_tf32(a, b):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            return a @ b
        finally:
            torch.set_float32_matmul_precision(before)

    how = {"shapes": [()], "make_inputs": FACTORS}
    with pytest.raises(Mismatch, match='precision="tf32"'):
        assert_matches(in_tf32, torch.matmul, **how)
    assert_matches(in_tf32, torch.matmul, precision="tf32", **how)


def test_bfloat16_inside_is_wrong_with_tf32_and_without(tf32):
    def narrow(f):
        return lambda *args: f(*(one.bfloat16() for one in args)).float()

    for precision in (None, "tf32", "ieee"):
        with pytest.raises(Mismatch):
            assert_matches(
                narrow(torch.matmul), torch.matmul, shapes=[()], make_inputs=FACTORS, precision=precision
            )
        with pytest.raises(Mismatch):
            assert_matches(narrow(conv), conv, shapes=[()], make_inputs=IMAGES, precision=precision)


def test_torchs_settings_are_as_they_were():
    places = (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn)
    before = [place.fp32_precision for place in places]
    assert_matches(conv, conv, shapes=[()], make_inputs=IMAGES)
    with pytest.raises(Mismatch):  # cuDNN uses TF32
        assert_matches(conv, conv, shapes=[()], make_inputs=IMAGES, precision="ieee")
    assert [place.fp32_precision for place in places] == before


def test_a_right_elementwise_kernel_takes_no_more_memory_than_its_comparison():
    n = 1 << 26
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    assert_matches(torch.square, torch.square, shapes=[(n,)])
    # the input, its copy or the float64 inputs, the result, float64 results, and pieces of 2**24 elements
    assert torch.cuda.max_memory_allocated() - before < 10.5 * 4 * n

"""Operations for the checker's bounds, with correct kernels and subtly wrong ones.

The correct kernels sum in a different order than PyTorch. All run on a CPU, and each rounds as a kernel on
a GPU would: sums in float32, results in the inputs' dtype, the factors of a product in TF32 or bfloat16 if
the kernel's name says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F

from helpers.check.closeness import name_of

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Operation:
    """A reference, shapes to try, and kernels.

    Attributes:
        reference: the operation in plain PyTorch.
        shapes: the shapes of a quick test; the larger ones are only for the long run.
        large: shapes of up to 10 million elements.
        make: makes the inputs, as for `assert_matches`.
        right: correct kernels, by name.
        wrong: wrong kernels, for each dtype.
        dtypes: the dtypes of the inputs.
        precision: as for `assert_matches`.
    """

    reference: Callable
    shapes: tuple[tuple[int, ...], ...]
    large: tuple[tuple[int, ...], ...]
    make: Callable
    right: dict[str, Callable]
    wrong: dict[torch.dtype, dict[str, Callable]] = field(default_factory=dict)
    dtypes: tuple[torch.dtype, ...] = FLOATS
    precision: str | None = None


# ----------------------------------------------------------------------------------------------------------
# inputs


def normal(*shapes_of: Callable) -> Callable:
    """Inputs of normal numbers, one of each shape that the functions make of the given one."""

    def make(shape, generator, device, dtype):
        return tuple(
            torch.randn(one(*shape), generator=generator, device=device).to(dtype) for one in shapes_of
        )

    return make


def positive(shape, generator, device, dtype):
    """Numbers from 0 to 1, whose sums do not cancel."""
    return (torch.rand(shape, generator=generator, device=device).to(dtype),)


def itself(*shape):
    """The shape that is asked for."""
    return shape


# ----------------------------------------------------------------------------------------------------- how to
# round


def narrowed(bits: int, cut: bool = False) -> Callable:
    """Rounds float32 to so many bits after the point, to nearest or, with `cut`, towards zero; TF32 has 10,
    bfloat16 7.
    """

    def to(x: torch.Tensor) -> torch.Tensor:
        drop = 23 - bits
        whole = x.float().contiguous().view(torch.int32)
        if not cut:
            whole = whole + (1 << (drop - 1)) - 1 + ((whole >> drop) & 1)
        return (whole & -(1 << drop)).view(torch.float32)

    return to


TF32, TF32_CUT, BF16, HALF = narrowed(10), narrowed(10, cut=True), narrowed(7), narrowed(10)


def in_float32(f: Callable) -> Callable:
    """A kernel that computes in float32 and rounds its result to the dtype of its first input."""
    return lambda *args: f(*(one.float() for one in args)).to(args[0].dtype)


def with_factors(to: Callable, f: Callable) -> Callable:
    """The same with each input rounded by `to` first."""
    return lambda *args: f(*(to(one) for one in args)).to(args[0].dtype)


# -------------------------------------------------------------------------------------------------------
# wrong ones


def one_element_off(f: Callable) -> Callable:
    """A result of which one element, no smaller than the root mean square, is 1 % too large."""

    def kernel(*args):
        y = f(*args).clone()
        flat = y.view(-1)
        near = (flat.double().abs() >= flat.double().square().mean().sqrt()).nonzero().view(-1)
        at = near[torch.randint(len(near), (1,))]
        flat[at] = (flat[at].double() * 1.01).to(y.dtype)
        return y

    return kernel


def last_tile(f: Callable, size: int = 32) -> Callable:
    """A result whose last, partial tile of columns was computed from zeros."""

    def kernel(x, *more):
        x = x.clone()
        x[..., (x.shape[-1] - 1) // size * size :] = 0
        return f(x, *more)

    return kernel


def one_block_in_a_thousand(f: Callable) -> Callable:
    """Of the last dimension of the first input, a thousandth is left out; one element at least."""

    def kernel(x, *more):
        n = x.shape[-1]
        size = max(1, n // 1000)
        start = int(torch.randint(n - size + 1, (1,)))
        x = x.clone()
        x[..., start : start + size] = 0
        return f(x, *more)

    return kernel


# ------------------------------------------------------------------------------------------------- orders of
# summing


def in_a_row(x: torch.Tensor) -> torch.Tensor:
    """Running sums over the last dimension, one float32 after the other."""
    return torch.from_numpy(np.cumsum(x.numpy(), axis=-1, dtype=np.float32))


def sum_in_a_row(x):
    return in_a_row(x)[..., -1]


def sum_reversed(x):
    return in_a_row(x.flip(-1))[..., -1]


def _blocks(x: torch.Tensor, size: int) -> torch.Tensor:
    return F.pad(x, (0, -x.shape[-1] % size)).unflatten(-1, (-1, size))


def sum_in_blocks(x):
    """Blocks of 1,024 in a row, then the blocks in a row."""
    return sum_in_a_row(sum_in_a_row(_blocks(x, 1024)))


def sum_by_atomics(x):
    """Blocks of 256 by a tree, then added in any order, one after the other."""
    parts = sum_by_tree(_blocks(x, 256))
    return sum_in_a_row(parts[..., torch.randperm(parts.shape[-1])])


def sum_by_tree(x):
    """Halves added to halves."""
    while x.shape[-1] > 1:
        x = F.pad(x, (0, x.shape[-1] % 2))
        x = x[..., : x.shape[-1] // 2] + x[..., x.shape[-1] // 2 :]
    return x[..., 0]


def sum_by_lanes(x):
    """1,024 lanes, each in a row with a stride, then a tree over them."""
    return sum_by_tree(sum_in_a_row(_blocks(x, 1024).mT.contiguous()))


def scan_in_blocks(x):
    """Blocks of 1,024, and the sum of all before them carried on from block to block."""
    inside = in_a_row(_blocks(x, 1024))
    carried = in_a_row(inside[..., -1])
    before = F.pad(carried[..., :-1], (1, 0))
    return (inside + before.unsqueeze(-1)).flatten(-2)[..., : x.shape[-1]]


def scan_by_doubling(x):
    """Hillis and Steele: each element takes on the one 1, 2, 4, … before it."""
    step = 1
    while step < x.shape[-1]:
        x = torch.cat([x[..., :step], x[..., step:] + x[..., :-step]], dim=-1)
        step *= 2
    return x


def matmul_in_a_row(a, b):
    """One product after the other into one float32."""
    acc = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        acc.addcmul_(a[:, k, None], b[None, k])
    return acc


def matmul_in_blocks(a, b, size=32):
    """Blocks of 32 products, as a Triton kernel's loop over K."""
    acc = torch.zeros(a.shape[0], b.shape[1])
    for k in range(0, a.shape[1], size):
        acc += a[:, k : k + size] @ b[k : k + size]
    return acc


def matmul_split(a, b, parts=8):
    """K in eight parts, added in any order."""
    step = -(-a.shape[1] // parts)
    acc = torch.zeros(a.shape[0], b.shape[1])
    for k in torch.randperm(parts).tolist():
        acc += matmul_in_blocks(a[:, k * step : (k + 1) * step], b[k * step : (k + 1) * step])
    return acc


def matmul_truncated(a, b, size=8):
    """Eight products added to the sum at once, which is then cut to float32, as a tensor core does."""
    acc = torch.zeros(a.shape[0], b.shape[1])
    for k in range(0, a.shape[1], size):
        exact = acc.double() + a[:, k : k + size].double() @ b[k : k + size].double()
        acc = exact.float()
        acc = torch.where(acc.double().abs() > exact.abs(), acc.nextafter(torch.zeros(())), acc)
    return acc


def matmul_added_in(dtype: torch.dtype, size: int = 16) -> Callable:
    """Blocks of 16 products, added to a sum of this dtype."""

    def kernel(a, b):
        acc = torch.zeros(a.shape[0], b.shape[1], dtype=dtype)
        for k in range(0, a.shape[1], size):
            acc = (acc.float() + a[:, k : k + size].float() @ b[k : k + size].float()).to(dtype)
        return acc.to(a.dtype)

    return kernel


def two_products(a, b):
    """The product of three matrices; what is between them is rounded to the inputs' dtype."""
    return (a @ b).to(a.dtype) @ b.mT


def conv(x, w):
    return F.conv2d(x, w, padding=1)


def conv_as_product(x, w):
    """As one matrix product, with the windows as columns."""
    columns = F.unfold(x, w.shape[-2:], padding=1)
    return (w.flatten(1) @ columns).unflatten(-1, x.shape[-2:])


def conv_by_taps(x, w):
    """Tap after tap, channel after channel, into one float32."""
    padded = F.pad(x, (1, 1, 1, 1))
    acc = torch.zeros(x.shape[0], w.shape[0], *x.shape[-2:])
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            for c in range(x.shape[1]):
                window = padded[:, c, None, i : i + x.shape[2], j : j + x.shape[3]]
                acc.addcmul_(window, w[None, :, c, i, j, None, None])
    return acc


# Winograd's F(4 x 4, 3 x 3): of a 6 x 6 tile of the image, of the 3 x 3 weights, and back to 4 x 4 results.
TILE = [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
         [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]]  # fmt: skip
WEIGHTS = [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]]  # fmt: skip
BACK = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]


def conv_by_winograd(x, w):
    """In tiles of 4 x 4 results, each from 36 products per channel instead of 144."""
    height, width = x.shape[-2:]
    padded = F.pad(x, (1, 1 + -width % 4, 1, 1 + -height % 4))
    tiles = padded.unfold(2, 6, 4).unfold(3, 6, 4)
    tile, weights, back = (x.new_tensor(one) for one in (TILE, WEIGHTS, BACK))
    products = torch.einsum("nctuab,ocab->notuab", tile @ tiles @ tile.T, weights @ w @ weights.T)
    results = (back @ products @ back.T).transpose(3, 4).flatten(4).flatten(2, 3)
    return results[..., :height, :width].contiguous()


def softmax_online(x):
    """Maximum and sum in one pass, block after block."""
    high = torch.full(x.shape[:-1], -torch.inf)
    total = torch.zeros(x.shape[:-1])
    for piece in x.split(128, dim=-1):
        new = torch.maximum(high, piece.amax(-1))
        total = total * torch.exp(high - new) + sum_in_a_row(torch.exp(piece - new.unsqueeze(-1)))
        high = new
    return torch.exp(x - high.unsqueeze(-1)) / total.unsqueeze(-1)


def softmax(x):
    return torch.softmax(x, -1)


def layer_norm(x):
    return F.layer_norm(x, x.shape[-1:])


def layer_norm_in_one_pass(x):
    """The variance as the mean square less the squared mean."""
    n = x.shape[-1]
    mean = sum_by_lanes(x) / n
    variance = sum_by_lanes(x * x) / n - mean * mean
    return (x - mean.unsqueeze(-1)) * torch.rsqrt(variance + 1e-5).unsqueeze(-1)


def layer_norm_of_too_few(x):
    """The variance over n - 1."""
    return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5)


def attention(q, k, v):
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v


def attention_in_steps(q, k, v):
    """The weights rounded to the inputs' dtype before the second product, as FlashAttention does."""
    weights = torch.softmax(q.float() @ k.float().mT / q.shape[-1] ** 0.5, -1).to(q.dtype)
    return matmul_in_blocks(weights.float(), v.float()).to(q.dtype)


def gelu(x):
    return F.gelu(x, approximate="tanh")


def gelu_by_sigmoid(x):
    """x times a sigmoid: the same function, without a difference that cancels."""
    return x * torch.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))


def gelu_with_product(a, b):
    return gelu(a @ b)


# ------------------------------------------------------------------------------------------------------- the
# table

_PRODUCT = normal(lambda m, k, n: (m, k), lambda m, k, n: (k, n))
_IMAGES = normal(lambda b, c, o, s: (b, c, s, s), lambda b, c, o, s: (o, c, 3, 3))
_SUMS = {f.__name__: in_float32(f) for f in (sum_in_blocks, sum_by_atomics, sum_by_tree, sum_by_lanes)}
_SUMS_IN_A_ROW = {f.__name__: in_float32(f) for f in (sum_in_a_row, sum_reversed)}
_SCANS = {f.__name__: in_float32(f) for f in (scan_in_blocks, scan_by_doubling)}
_PRODUCTS = {
    f.__name__: in_float32(f) for f in (torch.matmul, matmul_in_a_row, matmul_in_blocks, matmul_split)
}
_CONVS = {f.__name__: in_float32(f) for f in (conv, conv_as_product, conv_by_taps)}


def _total(x):
    return x.sum(-1)


def _scan(x):
    return x.cumsum(-1)


def _subtly_wrong(f: Callable, *, dropped: bool = True) -> dict[str, Callable]:
    f = in_float32(f)
    made = {"one element off by 1 %": one_element_off(f), "last tile": last_tile(f)}
    return made | ({"one block in a thousand": one_block_in_a_thousand(f)} if dropped else {})


def _in_tf32(f: Callable) -> dict[str, Callable]:
    return {"tf32": with_factors(TF32, f), "tf32, cut": with_factors(TF32_CUT, f)}


def _narrow_inside(f: Callable, **to: Callable) -> dict[str, Callable]:
    return {f"{name} inside": with_factors(one, f) for name, one in to.items()}


_FP32, _FP16, _BF16 = FLOATS

OPERATIONS: dict[str, Operation] = {
    "sum": Operation(
        _total,
        shapes=((1, 1), (3, 33), (257, 781), (16, 16_384)),
        large=((610, 16_384),),
        make=normal(itself),
        right=_SUMS | _SUMS_IN_A_ROW,
        wrong={_FP32: _subtly_wrong(_total) | _narrow_inside(_total, half=HALF, bf16=BF16)},
    ),
    "sum of positive numbers": Operation(
        _total,
        shapes=((1, 1), (3, 33), (257, 781), (16, 16_384)),
        large=((610, 16_384),),
        make=positive,
        right=_SUMS | _SUMS_IN_A_ROW,
        wrong={_FP32: _subtly_wrong(_total)},
    ),
    "sum of long rows": Operation(
        _total,
        shapes=((3, 50_003),),
        large=((1, 10_000_000), (10, 1_000_000)),
        make=normal(itself),
        right=_SUMS,
    ),
    "sum of long rows of positive numbers": Operation(
        _total,
        shapes=((3, 50_003),),
        large=((1, 10_000_000), (10, 1_000_000)),
        make=positive,
        right=_SUMS,
        # A tile of 32 in ten million is 3e-6 of the sum, less than right sums in float32 differ by: no bound
        # can tell.
        wrong={_FP32: _subtly_wrong(_total) | {"last tile": last_tile(in_float32(_total), 1024)}},
    ),
    "scan": Operation(
        _scan,
        shapes=((1, 1), (3, 33), (17, 781), (1, 10_000), (3, 16_384)),
        large=((610, 16_384),),
        make=normal(itself),
        right=_SCANS | {"in_a_row": in_float32(in_a_row)},
        wrong={_FP32: _subtly_wrong(_scan) | _narrow_inside(_scan, half=HALF, bf16=BF16)},
    ),
    "long scan": Operation(
        _scan,
        shapes=((1, 100_000),),
        large=((1, 10_000_000),),
        make=normal(itself),
        right=_SCANS,
        wrong={_FP32: _subtly_wrong(_scan)},
    ),
    "scan of positive numbers": Operation(
        _scan, shapes=((1, 10_000),), large=((1, 10_000_000),), make=positive, right=_SCANS
    ),
    "product": Operation(
        torch.matmul,
        shapes=((1, 1, 1), (33, 31, 17), (65, 256, 33), (16, 4096, 24)),
        large=((128, 16_384, 64), (3162, 64, 3162)),
        make=_PRODUCT,
        right=_PRODUCTS,
        wrong={
            _FP32: _subtly_wrong(torch.matmul) | _narrow_inside(torch.matmul, tf32=TF32, bf16=BF16),
            _FP16: _subtly_wrong(torch.matmul) | _narrow_inside(torch.matmul, bf16=BF16),
            _BF16: {"last tile": last_tile(in_float32(torch.matmul))}
            | _narrow_inside(torch.matmul, **{"3 bits": narrowed(3)}),
        },
    ),
    "product of 16 bits": Operation(
        torch.matmul,
        shapes=((33, 256, 65), (16, 4096, 24), (17, 16_384, 24)),
        large=((128, 16_384, 64),),
        make=_PRODUCT,
        right=_PRODUCTS | {"truncated": in_float32(matmul_truncated), "torch": torch.matmul},
        wrong={
            one: {
                f"added in {name_of(one)}": matmul_added_in(one),
                "last tile": last_tile(in_float32(torch.matmul)),
            }
            for one in (_FP16, _BF16)
        },
        dtypes=(_FP16, _BF16),
    ),
    "two products of 16 bits": Operation(
        lambda a, b: a @ b @ b.mT,
        shapes=((33, 31, 17), (65, 256, 33)),
        large=((128, 4096, 64),),
        make=_PRODUCT,
        right={"rounded between": two_products},
        dtypes=(_FP16, _BF16),
    ),
    "product in TF32": Operation(
        torch.matmul,
        shapes=((1, 1, 1), (33, 31, 17), (65, 256, 33), (16, 4096, 24)),
        large=((1000, 1000, 1000),),
        make=_PRODUCT,
        right=_in_tf32(torch.matmul) | {"float32": matmul_in_blocks},
        wrong={
            _FP32: _subtly_wrong(with_factors(TF32, torch.matmul)) | _narrow_inside(torch.matmul, bf16=BF16)
        },
        dtypes=(_FP32,),
        precision="tf32",
    ),
    "convolution": Operation(
        conv,
        shapes=((1, 1, 1, 1), (2, 3, 5, 17), (1, 32, 8, 14)),
        large=((4, 64, 32, 112),),
        make=_IMAGES,
        right=_CONVS,
        wrong={_FP32: _subtly_wrong(conv, dropped=False) | _narrow_inside(conv, tf32=TF32, bf16=BF16)},
    ),
    "convolution in transformed tiles": Operation(
        conv,
        shapes=((2, 3, 5, 17), (1, 32, 8, 14)),
        large=((4, 64, 32, 112),),
        make=_IMAGES,
        right={"Winograd": conv_by_winograd},
        dtypes=(_FP32,),
    ),
    "convolution in TF32": Operation(
        conv,
        shapes=((1, 1, 1, 1), (2, 3, 5, 17), (1, 32, 8, 14)),
        large=((4, 64, 32, 112),),
        make=_IMAGES,
        right=_in_tf32(conv) | {"float32": conv_as_product},
        wrong={_FP32: _narrow_inside(conv, bf16=BF16)},
        dtypes=(_FP32,),
        precision="tf32",
    ),
    "softmax": Operation(
        softmax,
        shapes=((1, 1), (3, 33), (17, 781), (1, 10_000)),
        large=((10, 1_000_000),),
        make=normal(itself),
        right={"online": in_float32(softmax_online), "torch": in_float32(softmax)},
        wrong={
            _FP32: {"one element off by 1 %": one_element_off(softmax)}
            | _narrow_inside(softmax, half=HALF, bf16=BF16)
        },
    ),
    "layer norm": Operation(
        layer_norm,
        shapes=((3, 33), (17, 781), (2, 10_000)),
        large=((1000, 10_000),),
        make=normal(itself),
        right={"one pass": in_float32(layer_norm_in_one_pass), "torch": in_float32(layer_norm)},
        wrong={_FP32: {"n - 1": layer_norm_of_too_few} | _narrow_inside(layer_norm, half=HALF, bf16=BF16)},
    ),
    "attention": Operation(
        attention,
        shapes=((17, 33, 16), (32, 781, 32)),
        large=((1024, 4096, 64),),
        make=normal(lambda q, k, d: (q, d), lambda q, k, d: (k, d), lambda q, k, d: (k, d)),
        right={"in steps": attention_in_steps, "torch": in_float32(attention)},
    ),
    "gelu": Operation(
        gelu,
        shapes=((1, 1), (17, 781)),
        large=((1000, 10_000),),
        make=normal(itself),
        right={"by sigmoid": in_float32(gelu_by_sigmoid), "torch": in_float32(gelu)},
    ),
    "product and gelu": Operation(
        gelu_with_product,
        shapes=((33, 31, 17), (65, 256, 33)),
        large=((1000, 1000, 1000),),
        make=_PRODUCT,
        right={
            "in float32": in_float32(lambda a, b: gelu_by_sigmoid(matmul_in_blocks(a, b))),
            "in steps": lambda a, b: gelu(in_float32(matmul_in_a_row)(a, b)),
        },
    ),
}

"""Hidden inputs for kernels: sizes, layouts, dtypes and values at which kernels break.

Everything is drawn from a `random.Random`, so a seed gives the same inputs again. The order is fixed, from
the simplest case to the strangest, so that the first failure tells which mistake it is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import torch

from helpers import check
from helpers.exercises import guard
from helpers.exercises.model import AGAIN, Case, Hidden
from helpers.exercises.plans import CasePlan


def values(
    rng: random.Random, shape: Sequence[int], dtype: torch.dtype | str = "float32", device: str = "cpu"
):
    """A contiguous tensor of normal values (integers: from -100 to 99, unsigned from 0), none of them zero.

    Args:
        rng: the exercise's generator of random numbers.
        shape: of the tensor.
        dtype: a torch.dtype or its name.
        device: "cpu" or "cuda".
    """
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    generator = torch.Generator().manual_seed(rng.getrandbits(62))
    if dtype is torch.bool:
        return torch.randint(0, 2, tuple(shape), generator=generator).to(device, dtype)
    if dtype.is_floating_point:
        made = torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
        return torch.where(made.abs() < 0.01, made + 0.05, made).to(device, dtype)
    low = 1 if dtype is torch.uint8 else -100
    made = torch.randint(low, 100, tuple(shape), generator=generator)
    return torch.where(made == 0, 7, made).to(device, dtype)


def poison(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """A tensor full of NaN (integers: bytes 0x5A)."""
    return check.fill_with_poison(torch.empty(tuple(shape), dtype=like.dtype, device=like.device))


def with_row_gaps(x: torch.Tensor, before: int = 3, after: int = 6) -> torch.Tensor:
    """The same values, with NaN between the rows."""
    padded = poison((*x.shape[:-1], x.shape[-1] + before + after), x)
    view = padded[..., before : before + x.shape[-1]]
    view.copy_(x)
    return view


def with_steps(x: torch.Tensor, step: int = 2, dim: int = -1) -> torch.Tensor:
    """The same values, every `step`-th element of `dim` of a larger tensor full of NaN."""
    dim %= x.dim()
    padded = poison([n * step if i == dim else n for i, n in enumerate(x.shape)], x)
    view = padded[tuple(slice(None, None, step) if i == dim else slice(None) for i in range(x.dim()))]
    view.copy_(x)
    return view


def permuted(x: torch.Tensor) -> torch.Tensor:
    """The same values, with the dimensions in another order in memory: a transposed view."""
    order = list(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order)


def misaligned(x: torch.Tensor, offset: int = 1) -> torch.Tensor:
    """The same values, contiguous, at an address that is not a multiple of 16 bytes."""
    view = poison((x.numel() + offset + 8,), x)[offset : offset + x.numel()].view(x.shape)
    view.copy_(x)
    return view


def named(x: torch.Tensor, what: str = "tensor") -> str:
    """ "a (3, 781) float16 tensor"."""
    return f"a {tuple(x.shape)} {str(x.dtype).removeprefix('torch.')} {what}"


def _sizes(plan: CasePlan, rng: random.Random) -> list[tuple[int, ...]]:
    if plan.shapes is not None:
        listed = plan.shapes(rng) if callable(plan.shapes) else plan.shapes
        return [tuple(shape) for shape in listed]
    odd = rng.choice([n for n in range(1100, 2040) if n % 32])
    less = rng.choice([n for n in range(130, 1000) if n % 16])
    two = [
        (3, 781),
        (1, 1),
        (2, 31),
        (5, 33),
        (rng.randrange(2, 7), less),
        (1, 1025),
        (rng.randrange(2, 5), odd),
        (131, 3),
        (197, 1),
    ]
    if plan.ndim == 2:
        return two
    return [*two, (), (1,), (1000,), (rng.randrange(2, 5), rng.randrange(3, 9), less), (2, 3, 5, 7)]


def _views(
    plan: CasePlan, x1: torch.Tensor, x2: torch.Tensor, rng: random.Random
) -> Iterator[tuple[str, torch.Tensor]]:
    """Layouts of one vector, one matrix, as label and tensor."""
    before, after = rng.randrange(1, 9), rng.randrange(1, 9)
    yield named(x2, "view with gaps between its rows"), with_row_gaps(x2, before, after)
    yield named(x2, "transposed view"), permuted(x2)
    yield named(x2, "view of every second row"), with_steps(x2, 2, 0)
    yield named(x2, "view of every second column"), with_steps(x2, 2, 1)
    yield named(x2, "tensor with a misaligned base"), misaligned(x2, rng.choice((1, 3)))
    yield named(x2, "view with one row expanded to all"), x2[:1].expand(x2.shape)
    step = rng.randrange(2, 4)
    if plan.ndim == "any":
        yield named(x1, f"view of every {'second' if step == 2 else 'third'} element"), with_steps(x1, step)
        yield named(x1, "tensor with a misaligned base"), misaligned(x1, rng.choice((1, 3)))
        x3 = values(rng, (rng.randrange(2, 5), 5, rng.randrange(20, 40)), x2.dtype, x2.device.type)
        yield named(x3, "permuted view"), x3.permute(2, 0, 1)
        yield named(x3, "view with steps in its middle dimension"), with_steps(x3, 2, 1)


def kernel_args(plan: CasePlan, x: torch.Tensor, rng: random.Random) -> tuple:
    """The input with the arguments after it."""
    return (x, *(plan.more_args(x, rng) if plan.more_args else ()))


def kernel_cases(plan: CasePlan, rng: random.Random, device: str) -> Iterator[Case]:
    """All hidden cases of a kernel, from simple to strange."""
    main = plan.dtypes[0]
    shape = (4, 1024) if plan.shapes is None else _sizes(plan, rng)[0]

    def made(shape, dtype=main):
        return values(rng, shape, dtype, device)

    def case(label, x, kind, **about):
        return Case(label, kernel_args(plan, x, rng), expected=Hidden(kind, **about))

    x = made(shape)
    first = case(named(x), x, "first")
    yield first
    x = made(shape)
    again = case(f"{named(x)}, the same shape as before with other values", x, "again", before=(first.args,))
    yield again
    changed = kernel_args(plan, made(shape), rng)
    yield Case(
        f"{named(x)} whose values changed between two calls",
        again.args + changed,
        expected=Hidden("again", before=(again.args, first.args)),
        call=AGAIN,
    )
    if plan.shapes is None:
        x = made((3, 4096))
        yield case(named(x), x, "wide")
    for shape in _sizes(plan, rng)[0 if plan.shapes is None else 1 :]:
        x = made(shape)
        if x.numel():
            yield case(named(x), x, "size")
    if plan.strides:
        n = rng.randrange(33, 200)
        for label, view in _views(plan, made((n,)), made((5, n)), rng):
            yield case(label, view, "view")
    for dtype in plan.dtypes[1:]:
        x = made((3, 781), dtype)
        yield case(named(x), x, "dtype")
        if plan.strides:
            view = with_steps(x, 2)
            yield case(named(view, "view of every second element"), view, "dtype")
    for dtype in plan.dtypes:
        if getattr(torch, dtype).is_floating_point:
            x = made((4, 257), dtype) * 150
            yield case(f"{named(x)} with values of several hundred", x, "huge")
            x = with_special_values(made((12, 257), dtype), rng)
            yield case(f"{named(x)} with NaN, infinities and zeros", x, "special")
    if plan.empty:
        for shape in ((0, 5), (3, 0)):
            x = torch.empty(shape, dtype=getattr(torch, main), device=device)
            yield case(f"{named(x)} without elements", x, "empty")
    if plan.strides and plan.more_args is None:
        yield _far_case(plan, rng, device)
    if plan.extra is not None:
        yield from plan.extra(rng, device)
    if plan.shapes is None:
        n = rng.randrange(66_000, 80_000)
        x = made((n,) if plan.ndim == "any" else (30, n // 30))
        yield case(named(x), x, "many")


def with_special_values(x: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """The same tensor, with NaN, infinities, zeros and small numbers at some places."""
    tiny = torch.finfo(x.dtype).tiny
    marks = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, tiny / 2, tiny]
    where = rng.sample(range(x.numel()), len(marks))
    x.view(-1)[torch.tensor(where, device=x.device)] = torch.tensor(marks, device=x.device).to(x.dtype)
    return x


def _far_case(plan: CasePlan, rng: random.Random, device: str) -> Case:
    # the smallest type, for the room; not bfloat16 if there is another, as Triton's interpreter does not
    # compute in it
    names = sorted(plan.dtypes, key=lambda name: (name == "bfloat16", getattr(torch, name).itemsize))
    x = values(rng, (3, 97), names[0], device)
    recipe = guard.far_rows(x, (1 << 30) + rng.randrange(7, 60))
    label = named(x, "view whose rows lie more than 2**30 elements apart")
    return Case(label, (recipe,), expected=Hidden("far"))

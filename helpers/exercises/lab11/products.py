"""Hidden matrices for the Triton products of lab 11, and the mistakes behind wrong results."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from helpers.exercises.mistakes import Conditions, under
from helpers.exercises.model import AGAIN, Case, Hidden

if TYPE_CHECKING:
    import torch

    from helpers.exercises.evidence import Evidence

LAB = "11_matmul"
TOLERANCE = {"float32": (1e-5, 1e-4), "float16": (1e-3, 1e-3)}  # TF32 is off by about 5e-3
_STEPS = (16, 32, 64, 128)  # sizes of a step along k that a learner would use
_UNEVEN = (33, 37, 41, 50, 55, 61, 70, 75)  # no multiple of 16


def cases(rng: random.Random, device: str, more: Callable[..., tuple] = lambda a, b: ()) -> Iterator[Case]:
    """Pairs of matrices, from simple to strange; the first is square.

    Args:
        rng: the exercise's generator.
        device: of the tensors.
        more: `(a, b) -> tuple` of the arguments after them.
    """
    from helpers.exercises import guard, inputs

    def pair(m: int, k: int, n: int, dtype: str = "float32") -> tuple[torch.Tensor, torch.Tensor]:
        return inputs.values(rng, (m, k), dtype, device), inputs.values(rng, (k, n), dtype, device)

    def case(a: torch.Tensor, b: torch.Tensor, kind: str, what: str = "", **about) -> Case:
        dtype = str(a.dtype).removeprefix("torch.")
        label = f"{tuple(a.shape)} times {tuple(b.shape)}, {dtype}{', ' if what else ''}{what}"
        return Case(label, (a, b, *more(a, b)), expected=Hidden(kind, **about))

    first = case(*pair(64, 64, 64), "first")
    yield first
    again = case(*pair(64, 64, 64), "again", "the same shapes with other values", before=(first.args,))
    yield again
    changed = case(*pair(64, 64, 64), "again")
    yield Case(
        "(64, 64) times (64, 64), float32, changed between two calls",
        again.args + changed.args,
        expected=Hidden("again", before=(again.args, first.args)),
        call=AGAIN,
    )
    uneven = rng.sample(_UNEVEN, 6)
    sizes = [(64, 256, 64), (64, uneven[0], 64), (uneven[1], 64, 64), (64, 64, uneven[2])]
    sizes += [(1, 1, 1), (1, 64, 1), (uneven[3], 1, uneven[4]), (1, 200, uneven[5])]
    sizes.append((rng.randrange(129, 180), rng.randrange(65, 140), rng.randrange(129, 180)))
    for size in sizes:
        yield case(*pair(*size), "size")
    m, k, n = (rng.choice(_UNEVEN) for _ in range(3))
    a, b = pair(m, k, n)
    yield case(inputs.with_row_gaps(a), b, "view", "a with gaps between its rows")
    yield case(a, inputs.with_row_gaps(b), "view", "b with gaps between its rows")
    yield case(inputs.permuted(a), b, "view", "a transposed in memory")
    yield case(a, inputs.permuted(b), "view", "b transposed in memory")
    yield case(
        inputs.with_steps(a, 2), inputs.with_steps(b, 3, 0), "view", "every second column of a larger a"
    )
    yield case(a[:1].expand(m, k), b[:, :1].expand(k, n), "view", "one row and one column, expanded")
    yield case(inputs.misaligned(a), b, "view", "a at a misaligned address")
    yield case(*pair(32, 768, 32, "float16"), "dtype", "a long sum")
    half_a, half_b = pair(k, m, n, "float16")
    yield case(half_a, inputs.permuted(half_b), "dtype", "b transposed in memory")
    a, b = pair(40, 70, 50)
    a[3, 5], a[17, 60], b[2, 9], b[69, 30] = math.nan, math.inf, -math.inf, math.nan
    yield case(a, b, "special", "with NaN and infinities")
    for m, k, n in ((0, 5, 3), (3, 5, 0), (3, 0, 4)):
        empty = "without steps, so the sums are empty" if not k else "without elements"
        yield case(*pair(m, k, n), "empty", empty)
    for which in ("rows of a", "columns of b", "rows of b"):
        a, b = pair(3, 3 if which == "rows of b" else 40, 3 if which == "columns of b" else 40, "float16")
        far, transposed = (a if which == "rows of a" else b), which == "columns of b"
        recipe = guard.far_rows(far, (1 << 30) + rng.randrange(7, 60), transposed)
        label = (
            f"{tuple(a.shape)} times {tuple(b.shape)}, float16, the {which} more than 2**30 elements apart"
        )
        matrices = (recipe, b) if which == "rows of a" else (a, recipe)
        yield Case(label, (*matrices, *more(a, b)), expected=Hidden("far"))


# ------------------------------------------------------------------------------------------- wrong products
def _gives(s: Evidence, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the wrong elements are right for other matrices."""
    return a.shape[1] == b.shape[0] and s.explains(s.reference((a, b, *s.args[2:])))


def _in_steps(s: Evidence, a_of: Callable, b_of: Callable) -> bool:
    """Whether the wrong elements are sums over steps that take other columns of a and rows of b.

    Args:
        s: the evidence.
        a_of, b_of: `(start, size) -> slice` of k that a step takes.
    """
    import torch

    a, b = (one.double() for one in s.args[:2])
    k = a.shape[1]
    for size in _STEPS:
        starts = [] if size >= k else range(0, k, size)
        taken = [(a_of(i, min(size, k - i), k), b_of(i, min(size, k - i), k)) for i in starts]
        taken = [(left, right) for left, right in taken if left is not None]
        if starts and taken:
            columns = torch.cat([a[:, one] for one, _ in taken], dim=1)
            rows = torch.cat([b[one] for _, one in taken])
            if _gives(s, columns, rows):
                return True
    return False


def _here(start: int, size: int, k: int) -> slice:
    return slice(start, start + size)


def _first(start: int, size: int, k: int) -> slice:
    return slice(0, size)


def _only_first(start: int, size: int, k: int) -> slice | None:
    return slice(0, size) if start == 0 else None


def _only_last(start: int, size: int, k: int) -> slice | None:
    return slice(start, k) if start + size == k else None


def _rounded_down(s: Evidence) -> bool:
    a, b = s.args[:2]
    k = a.shape[1]
    return any(k % one and _gives(s, a[:, : k // one * one], b[: k // one * one]) for one in _STEPS)


def _without_mask(s: Evidence) -> bool:
    """Whether it fails where only k isn't a multiple of the tile, or reads outside and uses that."""
    (m, k), n = s.args[0].shape, s.args[1].shape[1]
    outside = s.facts.get("guard_reads") and not s.facts.get("guard_writes")
    only_k = s.kind == "size" and k in _UNEVEN and m == n == 64
    return bool(s.n_wrong and (outside or only_k))


def _tf32(s: Evidence) -> bool:
    """Whether the inputs were rounded to TF32, or cut off after its bits."""
    import torch

    if s.got.dtype != torch.float32:
        return False

    def of(x: torch.Tensor, add: int) -> torch.Tensor:
        rounded = ((x.contiguous().view(torch.int32) + add) & ~0x1FFF).view(torch.float32)
        return torch.where(x.isfinite(), rounded, x)

    a, b = s.args[:2]
    return any(_gives(s, of(a, add).double(), of(b, add).double()) for add in (0x1000, 0))


def _imprecise(s: Evidence) -> bool:
    """Whether a product of float16 is only off by what adding in float16 costs."""
    import torch

    error = (s.got.double() - s.expected).square().mean().sqrt()
    return s.got.dtype == torch.float16 and bool(error < 0.03 * s.expected.square().mean().sqrt())


def _transposed_b(s: Evidence) -> bool:
    a, b = s.args[:2]
    return b.shape[0] == b.shape[1] and _gives(s, a.double(), b.t().double())


def _transposed_a(s: Evidence) -> bool:
    a, b = s.args[:2]
    return a.shape[0] == a.shape[1] and _gives(s, a.t().double(), b.double())


def _reads_contiguous(s: Evidence) -> str:
    """Which matrix was read as if it were contiguous, or ""."""
    a, b = s.args[:2]
    read = {"a": (_dense(a), b.double()), "b": (a.double(), _dense(b))}
    return next((f"that is {one} read as if it were contiguous" for one in read if _gives(s, *read[one])), "")


def _dense(x: torch.Tensor) -> torch.Tensor:
    """What a matrix's memory has from its first element on, read without its strides."""
    import torch

    memory = torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())
    flat = memory[x.storage_offset() :][: x.numel()].double()
    missing = torch.full((x.numel() - len(flat),), math.nan, dtype=torch.float64, device=x.device)
    return torch.cat([flat, missing]).view(x.shape)


MISTAKES: Conditions = under(
    lambda s: s.kind != "far" and s.n_wrong,
    {
        "transposed-b": _transposed_b,
        "transposed-a": _transposed_a,
        "tf32": _tf32,
        "half-accumulator": _imprecise,
        "k-rounded-down": _rounded_down,
        "one-step": lambda s: _in_steps(s, _only_first, _only_first),
        "not-accumulated": lambda s: _in_steps(s, _only_last, _only_last),
        "stale-tile/both": lambda s: _in_steps(s, _first, _first),
        "stale-tile/a": lambda s: _in_steps(s, _first, _here),
        "stale-tile/b": lambda s: _in_steps(s, _here, _first),
        "wrong-stride": lambda s: s.kind in ("view", "dtype") and _reads_contiguous(s),
        "no-mask-along-k": _without_mask,
    },
)


# ---------------------------------------------------------------------------------------- bias and GELU
def bias_for(rng: random.Random) -> Callable[..., tuple[torch.Tensor]]:
    """The bias for two matrices: every second number of a larger vector."""

    def made(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor]:
        from helpers.exercises import inputs

        bias = inputs.values(rng, (b.shape[1],), a.dtype, a.device.type)
        return (inputs.with_steps(bias) if len(bias) > 1 and rng.random() < 0.5 else bias,)

    return made


def _epilogue(of: Callable[..., torch.Tensor]) -> Callable[[Evidence], bool]:
    """Whether a result has the values of another epilogue `(product, bias) -> result`."""

    def holds(s: Evidence) -> bool:
        a, b, bias = (one.double() for one in s.args)
        return s.explains(of(a @ b, bias)) and s.kind != "far"

    return holds


def _gelu(u: torch.Tensor, form: str = "tanh") -> torch.Tensor:
    import torch

    return torch.nn.functional.gelu(u, approximate=form)


def _rows_bias(u: torch.Tensor, bias: torch.Tensor) -> torch.Tensor | None:
    return _gelu(u + bias[:, None]) if u.shape[0] == len(bias) else None


EPILOGUE: Conditions = {
    "bias-forgotten": _epilogue(lambda u, bias: _gelu(u)),
    "gelu-forgotten": _epilogue(lambda u, bias: u + bias),
    "bias-after-gelu": _epilogue(lambda u, bias: _gelu(u) + bias),
    "bias-of-rows": _epilogue(_rows_bias),
    "half-forgotten": _epilogue(lambda u, bias: 2 * _gelu(u + bias)),
    "square-for-cube": _epilogue(
        lambda u, bias: (u + bias) * (1.5957691216 * ((u + bias) + 0.044715 * (u + bias) ** 2)).sigmoid()
    ),
    "two-forgotten": _epilogue(
        lambda u, bias: (u + bias) * (0.7978845608 * ((u + bias) + 0.044715 * (u + bias) ** 3)).sigmoid()
    ),
    "exact-form": _epilogue(lambda u, bias: _gelu(u + bias, "none")),
}

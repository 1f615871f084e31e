"""The exercises inside lesson 12: where memory ends, attention over tiles of keys in NumPy and in Triton, the
tiles that a causal mask leaves, and the merge of two results.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from helpers.check import finding
from helpers.exercises.factories import answer_exercise, kernel_exercise
from helpers.exercises.mistakes import Condition, always
from helpers.exercises.model import AGAIN, Case, Exercise, Hidden
from helpers.exercises.verdicts import is_number
from helpers.lessons import attention

if TYPE_CHECKING:
    import numpy as np
    import torch

LESSON = "12_attention"


# ------------------------------------------------------------------------------- where the memory ends
def _longest(n_bytes: int, batch: int, heads: int, itemsize: int) -> int:
    return math.isqrt(n_bytes // (2 * batch * heads * itemsize))


def _longest_cases(rng: random.Random) -> Iterator[Case]:
    sizes = [(80 * 10**9, 4, 32, 4), (80 * 10**9, 4, 32, 2), (16 * 10**9, 1, 16, 4), (10**6, 3, 5, 1)]
    for _ in range(8):
        size = (rng.randrange(1, 9), rng.randrange(1, 65), rng.choice((1, 2, 4)))
        sizes.append((rng.randrange(10**6, 10**12), *size))
    for n_bytes, batch, heads, itemsize in sizes:
        label = f"{n_bytes:,} bytes, batch {batch}, {heads} heads, {itemsize} bytes each"
        expected = _longest(n_bytes, batch, heads, itemsize)
        yield Case(label, (n_bytes, batch, heads, itemsize), expected=expected)


LONGEST = answer_exercise(
    "longest-sequence",
    LESSON,
    "Where the memory ends",
    "longest_sequence",
    _longest_cases,
    facts=lambda n_bytes, batch, heads, itemsize: {
        "exact": math.sqrt(n_bytes / (2 * batch * heads * itemsize)),
        "one_matrix": math.isqrt(n_bytes // (batch * heads * itemsize)),
        "one_head": [_longest(n_bytes, batch, 1, itemsize), _longest(n_bytes, 1, heads, itemsize),
                     _longest(n_bytes, 1, 1, itemsize)],
        "numbers": _longest(n_bytes, batch, heads, 1),
        "no_root": n_bytes // (2 * batch * heads * itemsize),
    },
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "a-fraction": lambda s: s.got != int(s.got) and abs(s.got - s.exact) < 1e-3,
        "rounded-up": lambda s: s.got == s.want + 1,
        "one-matrix": lambda s: s.got == s.one_matrix,
        "numbers": lambda s: s.got == s.numbers,
        "one-head": lambda s: s.got in s.one_head,
        "no-root": lambda s: s.got == s.no_root,
        "length": always,
    },
    minutes=5,
)  # fmt: skip


# --------------------------------------------------------------------------- attention over tiles of keys
def _exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any) -> torch.Tensor:
    import torch

    return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1) @ v


def _in_tiles(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: int, *, shrinks: bool, shrinks_total: bool
) -> torch.Tensor:
    """Attention tile by tile with a mistake: the sums, or one of them, stay relative to an old maximum."""
    import torch

    top = torch.full((*q.shape[:-1], 1), -math.inf, dtype=q.dtype, device=q.device)
    acc, total = 0.0, 0.0
    for tile, values in zip(k.split(block, -2), v.split(block, -2), strict=True):
        scores = q @ tile.mT / math.sqrt(q.shape[-1])
        new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
        shrink, weights = (top - new_top).exp(), (scores - new_top).exp()
        total = total * (shrink if shrinks_total else 1.0) + weights.sum(-1, keepdim=True)
        acc = acc * (shrink if shrinks else 1.0) + weights @ values
        top = new_top
    return acc / total


def _wide(s: Any) -> tuple:
    return tuple(one.double() if hasattr(one, "double") else one for one in s.args)


def _tiled(block: int = 0, *, shrinks: bool = True, shrinks_total: bool = True) -> Condition:
    """Whether a wrong result stems from sums that aren't rescaled. `block` is that of the last argument by
    default.
    """

    def holds(s: Any) -> bool:
        q, k, v, *rest = _wide(s)
        made = _in_tiles(q, k, v, block or rest[0], shrinks=shrinks, shrinks_total=shrinks_total)
        return s.like(made, 2e-3, 2e-3)

    return holds


def _last_tile_only(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The values of the last tile of 16, with their weights among all keys."""
    import torch

    weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1)
    return weights.split(16, -1)[-1] @ v.split(16)[-1]


def _with(of: Callable[..., torch.Tensor]) -> Condition:
    """Whether a wrong result has the values of this formula of q, k and v."""
    return lambda s: s.like(of(*_wide(s)[:3]), 2e-3, 2e-3)


def _not_divided(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return (scores - scores.amax(-1, keepdim=True)).exp() @ v


_SUMS = {
    "nan": lambda s: bool((s.got.isnan() & ~finding.still_poisoned(s.got)).all()),
    "scale-forgotten": _with(lambda q, k, v: _exact(q * math.sqrt(q.shape[-1]), k, v)),
    "not-divided": _with(_not_divided),
}


def _attention_cases(
    rng: random.Random, device: str, shapes: list[tuple], dtype: str, more: Callable[[], tuple] = tuple
) -> Iterator[Case]:
    """Calls with q, k and v, from simple to strange.

    Args:
        rng: the exercise's generator.
        device: of the tensors.
        shapes: (shape before the rows, queries, keys, head size) of each call; two calls have the first.
        dtype: of the tensors.
        more: makes the arguments after v.
    """
    from helpers.exercises import inputs

    def made(before: tuple, n_queries: int, n_keys: int, size: int, factor: float = 1.0) -> tuple:
        q, k, v = (inputs.values(rng, (*before, n, size), dtype, device) for n in (n_queries, n_keys, n_keys))
        return q * factor, k, v, *more()

    def label(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> str:
        return f"{q.shape[-2]} queries, {k.shape[-2]} keys, head size {q.shape[-1]}" + "".join(
            f", tiles of {block} keys" for block in rest
        )

    first, again = made(*shapes[0]), made(*shapes[0])
    yield Case(label(*first), first, expected=Hidden("first"))
    yield Case(label(*again), again, expected=Hidden("again", before=(first,)))
    changed = (*made(*shapes[0])[:3], *again[3:])
    yield Case(f"{label(*again)}, changed between two calls", again + changed,
               expected=Hidden("again", before=(again, first)), call=AGAIN)  # fmt: skip
    for shape in shapes[1:]:
        args = made(*shape)
        yield Case(label(*args), args, expected=Hidden("size"))
    args = made(*shapes[-1], factor=20.0)
    yield Case(f"{label(*args)}, with large scores", args, expected=Hidden("huge"))


def _in_numpy(f: Callable[..., np.ndarray]) -> Callable[..., Any]:
    """Calls a function of NumPy arrays with tensors; an array that it returns becomes a tensor."""

    def call(*args: Any) -> Any:
        import numpy as np
        import torch

        device = args[0].device
        got = f(*(one.cpu().numpy() if isinstance(one, torch.Tensor) else one for one in args))
        return torch.from_numpy(got).to(device) if isinstance(got, np.ndarray) else got

    return call


def _numpy_cases(rng: random.Random, device: str) -> Iterator[Case]:
    shapes = [((), 4, 64, 16), ((), 4, 16, 16), ((), 3, 50, 8), ((), 1, 1, 4), ((), 5, 130, 32)]
    return _attention_cases(rng, device, shapes, "float64", lambda: (16,))


NUMPY = replace(
    kernel_exercise(
        "tiles-of-keys",
        LESSON,
        "Attention over tiles of keys",
        "attend_in_tiles",
        _exact,
        prepare=_in_numpy,
        tolerance=(1e-9, 1e-9),
        mistakes={
            "not-rescaled": _tiled(shrinks=False, shrinks_total=False),
            "values-not-rescaled": _tiled(shrinks=False),
            "total-not-rescaled": _tiled(shrinks_total=False),
            **_SUMS,
            "last-tile-only": _with(_last_tile_only),
        },
        minutes=5,
    ),
    cases=_numpy_cases,
    speed=None,
)


# --------------------------------------------------------------------------------------------- in Triton
def _padded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention that takes the rows after the last key for keys of zeros."""
    import torch

    missing = -k.shape[-2] % 32
    zeros = torch.zeros(*k.shape[:-2], missing, k.shape[-1], dtype=k.dtype, device=k.device)
    return _exact(q, torch.cat((k, zeros), -2), torch.cat((v, zeros), -2))


def _triton_cases(rng: random.Random, device: str) -> Iterator[Case]:
    uneven = rng.sample((33, 41, 50, 70, 75), 3)
    shapes = [((1,), 32, 64, 32), ((2,), 32, 32, 32), ((1,), uneven[0], 64, 32), ((1,), 32, uneven[1], 32)]
    shapes += [((1,), 1, 1, 32), ((2,), 20, uneven[2], 32)]
    return _attention_cases(rng, device, shapes, "float16")


TRITON = replace(
    kernel_exercise(
        "attention-in-triton",
        LESSON,
        "Attention in Triton",
        "my_attention",
        _exact,
        must_launch="triton",
        tolerance=(4e-3, 4e-3),
        mistakes={
            "not-rescaled": _tiled(32, shrinks=False, shrinks_total=False),
            "values-not-rescaled": _tiled(32, shrinks=False),
            "total-not-rescaled": _tiled(32, shrinks_total=False),
            **_SUMS,
            "padding": _with(_padded),
        },
        minutes=5,
    ),
    cases=_triton_cases,
    speed=None,
)


# ------------------------------------------------------------------------------------ tiles under a mask
def _visited_cases(rng: random.Random) -> Iterator[Case]:
    sizes = [(512, 128, 64), (256, 64, 64), (64, 64, 64), (1024, 64, 128), (4096, 128, 64)]
    for _ in range(6):
        m, n = rng.choice((16, 32, 64, 128, 256)), rng.choice((16, 32, 64, 128))
        sizes.append((max(m, n) * rng.randrange(1, 40), m, n))
    for n, block_m, block_n in sizes:
        tiles = attention.tiles_of(n, block_m, block_n, is_causal=True)
        label = f"n = {n:,}, tiles of {block_m} × {block_n}"
        yield Case(label, (n, block_m, block_n), expected=attention.n_visited(tiles))


def _about_visited(n: int, block_m: int, block_n: int) -> dict[str, float]:
    programs, across = n // block_m, n // block_n
    return {
        "all": programs * across,
        "half": programs * across / 2,
        "full_only": sum(i * block_m // block_n for i in range(programs)),
        "rounded_down": sum((i + 1) * block_m // block_n for i in range(programs)),
        "last": across,
    }


VISITED = answer_exercise(
    "tiles-visited",
    LESSON,
    "The tiles that a causal mask leaves",
    "tiles_visited",
    _visited_cases,
    facts=_about_visited,
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "all-tiles": lambda s: s.got == s.all and s.got != s.want,
        "rounded-down": lambda s: s.got == s.rounded_down,
        "half": lambda s: s.got in (s.half, int(s.half)),
        "diagonal-forgotten": lambda s: s.got == s.full_only,
        "one-program": lambda s: s.got == s.last,
        "a-fraction": lambda s: s.got != int(s.got),
        "count": always,
    },
    minutes=5,
)


# ------------------------------------------------------------------------------------- merge two results
def _merged(o: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.softmax(lse, dim=0) @ o


def _merge_cases(rng: random.Random, device: str) -> Iterator[Case]:
    from helpers.exercises import inputs

    def made(parts: int, size: int, high: float = 0.0) -> tuple:
        lse = inputs.values(rng, (parts,), "float64", device)
        return inputs.values(rng, (parts, size), "float64", device), lse * 2 + high

    first = made(2, 4)
    yield Case("2 parts, head size 4", first, expected=Hidden("first"))
    yield Case("2 parts, head size 4", made(2, 4), expected=Hidden("again", before=(first,)))
    for parts, size in ((1, 8), (3, 8), (16, 64), (rng.randrange(4, 30), 5)):
        args = made(parts, size)
        yield Case(f"{parts} parts, head size {size}", args, expected=Hidden("size"))
    yield Case("3 parts with a log-sum-exp of about 1,000", made(3, 8, 1000.0), expected=Hidden("huge"))
    yield Case("3 parts with a log-sum-exp of about -1,000", made(3, 8, -1000.0), expected=Hidden("huge"))


def _like(of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Condition:
    """Whether a wrong result has the values of this formula of the parts and their log-sum-exps."""
    return lambda s: s.like(of(*_wide(s)), 1e-6, 1e-9)


MERGE = replace(
    kernel_exercise(
        "merge-results",
        LESSON,
        "Merge the results of parts",
        "merge_results",
        _merged,
        tolerance=(1e-9, 1e-12),
        mistakes={
            "plain-mean": _like(lambda o, lse: o.mean(0)),
            "plain-sum": _like(lambda o, lse: o.sum(0)),
            "not-exponentiated": _like(lambda o, lse: lse / lse.sum() @ o),
            "not-divided": _like(lambda o, lse: (lse - lse.max()).exp() @ o),
            "overflows": lambda s: s.kind == "huge" and bool((~s.got.isfinite() | (s.got == 0)).any()),
        },
        minutes=5,
    ),
    cases=_merge_cases,
    speed=None,
)

EXERCISES: tuple[Exercise, ...] = (LONGEST, NUMPY, TRITON, VISITED, MERGE)

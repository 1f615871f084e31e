"""Hidden queries, keys and values of one attention head for the kernels of lab 12."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from helpers.exercises.model import AGAIN, Case, Hidden

if TYPE_CHECKING:
    import torch

LAB = "12_attention"
TOLERANCE = (3e-3, 3e-3)  # weights of float16 are off by 5e-4
DTYPE = "float16"
_UNEVEN = (33, 37, 41, 50, 55, 61, 70, 75)  # no multiple of 16
_LARGE, _HUGE = 15, 45  # scores of several hundred, and products beyond 65,504, the largest float16
_MOST_HEADS = 16

# Makes the arguments after q, k and v, by name and in order.
More = Callable[[random.Random], dict[str, int]]


def no_more(rng: random.Random) -> dict[str, int]:
    """No arguments after q, k and v."""
    return {}


def tile_sizes(rng: random.Random) -> dict[str, int]:
    """The queries of a program and the keys of a tile, usually different numbers."""
    return dict(
        zip(("block_m", "block_n"), rng.choice(((16, 16), (16, 32), (32, 16), (64, 16))), strict=True)
    )


def window_and_tiles(rng: random.Random) -> dict[str, int]:
    """A window that is smaller than a tile, as large, or larger, and the sizes of the tiles."""
    return {"window": rng.choice((1, 5, 16, 17, rng.randrange(20, 60))), **tile_sizes(rng)}


def parts(rng: random.Random) -> dict[str, int]:
    """A number of parts, some of which may be empty."""
    return {"n_parts": rng.choice((1, 2, 3, 5, 8))}


def cases(
    rng: random.Random, device: str, more: More = no_more, *, few: bool = False, far: bool = True
) -> Iterator[Case]:
    """Heads from simple to strange; the first has whole tiles.

    Args:
        rng: the exercise's generator.
        device: of the tensors.
        more: makes the arguments after q, k and v.
        few: whether there are few queries, at most 16: the heads that share the keys in decoding.
        far: whether rows may be further apart than 2**30 elements.
    """
    from helpers.exercises import guard, inputs

    def head(n_queries: int, n_keys: int, head_size: int = 32, scale: float = 1) -> list[torch.Tensor]:
        sizes = ((n_queries, scale), (n_keys, scale), (n_keys, 1))
        return [inputs.values(rng, (n, head_size), DTYPE, device) * by for n, by in sizes]

    def case(tensors: list, kind: str, what: str = "", extra: dict | None = None, **about) -> Case:
        extra = more(rng) if extra is None else extra
        label = f"q {tuple(tensors[0].shape)}, k and v {tuple(tensors[1].shape)}"
        label = ", ".join([label, *(f"{name} = {value}" for name, value in extra.items())])
        args = (*tensors, *extra.values())
        return Case(f"{label}{', ' if what else ''}{what}", args, expected=Hidden(kind, **about))

    n = _MOST_HEADS if few else 64
    sizes = more(rng)
    first = case(head(n, 64), "first", extra=sizes)
    yield first
    again = case(head(n, 64), "again", "the same shapes with other values", extra=sizes, before=(first.args,))
    yield again
    changed = case(head(n, 64), "again", extra=sizes)
    both = {"args": again.args + changed.args, "call": AGAIN}
    yield Case(
        f"{again.label}, changed between two calls",
        expected=Hidden("again", before=(again.args, first.args)),
        **both,
    )

    def queries() -> int:
        return rng.randrange(1, _MOST_HEADS + 1) if few else rng.choice(_UNEVEN)

    for n_keys, head_size in ((160, 16), (rng.choice(_UNEVEN), 32), (rng.randrange(129, 200), 64)):
        yield case(head(n, n_keys, head_size), "size")
    for n_queries, n_keys in ((queries(), 64), (1, 1), (1, 100), (queries(), 3), (queries(), 130)):
        yield case(head(n_queries, n_keys, 16), "size")
    odd = {"n_parts": 5} if few else None  # a number of parts that isn't a power of two
    yield case(rising(head(n, 96)), "size", "with scores that rise from key to key")
    yield case(head(n, 80, scale=_LARGE), "huge", "with scores of several hundred")
    yield case(negative(head(n, 80, scale=_LARGE)), "huge", "with scores far below 0", odd)
    yield case(head(n, 80, 64, scale=_HUGE), "huge", "with products of q and k beyond 65,504")
    q, k, v = head(queries(), rng.choice(_UNEVEN))
    for name, view in (
        ("gaps between the rows of q", [inputs.with_row_gaps(q, 8, 8), k, v]),
        ("gaps between the rows of k", [q, inputs.with_row_gaps(k, 8, 8), v]),
        ("every third row of a larger v", [q, k, inputs.with_steps(v, 3, 0)]),
        ("one key, expanded", [q, k[:1].expand(k.shape), v]),
    ):
        yield case(view, "view", name)
    yield case(head(0, 20), "empty", "so there is nothing to compute")
    for which in ("q", "k", "v") if far else ():
        tensors = head(3, 3 if which != "q" else 20, 16)
        at = "qkv".index(which)
        whole = case(tensors, "far", f"the rows of {which} more than 2**30 elements apart")
        recipe = guard.far_rows(tensors[at], (1 << 30) + rng.randrange(7, 60))
        yield Case(whole.label, (*whole.args[:at], recipe, *whole.args[at + 1 :]), expected=whole.expected)


def rising(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same head, with keys along a direction that all queries share, so that each key scores higher."""
    import torch

    q, k, v = tensors
    steps = torch.linspace(-0.7, 0.7, k.shape[0], dtype=k.dtype, device=k.device)[:, None]
    return [q.abs(), 0.1 * k + steps, v]


def negative(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same head, with scores far below 0."""
    q, k, v = tensors
    return [q.abs(), -k.abs(), v]


def visible(n_queries: int, n_keys: int, window: int | None = None, device: str = "cpu") -> torch.Tensor:
    """Which keys each query sees under a causal mask, (n_queries, n_keys)."""
    import torch

    rows = torch.arange(n_queries, device=device)[:, None]
    cols = torch.arange(n_keys, device=device)[None, :]
    sees = cols <= rows
    return sees if window is None else sees & (cols > rows - window)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sees: torch.Tensor | None = None
) -> torch.Tensor:
    """softmax(q @ k.T / sqrt(head_size)) @ v, where a query without a visible key has the result 0."""
    return weighted(q @ k.T * q.shape[1] ** -0.5, v, sees)


def weighted(scores: torch.Tensor, v: torch.Tensor, sees: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(scores) @ v; hidden keys have no weight."""
    if sees is None:
        return scores.softmax(dim=1) @ v
    weights = scores.masked_fill(~sees, -float("inf")).softmax(dim=1)
    return weights.masked_fill(~sees.any(dim=1, keepdim=True), 0.0) @ v


def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *tiles: int) -> torch.Tensor:
    """Attention where query i sees the keys j <= i."""
    return attention(q, k, v, visible(len(q), len(k), device=q.device.type))


def window_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int, *tiles: int
) -> torch.Tensor:
    """Attention where query i sees the keys i - window < j <= i."""
    return attention(q, k, v, visible(len(q), len(k), window, q.device.type))

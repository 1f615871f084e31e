"""The mistakes behind wrong results of lab 12's kernels.

Each condition computes what a mistake would give, and asks whether that explains the wrong elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from helpers.exercises.lab12 import heads
from helpers.exercises.mistakes import Conditions, under

if TYPE_CHECKING:
    import torch

    from helpers.exercises.evidence import Evidence

_TILES = (16, 32, 64, 128)  # of keys, that a learner would use
_MOST_HALF = 65_504.0  # the largest float16
_MOST_EXP = 11.0  # exp of more overflows in float16

# `(evidence) -> mask` of the keys that each query sees; None if it sees all.
Sees = Callable[["Evidence"], "torch.Tensor | None"]


def all_keys(s: Evidence) -> None:
    """Every query sees every key."""


def qkv(s: Evidence) -> list[torch.Tensor]:
    return [one.double() for one in s.args[:3]]


def scores_of(s: Evidence) -> torch.Tensor:
    q, k, _ = qkv(s)
    return q @ k.T * q.shape[1] ** -0.5


# ------------------------------------------------------------------------------------------- online softmax
def in_tiles(
    scores: torch.Tensor,
    v: torch.Tensor,
    block: int,
    *,
    acc: bool = True,
    total: bool = True,
    hidden: torch.Tensor | None = None,
    summed: bool = False,
) -> torch.Tensor:
    """softmax(scores) @ v tile by tile, with a mistake, in float32 and with weights of float16.

    Args:
        scores: float64, -inf for hidden keys.
        v: float64.
        block: keys per tile.
        acc, total: Whether the weighted sum and the sum of the weights are rescaled.
        hidden: Keys whose weight becomes 0 only after `exp`; None for none.
        summed: Whether those are in the sum of the weights.
    """
    import torch

    scores, v = scores.float(), v.float()
    top = torch.full((len(scores), 1), -math.inf, device=scores.device)
    sum_v, sum_w = torch.zeros(len(scores), v.shape[1], device=v.device), torch.zeros_like(top)
    for start in range(0, scores.shape[1], block):
        tile = scores[:, start : start + block]
        new = torch.maximum(top, tile.amax(dim=1, keepdim=True))
        shift = new.masked_fill(new == -math.inf, 0.0)
        shrink, weights = (top - shift).exp(), (tile - shift).exp()
        seen = weights if hidden is None else weights.masked_fill(hidden[:, start : start + block], 0.0)
        sum_w = sum_w * (shrink if total else 1) + (weights if summed else seen).sum(dim=1, keepdim=True)
        sum_v = sum_v * (shrink if acc else 1) + seen.half().float() @ v[start : start + block]
        top = new
    return (sum_v / sum_w).double()


def _masked(s: Evidence, sees: Sees) -> torch.Tensor:
    mask = sees(s)
    return scores_of(s) if mask is None else scores_of(s).masked_fill(~mask, -math.inf)


def _not_rescaled(sees: Sees, **rescaled: bool) -> Callable[[Evidence], bool]:
    def holds(s: Evidence) -> bool:
        scores, v = _masked(s, sees), qkv(s)[2]
        return any(s.explains(in_tiles(scores, v, block, **rescaled)) for block in _blocks(s))

    return holds


def _blocks(s: Evidence) -> Iterator[int]:
    """The sizes of a tile of keys that the kernel may have used: the given one first."""
    yield from (s.args[-1:] if len(s.args) > 4 else _TILES)


def _last_tile_only(s: Evidence) -> bool:
    q, k, v = qkv(s)
    starts = {(len(k) - 1) // block * block for block in _TILES} - {0}
    return any(s.explains(heads.attention(q, k[one:], v[one:])) for one in starts)


# ----------------------------------------------------------------------------------------- scores and scale
def _with_scale(sees: Sees, *scales: Callable[[int], float]) -> Callable[[Evidence], bool]:
    def holds(s: Evidence) -> bool:
        q, k, v = qkv(s)
        return any(s.explains(heads.weighted(q @ k.T * of(q.shape[1]), v, sees(s))) for of in scales)

    return holds


def _padded(sees: Sees) -> Callable[[Evidence], bool]:
    """Whether the missing keys of the last tile have a weight: they score 0."""

    def holds(s: Evidence) -> bool:
        import torch

        scores, v, mask = scores_of(s), qkv(s)[2], sees(s)
        for block in _blocks(s):
            more = -len(v) % block
            wide = torch.nn.functional.pad(scores, (0, more))
            rows = torch.arange(len(scores), device=v.device)[:, None]
            cols = torch.arange(wide.shape[1], device=v.device)[None, :]
            seen = None
            if mask is not None:
                seen = torch.nn.functional.pad(mask, (0, more)) | ((cols >= len(v)) & (cols <= rows))
            values = torch.nn.functional.pad(v, (0, 0, 0, more))
            if more and s.explains(heads.weighted(wide, values, seen)):
                return True
        return False

    return holds


def _half_scores(s: Evidence) -> bool:
    """Whether large scores overflow in float16, or are only roughly right."""
    if s.kind != "huge":
        return False
    if not bool(s.got.isfinite().all()):
        q, k, _ = qkv(s)
        return bool((q @ k.T).abs().max() > _MOST_HALF)
    error = (s.got.double() - s.expected).square().mean().sqrt()
    return bool(error < 0.1 * s.expected.square().mean().sqrt())


def _no_maximum(s: Evidence) -> bool:
    """Whether exp of scores overflows, although the products of q and k fit into float16."""
    q, k, _ = qkv(s)
    fits = bool((q @ k.T).abs().max() <= _MOST_HALF)
    large = bool(scores_of(s).abs().max() > _MOST_EXP)
    return fits and large and s.kind != "view" and not bool(s.got.isfinite().all())


def mistakes_with_scores(sees: Sees) -> Conditions:
    """Mistakes with the scores that every kernel can make."""
    return {
        "scale-forgotten": _with_scale(sees, lambda d: 1.0),
        "wrong-scale": _with_scale(sees, lambda d: 1 / d, lambda d: d**0.5, lambda d: d**-0.25),
        "log2e-forgotten": _with_scale(sees, lambda d: math.log(2) * d**-0.5),
        "acc-not-rescaled": _not_rescaled(sees, acc=False),
        "total-not-rescaled": _not_rescaled(sees, total=False),
        "nothing-rescaled": _not_rescaled(sees, acc=False, total=False),
        "last-tile-unmasked": _padded(sees),
    }


def _inside(s: Evidence) -> bool:
    return not s.facts.get("guard_reads") and s.kind != "view"


def _padding_nan(s: Evidence) -> bool:
    """Whether values that don't exist are NaN in place of 0: only heads with a partial tile are wrong."""
    partial = s.kind == "size" and len(s.args[1]) % min(_TILES) != 0
    return _inside(s) and partial and bool(s.got.isnan()[s.wrong].all())


def _all_nan(s: Evidence) -> bool:
    return _inside(s) and bool(s.got.isnan().all())


# The last conditions: what overflows, and what only the kind of case shows.
AFTER_ALL: Conditions = {
    "no-maximum": _no_maximum,
    "half-scores": _half_scores,
    "padding-nan": _padding_nan,
    "all-nan": _all_nan,
    "wrong-stride": lambda s: s.kind == "view",
}


def not_far(conditions: Conditions) -> Conditions:
    return under(lambda s: s.kind != "far" and s.n_wrong, conditions)


PLAIN: Conditions = not_far(
    {**mistakes_with_scores(all_keys), "last-tile-only": _last_tile_only, **AFTER_ALL}
)


# ------------------------------------------------------------------------------------------------ decoding
def _parts(s: Evidence) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The scores and the values of each part that has keys."""
    scores, v, n_parts = scores_of(s), qkv(s)[2], s.args[3]
    size = -(-len(v) // n_parts)
    return [(scores[:, i : i + size], v[i : i + size]) for i in range(0, len(v), size)]


def _merged(s: Evidence, weight: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """The parts' results, each weighted by a function of its scores."""
    import torch

    weights = torch.stack([weight(scores) for scores, _ in _parts(s)])
    results = torch.stack([scores.softmax(dim=1) @ v for scores, v in _parts(s)])
    return (weights * results).sum(dim=0) / weights.sum(dim=0)


def _plain_mean(s: Evidence) -> bool:
    return s.explains(_merged(s, lambda scores: scores[:, :1].double() * 0 + 1))


def _by_sums(s: Evidence) -> bool:
    """Whether a part's weight is its sum, relative to its own maximum."""

    def weight(scores: torch.Tensor) -> torch.Tensor:
        return (scores - scores.amax(dim=1, keepdim=True)).exp().sum(dim=1, keepdim=True)

    return s.explains(_merged(s, weight))


def _by_maxima(s: Evidence) -> bool:
    """Whether a part's weight is exp of its maximum, without its sum."""
    top = scores_of(s).amax(dim=1, keepdim=True)
    return s.explains(_merged(s, lambda scores: (scores.amax(dim=1, keepdim=True) - top).exp()))


def _one_part(s: Evidence) -> bool:
    parts = _parts(s)
    return len(parts) > 1 and any(s.explains(scores.softmax(dim=1) @ v) for scores, v in parts)


def _acc_of_parts(s: Evidence) -> bool:
    """Whether the parts are merged rightly, but the weighted sum isn't rescaled within a part."""
    import torch

    weights = torch.stack([scores.logsumexp(dim=1, keepdim=True) for scores, _ in _parts(s)]).softmax(dim=0)
    for block in _TILES:
        means = torch.stack([in_tiles(scores, v, block, acc=False) for scores, v in _parts(s)])
        if s.explains((weights * means).sum(dim=0)):
            return True
    return False


def _empty_part(s: Evidence) -> bool:
    """Whether the result is NaN just where a part has no keys."""
    empty = len(_parts(s)) < s.args[3]
    return empty and s.kind not in ("huge", "special") and bool(s.got.isnan()[s.wrong].all())


def _padding_nan_in_parts(s: Evidence) -> bool:
    """Not if a program that merges a number of parts that isn't a power of two may have made the NaN."""
    return s.args[3].bit_count() == 1 and _padding_nan(s)


PARTS: Conditions = not_far(
    {
        "plain-mean": _plain_mean,
        "maxima-forgotten": _by_sums,
        "sums-forgotten": _by_maxima,
        "one-part": _one_part,
        "empty-part-nan": _empty_part,
        "acc-not-rescaled/parts": _acc_of_parts,
        **PLAIN,
        "padding-nan": _padding_nan_in_parts,
    }
)

"""The mistakes behind wrong results of lab 12's causal masks and sliding windows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from helpers.exercises.lab12 import heads, results
from helpers.exercises.mistakes import Conditions

if TYPE_CHECKING:
    import torch

    from helpers.exercises.evidence import Evidence


def causal(s: Evidence) -> torch.Tensor:
    """Query i sees the keys j <= i."""
    return heads.visible(len(s.args[0]), len(s.args[1]), device=s.args[0].device.type)


def windowed(s: Evidence) -> torch.Tensor:
    """Query i sees the keys i - window < j <= i."""
    return heads.visible(len(s.args[0]), len(s.args[1]), s.args[3], s.args[0].device.type)


def _gives(sees: Callable[[Evidence], torch.Tensor | None]) -> Callable[[Evidence], bool]:
    """Whether the result is right for another mask."""

    def holds(s: Evidence) -> bool:
        return s.explains(heads.attention(*results.qkv(s), sees(s)))

    return holds


def _mask_after_exp(sees: results.Sees) -> Callable[[Evidence], bool]:
    """Whether hidden keys lose their weight only after `exp`, or after the sum, too."""

    def holds(s: Evidence) -> bool:
        scores, v, hidden = results.scores_of(s), results.qkv(s)[2], ~sees(s)
        block = s.args[-1]
        return any(
            s.explains(results.in_tiles(part, v, block, hidden=hidden, summed=summed))
            for summed in (True, False)
            for part in (scores, scores.masked_fill(_skipped(s, sees), -math.inf))
        )

    return holds


def _skipped(s: Evidence, sees: results.Sees) -> torch.Tensor:
    """The keys of tiles that no query of a program sees."""
    block_m, block_n = s.args[-2:]
    hidden = ~sees(s)
    for row in range(0, len(hidden), block_m):
        for col in range(0, hidden.shape[1], block_n):
            tile = hidden[row : row + block_m, col : col + block_n]
            hidden[row : row + block_m, col : col + block_n] = tile.all()
    return hidden


def _hidden_score_zero(sees: results.Sees) -> Callable[[Evidence], bool]:
    """Whether a hidden key of a visited tile scores 0."""

    def holds(s: Evidence) -> bool:
        scores, v = results.scores_of(s).masked_fill(~sees(s), 0.0), results.qkv(s)[2]
        return any(s.explains(heads.weighted(scores, v, one)) for one in (None, ~_skipped(s, sees)))

    return holds


def _tile_missing(s: Evidence) -> bool:
    """Whether the tiles on the diagonal are missing: the loop ends at the program's first query."""
    mask, (block_m, block_n) = causal(s), s.args[3:5]
    n_queries, n_keys = mask.shape
    for of in (lambda row: row // block_n * block_n, lambda row: (row + block_m) // block_n * block_n):
        seen = mask.clone()
        for row in range(0, n_queries, block_m):
            seen[row : row + block_m, min(of(row), n_keys) :] = False
        if not seen.equal(mask) and _agrees(s, heads.attention(*results.qkv(s), seen), seen):
            return True
    return False


def _agrees(s: Evidence, values: torch.Tensor, seen: torch.Tensor) -> bool:
    """Whether the wrong elements have these values; a query that no longer sees a key may be 0 / 0."""
    from helpers import check

    if s.facts.get("guard_reads"):
        return False
    close = ~check.wrong_elements(s.got, values, s.tolerance)
    keyless = ~seen.any(dim=1, keepdim=True) & s.got.isnan()
    return float((close | keyless)[s.wrong].double().mean()) > 0.9


def _strict(s: Evidence) -> torch.Tensor:
    mask = causal(s)
    return mask & ~mask.new_ones(mask.shape).tril().triu()


def _one_more(s: Evidence) -> torch.Tensor:
    return heads.visible(len(s.args[0]) + 1, len(s.args[1]))[1:].to(s.got.device)


def _aligned_at_the_end(s: Evidence) -> torch.Tensor | None:
    n_queries, n_keys = len(s.args[0]), len(s.args[1])
    shift = n_keys - n_queries
    return heads.visible(n_queries + shift, n_keys)[shift:].to(s.got.device) if shift > 0 else None


CAUSAL: Conditions = results.not_far(
    {
        "not-masked": lambda s: s.explains(heads.attention(*results.qkv(s))),
        "not-masked/skipped": _gives(lambda s: ~_skipped(s, causal)),
        "diagonal-hidden": lambda s: _agrees(s, heads.attention(*results.qkv(s), _strict(s)), _strict(s)),
        "one-key-too-many": _gives(lambda s: _one_more(s) & ~_skipped(s, causal)),
        "one-key-too-many/all": _gives(_one_more),
        "aligned-at-the-end": _gives(_aligned_at_the_end),
        "hidden-score-zero": _hidden_score_zero(causal),
        "mask-after-exp": _mask_after_exp(causal),
        "tile-missing": _tile_missing,
        **results.mistakes_with_scores(causal),
        **results.AFTER_ALL,
    }
)


# ----------------------------------------------------------------------------------------- sliding windows
def _with_window(change: int) -> Callable[[Evidence], bool]:
    def holds(s: Evidence) -> bool:
        q, k, _ = results.qkv(s)
        window = s.args[3] + change
        seen = heads.visible(len(q), len(k), window, q.device.type)
        return _agrees(s, heads.attention(*results.qkv(s), seen), seen)

    return holds


def _hidden_tile_nan(s: Evidence) -> bool:
    """Whether exactly those queries are NaN that don't see any key of their program's first tile."""
    block_m, block_n = s.args[-2:]
    mask = windowed(s)
    nan = s.wrong & s.got.isnan()
    for row in range(len(mask)):
        first = max(row // block_m * block_m - s.args[3] + 1, 0) // block_n * block_n
        if bool(nan[row].any()) and bool(mask[row, first : first + block_n].any()):
            return False
    return bool(nan.any())


def _keyless_query(s: Evidence) -> bool:
    """Whether only queries that see no key are wrong."""
    seen = windowed(s).any(dim=1, keepdim=True).expand(s.got.shape)
    return not bool((s.wrong & seen).any())


def _first_tile_missing(s: Evidence) -> bool:
    """Whether the loop begins too late: at the first tile that the program's last query sees."""
    (window, block_m, block_n), mask = s.args[3:6], windowed(s)
    for of in (
        lambda row: -(-max(row - window + 1, 0) // block_n) * block_n,
        lambda row: max(row + block_m - window, 0) // block_n * block_n,
    ):
        seen = mask.clone()
        for row in range(0, len(mask), block_m):
            seen[row : row + block_m, : of(row)] = False
        if not seen.equal(mask) and _agrees(s, heads.attention(*results.qkv(s), seen), seen):
            return True
    return False


WINDOW: Conditions = results.not_far(
    {
        "hidden-tile-nan": _hidden_tile_nan,
        "keyless-query": _keyless_query,
        "window-forgotten": _gives(causal),
        "only-window": _gives(lambda s: windowed(s) | ~causal(s)),
        "window-off-by-one/larger": _with_window(1),
        "window-off-by-one/smaller": _with_window(-1),
        "hidden-score-zero": _hidden_score_zero(windowed),
        "mask-after-exp": _mask_after_exp(windowed),
        "first-tile-missing": _first_tile_missing,
        **results.mistakes_with_scores(windowed),
        **results.AFTER_ALL,
    }
)

"""The exercises of lab 12, attention: rescale, mask, find a bug, split the keys, and slide a window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from helpers.exercises.factories import kernel_exercise
from helpers.exercises.lab12 import heads, loads, masks, results
from helpers.exercises.lab12.claim import CLAIM
from helpers.exercises.mistakes import Table
from helpers.exercises.model import Exercise

LAB = heads.LAB


def _exercise(
    id: str,
    title: str,
    name: str,
    reference: Callable,
    table: Table,
    more: heads.More = heads.no_more,
    *,
    minutes: int,
    far: bool = True,
    few: bool = False,
) -> Exercise:
    """An exercise whose kernels compute attention of one head."""
    made = kernel_exercise(
        id,
        LAB,
        title,
        name,
        reference,
        must_launch="triton",
        tolerance=heads.TOLERANCE,
        mistakes=table,
        minutes=minutes,
    )
    return replace(
        made,
        cases=lambda rng, device: heads.cases(rng, device, more, few=few, far=far),
        speed=None,
        poison_masked=True,
    )


_PLAIN = Table("plain-attention", LAB, results.PLAIN)

RESCALE = _exercise(
    "rescale-the-sums",
    "Rescale the sums",
    "attention",
    heads.attention,
    _PLAIN,
    minutes=15,
    far=False,
)

_CAUSAL = _exercise(
    "causal-tiles",
    "A causal mask and its tiles",
    "causal_attention",
    heads.causal_attention,
    Table("causal-tiles", LAB, masks.CAUSAL),
    heads.tile_sizes,
    minutes=25,
)
CAUSAL = replace(_CAUSAL, judge=loads.CountedTiles(_CAUSAL.id, _CAUSAL.judge))

FIND = _exercise(
    "find-the-bug",
    "Find the bug that constant inputs hide",
    "fast_attention",
    heads.attention,
    _PLAIN,
    minutes=15,
    far=False,
)

_SPLIT = _exercise(
    "split-the-keys",
    "Split the keys for decoding",
    "decode",
    lambda q, k, v, n_parts: heads.attention(q, k, v),
    Table("split-the-keys", LAB, results.PARTS),
    heads.parts,
    minutes=30,
    few=True,
)
SPLIT = replace(_SPLIT, judge=loads.CountedParts(_SPLIT.id, _SPLIT.judge))

_WINDOW = _exercise(
    "sliding-window",
    "A sliding window",
    "window_attention",
    heads.window_attention,
    Table("sliding-window", LAB, masks.WINDOW),
    heads.window_and_tiles,
    minutes=20,
)
WINDOW = replace(_WINDOW, judge=loads.CountedTiles(_WINDOW.id, _WINDOW.judge, windowed=True))

EXERCISES = (RESCALE, CAUSAL, FIND, SPLIT, WINDOW, CLAIM)

"""What runs next to the learner's functions of lab 01; it contains no answers."""

from __future__ import annotations

from typing import Any


def each(decide: Any, pairs: list) -> list:
    """The learner's decision for each pair of samples."""
    return [decide(list(a), list(b)) for a, b in pairs]


def on_a_copy(summarise: Any, samples: list[float], n_warmup: int) -> dict:
    """The summary of a copy of the samples, or the ValueError that was raised; and whether the copy has
    changed.
    """
    mine = list(samples)
    try:
        found = summarise(mine, n_warmup)
    except ValueError as error:
        return {"refused": str(error), "changed": mine != samples}
    return {"found": found, "changed": mine != samples}

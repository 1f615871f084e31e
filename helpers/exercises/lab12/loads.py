"""How much the kernels of lab 12 may load, and the verdict on those that load more.

Loads are counted if Triton's interpreter runs the kernel. A kernel that loads too little gives wrong values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from helpers.exercises.judge import effective
from helpers.exercises.mistakes import sentences
from helpers.exercises.model import AGAIN, Case, Outcome, Verdict

LAB = "12_attention"
_SECTION = "loads"


def key_tiles(
    n_queries: int, n_keys: int, block_m: int, block_n: int, window: int | None = None
) -> Iterator[tuple[int, int]]:
    """The keys that each program visits under a causal mask, as (first, end); `end` is at most `n_keys`.

    A program of `block_m` queries visits whole tiles of `block_n` keys, and only those in which one of its
    queries sees a key. For this, the last tile counts as full.
    """
    for first_row in range(0, n_queries, block_m):
        end = min(-(-(first_row + block_m) // block_n) * block_n, n_keys)
        first = 0 if window is None else max(first_row - window + 1, 0) // block_n * block_n
        yield first, max(end, first)


def keys_loaded(n_queries: int, n_keys: int, block_m: int, block_n: int, window: int | None = None) -> int:
    """How many keys all programs together load."""
    tiles = key_tiles(n_queries, n_keys, block_m, block_n, window)
    return sum(end - first for first, end in tiles)


@dataclass(frozen=True)
class CountedTiles:
    """Judges a kernel that may only load the keys and values of tiles that one of its queries sees.

    Attributes:
        exercise: its id.
        judge: of the values.
        windowed: whether the window is the first argument after q, k and v.
    """

    exercise: str
    judge: Callable[[Case, Outcome], Verdict | None]
    windowed: bool = False

    def __call__(self, case: Case, outcome: Outcome) -> Verdict | None:
        verdict = self.judge(case, outcome)
        if verdict is not None or "read_bytes" not in outcome.facts:
            return verdict
        (q, k, _, *numbers), _ = effective(case)
        window = numbers.pop(0) if self.windowed else None
        n_keys = keys_loaded(len(q), len(k), *numbers, window)
        # A kernel with a loop for the diagonal may load its queries once more.
        allowed = (2 * q.numel() + 2 * n_keys * k.shape[1]) * q.element_size()
        loaded = outcome.facts["read_bytes"] / (2 if case.call == AGAIN else 1)
        if loaded <= allowed:
            return None
        row_bytes = 2 * k.shape[1] * k.element_size()
        what = f"it loads {(loaded - q.numel() * q.element_size()) / row_bytes:,.0f} keys and values"
        return _too_much(self.exercise, case, f"{what} instead of {n_keys:,}", "too-many-tiles")


@dataclass(frozen=True)
class CountedParts:
    """Judges a decoding kernel: each program loads the keys of one part, and each key is loaded once."""

    exercise: str
    judge: Callable[[Case, Outcome], Verdict | None]

    def __call__(self, case: Case, outcome: Outcome) -> Verdict | None:
        verdict = self.judge(case, outcome)
        if verdict is not None or "read_bytes" not in outcome.facts or not outcome.value.numel():
            return verdict
        (q, k, _, n_parts), _ = effective(case)
        (n_heads, head_size), n_keys = q.shape, len(k)
        a_part = -(-n_keys // n_parts)
        most = outcome.facts["most_read"]
        if most > q.numel() + 2 * a_part * head_size:
            n_read = (most - q.numel()) / (2 * head_size)
            what = f"one program loads {n_read:,.0f} keys and values, but a part has {a_part:,}"
            return _too_much(self.exercise, case, what, "not-split")
        loaded = outcome.facts["read_bytes"] / (2 if case.call == AGAIN else 1)
        merged = 2 * 4 * n_parts * n_heads * (head_size + 2)  # float32, and each number twice
        if loaded > (2 * k.numel() + n_parts * q.numel()) * q.element_size() + merged:
            what = f"it loads {loaded / (2 * k.numel() * k.element_size()):.2f} times the bytes of k and v"
            return _too_much(self.exercise, case, what, "keys-per-head")
        return None


def _too_much(exercise: str, case: Case, what: str, mistake: str) -> Verdict:
    sentence = f"{exercise}, {case.label}: the values are right, but {what}."
    return Verdict(exercise, False, sentence, case.label, mistake, sentences(LAB, _SECTION)[mistake])

"""Kernels with very small blocks: which cases would take Triton's interpreter too long.

The interpreter needs about half a millisecond for each load and store of a program, whatever the size of its
block. With a block of one element, all cases together would take several minutes, so the largest are left
out. That depends on counts alone, so that the same answer and seed always get the same cases.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from helpers.exercises.model import Case, Exercise, Hidden, Outcome

WHY = "Triton's interpreter would take too long with such small blocks"
# Accesses in all cases, and the number of accesses after which no more large cases are started.
_ALL, _EARLY = 40_000, 20_000
_LARGE, _SMALL = 9_000, 1_000  # accesses; a small case is always called
_MOST_PER_ELEMENT = 4  # two reads and two writes: more is not due to the blocks
_FEWEST = 1_000  # elements; with fewer, the number of accesses per element is not representative


@dataclass
class Effort:
    """How many loads and stores the cases so far took."""

    per_element: float = 0
    spent: float = 0

    def is_too_much(self, exercise: Exercise, case: Case) -> bool:
        """Whether to leave a case out. Where traffic is judged, the large cases are the exercise."""
        takes = self.per_element * _n_elements(case)
        if exercise.traffic is not None or takes <= _SMALL:
            return False
        is_last = isinstance(case.expected, Hidden) and case.expected.kind == "many"
        return self.spent + takes > (_ALL if takes <= _LARGE or is_last else _EARLY)

    def add(self, case: Case, outcome: Outcome) -> None:
        """Count a case that was called."""
        n, n_accesses = _n_elements(case), outcome.facts.get("accesses", 0)
        if n >= _FEWEST:
            rate = min(n_accesses / n, _MOST_PER_ELEMENT)
            self.per_element = min(rate, self.per_element or rate)
        self.spent += self.per_element * n


def _n_elements(case: Case) -> int:
    return sum(t.numel() for t in case.args if isinstance(t, torch.Tensor))

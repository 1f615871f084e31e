"""Hidden kernels, right and wrong ones, for exercises whose answer is a test of kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from helpers.exercises.mistakes import Conditions, always
from helpers.exercises.model import Outcome


@dataclass(frozen=True)
class HiddenKernel:
    """One hidden kernel: how to make it, what it does ("a kernel that …"), and how a test can notice it."""

    make: Callable[..., Callable]
    does: str
    hint: str
    right: bool


def answer_about(kernel: HiddenKernel, outcome: Outcome) -> Outcome | bool | str | None:
    """What a learner's test answered about a kernel.

    Args:
        kernel: the hidden kernel.
        outcome: of the call of the test.

    Returns:
        The test's answer, True or False. If it raised, False for a wrong kernel and the exception's text for
        a right one. If it returned anything else, that; the outcome itself if the test couldn't be called.
    """
    if outcome.error_type in ("NotImplementedError", "NotCallable", "SystemExit", "KeyboardInterrupt"):
        return outcome
    if outcome.error:
        return outcome.error[:200] if kernel.right else False
    answer = outcome.value
    if hasattr(answer, "numel") and answer.numel() == 1:
        answer = answer.item()
    return answer if answer is None or isinstance(answer, bool) else repr(answer)[:100]


def is_filled(y: Any) -> bool:
    """Whether the test filled this memory with NaN or another constant before the kernel got it."""
    if not y.numel():
        return False
    first = y.reshape(-1)[0]
    return bool(y.isnan().all()) or (bool((y == first).all()) and first.item() != 0)


# For a table of mistakes whose facts are "right_kernel", "name" and "advice".
MISJUDGED: Conditions = {
    "misses-{name}": lambda s: isinstance(s.got, bool) and not s.right_kernel,
    "refuses-{name}": lambda s: isinstance(s.got, bool),
    "raises-on-right": lambda s: s.right_kernel and "Error: " in s.got,
    "no-answer": always,
}

"""What the kernel keeps a process from: asked for through ctypes, as Python's library has none of it."""

from __future__ import annotations

import contextlib
import ctypes

# prctl's numbers
_PARENT_DEATH_SIGNAL, _SET_DUMPABLE, _CHILD_SUBREAPER = 1, 4, 36


def _prctl(what: int, value: int) -> None:
    """Ask the kernel for something. Other systems than Linux have no prctl and leave it undone."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(what, int(value), 0, 0, 0)


def end_with_parent(number: int) -> None:
    """Have this process get a signal when its parent ends."""
    _prctl(_PARENT_DEATH_SIGNAL, number)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends. Where that cannot be, one that forks away may be missed."""
    _prctl(_CHILD_SUBREAPER, 1)


def unobserved(on: bool) -> None:
    """Keep other processes of this user from reading this one's memory, environment and files, or let them again."""
    _prctl(_SET_DUMPABLE, not on)

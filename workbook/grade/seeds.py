"""The seed of a class's hidden cases, that of each notebook made from it, and how both are kept from
learners.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import re
import secrets
import sys
from pathlib import Path

from workbook.usage import UsageError

_BITS = 128
_EXACT = 1 << 53  # what a spreadsheet still holds exactly


def fresh() -> int:
    """A new seed of a class that nobody can guess."""
    return secrets.randbits(_BITS)


def of_notebook(seed: int, learner: str, digest: str) -> int:
    """The seed of one notebook's hidden cases, from the class's; the other way round there is none.

    Args:
        seed: the class's.
        learner: whose notebook it is.
        digest: of its content, so that a learner who has seen a report does not know the next cases.
    """
    about = hashlib.blake2b(key=seed.to_bytes(_BITS // 8, "big"), digest_size=_BITS // 8)
    for text in (learner, digest):
        about.update(len(text.encode()).to_bytes(8, "big") + text.encode())
    return int.from_bytes(about.digest(), "big")


def said(seed: int) -> str:
    """A seed as reports and commands have it: a large one in hexadecimal, which no spreadsheet rounds."""
    return str(seed) if seed < _EXACT else f"{seed:#x}"


def given(text: str) -> int:
    """The seed that somebody gave; "-" reads it from stdin.

    Raises:
        UsageError: it is none.
    """
    word = sys.stdin.readline() if text.strip() == "-" else text
    with contextlib.suppress(ValueError):
        seed = int(word.strip(), 0)
        if 0 <= seed < 1 << _BITS:
            return seed
    raise UsageError(
        f"--seed {word.strip()[:60]!r} is no seed; give a number from 0 to 2^{_BITS} - 1, such as 7 or "
        "0x1f, or - to have it read from stdin."
    )


def off_the_command_line() -> None:
    """Overwrite the value of --seed in this process's command line, which every process of the machine may
    read.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        numbers = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(numbers[45]), int(numbers[46])  # arg_start and arg_end, see proc(5)
        if not 0 < start < end:
            return
        line = ctypes.string_at(start, end - start)
        for found in re.finditer(rb"--seed[=\0]([^\0]+)", line):
            ctypes.memset(start + found.start(1), ord("x"), len(found[1]))

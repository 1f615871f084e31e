"""The seed of a class's hidden cases, that of each notebook made from it, and how both are kept from
learners.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import sys

from workbook.usage import UsageError, first_line

_BITS, _LONGEST = 128, 1000
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


def given(file: str) -> int:
    """The seed on the first line of a file, or of stdin for "-": a number, or what `results.jsonl` has there.

    Raises:
        UsageError: There is none. A number on the command line is none, for every process can read it there.
    """
    if re.fullmatch(r"-?[0-9][0-9a-fA-Fx]*", file):
        raise UsageError(
            f"--seed {file}: other processes can read a seed on the command line; name a file that holds it, "
            "such as the results.jsonl of a class, or - for stdin."
        )
    try:
        with sys.stdin if file == "-" else open(file, encoding="utf-8") as lines:
            line = lines.readline(_LONGEST).strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"--seed {file} cannot be read ({first_line(error)}).") from error
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        seed = json.loads(line)["seed"] if line.startswith("{") else int(line, 0)
        if type(seed) is int and 0 <= seed < 1 << _BITS:
            return seed
    raise UsageError(f"--seed {file} has no seed on its first line: a number from 0 to 2^{_BITS} - 1.")

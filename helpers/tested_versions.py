"""The versions of torch and triton that the workbook was tested with.

`tested_versions.json` lists the pairs: the oldest that `pyproject.toml` admits, the pins of
`constraints.txt`, and the newest for which `make latest` passed (which adds it to the file).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_name("tested_versions.json")


def pairs() -> list[dict[str, str]]:
    """Returns the tested pairs as {"torch": …, "triton": …}, oldest first."""
    return sorted(json.loads(FILE.read_text()), key=lambda pair: _numbers(pair["torch"]))


def add(torch: str, triton: str) -> None:
    """Adds a pair for which everything passed, without build suffixes such as the +cpu of 2.13.0+cpu."""
    new = {"torch": torch.partition("+")[0], "triton": triton.partition("+")[0]}
    all_pairs = [pair for pair in pairs() if pair != new] + [new]
    all_pairs.sort(key=lambda pair: _numbers(pair["torch"]))
    FILE.write_text("[\n  " + ",\n  ".join(map(json.dumps, all_pairs)) + "\n]\n")


def problems(installed: Mapping[str, str | None]) -> list[str]:
    """Returns one sentence, with what to do, for each known problem of these versions.

    Args:
        installed: the versions by name, "torch", "triton" and "numpy"; None if a package isn't installed.
    """
    found = [untested({name: installed[name] for name in ("torch", "triton")})]
    triton, numpy = installed["triton"], installed["numpy"]
    # Before 3.7, Triton's interpreter calls int() on an array of one element (runtime/interpreter.py,
    # `__index__`), which NumPy 2.4 refuses.
    if triton and numpy and _minor(triton) < (3, 7) and _minor(numpy) >= (2, 4):
        found.append(
            f"With numpy {numpy}, triton {triton}'s interpreter can't run a loop whose bound is a kernel "
            "argument (lessons 06, 11 and 12 without a GPU): pip install 'numpy<2.4', or use triton 3.7 or "
            "newer with its torch."
        )
    return [sentence for sentence in found if sentence]


def untested(installed: Mapping[str, str | None]) -> str | None:
    """Returns a sentence if torch or triton is newer or older than every tested version, else None.

    A patch release counts as tested if its minor version was: 2.15.1 if 2.15.0 was.

    Args:
        installed: the versions by name, "torch" and "triton"; None if a package isn't installed.
    """
    found, ranges, older = [], [], False
    for name, version in installed.items():
        known = sorted((pair[name] for pair in pairs()), key=_numbers)
        ranges.append(f"{name} {known[0]} to {known[-1]}")
        if version is None:
            continue
        if _minor(version) < _minor(known[0]):
            found.append(f"{name} {version} is older")
            older = True
        elif _minor(version) > _minor(known[-1]):
            found.append(f"{name} {version} is newer")
    if not found:
        return None
    remedy = f"pip install 'torch=={pairs()[-1]['torch']}' installs the newest tested pair"
    return (
        f"{' and '.join(found)} than the tested versions ({', '.join(ranges)}): "
        f"{remedy if older else f'it may work; if a lesson fails, {remedy}'}."
    )


def _numbers(version: str) -> tuple[int, ...]:
    """Returns (2, 15, 0) for 2.15.0, whatever suffix marks a build or a preview."""
    return tuple(map(int, re.match(r"\d+(?:\.\d+)*", version)[0].split(".")))


def _minor(version: str) -> tuple[int, ...]:
    return _numbers(version)[:2]

"""With which torch and triton the workbook was tried, and what to say of others.

`tried.json` beside this file has the pairs: the oldest that `pyproject.toml` admits, the pins of `constraints.txt`, and
the newest that `make latest` ended green with, which writes it there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_name("tried.json")


def pairs() -> list[dict[str, str]]:
    """The versions that were tried together, as {"torch": …, "triton": …}, oldest first."""
    return sorted(json.loads(FILE.read_text()), key=lambda pair: _numbers(pair["torch"]))


def add(torch: str, triton: str) -> None:
    """Keep a pair with which everything passed; a build's own mark, as in 2.13.0+cpu, is left out."""
    new = {"torch": torch.partition("+")[0], "triton": triton.partition("+")[0]}
    kept = [pair for pair in pairs() if pair != new] + [new]
    kept.sort(key=lambda pair: _numbers(pair["torch"]))
    FILE.write_text("[\n  " + ",\n  ".join(map(json.dumps, kept)) + "\n]\n")


def problems(installed: Mapping[str, str | None]) -> list[str]:
    """What is known, or not known, of these versions together, each one sentence with what to do.

    Args:
        installed: the versions by name, "torch", "triton" and "numpy"; None for what is not here.
    """
    found = [untried({name: installed[name] for name in ("torch", "triton")})]
    triton, numpy = installed["triton"], installed["numpy"]
    # Its interpreter calls int() on an array of one element (triton/runtime/interpreter.py, `__index__`); 3.7 does not.
    if triton and numpy and _minor(triton) < (3, 7) and _minor(numpy) >= (2, 4):
        found.append(
            f"The interpreter of triton {triton} cannot run a loop up to a value given at the launch with numpy {numpy} "
            "(lesson 06 without a GPU): pip install 'numpy<2.4', or take triton 3.7 or newer with its torch."
        )
    return [sentence for sentence in found if sentence]


def untried(installed: Mapping[str, str | None]) -> str | None:
    """One sentence where torch or triton is newer or older than all that was tried; None where neither is.

    A release that mends another, as 2.15.1 does 2.15.0, counts as tried.

    Args:
        installed: the versions by name, "torch" and "triton"; None for what is not here.
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
    remedy = f"pip install 'torch=={pairs()[-1]['torch']}' brings the newest of these, with its triton"
    return (
        f"{' and '.join(found)} than what the workbook was tried with ({', '.join(ranges)}): "
        f"{remedy if older else f'it may work; where a lesson fails, {remedy}'}."
    )


def _numbers(version: str) -> tuple[int, ...]:
    """2.15.0 as numbers, without what marks a build or a preview."""
    return tuple(map(int, re.match(r"\d+(?:\.\d+)*", version)[0].split(".")))


def _minor(version: str) -> tuple[int, ...]:
    return _numbers(version)[:2]

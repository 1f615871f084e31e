"""What each kind of mistake is called, and the hint that the labs share for it (`hints.toml`)."""

from __future__ import annotations

import tomllib
from pathlib import Path

HINTS: dict[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

# Kinds of wrong values that a second call with the same input may explain better.
MAY_BE_A_RACE = frozenset(
    {"wrong-values", "fast-but-partial", "wrong-stride", "inaccurate", "special-values", "power-of-two-only"}
)

"""Constants of a CUDA text that sliders move: `#define BLOCK 256`, `constexpr int BLOCK = 256;`, or one that
nothing defines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any


def require_constants(text: str, constants: Mapping[str, Sequence[Any]]) -> None:
    """Refuse sliders that would change nothing.

    Raises:
        ValueError: no positions, a position that is no number, or a name that the text does not use.
    """
    for name, values in constants.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ValueError(
                f"{name}={values!r} is no list of positions; give {name}=[128, 256], for example."
            )
        for value in values:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"{name} can be {value!r} here, which is no number; give numbers.")
        if not re.search(rf"\b{re.escape(name)}\b", text):
            raise ValueError(
                f"The CUDA text does not use {name}: write {name} in it where the number is to stand, or "
                "define it there."
            )


def with_constants(text: str, values: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """A CUDA text with other numbers for its constants.

    Args:
        text: CUDA C++.
        values: the number of each.

    Returns:
        The text, every line where it was, and the compiler's flags for the constants that it does not define
        itself.
    """
    flags = []
    for name, value in values.items():
        defined = (
            rf"^([ \t]*#[ \t]*define[ \t]+{re.escape(name)}[ \t]+)([^\n/]*?)(?=[ \t]*(?:/[/*]|$))",
            rf"(\b(?:constexpr|const)\b[^;(){{}}]*?\b{re.escape(name)}[ \t]*=[ \t]*)([^;,]+)(?=[;,])",
        )
        for pattern in defined:
            text, found = re.subn(pattern, lambda m, value=value: f"{m[1]}{value}", text, flags=re.M)
            if found:
                break
        else:
            flags.append(f"-D{name}={value}")
    return text, tuple(flags)

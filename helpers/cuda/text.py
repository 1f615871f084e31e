"""Distinguishes CUDA C++ from other text."""

from __future__ import annotations

import re

_MARKS = re.compile(
    r"__(?:global|device|shared)__|#\s*include\s*[<\"]|\btorch::\w|\bextern\s+\"C\"|\b(?:thread|block)(?:Idx|Dim)\.[xyz]\b"
)


def is_cuda(text: str) -> bool:
    """Whether a text is C++ or CUDA source rather than a word in a sentence."""
    return bool(_MARKS.search(text)) and any(sign in text for sign in (";", "{", "\n"))

"""Texts of learners, cleaned where they enter, so that each of them can be written and printed."""

from __future__ import annotations

import re
from typing import Any

_LOST = "\N{REPLACEMENT CHARACTER}"
# Control characters, which move a terminal's cursor, and those that turn the order of a line around.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Replace each half of a character, and each byte that isn't UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def printable(text: str) -> str:
    """Replace control characters as well, except newlines and tabs; "\\r\\n" becomes a newline."""
    return _CONTROLS.sub(_LOST, clean(text).replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Replace newlines and tabs, too: for names."""
    return re.sub(r"[\n\t]", _LOST, printable(text))


def clean_all(value: Any) -> Any:
    """`printable` for every text inside plain lists and dicts, which are made anew."""
    if type(value) is str:
        return printable(value)
    if type(value) is dict:
        return {clean_all(key): clean_all(one) for key, one in value.items()}
    if type(value) is list:
        return [clean_all(one) for one in value]
    return value

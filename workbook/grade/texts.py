"""Texts of learners, cleaned where they enter, so that every one of them can be written, printed
and encoded.
"""

from __future__ import annotations

from typing import Any


def clean(text: str) -> str:
    """The text with "\N{REPLACEMENT CHARACTER}" for each half of a character and each byte that
    is no UTF-8.
    """
    return (
        text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        if not text.isascii()
        else text
    )


def clean_all(value: Any) -> Any:
    """The same for every text inside plain lists and dicts, which are made anew."""
    if type(value) is str:
        return clean(value)
    if type(value) is dict:
        return {clean_all(key): clean_all(one) for key, one in value.items()}
    if type(value) is list:
        return [clean_all(one) for one in value]
    return value

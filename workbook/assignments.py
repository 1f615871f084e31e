"""NAME=VALUE and NAME=A,B on a command line."""

from __future__ import annotations

from collections.abc import Sequence

from workbook.usage import UsageError


def assignments(texts: Sequence[str], option: str) -> dict[str, str]:
    """Split every `NAME=VALUE` that one option was given.

    Raises:
        UsageError: A text has another shape, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise UsageError(f"{option} {text!r} is not NAME=VALUE; write for example {option} n_rows=512.")
        if name in found:
            raise UsageError(f"{option} gives {name} twice; give it once.")
        found[name] = value.strip()
    return found


def value_lists(texts: Sequence[str], option: str) -> dict[str, list[str]]:
    """Split every `NAME=A,B` that one option was given. Commas inside brackets or quotes don't split.

    Raises:
        UsageError: A text has another shape, a name is given twice, a value is empty, or a quote or a
            bracket is not closed.
    """
    return {name: _split(text, f"{option} {name}") for name, text in assignments(texts, option).items()}


def _split(text: str, name: str) -> list[str]:
    values, depth, quote, current = [], 0, "", ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"" and (depth or not current.strip()):  # not the apostrophe inside a word
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth = max(0, depth - 1)
        if character == "," and depth == 0 and not quote:
            values.append(current.strip())
            current = ""
        else:
            current += character
    values.append(current.strip())
    if quote or depth:
        what = "quote" if quote else "bracket"
        raise UsageError(
            f"{name}={text} has a {what} that is not closed; put a value that contains one in quotes."
        )
    if not all(values):
        raise UsageError(f"{name}={text} has an empty value; write for example {name}=1,8,64.")
    return values

"""Shortens a compiler's output to the relevant lines."""

from __future__ import annotations

import re
from pathlib import Path


class BuildError(RuntimeError):
    """A build failed. The message has the relevant lines of the compiler's output with their source lines."""


class UnknownName(BuildError):
    """A source uses a name that our stand-in for PyTorch's headers doesn't have."""


_ERROR = re.compile(
    r"^(?P<file>[^\s:(]+)(?::(?P<line>\d+)(?::(?P<column>\d+))?|\((?P<cu_line>\d+)\)): "
    r"(?:fatal error|catastrophic error|error)\s*(?:#[\w-]+)?\s*: ?(?P<text>.*)$"
)
# What compilers say about a name that they don't know.
UNKNOWN_NAME = re.compile(
    r"has no member named|is not a member of|was not declared|No such file|no (?:member|type) "
    r"named|undeclared"
)
_SHOWN_ERRORS = 5


def readable_errors(output: str, texts: dict[str, str | None]) -> str:
    """Returns the errors in a compiler's output, each with the source line that it refers to.

    Args:
        output: the output of g++, clang, nvcc, NVRTC, the linker or the import.
        texts: the sources by the file name that the compiler uses for them.

    Example:
        >>> from helpers import cuda
        >>> output = "mine.cu:1:14: error: expected ';' before '}' token"
        >>> print(cuda.readable_errors(output, {"mine.cu": "int main() {}"}))
        The build failed:
        mine.cu, line 1: expected ';' before '}' token
            int main() {}
                         ^
    """
    found: list[str] = []
    for line in dict.fromkeys(output.splitlines()):  # nvcc prints some messages twice
        match = _ERROR.match(line.strip())
        if match:
            file = Path(match["file"]).name
            number = int(match["line"] or match["cu_line"] or 0)
            found.append(f"{file}, line {number}: {match['text']}")
            source = (texts.get(file) or "").splitlines()
            if 0 < number <= len(source):
                code = source[number - 1].rstrip()
                found[-1] += f"\n    {code}"
                if match["column"]:
                    found[-1] += f"\n    {' ' * (int(match['column']) - 1)}^"
        elif "undefined reference" in line or "undefined symbol" in line:
            symbol = re.sub(r"^.*(undefined (?:reference|symbol))", r"\1", line.strip())
            found.append(
                f"{symbol}\n    It is declared or bound but defined nowhere: check `functions` and the "
                "definitions."
            )
    if not found:
        last = [line for line in output.splitlines() if line.strip()][-12:]
        return "The build failed:\n" + "\n".join(last)
    more = f"\n… and {len(found) - _SHOWN_ERRORS} more errors" if len(found) > _SHOWN_ERRORS else ""
    return "The build failed:\n" + "\n".join(found[:_SHOWN_ERRORS]) + more

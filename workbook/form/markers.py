"""Derive the source of a starter's cell from a solution with markers.

In a solution's cell tagged `exercise`, the part that the learner writes is between two lines:

    # BEGIN SOLUTION: which element does this program start at?
    start = tl.program_id(0) * block_size
    # END SOLUTION

The starter has `raise NotImplementedError("which element …?")` instead, with the indentation of the first
line. Inside CUDA or C++ text, the comments begin with `//` and the starter gets `#error "which element …?"`.
Lines with `# STARTER: <code>` inside the region give the starter this code instead, for example a bug that
the learner fixes.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from dataclasses import dataclass, field

_LINE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<comment>#|//) ?(?P<word>BEGIN SOLUTION|END SOLUTION|STARTER)(?P<colon>:?) "
    r"?(?P<text>.*)$"
)
# Text that was probably meant as a marker, whether or not it is one.
MEANT = re.compile(
    r"(?:#|//)\s*(?:(?:begin|end)[ _-]*solution\b|STARTER\b)|###\s*(?:BEGIN|END)\b", re.IGNORECASE
)
_WIDTH = 110


@dataclass
class _Region:
    """A region of a solution's cell, as far as it has been read.

    Attributes:
        begin: The match of its first line.
        line: The number of that line, from 1.
        starter: The code of its STARTER lines.
        has_solution: Whether it has a line that is neither blank nor a marker.
    """

    begin: re.Match[str]
    line: int
    starter: list[str] = field(default_factory=list)
    has_solution: bool = False

    @property
    def comment(self) -> str:
        """How its markers begin: "#" or "//"."""
        return self.begin["comment"]

    @property
    def task(self) -> str:
        """What the learner should do, from the first line."""
        return self.begin["text"].strip()

    def problems(self, where: str) -> list[str]:
        """Check a region that is complete."""
        at = f"{where}, line {self.line}"
        if not self.has_solution:
            return [f"{at}: this region has no solution."]
        if not self.starter and not self.task:
            return [f"{at}: BEGIN SOLUTION lacks a task; write it after the colon."]
        if self.comment == "//" and "\\" in self.task:
            return [f"{at}: the task becomes the text of an #error, which cannot contain a backslash."]
        return []

    def to_do(self) -> list[str]:
        """The error that replaces a region without STARTER lines, formatted as ruff would."""
        indent, task = self.begin["indent"], self.task
        if self.comment == "//":
            unquoted = task.replace('"', "'")
            return [f'{indent}#error "{unquoted}"']
        quoted = json.dumps(task, ensure_ascii=False)
        if '"' in task and "'" not in task and "\\" not in task:
            quoted = f"'{task}'"
        line = f"{indent}raise NotImplementedError({quoted})"
        if len(line) <= _WIDTH:
            return [line]
        return [f"{indent}raise NotImplementedError(", f"{indent}    {quoted}", f"{indent})"]


def starter_text(source: str, where: str) -> tuple[str, list[str]]:
    """Derive the source of a starter's cell: replace each marked region.

    Args:
        source: The source of the solution's cell.
        where: The file and the cell, for messages.

    Returns:
        The source of the starter's cell, and one sentence for each problem with the markers.
    """
    problems: list[str] = []
    lines: list[str] = []
    region: _Region | None = None
    n_regions = 0
    strings = _lines_in_strings(source)
    for number, line in enumerate(source.splitlines(), 1):
        mark = _LINE.match(line)
        at = f"{where}, line {number}"
        if mark is None or not _is_marker(mark):
            if MEANT.search(line):
                problems.append(
                    f"{at} looks like a marker but isn't one: a region is between the lines "
                    "`# BEGIN SOLUTION: the task` and `# END SOLUTION` (`//` in CUDA text)."
                )
            elif region is None:
                lines.append(line)
            elif line.strip():
                region.has_solution = True
            continue
        if strings is not None and (mark["comment"] == "//") != (number in strings):
            problems.append(
                f"{at}: a marker begins with # in Python, and with // inside CUDA or C++ text; this one is "
                "the other way around."
            )
        if mark["word"] == "BEGIN SOLUTION":
            if region is None:
                region = _Region(mark, number)
                n_regions += 1
            else:
                problems.append(f"{at}: a region begins inside the one from line {region.line}.")
        elif region is None:
            problems.append(f"{at}: {mark['word']} is outside a region, which BEGIN SOLUTION opens.")
        elif mark["comment"] != region.comment:
            problems.append(
                f"{at}: the region from line {region.line} has markers that begin with {region.comment}."
            )
        elif mark["word"] == "STARTER":
            region.starter.append((mark["indent"] + mark["text"]).rstrip())
        else:
            problems += region.problems(where)
            lines += region.starter or region.to_do()
            region = None
    if region is not None:
        problems.append(
            f"{where}, line {region.line}: this region is not closed; end it with {region.comment} END "
            "SOLUTION."
        )
    elif not n_regions and not problems:
        problems.append(
            f"{where} is tagged exercise but has no region, so the starter would contain the solution. Put "
            "what the learner writes between # BEGIN SOLUTION: … and # END SOLUTION."
        )
    text = "\n".join(lines)
    if not problems and (wrong := _syntax_error(text)):
        problems.append(
            f"{where}: the starter would be invalid Python ({wrong}); a region must replace whole statements."
        )
    return text, problems


def _is_marker(mark: re.Match[str]) -> bool:
    if mark["word"] == "STARTER":
        return bool(mark["colon"])
    bare = not mark["colon"] and not mark["text"].strip()
    return bare or (mark["word"] == "BEGIN SOLUTION" and bool(mark["colon"]))


def _lines_in_strings(source: str) -> set[int] | None:
    """The lines inside strings of several lines, or None if the cell isn't plain Python (magics)."""
    found: set[int] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(source + "\n").readline):
            if token.end[0] > token.start[0]:  # only strings span lines
                found.update(range(token.start[0], token.end[0] + 1))
    except (tokenize.TokenError, SyntaxError):
        return None
    return found


def _syntax_error(text: str) -> str:
    """Why a cell isn't valid Python, or "" if it is or has magics."""
    if re.search(r"^\s*[%!?]", text, re.MULTILINE):
        return ""
    try:
        ast.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    return ""

"""Derive a lab's starter notebook, labs/NN.ipynb, from its solution, labs/solutions/NN.ipynb.

In a solution's cell tagged `exercise`, the part that the learner writes is between two lines:

    # BEGIN SOLUTION: which element does this program start at?
    start = tl.program_id(0) * block_size
    # END SOLUTION

The starter has `raise NotImplementedError("which element …?")` instead, with the indentation of the first
line. Inside CUDA or C++ text, the comments begin with `//` and the starter gets `#error "which element …?"`.
Lines with `# STARTER: <code>` inside the region give the starter this code instead, for example a bug that
the learner fixes.

Relative links in text cells are rewritten, because `labs/` is one folder above `labs/solutions/`. Everything
else stays the same. helpers/exercises/starters.json stores every starter cell, for `helpers.lab.reset`, and a
fingerprint of each starter, which shows whether somebody has edited it or it is only out of date.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import io
import json
import os
import re
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from workbook.form.canonical import tags, without_badge
from workbook.form.labs import exercise_groups
from workbook.project import Project

STARTERS = "helpers/exercises/starters.json"
_LINE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<comment>#|//) ?(?P<word>BEGIN SOLUTION|END SOLUTION|STARTER)(?P<colon>:?) "
    r"?(?P<text>.*)$"
)
# Text that was probably meant as a marker, whether or not it is one.
_MEANT = re.compile(
    r"(?:#|//)\s*(?:(?:begin|end)[ _-]*solution\b|STARTER\b)|###\s*(?:BEGIN|END)\b", re.IGNORECASE
)
_LINK = re.compile(r"(\]\()(?!\w+:|#|/)([^)\s#]+)(?=[)#\s])")
_WIDTH = 110


@dataclass(frozen=True)
class Derived:
    """A starter in memory.

    Attributes:
        notebook: The starter without outputs, still with the solution's badge.
        cells: The starter's source of each exercise cell, by id.
        problems: One sentence for each problem that prevents deriving it.
    """

    notebook: NotebookNode
    cells: dict[str, str]
    problems: tuple[str, ...]


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


def derive(solution: NotebookNode, filename: str, root: Path) -> Derived:
    """Derive the starter of a solution.

    Args:
        solution: The solution, in canonical form; it is not changed.
        filename: The file's name, for messages.
        root: The checkout, in which the targets of relative links must exist.
    """
    notebook = copy.deepcopy(solution)
    problems: list[str] = []
    cells: dict[str, str] = {}
    for cell in notebook.cells:
        where = f"{filename}: cell {cell.id}"
        if cell.cell_type == "markdown":
            cell.source = _relink(cell.source, where, root, problems)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        if cell.cell_type == "code" and "exercise" in tags(cell):
            cell.source, found = starter_text(cell.source, where)
            cells[cell.id] = cell.source
            problems += found
        elif meant := _MEANT.search(cell.source):
            problems.append(f"{where} has a marker ({meant[0]}) but is not a code cell tagged exercise.")
    return Derived(notebook, cells, tuple(problems))


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
            if _MEANT.search(line):
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


def _relink(source: str, where: str, root: Path, problems: list[str]) -> str:
    """Rewrite the relative links of a solution's text cell for its starter.

    They start at labs/ instead of labs/solutions/, and lead to a starter instead of a solution.
    """

    def one(match: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join("labs/solutions", match[2]))
        if not (root / target).exists():
            problems.append(
                f"{where} links to {match[2]}, which doesn't exist. Links in a solution start at "
                "labs/solutions, for example ../../notebooks/03_triton.ipynb."
            )
        if os.path.dirname(target) == os.path.join("labs", "solutions"):
            # Send learners to the lab, not to its solution.
            target = os.path.join("labs", os.path.basename(target))
        return match[1] + os.path.relpath(target, "labs").replace(os.sep, "/")

    return _LINK.sub(one, source)


def fingerprint(notebook: NotebookNode) -> str:
    """A hash of what a person writes in a starter, which leaves out layout, outputs, badge and setup cell."""
    content = [
        [c.cell_type, c.get("id", ""), sorted(tags(c)), "" if "setup" in tags(c) else without_badge(c.source)]
        for c in notebook.cells
    ]
    return "sha256:" + hashlib.sha256(json.dumps(content).encode()).hexdigest()


def changed_cells(current: NotebookNode, derived: NotebookNode) -> str:
    """The cells that differ between two notebooks, in words."""
    before = {c.get("id", str(i)): (c.cell_type, tags(c), c.source) for i, c in enumerate(current.cells)}
    after = {c.get("id", str(i)): (c.cell_type, tags(c), c.source) for i, c in enumerate(derived.cells)}
    names = [name for name in after if name in before and before[name] != after[name]]
    names += [f"{name} (missing)" for name in after if name not in before]
    names += [f"{name} (added)" for name in before if name not in after]
    if not names:
        return "the order of its cells"
    word = "cell" if len(names) == 1 else "cells"
    more = " and more" if len(names) > 4 else ""
    return f"{word} {', '.join(names[:4])}{more}"


def read_starters(project: Project) -> dict[str, Any]:
    """The content of helpers/exercises/starters.json, or an empty dict if there is none."""
    path = project.root / STARTERS
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def starters_text(entries: Mapping[str, Any]) -> str:
    """The text of starters.json with these entries."""
    return json.dumps(dict(sorted(entries.items())), indent=1, ensure_ascii=False) + "\n"


def entries_of(starter: str, derived: Derived) -> dict[str, Any]:
    """The entries of one lab in starters.json: its fingerprint, and the cells of each exercise."""
    entries: dict[str, Any] = {starter: {"fingerprint": fingerprint(derived.notebook)}}
    for names in exercise_groups(derived.notebook):
        entries[names[0]] = {
            "lab": Path(starter).stem,
            "cells": {name: derived.cells[name] for name in names},
        }
    return entries


def load(text: str) -> NotebookNode:
    """A notebook from its text."""
    return nbformat.reads(text, as_version=4)

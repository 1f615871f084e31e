"""A lab's starter notebook, derived from its solution: labs/solutions/NN.ipynb is the one source of labs/NN.ipynb.

What the learner writes stands in a solution's cell (tag `exercise`) between two lines:

    # BEGIN SOLUTION: which element does this program start at?
    start = tl.program_id(0) * block_size
    # END SOLUTION

In the starter `raise NotImplementedError("which element …?")` stands there instead, at the first line's indent. Inside
CUDA or C++ text the comment is `//` and the starter has `#error "which element …?"`. A region that holds lines
`# STARTER: <code>` gives exactly their code to the starter instead, so that the learner has something to mend;
a learner who runs the solution sees comments there.

`labs/` is one folder above `labs/solutions/`, so relative links in markdown are rewritten. All else is the same.
helpers/exercises/starters.json keeps each starter cell, for `helpers.lab.reset`, and each starter's fingerprint, by which
a starter that somebody edited is told from one that is out of date.
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

from helpers.workshop.form.canonical import tags
from helpers.workshop.form.labs import exercise_groups
from helpers.workshop.project import Project

STARTERS = "helpers/exercises/starters.json"
_LINE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<comment>#|//) ?(?P<word>BEGIN SOLUTION|END SOLUTION|STARTER)(?P<colon>:?) ?(?P<text>.*)$"
)
# What its writer meant as a marker, whether or not it is one.
_MEANT = re.compile(
    r"(?:#|//)\s*(?:(?:begin|end)[ _-]*solution\b|STARTER\b)|###\s*(?:BEGIN|END)\b", re.IGNORECASE
)
_LINK = re.compile(r"(\]\()(?!\w+:|#|/)([^)\s#]+)(?=[)#\s])")
_COLAB = re.compile(r"(colab\.research\.google\.com/github/)[^)\s]*")
_WIDTH = 110


@dataclass(frozen=True)
class Derived:
    """A starter in memory.

    Attributes:
        notebook: The starter, without outputs; its badge is still the solution's.
        cells: Id of each exercise cell to the text that the starter has there.
        problems: What stands in the way of deriving it, one sentence each.
    """

    notebook: NotebookNode
    cells: dict[str, str]
    problems: tuple[str, ...]


@dataclass
class _Region:
    """A region of a solution's cell, as far as it has been read.

    Attributes:
        begin: Its first line, as `_LINE` matched it.
        line: That line's number, from 1.
        starter: The code of its STARTER lines.
        has_solution: Whether it holds a line that is no marker and not blank.
    """

    begin: re.Match[str]
    line: int
    starter: list[str] = field(default_factory=list)
    has_solution: bool = False

    @property
    def comment(self) -> str:
        """What its markers begin with: "#" or "//"."""
        return self.begin["comment"]

    @property
    def task(self) -> str:
        """What is to do, from the first line."""
        return self.begin["text"].strip()

    def problems(self, where: str) -> list[str]:
        """What is wrong with it, now that it is closed."""
        at = f"{where}, line {self.line}"
        if not self.has_solution:
            return [f"{at}: this region holds no solution."]
        if not self.starter and not self.task:
            return [f"{at}: BEGIN SOLUTION does not say what is to do; write it after the colon."]
        if self.comment == "//" and "\\" in self.task:
            return [f"{at}: the text of an #error cannot hold a backslash; say it without one."]
        return []

    def to_do(self) -> list[str]:
        """The lines that it becomes where it gives no code of its own; as ruff would format them."""
        indent, task = self.begin["indent"], self.task
        if self.comment == "//":
            said = task.replace('"', "'")
            return [f'{indent}#error "{said}"']
        quoted = json.dumps(task, ensure_ascii=False)
        if '"' in task and "'" not in task and "\\" not in task:
            quoted = f"'{task}'"
        line = f"{indent}raise NotImplementedError({quoted})"
        if len(line) <= _WIDTH:
            return [line]
        return [f"{indent}raise NotImplementedError(", f"{indent}    {quoted}", f"{indent})"]


def derive(solution: NotebookNode, shown: str, root: Path) -> Derived:
    """Derive the starter of a solution.

    Args:
        solution: The solution, in canonical form; it is not changed.
        shown: The file's name, for messages.
        root: The checkout, where the targets of relative links are looked up.
    """
    notebook = copy.deepcopy(solution)
    problems: list[str] = []
    cells: dict[str, str] = {}
    for cell in notebook.cells:
        where = f"{shown}: cell {cell.id}"
        if cell.cell_type == "markdown":
            cell.source = _relink(cell.source, where, root, problems)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        if cell.cell_type == "code" and "exercise" in tags(cell):
            cell.source, said = starter_text(cell.source, where)
            cells[cell.id] = cell.source
            problems += said
        elif meant := _MEANT.search(cell.source):
            problems.append(f"{where} holds a marker ({meant[0]}) but is no code cell tagged exercise.")
    return Derived(notebook, cells, tuple(problems))


def starter_text(source: str, where: str) -> tuple[str, list[str]]:
    """A starter's cell from a solution's: each marked region is replaced.

    Args:
        source: The solution's cell.
        where: The file and cell, for messages.

    Returns:
        The starter's cell and what is wrong with the markers, one sentence each.
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
                    f"{at} looks like a marker and is none; a region stands between the lines "
                    "`# BEGIN SOLUTION: what is to do` and `# END SOLUTION` (`//` in CUDA text)."
                )
            elif region is None:
                lines.append(line)
            elif line.strip():
                region.has_solution = True
            continue
        if strings is not None and (mark["comment"] == "//") != (number in strings):
            problems.append(
                f"{at}: in Python a marker begins with #, inside CUDA or C++ text with //; this one is the other way round."
            )
        if mark["word"] == "BEGIN SOLUTION":
            if region is None:
                region = _Region(mark, number)
                n_regions += 1
            else:
                problems.append(f"{at}: a region begins inside the one that began in line {region.line}.")
        elif region is None:
            problems.append(f"{at}: {mark['word']} stands outside a region; BEGIN SOLUTION opens one.")
        elif mark["comment"] != region.comment:
            problems.append(f"{at}: the region of line {region.line} began with {region.comment}.")
        elif mark["word"] == "STARTER":
            region.starter.append((mark["indent"] + mark["text"]).rstrip())
        else:
            problems += region.problems(where)
            lines += region.starter or region.to_do()
            region = None
    if region is not None:
        problems.append(
            f"{where}, line {region.line}: this region is never closed; end it with {region.comment} END SOLUTION."
        )
    elif not n_regions and not problems:
        problems.append(
            f"{where} is tagged exercise and has no region, so its starter would be the solution; "
            "put what the learner writes between # BEGIN SOLUTION: … and # END SOLUTION."
        )
    text = "\n".join(lines)
    if not problems and (wrong := _no_python(text)):
        problems.append(
            f"{where}: its starter would be no Python ({wrong}); a region replaces whole statements."
        )
    return text, problems


def _is_marker(mark: re.Match[str]) -> bool:
    if mark["word"] == "STARTER":
        return bool(mark["colon"])
    bare = not mark["colon"] and not mark["text"].strip()
    return bare or (mark["word"] == "BEGIN SOLUTION" and bool(mark["colon"]))


def _lines_in_strings(source: str) -> set[int] | None:
    """The lines that lie inside a text of several lines; None where the cell is no plain Python (magics)."""
    found: set[int] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(source + "\n").readline):
            if token.end[0] > token.start[0]:  # only strings span lines
                found.update(range(token.start[0], token.end[0] + 1))
    except (tokenize.TokenError, SyntaxError):
        return None
    return found


def _no_python(text: str) -> str:
    """Why a cell is no Python, or "" where it is, or has magics."""
    if re.search(r"^\s*[%!?]", text, re.MULTILINE):
        return ""
    try:
        ast.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    return ""


def _relink(source: str, where: str, root: Path, problems: list[str]) -> str:
    """Markdown whose relative links lead from labs/ where they led from labs/solutions/, and to a starter for a solution."""

    def one(match: re.Match[str]) -> str:
        aim = os.path.normpath(os.path.join("labs/solutions", match[2]))
        if not (root / aim).exists():
            problems.append(
                f"{where} links to {match[2]}, which is not there; a solution's links begin at labs/solutions, "
                "as in ../../notebooks/03_triton.ipynb, and the starter's are written from them."
            )
        if os.path.dirname(aim) == os.path.join("labs", "solutions"):
            # A learner is sent to the next lab, not to its solution.
            aim = os.path.join("labs", os.path.basename(aim))
        return match[1] + os.path.relpath(aim, "labs").replace(os.sep, "/")

    return _LINK.sub(one, source)


def fingerprint(notebook: NotebookNode) -> str:
    """A hash of what a person writes in a starter: not its layout, outputs, badge or setup cell."""
    content = [
        [
            c.cell_type,
            c.get("id", ""),
            sorted(tags(c)),
            "" if "setup" in tags(c) else _COLAB.sub(r"\1", c.source),
        ]
        for c in notebook.cells
    ]
    return "sha256:" + hashlib.sha256(json.dumps(content).encode()).hexdigest()


def changed_cells(have: NotebookNode, want: NotebookNode) -> str:
    """Which cells of two notebooks differ, in words."""
    before = {c.get("id", str(i)): (c.cell_type, tags(c), c.source) for i, c in enumerate(have.cells)}
    after = {c.get("id", str(i)): (c.cell_type, tags(c), c.source) for i, c in enumerate(want.cells)}
    named = [name for name in after if name in before and before[name] != after[name]]
    named += [f"{name} (missing)" for name in after if name not in before]
    named += [f"{name} (added)" for name in before if name not in after]
    if not named:
        return "the order of its cells"
    word = "cell" if len(named) == 1 else "cells"
    more = " and more" if len(named) > 4 else ""
    return f"{word} {', '.join(named[:4])}{more}"


def read_starters(project: Project) -> dict[str, Any]:
    """What helpers/exercises/starters.json holds; empty where there is none."""
    path = project.root / STARTERS
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def starters_text(entries: Mapping[str, Any]) -> str:
    """The text of starters.json."""
    return json.dumps(dict(sorted(entries.items())), indent=1, ensure_ascii=False) + "\n"


def entries_of(starter: str, derived: Derived) -> dict[str, Any]:
    """What starters.json holds of one lab: `labs/NN.ipynb` with its fingerprint, and each exercise with its cells."""
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

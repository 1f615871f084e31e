"""Derive a lab's starter notebook, labs/NN.ipynb, from its solution, labs/solutions/NN.ipynb.

`markers` says how a solution marks what the learner writes.

Relative links in text cells are rewritten, because `labs/` is one folder above `labs/solutions/`. Everything
else stays the same. helpers/exercises/starters.json stores every starter cell, for `helpers.lab.reset`, and a
fingerprint of each starter, which shows whether somebody has edited it or it is only out of date.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from workbook.form.canonical import tags, without_badge
from workbook.form.labs import exercise_groups
from workbook.form.markers import MEANT, starter_text
from workbook.project import Project

STARTERS = "helpers/exercises/starters.json"
_LINK = re.compile(r"(\]\()(?!\w+:|#|/)([^)\s#]+)(?=[)#\s])")


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
        elif meant := MEANT.search(cell.source):
            problems.append(f"{where} has a marker ({meant[0]}) but is not a code cell tagged exercise.")
    return Derived(notebook, cells, tuple(problems))


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

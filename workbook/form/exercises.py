"""The exercises inside a lesson: write the starter and the folded solution of each one into the notebook.

notebooks/solutions/01_profiling.py holds the exercises of notebooks/01_profiling.ipynb, one per `# %%` cell:

    # %% blocks-needed
    def blocks_needed(n):
        \"\"\"The number of blocks that cover n elements.\"\"\"
        # BEGIN SOLUTION: how many blocks of 256 cover n?
        return -(-n // 256)
        # END SOLUTION


    check("blocks-needed", blocks_needed)

The lesson's code cell `blocks-needed`, tagged `exercise`, gets the starter. The text cell
`blocks-needed-solution` must follow it; its first Python fence gets the solution, without the markers and the
check, and the author writes the explanation around it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from nbformat import NotebookNode

from workbook.form.markers import starter_text

FOLDER = "solutions"  # below notebooks/
TAG = "exercise"
_CELL = re.compile(r"^# %% (\S+)\n", re.MULTILINE)
_MARKER = re.compile(r"^[ \t]*(?:#|//) ?(?:BEGIN SOLUTION|END SOLUTION|STARTER:).*\n?", re.MULTILINE)
_CHECK = re.compile(r"^check\(.*\)\n?", re.MULTILINE)
_FENCE = re.compile(r"(?<=^```python\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)


def solutions_of(lesson: Path) -> dict[str, str]:
    """The source of each exercise of a lesson, with its solution and the markers; empty if it has none.

    Args:
        lesson: The lesson's notebook.
    """
    path = lesson.parent / FOLDER / f"{lesson.stem}.py"
    if not path.is_file():
        return {}
    parts = _CELL.split(path.read_text("utf-8"))[1:]
    return {id: source.strip("\n") for id, source in zip(parts[::2], parts[1::2], strict=True)}


def solution_text(source: str) -> str:
    """What the folded solution shows: the source without markers, starter code and the check."""
    return _CHECK.sub("", _MARKER.sub("", source)).strip("\n")


def starter_cells(solutions: Mapping[str, str], filename: str) -> tuple[dict[str, str], list[str]]:
    """The source of each starter cell by its exercise's id, and one sentence for each problem."""
    cells, problems = {}, []
    for id, source in solutions.items():
        cells[id], found = starter_text(source, f"{FOLDER}/{filename}: exercise {id}")
        problems += found
        if f'check("{id}", ' not in source:
            problems.append(f'{FOLDER}/{filename}: exercise {id} must end with check("{id}", …).')
    return cells, problems


def fill(notebook: NotebookNode, solutions: Mapping[str, str], filename: str) -> list[str]:
    """Write the starters and solutions into a lesson, and return one sentence for each problem."""
    starters, problems = starter_cells(solutions, f"{Path(filename).stem}.py")
    tagged = [cell.id for cell in notebook.cells if TAG in cell.metadata.get("tags", [])]
    for id in sorted(set(tagged) ^ set(solutions)):
        lacking = f"{FOLDER}/{Path(filename).stem}.py" if id in tagged else "the notebook"
        problems.append(f"{filename}: {lacking} has no exercise {id}.")
    for cell, following in zip(notebook.cells, [*notebook.cells[1:], None], strict=True):
        if cell.id not in starters or cell.id not in tagged:
            continue
        cell.source = starters[cell.id]
        name = f"{cell.id}-solution"
        if following is None or following.id != name or not _FENCE.search(following.source):
            problems.append(
                f"{filename}: after exercise {cell.id} there must be a text cell {name} with a folded "
                "```python block."
            )
            continue
        shown = solution_text(solutions[cell.id]).replace("\\", r"\\") + "\n"
        following.source = _FENCE.sub(shown, following.source, count=1)
    return problems

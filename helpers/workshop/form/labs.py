"""What a lab's solution must be: each exercise followed by its check, and the exercises those that `helpers.exercises` knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from nbformat import NotebookNode

from helpers.workshop.form.canonical import tags


def structure(
    solution: NotebookNode, lab: str, shown: str, known: Mapping[str, Mapping[str, str]] | None
) -> list[str]:
    """What is wrong with the order and names of a lab's cells.

    Args:
        solution: The solution notebook.
        lab: Its name, such as "03_triton".
        shown: The file's name, for messages.
        known: Lab to (exercise id to the name of the checked object); None where the checkout has no exercises.
    """
    problems: list[str] = []
    cells = solution.cells
    place = {cell.id: i for i, cell in enumerate(cells)}
    groups = exercise_groups(solution)
    seen = [names[0] for names in groups]
    for names in groups:
        after = place[names[-1]] + 1
        following = cells[after] if after < len(cells) else None
        problems += _check_cell(following, names[0], shown, known and known.get(lab, {}))
    checks = {f"check-{name}" for name in seen}
    for cell in cells:
        if _is_code(cell, "check") and cell.id not in checks:
            problems.append(
                f"{shown}: cell {cell.id} is tagged check and follows no cell tagged exercise of that name."
            )
    if not seen:
        problems.append(f"{shown}: it has no cell tagged exercise.")
    for name in seen if known is not None else ():
        if name not in known.get(lab, {}):
            home = next((other for other, ids in known.items() if name in ids), None)
            unknown = f"{shown}: exercise {name} is not one of helpers.exercises"
            if home:
                problems.append(f"{unknown} for {lab}; it belongs to {home}.")
            else:
                here = ", ".join(known.get(lab, {})) or "none"
                problems.append(f"{unknown}, which knows {here} here.")
    for name in known.get(lab, {}) if known is not None else ():
        if name not in seen:
            problems.append(
                f"{shown}: helpers.exercises has the exercise {name}, and no cell tagged exercise has that id."
            )
    return problems


def _check_cell(
    cell: NotebookNode | None, name: str, shown: str, known: Mapping[str, str] | None
) -> list[str]:
    """What is wrong with the cell after an exercise."""
    told = (known or {}).get(name)
    wanted = f'check("{name}", {told or "NAME"})'
    if cell is None or cell.id != f"check-{name}" or not _is_code(cell, "check"):
        return [
            f"{shown}: exercise {name} is not followed at once by the code cell check-{name}, tagged check: {wanted}."
        ]
    any_name = re.fullmatch(rf'check\("{re.escape(name)}", [A-Za-z_]\w*\)', cell.source)
    if cell.source == wanted or (not told and any_name):
        return []
    return [f"{shown}: cell check-{name} must be exactly {wanted}."]


def known_exercises(root: Path, labs: Iterable[str]) -> dict[str, dict[str, str]] | None:
    """Lab to (exercise id to object's name), from helpers.exercises; None in a checkout that has no exercises.

    Raises:
        RuntimeError: A lab's exercises cannot be imported.
    """
    if not (root / "helpers" / "exercises" / "__init__.py").is_file():
        return None
    from helpers import exercises

    known = {}
    for lab in labs:
        try:
            known[lab] = {e.id: e.name for e in exercises.of_lab(lab)} if lab in exercises.LABS else {}
        except ImportError as error:
            raise RuntimeError(f"The exercises of {lab} cannot be imported: {error}.") from error
    return known


def exercise_groups(notebook: NotebookNode) -> list[list[str]]:
    """The ids of each exercise's cells: `name`, and `name-2`, `name-3` where they follow at once."""
    groups: list[list[str]] = []
    before = None
    for cell in notebook.cells:
        if _is_code(cell, "exercise"):
            if before is not None and cell.id == f"{groups[-1][0]}-{len(groups[-1]) + 1}":
                groups[-1].append(cell.id)
            else:
                groups.append([cell.id])
            before = cell
        else:
            before = None
    return groups


def double_ids(cells: Iterable[tuple[str, Iterable[str]]]) -> list[str]:
    """Sentences for exercise cells that two labs have; `cells` gives (file name, its exercise cells' ids)."""
    first: dict[str, str] = {}
    problems = []
    for shown, ids in cells:
        for name in ids:
            if name in first:
                problems.append(
                    f"{shown}: the exercise cell {name} is in {first[name]} too; ids are unique over all labs."
                )
            first[name] = shown
    return problems


def _is_code(cell: NotebookNode, tag: str) -> bool:
    """Whether it is a code cell with that tag."""
    return cell.cell_type == "code" and tag in tags(cell)

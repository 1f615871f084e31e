"""The rules for a lab's solution: a check follows each exercise, and `helpers.exercises` has the exercise."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from nbformat import NotebookNode

from workbook.form.canonical import tags


def structure(
    solution: NotebookNode, lab: str, filename: str, known: Mapping[str, Mapping[str, str]] | None
) -> list[str]:
    """Check the order and the names of a lab's cells.

    Args:
        solution: The solution notebook.
        lab: Its name, such as "03_triton".
        filename: The file's name, for messages.
        known: For each lab, the exercise ids and the names of the objects they check; None if the checkout
            has no exercises.

    Returns:
        One sentence for each problem.
    """
    problems: list[str] = []
    cells = solution.cells
    positions = {cell.id: i for i, cell in enumerate(cells)}
    groups = exercise_groups(solution)
    seen = [names[0] for names in groups]
    for names in groups:
        after = positions[names[-1]] + 1
        following = cells[after] if after < len(cells) else None
        problems += _check_cell(following, names[0], filename, known and known.get(lab, {}))
    checks = {f"check-{name}" for name in seen}
    for cell in cells:
        if _is_code(cell, "check") and cell.id not in checks:
            problems.append(
                f"{filename}: cell {cell.id} is tagged check, but no exercise of that name precedes it."
            )
    if not seen:
        problems.append(f"{filename}: no cell is tagged exercise.")
    for name in seen if known is not None else ():
        if name not in known.get(lab, {}):
            other_lab = next((other for other, ids in known.items() if name in ids), None)
            unknown = f"{filename}: helpers.exercises has no exercise {name} for {lab}"
            if other_lab:
                problems.append(f"{unknown}; it belongs to {other_lab}.")
            else:
                problems.append(f"{unknown}; it has {', '.join(known.get(lab, {})) or 'none'}.")
    for name in known.get(lab, {}) if known is not None else ():
        if name not in seen:
            problems.append(
                f"{filename}: no cell tagged exercise has the id {name}, which helpers.exercises has."
            )
    return problems


def _check_cell(
    cell: NotebookNode | None, name: str, filename: str, known: Mapping[str, str] | None
) -> list[str]:
    """Check the cell after an exercise."""
    checked = (known or {}).get(name)
    wanted = f'check("{name}", {checked or "NAME"})'
    if cell is None or cell.id != f"check-{name}" or not _is_code(cell, "check"):
        return [
            f"{filename}: the cell after exercise {name} must be the code cell check-{name}, tagged check, "
            f"with {wanted}."
        ]
    any_name = re.fullmatch(rf'check\("{re.escape(name)}", [A-Za-z_]\w*\)', cell.source)
    if cell.source == wanted or (not checked and any_name):
        return []
    return [f"{filename}: cell check-{name} must be exactly {wanted}."]


def known_exercises(root: Path, labs: Iterable[str]) -> dict[str, dict[str, str]] | None:
    """The exercises of some labs, from helpers.exercises: for each id the name of the object it checks.

    Returns:
        The exercises of each lab, or None if the checkout has none at all.

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
    """The ids of each exercise's cells: `name`, then `name-2` and so on if it has several."""
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
    """One sentence for each exercise cell that two notebooks have, from their names and cells' ids."""
    first: dict[str, str] = {}
    problems = []
    for filename, ids in cells:
        for name in ids:
            if name in first:
                problems.append(
                    f"{filename}: {first[name]} has an exercise cell {name} too; choose another id."
                )
            first[name] = filename
    return problems


def _is_code(cell: NotebookNode, tag: str) -> bool:
    return cell.cell_type == "code" and tag in tags(cell)

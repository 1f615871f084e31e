"""Write what `workbook form` writes: notebooks in canonical form, checked outputs, and starters."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from workbook.form import exercises, keys, labs, limits, questions, starters
from workbook.form.canonical import CHECKED, Formed, canonical, shown_name
from workbook.outputs import replace
from workbook.project import Project, find_root, load_project


@dataclass
class _Outcome:
    """What `form` has written and found so far."""

    written: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def form(
    paths: Sequence[Path], *, check: bool = False, run: bool = False
) -> tuple[list[str], list[str], list[str]]:
    """Bring notebooks into canonical form and derive starters from solutions.

    Args:
        paths: Notebooks; empty means all notebooks of the checkout around the current folder. A solution
            includes its starter, and a starter is derived again from its solution.
        check: Only find differences; change nothing.
        run: Execute the notebooks first to get the outputs of checked cells. Labs without checked cells
            don't run.

    Returns:
        The names of the files written, the differences found, and the problems that only a person can fix.

    Raises:
        RuntimeError: There is no checkout, or a cell fails.
        ValueError: A file is missing or not a notebook.
    """
    projects: dict[Path, Project] = {}

    def project_of(path: Path | None) -> Project:
        root = find_root(path.parent if path else None)
        if root not in projects:
            projects[root] = load_project(root)
        return projects[root]

    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path} does not exist; give the path of a notebook.")
    outcome = _Outcome()
    solutions: dict[Path, Formed | None] = {}
    for path in [p.resolve() for p in paths] or project_of(None).notebooks():
        project = project_of(path)
        if solution := project.solution_of(path):
            solutions.setdefault(solution, None)
            continue
        formed = canonical(path, project)
        if run and not check and (CHECKED in formed.text or not project.starter_of(path)):
            # Write the form first, so that the current setup cell and kernels run.
            if formed.differences:
                replace(path, formed.text)
            formed = canonical(path, project, execute(path))
        outcome.differences += formed.differences
        outcome.problems += formed.problems
        notebook = starters.load(formed.text)
        if project.starter_of(path):
            outcome.problems += limits.of_lab(notebook, shown_name(path, project))
        else:
            outcome.problems += limits.problems(notebook, path.name)
        if formed.differences and not check:
            replace(path, formed.text)
            outcome.written.append(shown_name(path, project))
        if project.starter_of(path):
            solutions[path] = formed
    for project in projects.values():
        outcome.problems += questions.asked_twice(_lessons(project))
        if not paths:
            _form_keys(project, outcome, check=check)
        mine = {path: formed for path, formed in solutions.items() if project.starter_of(path)}
        if mine or not paths:
            _form_labs(project, mine, outcome, check=check, complete=not paths)
    return outcome.written, outcome.differences, outcome.problems


def _lessons(project: Project) -> Iterator[tuple[str, NotebookNode]]:
    """The file name and content of each lesson that can be read."""
    for path in project.lessons():
        try:
            yield path.name, starters.load(path.read_text("utf-8"))
        except Exception:  # nbformat raises many kinds; forming that lesson reports it
            continue


def _form_keys(project: Project, outcome: _Outcome, *, check: bool) -> None:
    """Record which lesson asks which questions."""
    lessons = {Path(name).stem: keys.asked(notebook) for name, notebook in _lessons(project)}
    if not keys.differ(project.root, lessons):
        return
    outcome.differences.append(f"{keys.KEYS} does not match what the lessons ask.")
    if not check:
        target = project.root / keys.KEYS
        target.parent.mkdir(parents=True, exist_ok=True)
        replace(target, keys.text(lessons))
        outcome.written.append(keys.KEYS)


def _form_labs(
    project: Project, solutions: dict[Path, Formed | None], outcome: _Outcome, *, check: bool, complete: bool
) -> None:
    """Derive the starters of some solutions, or of all of them, and starters.json."""
    before = starters.read_starters(project)
    # Keep the entries of labs that this call does not derive.
    entries = {} if complete else dict(before)
    known = labs.known_exercises(project.root, [path.stem for path in solutions])
    cells: list[tuple[str, list[str]]] = []
    for path, formed in solutions.items():
        filename, starter = shown_name(path, project), project.starter_of(path)
        name = shown_name(starter, project)
        if not path.is_file():
            outcome.problems.append(f"{name} has no solution, because there is no {filename}.")
            continue
        solution = starters.load((formed or canonical(path, project)).text)
        derived = starters.derive(solution, filename, project.root)
        problems = [*derived.problems, *labs.structure(solution, path.stem, filename, known)]
        outcome.problems += problems
        cells.append((filename, list(derived.cells)))
        if derived.problems:
            entries.update(
                {key: entry for key, entry in before.items() if key == name or key in derived.cells}
            )
            continue
        recorded = before.get(name, {}).get("fingerprint")
        _form_starter(project, starter, derived, recorded, outcome, check=check)
        entries.update(starters.entries_of(name, derived))
    for lesson in project.lessons():
        made, _ = exercises.starter_cells(exercises.solutions_of(lesson), lesson.stem)
        cells.append((shown_name(lesson, project), list(made)))
        entries.update({id: {"lab": lesson.stem, "cells": {id: source}} for id, source in made.items()})
    outcome.problems += labs.double_ids(cells)
    if entries != before:
        names = [k for k in sorted({**before, **entries}) if before.get(k) != entries.get(k)]
        outcome.differences.append(
            f"{starters.STARTERS} does not match the solutions "
            f"({', '.join(names[:4])}{' …' if len(names) > 4 else ''})."
        )
        if not check:
            target = project.root / starters.STARTERS
            target.parent.mkdir(parents=True, exist_ok=True)
            replace(target, starters.starters_text(entries))
            outcome.written.append(starters.STARTERS)


def _form_starter(
    project: Project,
    path: Path,
    derived: starters.Derived,
    recorded: str | None,
    outcome: _Outcome,
    *,
    check: bool,
) -> None:
    """Write one starter, unless somebody has worked in it.

    Args:
        project: The checkout.
        path: The starter's file.
        derived: The starter that its solution gives.
        recorded: The fingerprint of the starter that was derived last.
        outcome: Gets the file's name, a difference or a problem.
        check: Change nothing.
    """
    name = shown_name(path, project)
    text = canonical(path, project, nbformat.writes(derived.notebook, version=4)).text
    if not path.is_file():
        outcome.differences.append(f"{name} is missing; `workbook form` derives it from its solution.")
    elif path.read_text("utf-8") == text:
        return
    else:
        new, current = starters.load(text), starters.load(canonical(path, project).text)
        current_fingerprint = starters.fingerprint(current)
        if current_fingerprint == starters.fingerprint(new):
            outcome.differences.append(
                f"{name} has stored outputs, or its badge, setup cell or layout is not the canonical one."
            )
        elif current_fingerprint == recorded:
            outcome.differences.append(
                f"{name}: {starters.changed_cells(current, new)} is out of date, because the solution "
                "changed; run `workbook form`."
            )
        else:
            outcome.problems.append(
                f"{name} was edited manually ({starters.changed_cells(current, new)}), so it is not "
                "overwritten. Starters are derived from solutions, so make your change there. To replace the "
                "starter, delete it and run `workbook form`."
            )
            return
    if not check:
        replace(path, text)
        outcome.written.append(name)


def execute(path: Path, timeout: float = 600) -> str:
    """Run a notebook in its own folder with a new kernel, and return it as text.

    Raises:
        RuntimeError: A cell failed, hung or killed the kernel; the message names the cell.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=timeout, resources={"metadata": {"path": str(path.parent)}})
    at = "before the first cell"

    def begin(cell: NotebookNode, cell_index: int) -> None:
        nonlocal at
        at = f"cell {cell.get('id', cell_index)}"

    client.on_cell_start = begin
    try:
        with tempfile.TemporaryDirectory() as progress:  # keep this user's progress out
            settings = {"WORKBOOK_PROGRESS": progress, "WORKBOOK_STRICT": "1"}
            client.execute(env={**os.environ, **settings})
    except CellExecutionError as error:
        raise RuntimeError(f"{path.name}: {at} failed, so nothing was stored.\n{error}") from error
    except CellTimeoutError as error:
        raise RuntimeError(
            f"{path.name}: {at} ran longer than {timeout:g} s, so nothing was stored."
        ) from error
    except DeadKernelError as error:
        raise RuntimeError(f"{path.name}: the kernel died in {at}, so nothing was stored.") from error
    return nbformat.writes(notebook, version=4)

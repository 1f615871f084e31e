"""What `workbook form` does with files: forms notebooks, runs them for their checked outputs, derives the labs' starters.

All notebooks together also say which lesson asks what.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from helpers.workshop.form import keys, labs, limits, questions, starters
from helpers.workshop.form.canonical import CHECKED, Formed, canonical, shown_name
from helpers.workshop.outputs import replace
from helpers.workshop.project import Project, find_root, load_project


@dataclass
class _Said:
    """What a call of `form` has done and found so far."""

    written: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def form(
    paths: Sequence[Path], *, check: bool = False, run: bool = False
) -> tuple[list[str], list[str], list[str]]:
    """Bring notebooks into canonical form and derive starters from solutions, or only say what that would change.

    Args:
        paths: Notebooks; empty means every one of the checkout around the current folder. A solution stands for its
            starter too, and a starter for what its solution gives.
        check: Change nothing.
        run: Execute each first, so that checked cells get their outputs; a lab only where it has such cells.

    Returns:
        The names of the files written, the differences found, the problems that only a person can solve.

    Raises:
        RuntimeError, ValueError: No checkout, a missing file, a file that is no notebook, a cell that fails.
    """
    projects: dict[Path, Project] = {}

    def project_of(path: Path | None) -> Project:
        root = find_root(path.parent if path else None)
        if root not in projects:
            projects[root] = load_project(root)
        return projects[root]

    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path} is not there; name a notebook file.")
    said = _Said()
    solutions: dict[Path, Formed | None] = {}
    for path in [p.resolve() for p in paths] or project_of(None).notebooks():
        project = project_of(path)
        if solution := project.solution_of(path):
            solutions.setdefault(solution, None)
            continue
        formed = canonical(path, project)
        if run and not check and (CHECKED in formed.text or not project.starter_of(path)):
            # The form first, so that what runs is the setup cell and the kernels of today.
            if formed.differences:
                replace(path, formed.text)
            formed = canonical(path, project, execute(path))
        said.differences += formed.differences
        said.problems += formed.problems
        notebook = starters.load(formed.text)
        if project.starter_of(path):
            said.problems += limits.of_lab(notebook, shown_name(path, project))
        else:
            said.problems += limits.problems(notebook, path.name)
        if formed.differences and not check:
            replace(path, formed.text)
            said.written.append(shown_name(path, project))
        if project.starter_of(path):
            solutions[path] = formed
    for project in projects.values():
        said.problems += questions.asked_twice(_lessons(project))
        if not paths:
            _form_keys(project, said, check=check)
        mine = {path: formed for path, formed in solutions.items() if project.starter_of(path)}
        if mine or not paths:
            _form_labs(project, mine, said, check=check, complete=not paths)
    return said.written, said.differences, said.problems


def _lessons(project: Project) -> Iterator[tuple[str, NotebookNode]]:
    """The file name and the notebook of each lesson that can be read."""
    for path in project.lessons():
        try:
            yield path.name, starters.load(path.read_text("utf-8"))
        except Exception:  # nbformat raises many kinds; who forms that lesson is told
            continue


def _form_keys(project: Project, said: _Said, *, check: bool) -> None:
    """Write which lesson asks what, of all of them."""
    lessons = {Path(name).stem: keys.asked(notebook) for name, notebook in _lessons(project)}
    if not keys.differ(project.root, lessons):
        return
    said.differences.append(f"{keys.KEYS} is not what the lessons ask.")
    if not check:
        target = project.root / keys.KEYS
        target.parent.mkdir(parents=True, exist_ok=True)
        replace(target, keys.text(lessons))
        said.written.append(keys.KEYS)


def _form_labs(
    project: Project, solutions: dict[Path, Formed | None], said: _Said, *, check: bool, complete: bool
) -> None:
    """Derive the starters of some solutions, or of all of them, and starters.json."""
    before = starters.read_starters(project)
    # Of labs that this call does not look at, what is known stays.
    entries = {} if complete else dict(before)
    known = labs.known_exercises(project.root, [path.stem for path in solutions])
    cells: list[tuple[str, list[str]]] = []
    for path, formed in solutions.items():
        shown, starter = shown_name(path, project), project.starter_of(path)
        name = shown_name(starter, project)
        if not path.is_file():
            said.problems.append(f"{name} has no solution; a starter is derived from {shown}.")
            continue
        solution = starters.load((formed or canonical(path, project)).text)
        derived = starters.derive(solution, shown, project.root)
        problems = [*derived.problems, *labs.structure(solution, path.stem, shown, known)]
        said.problems += problems
        cells.append((shown, list(derived.cells)))
        if derived.problems:
            entries.update({key: kept for key, kept in before.items() if key == name or key in derived.cells})
            continue
        recorded = before.get(name, {}).get("fingerprint")
        _form_starter(project, starter, derived, recorded, said, check=check)
        entries.update(starters.entries_of(name, derived))
    said.problems += labs.double_ids(cells)
    if entries != before:
        names = [k for k in sorted({**before, **entries}) if before.get(k) != entries.get(k)]
        said.differences.append(
            f"{starters.STARTERS} is not what the solutions give ({', '.join(names[:4])}{' …' if len(names) > 4 else ''})."
        )
        if not check:
            target = project.root / starters.STARTERS
            target.parent.mkdir(parents=True, exist_ok=True)
            replace(target, starters.starters_text(entries))
            said.written.append(starters.STARTERS)


def _form_starter(
    project: Project, path: Path, derived: starters.Derived, recorded: str | None, said: _Said, *, check: bool
) -> None:
    """Write one starter, unless it holds somebody's work.

    Args:
        project: The checkout.
        path: The starter's file.
        derived: What its solution gives.
        recorded: The fingerprint of what was derived last.
        said: Gets the file's name, a difference or a problem.
        check: Change nothing.
    """
    name = shown_name(path, project)
    text = canonical(path, project, nbformat.writes(derived.notebook, version=4)).text
    if not path.is_file():
        said.differences.append(f"{name} is missing; `workbook form` derives it from its solution.")
    elif path.read_text("utf-8") == text:
        return
    else:
        want, have = starters.load(text), starters.load(canonical(path, project).text)
        print_have = starters.fingerprint(have)
        if print_have == starters.fingerprint(want):
            said.differences.append(
                f"{name} has stored outputs, another badge or setup cell, or another layout than `workbook form` gives it."
            )
        elif print_have == recorded:
            said.differences.append(
                f"{name}: {starters.changed_cells(have, want)}: its solution gives something else now; run `workbook form`."
            )
        else:
            said.problems.append(
                f"{name} was edited by hand ({starters.changed_cells(have, want)}) and is left alone: a starter is derived "
                "from its solution, so make the change there; to have the starter written anew, delete it and run "
                "`workbook form`."
            )
            return
    if not check:
        replace(path, text)
        said.written.append(name)


def execute(path: Path, timeout: float = 600) -> str:
    """Run a notebook in its own folder, in a fresh kernel of this environment, and return it as text.

    Raises:
        RuntimeError: A cell failed, hung or killed the kernel; the message names it.
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
        with tempfile.TemporaryDirectory() as progress:  # nothing of this person's goes into a lesson
            settings = {"WORKBOOK_PROGRESS": progress, "WORKBOOK_STRICT": "1"}
            client.execute(env={**os.environ, **settings})
    except CellExecutionError as error:
        raise RuntimeError(f"{path.name}: {at} failed, nothing was stored.\n{error}") from error
    except CellTimeoutError as error:
        raise RuntimeError(f"{path.name}: {at} ran past {timeout:g} s, nothing was stored.") from error
    except DeadKernelError as error:
        raise RuntimeError(f"{path.name}: the kernel died in {at}, nothing was stored.") from error
    return nbformat.writes(notebook, version=4)

"""A learner's notebook as the grader reads it: which lab it is, its cells, where each exercise is checked.

Colab and other editors may drop cell ids and tags, so a check cell is also known by its text,
`check("<id>", <name>)`. Exercises and labs that were renamed have their current names here, whatever the
notebook calls them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import aliases
from helpers.predict import summary
from workbook.sandbox.texts import clean
from workbook.usage import first_line

_MAX_SOURCE = 10**6  # bytes of one cell
_MAX_PARTS = 4 * 10**6  # values in a notebook: each takes up to a hundred bytes once it is read


class Unreadable(ValueError):
    """A file that cannot be graded; the message is one sentence."""


@dataclass(frozen=True)
class Cell:
    """One code cell.

    Attributes:
        name: Its id, or "cell 4" by its place in the notebook.
        source: Its text.
        tags: Its tags.
        check: The exercise that it checks, or "".
        checked: The expression of the object that it gives to the check, or "".
    """

    name: str
    source: str
    tags: tuple[str, ...] = ()
    check: str = ""
    checked: str = ""


@dataclass(frozen=True)
class Submission:
    """What a notebook holds of one lab.

    Attributes:
        lab: The lab's name.
        cells: Its code cells.
        checks: Exercise id to the index of the cell where it is checked; `len(cells)` where that cell is
            gone.
        names: Exercise id to the object that is checked: its name, or an expression as it stands in the
            check.
        code: Exercise id to what the learner wrote, as far as it can be told.
        later: Exercise id to the cell below its check that defines the object again, or "".
        predictions: What its stored outputs claim that the learner predicted in the lesson, or None.
        unclear: Cells that check something without saying which exercise, as `check(*pair)`.
    """

    lab: str
    cells: tuple[Cell, ...]
    checks: dict[str, int]
    names: dict[str, str]
    code: dict[str, str]
    later: dict[str, str]
    predictions: summary.Summary | None = None
    unclear: tuple[str, ...] = ()


def read(
    path: Path,
    labs: Mapping[str, Mapping[str, str]],
    lab: str = "",
    stem: str = "",
    content: bytes | None = None,
) -> Submission:
    """Read a learner's notebook.

    Args:
        path: The file.
        labs: Lab to (exercise id to the object's name).
        lab: Which lab it is; "" to find that out.
        stem: What the learner called the file, where `path` is a copy.
        content: What the file holds, where it has been read.

    Raises:
        Unreadable: It is no notebook, or of no lab.
    """
    notebook = _load(path.read_bytes() if content is None else content)
    cells = _cells(notebook, {name for ids in labs.values() for name in ids})
    found = {
        each: sum(cell.check in ids or cell.name in ids for cell in cells)
        for each, ids in labs.items()
        if ids
    }
    best = max(found, key=lambda each: found[each], default="")
    if lab:
        if not found.get(lab) and found.get(best):
            raise Unreadable(f"it holds exercises of {best} and none of {lab}")
    elif found.get(best):
        lab = best
    else:
        lab = next((each for each in found if each in aliases.current(stem or path.stem)), "")
        if not lab:
            raise Unreadable("it holds no exercise of a lab: no cell checks one, and its name is no lab's")
    checks = {
        name: max((i for i, c in enumerate(cells) if c.check == name), default=len(cells))
        for name in labs[lab]
    }
    names = {
        name: (cells[at].checked if at < len(cells) else "") or labs[lab][name] for name, at in checks.items()
    }
    return Submission(
        lab=lab,
        cells=cells,
        checks=checks,
        names=names,
        code={name: _code_of(name, names[name], cells[:at]) for name, at in checks.items()},
        later={name: _binding(cells[at + 1 :], names[name]) for name, at in checks.items()},
        predictions=_predictions(notebook),
        unclear=tuple(cell.name for cell in cells if cell.check == "?" and cell.checked),
    )


def _load(content: bytes) -> Any:
    import warnings

    import nbformat

    if sum(map(content.count, (b"[", b"{", b","))) > _MAX_PARTS:
        raise Unreadable("it holds more than four million values; clear its outputs")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old notebooks lack ids
            text = json.dumps(_stripped(json.loads(content.decode("utf-8-sig"))))
            return _cleaned(nbformat.reads(text, as_version=4))
    except Exception as error:  # whatever a broken file makes the reader raise
        raise _broken(error) from error


def _stripped(notebook: Any) -> Any:
    """The same notebook without what nothing here reads: nbformat takes five times JSON's memory."""
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        return notebook
    for cell in notebook["cells"]:
        outputs = cell.get("outputs")
        if isinstance(outputs, list):
            cell["outputs"] = [one for one in outputs if summary.MIME in (one.get("data") or ())]
        metadata = cell.get("metadata")
        if isinstance(metadata, dict):
            cell["metadata"] = {name: metadata[name] for name in ("id", "tags") if name in metadata}
    return {**notebook, "metadata": {}}


def _cleaned(value: Any) -> Any:
    """The same notebook with texts that can be written: JSON's escapes may hold half a character."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        for key in list(value):
            value[clean(key)] = _cleaned(value.pop(key))
    elif isinstance(value, list):
        value[:] = [_cleaned(one) for one in value]
    return value


def _broken(error: Exception) -> Unreadable:
    return Unreadable(f"it is no notebook that can be read ({first_line(error)[:120]})")


def _cells(notebook: Any, known: set[str]) -> tuple[Cell, ...]:
    try:
        cells = [
            _cell(cell, i, known) for i, cell in enumerate(notebook.cells, 1) if cell.cell_type == "code"
        ]
    except Unreadable:
        raise
    except Exception as error:  # the same: cells of any shape
        raise _broken(error) from error
    if not cells:
        raise Unreadable("it has no code cell")
    return tuple(cells)


def _predictions(notebook: Any) -> summary.Summary | None:
    """The last predictions that its outputs carry. A notebook may claim what it likes: this is the learner's
    word.
    """
    found = None
    for cell in notebook.cells:
        for output in cell.get("outputs") or ():
            data = output.get("data") if isinstance(output, dict) else None
            if isinstance(data, dict) and summary.MIME in data:
                found = summary.parse(data[summary.MIME]) or found
    return found


def _cell(cell: Any, number: int, known: set[str]) -> Cell:
    source = str(cell.source)
    if len(source.encode()) > _MAX_SOURCE:
        raise Unreadable(f"its cell {number} holds more than {_MAX_SOURCE // 10**6} MB of text")
    tags = tuple(str(tag) for tag in cell.metadata.get("tags", ()))
    name = aliases.current(str(cell.metadata.get("id") or cell.get("id") or ""))
    # An id that a program made up says nothing to a reader.
    if not (re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) and ("-" in name or name.isalpha())):
        name = f"cell {number}"
    check, checked = check_call(source)
    check = aliases.current(check)
    if check not in known:
        by_id = name.removeprefix("check-")
        by_id = by_id if name.startswith("check-") and by_id in known else ""
        check = by_id or ("?" if check == "?" else "")
    if not check and "check" in tags:
        check, checked = "?", ""  # a check cell that says nothing known: not run all the same
    return Cell(name, source, tags, check, checked)


def check_call(source: str) -> tuple[str, str]:
    """What a cell checks that is nothing but `check("<id>", <object>)`.

    Returns:
        The exercise, "?" where only running the cell would tell it, and the object as an expression or "".
        Two empty texts where the cell is no check.
    """
    try:
        body = ast.parse(source).body
        call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name | ast.Attribute)):
            return "", ""
        if (call.func.id if isinstance(call.func, ast.Name) else call.func.attr) != "check":
            return "", ""
        return _checked(call)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "", ""


def _checked(call: ast.Call) -> tuple[str, str]:
    """The exercise and the object's expression of a call of `check(id, obj)`."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    first = call.args[0] if call.args else keywords.get("id")
    starred = any(isinstance(arg, ast.Starred) for arg in call.args[:2])
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        exercise = first.value
    elif isinstance(first, ast.Starred) or None in keywords:
        exercise = "?"
    else:
        return "", ""
    if starred:
        return exercise, f"[{', '.join(ast.unparse(arg) for arg in call.args)}][1]"
    second = call.args[1] if len(call.args) > 1 else keywords.get("obj")
    if second is not None:
        return exercise, ast.unparse(second)
    double = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg is None]
    return exercise, f"({double[0]})['obj']" if double else ""


def _code_of(exercise: str, name: str, above: Sequence[Cell]) -> str:
    """The learner's cells of an exercise: by their ids, or else the last cell above the check that defines
    the object.
    """
    own = [c.source for c in above if re.fullmatch(rf"{re.escape(exercise)}(-\d+)?", c.name)]
    if own:
        return "\n\n".join(own)
    return next((c.source for c in reversed(above) if not c.check and _names(name) & bound(c.source)), "")


def _binding(cells: Iterable[Cell], name: str) -> str:
    """The name of the first of these cells that defines the object, or ""."""
    return next((c.name for c in cells if not c.check and _names(name) & bound(c.source)), "")


def _names(expression: str) -> set[str]:
    """The names that an expression reads."""
    return {node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name)}


def bound(source: str) -> set[str]:
    """The names that a cell gives a value on its top level."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return found

"""The rules for `predict`: each question is asked once, in its own cell, and answered soon after."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nbformat import NotebookNode

from workbook.form.canonical import CHECKED, HIDDEN, tags
from workbook.form.source import question_call, tree


@dataclass(frozen=True)
class Call:
    """A call of `predict` in a notebook.

    Attributes:
        name: "ask", "reveal" or "review".
        key: The question's key, or None if the call has none or doesn't spell it out.
        node: The call.
        cell: The id of the cell.
        position: The number of the cell, counting only visible code cells that compute something.
    """

    name: str
    key: str | None
    node: ast.Call
    cell: str
    position: int


def calls(notebook: NotebookNode) -> list[Call]:
    """Every call of `predict.ask`, `predict.reveal` and `predict.review`, in order."""
    found, position = [], 0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        position += not (HIDDEN in tags(cell) or only_asks(cell.source) or only_imports(cell.source))
        for node in ast.walk(tree(cell.source)):
            if name := question_call(node):
                key = node.args[0] if node.args else None
                written = isinstance(key, ast.Constant) and isinstance(key.value, str)
                found.append(Call(name, key.value if written else None, node, cell.id, position))
    return found


def only_asks(source: str) -> bool:
    """Whether a cell only asks a question; it may import and assign what the question needs."""
    asks = [
        node for node in tree(source).body if not isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign))
    ]
    return bool(asks) and all(isinstance(n, ast.Expr) and question_call(n.value) == "ask" for n in asks)


def only_imports(source: str) -> bool:
    """Whether a cell only imports modules or loads extensions."""
    rest = re.sub(r"^%load_ext .*$", "", source, flags=re.MULTILINE)
    body = tree(rest).body
    return bool(body) and all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in body)


def problems(notebook: NotebookNode, most_guesses: float) -> Iterator[str]:
    """One sentence for each question or answer that breaks a rule."""
    found = calls(notebook)
    sources = {cell.id: cell.source for cell in notebook.cells}
    checked = {cell.id for cell in notebook.cells if cell.cell_type == "code" and CHECKED in tags(cell)}
    for call in found:
        if call.cell in checked:
            yield f"checked cell {call.cell} calls predict.{call.name}, so its output gives the answer away."
        if call.name != "review" and call.key is None:
            yield f"cell {call.cell} calls predict.{call.name} without a key in quotes."
        if call.name == "ask" and not only_asks(sources[call.cell]):
            yield f"cell {call.cell} asks {call.key} among other code; ask it in a cell of its own."
        if call.name == "reveal" and not _computed(call.node):
            yield (
                f"cell {call.cell} reveals {call.key} with a literal; pass the value that the cell computed."
            )
    asks = [call for call in found if call.name == "ask" and call.key]
    reveals = [call for call in found if call.name == "reveal" and call.key]
    ids = [cell.id for cell in notebook.cells]
    for ask in asks:
        answers = [ids.index(reveal.cell) for reveal in reveals if reveal.key == ask.key]
        for cell in ids[ids.index(ask.cell) + 1 : min(answers, default=0)]:
            if cell in checked:
                yield (
                    f"checked cell {cell} is between the question {ask.key} and its answer: its stored "
                    "output is on screen when the question is asked."
                )
        if not any(r.key == ask.key and 0 < r.position - ask.position <= 2 for r in reveals):
            later = [r.cell for r in reveals if r.key == ask.key]
            where = f"it is in cell {later[0]}" if later else "there is none"
            yield f"cell {ask.cell} asks {ask.key}, but predict.reveal isn't in the next two cells: {where}."
    keys = {ask.key for ask in asks}
    for reveal in reveals:
        if reveal.key not in keys:
            yield f"cell {reveal.cell} reveals {reveal.key}, but no cell asks it."
    guesses = [ask.cell for ask in asks if _is_guess(ask.node)]
    if len(guesses) > most_guesses:
        yield (
            f"{len(guesses)} questions are marked as a guess ({', '.join(guesses)}); the limit is "
            f"{most_guesses:g}."
        )
    reviews = [call.cell for call in found if call.name == "review"]
    if asks and len(reviews) != 1:
        yield (
            f"the notebook asks questions but calls predict.review {len(reviews)} times; call it once, near "
            "the end."
        )


def asked_twice(notebooks: Iterable[tuple[str, NotebookNode]]) -> list[str]:
    """One sentence for each key that two questions share, from the notebooks and their files' names."""
    first: dict[str, str] = {}
    found = []
    for name, notebook in notebooks:
        for call in calls(notebook):
            if call.name != "ask" or call.key is None:
                continue
            location = f"{name}, cell {call.cell}"
            if call.key in first:
                found.append(f"{location} asks {call.key}, as does {first[call.key]}; choose another key.")
            first.setdefault(call.key, location)
    return found


def _computed(reveal: ast.Call) -> bool:
    """Whether the revealed value is computed: from a name of the notebook, or by arithmetic."""
    values = [*reveal.args[1:], *(keyword.value for keyword in reveal.keywords if keyword.arg == "value")]
    nodes = [node for value in values for node in ast.walk(value)]
    has_name = any(isinstance(node, ast.Name) and not hasattr(builtins, node.id) for node in nodes)
    return has_name or any(isinstance(node, ast.BinOp) for node in nodes)


def _is_guess(ask: ast.Call) -> bool:
    return any(
        k.arg == "guess" and isinstance(k.value, ast.Constant) and k.value.value is True for k in ask.keywords
    )

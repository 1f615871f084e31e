"""What a lesson asks by `predict`: which keys, and whether each question stands before its answer as a lesson's must."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from helpers.workshop.form.canonical import CHECKED, tags

KEYS = "helpers/predict/lessons.json"  # which lesson asks what: the labs' progress and the review read it
_MOST_GUESSES = 2
_MOST_BETWEEN = 2  # code cells between a question and its answer: one that computes, the one that answers


@dataclass(frozen=True)
class _Call:
    """A call of `predict.NAME` in a notebook.

    Attributes:
        name: "ask", "reveal" or "review".
        key: its first argument, or None where that is no literal text.
        node: the call.
        place: the index of its cell.
    """

    name: str
    key: str | None
    node: ast.Call
    place: int


def asked(notebook: NotebookNode) -> list[str]:
    """The keys of a notebook's questions, in order."""
    return list(dict.fromkeys(call.key for call in _calls(notebook) if call.name == "ask" and call.key))


def problems(notebook: NotebookNode, shown: str) -> list[str]:
    """What is wrong with a notebook's questions, in sentences.

    Args:
        notebook: a lesson.
        shown: its file's name, for messages.
    """
    cells = notebook.cells
    found = []
    questions: dict[str, _Call] = {}
    answered: set[str] = set()
    for call in _calls(notebook):
        where = f"{shown}: cell {cells[call.place].id}"
        if CHECKED in tags(cells[call.place]):
            found.append(
                f"{where} is checked and must not show predict.{call.name}, whose output is not always the same."
            )
        if call.name == "review":
            continue
        if call.key is None:
            found.append(f"{where}: the key of predict.{call.name} must be a literal text.")
        elif call.name == "ask":
            if call.key in questions:
                found.append(f"{where} asks {call.key} a second time.")
            questions.setdefault(call.key, call)
        else:
            answered.add(call.key)
            found += [f"{where}{wrong}" for wrong in _wrong_answer(call, questions.get(call.key), cells)]
    found += [
        f"{shown}: cell {cells[call.place].id} asks {key}, and no cell below reveals it."
        for key, call in questions.items()
        if key not in answered
    ]
    guesses = [key for key, call in questions.items() if _keyword(call.node, "guess") not in (None, False)]
    if len(guesses) > _MOST_GUESSES:
        found.append(f"{shown}: {len(guesses)} questions are guesses; at most {_MOST_GUESSES} may be.")
    return found


def _wrong_answer(call: _Call, question: _Call | None, cells: list[NotebookNode]) -> list[str]:
    """What is wrong with an answer: its place, its value, or that nothing explains it. Ends of sentences."""
    if question is None:
        return [f" reveals {call.key}, which no cell above asks."]
    wrong = []
    between = [cell for cell in cells[question.place + 1 : call.place] if cell.cell_type == "code"]
    working = [cell for cell in between if "predict.ask(" not in cell.source]
    if len(working) > _MOST_BETWEEN:
        wrong.append(
            f" reveals {call.key} {len(working)} code cells after its question; at most {_MOST_BETWEEN} may stand between."
        )
    if len(call.node.args) < 2 or isinstance(call.node.args[1], ast.Constant):
        wrong.append(f" reveals {call.key} by a literal; give the value that was computed.")
    following = next((cell for cell in cells[call.place + 1 :] if "predict.reveal(" not in cell.source), None)
    if following is None or (following.cell_type == "code" and "predict." in following.source):
        wrong.append(f" reveals {call.key}, and nothing after it explains the answer.")
    return wrong


def double_keys(lessons: Mapping[str, Iterable[str]]) -> list[str]:
    """Sentences for keys that two lessons have; `lessons` gives each one's keys by its name."""
    first: dict[str, str] = {}
    found = []
    for lesson, keys in lessons.items():
        for key in keys:
            if first.setdefault(key, lesson) != lesson:
                found.append(f"{lesson}: {first[key]} asks {key} too; keys are unique in the whole course.")
    return found


def keys_text(lessons: Mapping[str, Iterable[str]]) -> str:
    """The file that tells `helpers.predict` which lesson asks what."""
    return json.dumps({name: list(keys) for name, keys in sorted(lessons.items()) if keys}, indent=1) + "\n"


def keys_differ(root: Path, lessons: Mapping[str, Iterable[str]]) -> bool:
    """Whether that file says otherwise; one that is missing says that nothing is asked."""
    path = root / KEYS
    return (path.read_text("utf-8") if path.is_file() else keys_text({})) != keys_text(lessons)


def _calls(notebook: NotebookNode) -> Iterable[_Call]:
    """The calls of `predict` in a notebook, in order."""
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type != "code" or "predict." not in cell.source:
            continue
        try:
            tree = ast.parse(re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", cell.source))
        except SyntaxError:
            continue  # ruff names it
        found = []
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if getattr(node.func.value, "id", "") == "predict" and node.func.attr in (
                "ask",
                "reveal",
                "review",
            ):
                first = node.args[0] if node.args else None
                literal = isinstance(first, ast.Constant) and isinstance(first.value, str)
                found.append(_Call(node.func.attr, first.value if literal else None, node, place))
        yield from sorted(found, key=lambda call: call.node.lineno)


def _keyword(call: ast.Call, name: str) -> object:
    """The literal value of a keyword argument; None where it is not given or no literal."""
    return next((getattr(k.value, "value", None) for k in call.keywords if k.arg == name), None)

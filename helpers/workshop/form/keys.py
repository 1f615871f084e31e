"""Which lesson asks what by `predict`: kept in a file of the package, for the labs' progress and a lesson's review."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from nbformat import NotebookNode

from helpers.workshop.form import questions

KEYS = "helpers/predict/lessons.json"


def asked(notebook: NotebookNode) -> list[str]:
    """The keys of a notebook's questions, in order."""
    return list(dict.fromkeys(c.key for c in questions.calls(notebook) if c.name == "ask" and c.key))


def text(lessons: Mapping[str, Iterable[str]]) -> str:
    """The file's text; `lessons` gives each lesson's keys by its file's stem."""
    return json.dumps({name: list(keys) for name, keys in sorted(lessons.items()) if keys}, indent=1) + "\n"


def differ(root: Path, lessons: Mapping[str, Iterable[str]]) -> bool:
    """Whether the file says otherwise; one that is missing says that nothing is asked."""
    path = root / KEYS
    return (path.read_text("utf-8") if path.is_file() else text({})) != text(lessons)

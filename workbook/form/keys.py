"""Which lesson asks which questions: a file of `helpers.predict`, for reviews and the labs' progress."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from nbformat import NotebookNode

from workbook.form import questions

KEYS = "helpers/predict/lessons.json"


def asked(notebook: NotebookNode) -> list[str]:
    """The keys of a notebook's questions, in order."""
    return list(dict.fromkeys(c.key for c in questions.calls(notebook) if c.name == "ask" and c.key))


def text(lessons: Mapping[str, Iterable[str]]) -> str:
    """The content of the file, from the keys of each lesson by the stem of its file."""
    return json.dumps({name: list(keys) for name, keys in sorted(lessons.items()) if keys}, indent=1) + "\n"


def differ(root: Path, lessons: Mapping[str, Iterable[str]]) -> bool:
    """Whether the file differs from what the lessons ask. A missing file counts as no questions."""
    path = root / KEYS
    return (path.read_text("utf-8") if path.is_file() else text({})) != text(lessons)

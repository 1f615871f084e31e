"""Which code cells a page folds, and what the fold says that it holds."""

from __future__ import annotations

import re

from nbformat import NotebookNode

_PREDICTS = re.compile(r"^predict\.(ask|reveal|review)\(", re.MULTILINE)
_FOLDS = {
    "ask": "a question to predict",
    "reveal": "the answer to a prediction",
    "review": "your predictions",
}


def fold_title(cell: NotebookNode) -> str:
    """What a code cell that a page folds holds; "" if the page shows its code."""
    tags = cell.metadata.get("tags", [])
    if "setup" in tags:
        return "the setup, the same in every notebook"
    if match := _PREDICTS.search(cell.source):
        return _FOLDS[match[1]]
    if "hide-input" not in tags:
        return ""
    first = cell.source.split("\n", 1)[0].strip()
    return first.lstrip("# ") if first.startswith("#") else "what makes the output below"

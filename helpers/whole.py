"""Files that are written whole or not at all: a reader sees the old one or the new one, also where two write at once."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def written(path: Path) -> Iterator[Path]:
    """A file beside `path` to write; at the end it takes its place. Where writing fails it goes, and `path` is as it was.

    Args:
        path: The file; its folder is made if it is missing.

    Raises:
        OSError: It cannot be written there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{uuid.uuid4().hex}-{path.name}")  # the ending stays, which tools look at
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)

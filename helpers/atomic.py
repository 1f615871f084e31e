"""Atomic file writes: a reader sees the old file or the new one, even if two processes write at once."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write to, which replaces `path` when the block ends.

    If the block raises, the temporary file is removed and `path` is unchanged.

    Args:
        path: the file to write. Its folder is created if necessary.

    Raises:
        OSError: the folder or the file can't be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}-{path.name}")  # same suffix: some tools check it
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)

"""Check an output folder, and write files in it atomically."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from workbook import locks
from workbook.usage import UsageError


def require_writable(out: Path) -> None:
    """Create the folder of `--out` if it is missing.

    Raises:
        UsageError: The folder can't be created or written to.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UsageError(
            f"--out {out} cannot be written ({error.strerror}); choose another folder."
        ) from error


def replace(path: Path, text: str) -> None:
    """Write a text file atomically: a reader sees either the old file or the new one."""
    put(path, lambda partial: partial.write_text(text, "utf-8"))


def copy(source: Path, path: Path) -> None:
    """Copy a file atomically."""
    put(path, lambda partial: shutil.copyfile(source, partial))


def put(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` with a temporary path in the same folder, then move that file to `path`."""
    with locks.partial(path) as partial:
        write(partial)
        os.replace(partial, path)

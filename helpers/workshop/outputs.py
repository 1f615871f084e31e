"""Files and folders that a command writes: the folder can be written, a file is whole or not there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from helpers.workshop import locks
from helpers.workshop.usage import UsageError


def require_writable(out: Path) -> None:
    """Make the folder of `--out` if it is missing.

    Raises:
        UsageError: It cannot be made, or nothing can be written into it.
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
    """Write a text file whole: a reader sees the old file or the new one."""
    put(path, lambda partial: partial.write_text(text, "utf-8"))


def copy(source: Path, path: Path) -> None:
    """Copy a file whole."""
    put(path, lambda partial: shutil.copyfile(source, partial))


def put(path: Path, write: Callable[[Path], object]) -> None:
    """Have a file written beside `path` first, then put it in its place."""
    with locks.partial(path) as partial:
        write(partial)
        os.replace(partial, path)

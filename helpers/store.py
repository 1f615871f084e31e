"""What is kept of a learner from one session to the next: small JSON files, changed by one notebook at a time.

A file holds entries by key, each a dict. Reading never fails: what is missing or broken is nothing. Changing says in a
clause why it could not, since a notebook must not fail because a disk is full or read-only.

WORKBOOK_PROGRESS names the folder; batches, grading and tests give each run a fresh one.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from helpers import device, whole


def folder() -> Path:
    """Where it is kept: WORKBOOK_PROGRESS, or a folder in the workbook's cache."""
    return Path(os.environ.get("WORKBOOK_PROGRESS") or device.cache_folder() / "progress")


def read(name: str) -> dict[str, dict]:
    """The entries of a file by key; none where it is missing or cannot be read."""
    try:
        kept = json.loads(_file(name).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(kept, dict):
        return {}
    return {key: value for key, value in kept.items() if isinstance(value, dict)}


def change(name: str, key: str, how: Callable[[dict], dict]) -> str:
    """Change one entry: read, change, write beside, put in place.

    Args:
        name: of the file, without its ending.
        key: of the entry.
        how: takes the entry, or an empty one, and gives the new one.

    Returns:
        Why it could not be kept, or an empty text.
    """
    try:
        with _locked(name):
            kept = read(name)
            kept[key] = how(kept.get(key, {}))
            with whole.written(_file(name)) as file:
                file.write_text(json.dumps(kept, indent=1), "utf-8")
    except OSError as error:
        return str(error)
    return ""


def _file(name: str) -> Path:
    return folder() / f"{name}.json"


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    """One notebook at a time changes a file; where locks do not work, the last one wins."""
    path = _file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("a") as lock:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield

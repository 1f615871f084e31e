"""What a learner has solved and predicted, stored between sessions in small JSON files.

A file maps keys, such as the ids of a lab's exercises, to entries, each a dict. Reading never fails: a
missing or broken file has no entries. Writing returns the reason if it fails, because a notebook should not
fail when a disk is full or read-only. Files and entries under old names (`helpers.aliases`) are read too,
and the next update stores them under the current ones.

WORKBOOK_PROGRESS names the folder; batches, grading and tests give each run a fresh one.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from helpers import aliases, atomic, device


def folder() -> Path:
    """The folder of the files: WORKBOOK_PROGRESS, or a folder in the workbook's cache."""
    return Path(os.environ.get("WORKBOOK_PROGRESS") or device.cache_folder() / "progress")


def read(name: str) -> dict[str, dict]:
    """Return the entries of a file by key.

    Where an entry exists under an old and a current name, it has the fields of both; the current one wins.
    """
    found: dict[str, dict] = {}
    for path in (*_old_files(name), _file(name)):
        entries = _entries(path)
        for key in sorted(entries, key=lambda key: aliases.current(key) == key):  # old names first
            current_key = aliases.current(key)
            found[current_key] = {**found.get(current_key, {}), **entries[key]}
    return found


def update(name: str, key: str, change: Callable[[dict], dict]) -> str:
    """Change one entry and write the file atomically.

    Args:
        name: The file's name without its ending.
        key: The entry's key.
        change: Takes the entry, or an empty one, and returns the new one.

    Returns:
        Why it could not be stored, or an empty string.
    """
    try:
        with _locked(name):
            entries = read(name)
            entries[key] = change(entries.get(key, {}))
            with atomic.atomic_write(_file(name)) as file:
                file.write_text(json.dumps(entries, indent=1), "utf-8")
            for old in _old_files(name):  # its entries are in the new file now
                old.unlink(missing_ok=True)
    except OSError as error:
        return str(error)
    return ""


def _entries(path: Path) -> dict[str, dict]:
    try:
        entries = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(entries, dict):
        return {}
    return {key: entry for key, entry in entries.items() if isinstance(entry, dict)}


def _file(name: str) -> Path:
    return folder() / f"{name}.json"


def _old_files(name: str) -> list[Path]:
    """The files that a lesson had under its old names."""
    return [_file(old) for old, new in aliases.LESSONS.items() if new == name]


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    """Let one notebook at a time change a file. On a file system without locks, the last writer wins."""
    path = _file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("a") as lock:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield

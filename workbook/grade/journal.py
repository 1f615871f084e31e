"""`results.jsonl`: what came of each notebook, written as it comes, a whole line each. The reports are made
from it.

The first line names the seed. A line that was cut off by the end of the process is dropped when the file is
read.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

from helpers.predict import summary
from workbook.grade.marks import Graded, Mark, Raised
from workbook.usage import UsageError

NAME = "results.jsonl"
_BEFORE = "results.before.jsonl"
_FORMAT = 1
_FOR_SPACE_S = 60.0  # a notebook that fills the disk is ended soon, and its files with it


class Journal:
    """The results of one folder of reports; a context manager that keeps other runs out of it."""

    def __init__(self, out: Path, seed: int, *, resume: bool) -> None:
        """Open it.

        Args:
            out: The folder.
            seed: Of the hidden cases; where it resumes and `seed` is what the file has, what the file holds
                is kept.
            resume: Whether to go on with what is there. Otherwise that is renamed to `results.before.jsonl`.

        Raises:
            UsageError: Another run writes into this folder.
        """
        self._path = out / NAME
        self.graded: dict[str, Graded] = {}
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._lock(out)
            n_whole = 0
            if resume:
                found, self.graded, n_whole = _read(self._path)
                if found != seed:
                    self.graded, n_whole = {}, 0
            if n_whole:
                os.ftruncate(self._fd, n_whole)
                os.lseek(self._fd, 0, os.SEEK_END)
            else:
                if os.fstat(self._fd).st_size:
                    os.replace(self._path, out / _BEFORE)
                    os.close(self._fd)
                    self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                    self._lock(out)
                self._write({"format": _FORMAT, "seed": seed})
        except BaseException:
            os.close(self._fd)
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._fd)

    def _lock(self, out: Path) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            says = f"Another `workbook grade` writes into {out}; wait for it, or choose another --out."
            raise UsageError(says) from None

    def add(self, key: str, graded: Graded) -> Graded:
        """Keep one notebook's result; gives back what a reader will find."""
        line = {"key": key, "graded": _plain(graded)}
        self._write(line)
        self.graded[key] = _graded(json.loads(json.dumps(line))["graded"])
        return self.graded[key]

    def _write(self, line: dict[str, Any]) -> None:
        rest, until = memoryview((json.dumps(line) + "\n").encode()), time.monotonic() + _FOR_SPACE_S
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except OSError as error:
                if error.errno != errno.ENOSPC or time.monotonic() > until:
                    raise UsageError(
                        f"{self._path} cannot be written ({error.strerror}); go on with --resume."
                    ) from error
                time.sleep(0.2)
        os.fsync(self._fd)


def seed_of(out: Path) -> int | None:
    """The seed of the results in a folder, or None."""
    return _read(out / NAME)[0]


def _read(path: Path) -> tuple[int | None, dict[str, Graded], int]:
    """The seed, the results by key, and how many bytes of the file are whole lines."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None, {}, 0
    n_whole = content.rfind(b"\n") + 1
    seed, found = None, {}
    for number, line in enumerate(content[:n_whole].splitlines()):
        try:
            data = json.loads(line)
            if number == 0:
                if data["format"] != _FORMAT:
                    return None, {}, 0
                seed = int(data["seed"])
            else:
                found[str(data["key"])] = _graded(data["graded"])
        except Exception:  # not ours, of another version, or nested too deep: graded again
            if number == 0:
                return None, {}, 0
    return seed, found, n_whole


def _plain(value: Any) -> Any:
    """A result as JSON holds it."""
    if isinstance(value, summary.Summary):
        return value.data()
    if isinstance(value, Graded | Mark | Raised):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _graded(data: dict[str, Any]) -> Graded:
    return Graded(
        **{
            **data,
            "exercises": tuple((name, title) for name, title in data["exercises"]),
            "marks": tuple(Mark(**mark) for mark in data["marks"]),
            "reaching": tuple(data.get("reaching", ())),
            "raised": tuple(Raised(**raised) for raised in data["raised"]),
            "predictions": summary.parse(data["predictions"]) if data["predictions"] else None,
        }
    )

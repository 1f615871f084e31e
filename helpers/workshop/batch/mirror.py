"""Outputs that belong at an address, such as s3://bucket/runs: written into a folder here, and copied there as they come.

fsspec, which torch brings, knows what the address means; the protocol's own package (s3fs, gcsfs, adlfs …) must be there.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path, PurePosixPath

from helpers import device
from helpers.workshop.batch.point import RUNNING
from helpers.workshop.usage import UsageError, first_line


def address_of(out: Path | str) -> str:
    """The address that `--out` names; "" where it is a folder."""
    text = str(out)
    if not re.match(r"[a-z][a-z0-9+]+:/", text):
        return ""
    return re.sub(r":/+", "://", text, count=1)  # Path drops one of two slashes


class Mirror:
    """A folder of this machine, and the address that it is copied to."""

    def __init__(self, address: str, *, fetch: bool) -> None:
        """Make the folder, and see whether the address can be written.

        Args:
            address: As s3://bucket/runs.
            fetch: Whether to begin with the executed notebooks that are there, for `--resume`.

        Raises:
            UsageError: It cannot be used; the sentence says why.
        """
        import fsspec

        self.address, self._sent = address, {}
        try:
            self._files, path = fsspec.core.url_to_fs(address)
            self._root = PurePosixPath(path)
            self._files.makedirs(path, exist_ok=True)
            self._files.pipe_file(self._at(".workbook-probe"), b"")
            self._files.rm_file(self._at(".workbook-probe"))
            there = self._files.ls(path, detail=False) if fetch else []
        except Exception as error:  # each protocol has its own
            raise UsageError(
                f"--out {address} cannot be used ({first_line(error)[:200]}); give a folder, or what that needs."
            ) from error
        base = device.cache_folder() / "batches"
        base.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="batch-", dir=base))
        for name in (PurePosixPath(one).name for one in there):
            if name.endswith(".ipynb"):
                self._files.get_file(self._at(name), str(self.folder / name))
                self._sent[name] = self._state(self.folder / name)

    def push(self) -> None:
        """Copy what is new. Raises `OSError` where it cannot, and tries again the next time."""
        for path in sorted(self.folder.rglob("*"), key=lambda path: path.name == "index.html"):
            name = path.relative_to(self.folder).as_posix()
            if path.name.startswith(".") or name.startswith((".", f"{RUNNING}/")) or not path.is_file():
                continue
            if self._sent.get(name) != (state := self._state(path)):
                try:
                    self._files.makedirs(str(PurePosixPath(self._at(name)).parent), exist_ok=True)
                    self._files.put_file(str(path), self._at(name))
                except Exception as error:
                    raise OSError(
                        f"{name} could not be copied to {self.address} ({first_line(error)[:200]})"
                    ) from error
                self._sent[name] = state

    def remove(self) -> None:
        """Remove the folder here: all of it is there."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _at(self, name: str) -> str:
        return str(self._root / name)

    @staticmethod
    def _state(path: Path) -> tuple[int, int]:
        found = path.stat()
        return found.st_mtime_ns, found.st_size

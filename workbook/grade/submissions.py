"""Which notebooks there are, whose they are, and copies of them made before the first learner's line runs."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbook.grade.texts import clean
from workbook.usage import UsageError

_MAX_FILE = 20 * 2**20


@dataclass(frozen=True)
class Submitted:
    """One notebook as it was handed in.

    Attributes:
        learner: Whose it is; no two notebooks' paths are called the same unless they are one learner's.
        notebook: Its path as given, in characters that can be written.
        stem: What its file is called, without its ending.
        offset, size: Where its bytes are in `Copies`.
        digest: SHA-256 of its bytes, or "".
        problem: Why there is no copy, as the end of a sentence, or "".
    """

    learner: str
    notebook: str
    stem: str
    offset: int = 0
    size: int = 0
    digest: str = ""
    problem: str = ""


class Copies:
    """The bytes of every notebook, in one temporary file without a name: nothing is left of it, however this
    process ends. A context manager.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def add(self, content: bytes) -> int:
        """Append a notebook's bytes; returns their offset.

        Raises:
            UsageError: The disk of temporary files is full.
        """
        offset = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(content)
            self._file.flush()
        except OSError as error:
            says = f"The notebooks cannot be copied into {tempfile.gettempdir()} ({error.strerror})."
            raise UsageError(f"{says} Free some space there, or set TMPDIR to another folder.") from error
        return offset

    def read(self, one: Submitted) -> bytes:
        """A notebook's bytes; threads may read at the same time."""
        return os.pread(self._file.fileno(), one.size, one.offset)


def find(given: Sequence[Path]) -> list[Path]:
    """The notebooks that a command line names: files as they are, and what folders hold, sorted.

    Links are among them, also those to folders: `take` says that they are none.
    """
    paths: list[Path] = []
    for path in given:
        inside = [
            p
            for p in path.rglob("*")
            if ((p.suffix == ".ipynb" and not p.is_dir()) or (p.is_symlink() and p.is_dir()))
            and not _hidden(p.relative_to(path))
        ]
        paths += sorted(inside) or [path]
    return list(dict.fromkeys(paths))


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def learners_of(paths: Sequence[Path], labs: Sequence[str] = ()) -> dict[Path, str]:
    """Each notebook's learner: its file's name, or its folder's where several files or a lab have that name.

    `submissions/ada/03_triton.ipynb` and `submissions/grace/03_triton.ipynb` are ada's and grace's,
    `ada.ipynb` is ada's. Where folders have one name too, as much of the path is taken as tells them apart.
    """
    stems = Counter(path.stem for path in paths)
    names: dict[Path, str] = {}
    by_folder = [p for p in paths if stems[p.stem] > 1 or p.stem in labs]
    for path in paths:
        names[path] = path.stem
    for path in by_folder:
        parts = path.absolute().parent.parts
        others = {p.absolute().parent for p in by_folder if p.stem == path.stem} - {path.absolute().parent}
        n = 1
        while n < len(parts) - 1 and any(other.parts[-n:] == parts[-n:] for other in others):
            n += 1
        names[path] = "/".join(parts[-n:]) or path.stem
    return _apart(names)


def _apart(names: dict[Path, str]) -> dict[Path, str]:
    """The names in characters that can be written; two that differ in other bytes only stay two."""
    owners: dict[str, str] = {}
    found = {}
    for path, name in names.items():
        shown, n = clean(name), 1
        while owners.setdefault(shown, name) != name:
            n += 1
            shown = f"{clean(name)} ({n})"
        found[path] = shown
    return found


def take(paths: Sequence[Path], learners: dict[Path, str], copies: Copies) -> list[Submitted]:
    """Copy every notebook.

    Raises:
        UsageError: The disk of temporary files is full.
    """
    taken = []
    for path in paths:
        about = (learners[path], clean(str(path)), clean(path.stem))
        try:
            content = _content(path)
        except _NotTaken as problem:
            taken.append(Submitted(*about, problem=str(problem)))
            continue
        digest = hashlib.sha256(content).hexdigest()
        taken.append(Submitted(*about, copies.add(content), len(content), digest))
    return taken


class _NotTaken(ValueError):
    """A path that holds no notebook; the message is the end of a sentence."""


def _content(path: Path) -> bytes:
    if path.is_symlink():
        raise _NotTaken("it is a link; put the notebook itself there")
    if path.is_dir():
        raise _NotTaken("it is a folder without a notebook (*.ipynb)")
    try:
        # Neither a link that is put there now nor a pipe that nobody writes into.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise _NotTaken("there is no such file") from None
    except OSError as error:
        raise _NotTaken(f"it cannot be read ({error.strerror})") from error
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _NotTaken("it is no ordinary file")
        content = file.read(_MAX_FILE + 1)
    if len(content) > _MAX_FILE:
        raise _NotTaken(f"it is larger than {_MAX_FILE // 2**20} MB; clear its outputs")
    return content

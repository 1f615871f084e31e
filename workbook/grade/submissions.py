"""Which notebooks there are, whose they are, and copies of them made before the first learner's line runs.

Folders are opened one below the other without following links, so that a folder that somebody exchanges for
a link meanwhile is one sentence about that notebook.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbook.grade.marks import Graded
from workbook.sandbox.texts import clean, one_line
from workbook.usage import UsageError

_MAX_FILE = 20 * 2**20
_MOST_LISTED = 5
_DEEPEST = 20  # folders below each other; each one that is open takes a file descriptor
_SECOND_COPY = re.compile(r"(.+?)(-Copy\d*| ?\(\d+\))+")  # as JupyterLab and browsers call it
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # no link, and no pipe without a writer


@dataclass(frozen=True)
class Found:
    """A path that is or may be a notebook.

    Attributes:
        top: What the command line names.
        inside: The path below that folder, or () where `top` is the notebook.
    """

    top: Path
    inside: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The whole path."""
        return self.top.joinpath(*self.inside)


@dataclass(frozen=True)
class Submitted:
    """One notebook as it was handed in.

    Attributes:
        learner: Whose it is; no two notebooks' paths are called the same unless they are one learner's.
        notebook: Its path as given, in characters that can be written.
        stem: What its file is called, without its ending.
        by_folder: Whether its folder names the learner.
        offset, size: Where its bytes are in `Copies`.
        digest: SHA-256 of its bytes, or "".
        problem: Why there is no copy, as the end of a sentence, or "".
    """

    learner: str
    notebook: str
    stem: str
    by_folder: bool = False
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


# ------------------------------------------------------------------------------------------------ which


def find(given: Sequence[Path]) -> list[Found]:
    """The notebooks that a command line names: files as they are, and what folders hold, sorted.

    Links are among them, also those to folders: `take` says that they are none.
    """
    found: dict[str, Found] = {}
    for top in given:
        inside: list[tuple[str, ...]] = []
        with contextlib.suppress(OSError), _opened(top) as folder:
            inside += _notebooks(folder, ())
        for one in [Found(top, parts) for parts in inside] or [Found(top)]:
            found.setdefault(os.path.abspath(one.path), one)
    return list(found.values())


@contextlib.contextmanager
def _opened(name: str | Path, folder: int | None = None) -> Iterator[int]:
    """Open a folder; one inside another must not be a link.

    Raises:
        OSError: It is no folder, or it cannot be read.
    """
    fd = os.open(name, _FOLDER if folder is None else _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)


def _notebooks(folder: int, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The notebooks below an open folder, and what is a link to a folder or cannot be opened."""
    for name in sorted(os.listdir(folder)):
        parts = (*above, name)
        if name.startswith("."):
            continue
        if not _is_folder(name, folder):
            if name.endswith(".ipynb"):
                yield parts
        elif len(parts) == _DEEPEST:
            yield parts
        else:
            try:
                with _opened(name, folder) as below:
                    yield from _notebooks(below, parts)
            except OSError:
                yield parts


def _is_folder(name: str, folder: int) -> bool:
    """Whether it is a folder or a link to one."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder).st_mode)
    except OSError:
        return False


# ------------------------------------------------------------------------------------------------ whose


def learners_of(found: Sequence[Found], labs: Sequence[str] = ()) -> list[tuple[str, bool]]:
    """Each notebook's learner, and whether it is named by a folder.

    A sub-folder of a folder on the command line is a learner, with every notebook in it. Any other notebook
    is named after its file, or after its folder if the file is called like a lab. Where learners in different
    folders have one name, as much of the path is added as tells them apart.
    """
    whose = [_whose(one, labs) for one in found]
    same: dict[str, set[Path]] = defaultdict(set)
    for place, _ in whose:
        same[place.name].add(place)
    names = {place: _ending(place, places - {place}) for places in same.values() for place in places}
    names = _apart(names)
    return [(names[place], by_folder) for place, by_folder in whose]


def _whose(one: Found, labs: Sequence[str]) -> tuple[Path, bool]:
    """A learner's folder, or the path that it would have."""
    top = Path(os.path.abspath(one.top))
    if len(one.inside) > 1:
        return top / one.inside[0], True
    path = top.joinpath(*one.inside)
    copy = _SECOND_COPY.fullmatch(path.stem)
    if (copy[1] if copy else path.stem) in labs:
        return path.parent, True
    return path.with_suffix("") if path.suffix == ".ipynb" else path, False


def _ending(place: Path, others: set[Path]) -> str:
    """The end of a path that no other one has."""
    n = 1
    while n < len(place.parts) and any(other.parts[-n:] == place.parts[-n:] for other in others):
        n += 1
    return "/".join(place.parts[-n:])


def _apart(names: dict[Path, str]) -> dict[Path, str]:
    """The names in characters that can be written; two that differ in other bytes only stay two."""
    owners: dict[str, str] = {}
    found = {}
    for place, name in names.items():
        shown, n = one_line(name), 1
        while owners.setdefault(shown, name) != name:
            n += 1
            shown = f"{one_line(name)} ({n})"
        found[place] = shown
    return found


# ------------------------------------------------------------------------------------------------ copies


def take(found: Sequence[Found], labs: Sequence[str], copies: Copies) -> list[Submitted]:
    """Copy every notebook.

    Args:
        found: From `find`.
        labs: The labs' names, also old ones: a file that is called so doesn't name its learner.
        copies: Where the bytes go.

    Raises:
        UsageError: The disk of temporary files is full.
    """
    taken = []
    for one, (learner, by_folder) in zip(found, learners_of(found, labs), strict=True):
        about = (learner, one_line(str(one.path)), clean(one.path.stem), by_folder)
        try:
            content = _content(one)
        except _NotTaken as problem:
            taken.append(Submitted(*about, problem=str(problem)))
            continue
        digest = hashlib.sha256(content).hexdigest()
        taken.append(Submitted(*about, copies.add(content), len(content), digest))
    return taken


class _NotTaken(ValueError):
    """A path that holds no notebook; the message is the end of a sentence."""


def _content(one: Found) -> bytes:
    try:
        with contextlib.ExitStack() as folders:
            folder, path = None, one.path
            if one.inside:
                folder = folders.enter_context(_opened(one.top))
                for part in one.inside[:-1]:
                    folder = folders.enter_context(_opened(part, folder))
                path = Path(one.inside[-1])
            fd = os.open(path, _FILE, dir_fd=folder)
            try:
                return _read(fd)
            finally:
                os.close(fd)
    except OSError as error:
        raise _NotTaken(_why(error)) from error


def _read(fd: int) -> bytes:
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        raise _NotTaken("it is a folder without a notebook (*.ipynb)")
    if not stat.S_ISREG(mode):
        raise _NotTaken("it is no ordinary file")
    with open(fd, "rb", closefd=False) as file:
        content = file.read(_MAX_FILE + 1)
    if len(content) > _MAX_FILE:
        raise _NotTaken(f"it is larger than {_MAX_FILE // 2**20} MB; clear its outputs")
    return content


def _why(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "it is a link; put the notebook itself there"
    if error.errno == errno.ENOENT:
        return "there is no such file"
    return f"it cannot be read ({error.strerror})"


def claims(taken: Sequence[Submitted], graded: Sequence[Graded]) -> list[str]:
    """A sentence for each learner whom several notebooks of one lab claim, or a file and a folder."""
    of: dict[str, list[tuple[Submitted, str]]] = defaultdict(list)
    for one, result in zip(taken, graded, strict=True):
        of[one.learner].append((one, result.lab))
    says = []
    for learner, theirs in of.items():
        if len({one.by_folder for one, _ in theirs}) > 1:
            listed = _listed([one for one, _ in theirs])
            says.append(f"A file and a folder are called {learner}: {listed}. Are they one learner's?")
            continue
        for lab in dict.fromkeys(lab for _, lab in theirs if lab):
            if len(again := [one for one, its_lab in theirs if its_lab == lab]) > 1:
                says.append(f"{learner} has {len(again)} notebooks of {lab}: {_listed(again)}.")
    return [f"{one} Each was graded; the gradebooks count the best one." for one in says]


def _listed(several: Sequence[Submitted]) -> str:
    more = f" and {len(several) - _MOST_LISTED} more" if len(several) > _MOST_LISTED else ""
    return ", ".join(one.notebook for one in several[:_MOST_LISTED]) + more

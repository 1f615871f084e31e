"""Locks that end with their holder, for files that several processes and machines write.

flock(2): the system lets go of a lock when its process ends, however that comes, so a killed writer locks nobody out and
nobody has to guess from a process number or a clock who lives. Between machines it holds where the file system carries
locks: NFS 4, NFS 3 with its lock service, Lustre mounted with `flock`, GPFS; not where it is mounted with `nolock`,
`local_lock` or `localflock`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

_HELD = (errno.EWOULDBLOCK, errno.EACCES)
_NONE = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
_AGAIN_S = 0.2  # between two tries: a lock of another machine tells nobody that it is free
_PARTIAL = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")


class Lock:
    """A lock that this process holds until `close`, or its end.

    Attributes:
        path: Its file.
        before: What the last holder wrote into it, where that one ended without `close`; or "".
        real: False where the file system has no locks.
    """

    def __init__(self, path: Path, fd: int, *, real: bool) -> None:
        self.path, self.real, self._fd = path, real, fd
        self.before = os.pread(fd, 4096, 0).decode(errors="replace")

    def write(self, text: str) -> None:
        """Say who holds it; gone with `close`. For people, so a full disk is no error."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text.encode(), 0)

    def close(self, *, keep: bool = False) -> None:
        """Let go, and take the file away unless it is to be kept."""
        if not keep:
            self.path.unlink(missing_ok=True)
        os.close(self._fd)


def take(path: Path, *, make: bool = True) -> Lock | None:
    """Take a lock if it is free.

    Args:
        path: Its file, made if missing.
        make: Whether to make it. Without, a missing file is a `FileNotFoundError`.

    Returns:
        The lock, or None where another process holds it.
    """
    if make:
        path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0), 0o666)
        real = True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NONE:
                os.close(fd)
                if error.errno in _HELD:
                    return None
                raise
            real = False
        # Its last holder may have taken the file away between the two calls: then this lock is of no file.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), path.stat()):
                return Lock(path, fd, real=real)
        os.close(fd)


def wait(path: Path, stop: threading.Event | None = None) -> Lock:
    """Take a lock when it is free.

    Raises:
        InterruptedError: `stop` was set while it waited.
    """
    while (lock := take(path)) is None:
        if stop is None:
            time.sleep(_AGAIN_S)
        elif stop.wait(_AGAIN_S):
            raise InterruptedError
    return lock


@contextlib.contextmanager
def hold(path: Path) -> Iterator[Lock]:
    """Wait for a lock and hold it for a block."""
    with contextlib.closing(wait(path)) as lock:
        yield lock


def is_held(path: Path) -> bool:
    """Whether a process holds this lock, without taking it from anybody."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _HELD
    return False


@contextlib.contextmanager
def partial(path: Path) -> Iterator[Path]:
    """A file beside `path` to write first, locked while it is written; gone at the end, unless put in its place."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    with hold(beside):  # `sweep` may look at it just now
        yield beside


def sweep(*folders: Path) -> None:
    """Remove what writers who are dead had begun in these folders; what is being written stays."""
    for folder in folders:
        for path in folder.glob(".*.tmp"):
            if not _PARTIAL.fullmatch(path.name):
                continue
            with contextlib.suppress(OSError):
                if lock := take(path, make=False):
                    lock.close(keep=not lock.real)

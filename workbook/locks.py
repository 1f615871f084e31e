"""File locks that end with the process that holds them, for files that several processes and machines write.

They are `flock` locks: the operating system releases a lock when its process ends, even by SIGKILL, so a
killed process locks nobody out. They work between machines if the file system supports that: NFS 4, NFS 3
with its lock service, Lustre mounted with `flock`, and GPFS do; a mount with `nolock`, `local_lock` or
`localflock` does not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

_HELD = (errno.EWOULDBLOCK, errno.EACCES)
_UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
_RETRY_S = 0.1  # between two attempts: a lock on another machine sends no notification
_PARTIAL = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")


class Lock:
    """A lock that this process holds until `close`, or until it ends.

    Attributes:
        path: Its file.
        before: What the last holder wrote into it, if that one ended without `close`; or "".
        real: False if the file system has no locks.
    """

    def __init__(self, path: Path, fd: int, *, real: bool) -> None:
        self.path, self.real, self._fd = path, real, fd
        self.before = os.pread(fd, 4096, 0).decode(errors="replace")

    def write(self, text: str) -> None:
        """Write something into the file until `close`, such as who holds it. A full disk is ignored."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text.encode(), 0)

    def close(self, *, keep: bool = False) -> None:
        """Release the lock, and remove its file unless `keep` is set."""
        if not keep:
            self.path.unlink(missing_ok=True)
        os.close(self._fd)


def take(path: Path, *, create: bool = True) -> Lock | None:
    """Take a lock if it is free.

    Args:
        path: Its file.
        create: Whether to create the file if it is missing; otherwise that is a `FileNotFoundError`.

    Returns:
        The lock, or None if another process holds it.
    """
    if create:
        path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o666)
        real = True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                os.close(fd)
                if error.errno in _HELD:
                    return None
                raise
            real = False
        # The last holder may have removed the file between the two calls; then this is a lock on no file.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), path.stat()):
                return Lock(path, fd, real=real)
        os.close(fd)


@contextlib.contextmanager
def hold(path: Path) -> Iterator[Lock]:
    """Wait for a lock and hold it for a block."""
    while (lock := take(path)) is None:
        time.sleep(_RETRY_S)
    with contextlib.closing(lock):
        yield lock


def is_held(path: Path) -> bool:
    """Whether a process holds this lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _HELD
    return False


@contextlib.contextmanager
def partial(path: Path) -> Iterator[Path]:
    """A temporary file in the folder of `path`, locked while it is written and removed at the end, unless it
    was moved.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    with hold(temporary):  # `sweep` may be inspecting it
        yield temporary


def sweep(*folders: Path) -> None:
    """Remove the temporary files of `partial` that killed processes left in these folders."""
    for folder in folders:
        for path in folder.glob(".*.tmp"):
            if _PARTIAL.fullmatch(path.name):
                remove_if_free(path)


def remove_if_free(path: Path) -> None:
    """Remove a locked file if the process that held its lock has ended."""
    with contextlib.suppress(OSError):
        if lock := take(path, create=False):
            lock.close(keep=not lock.real)

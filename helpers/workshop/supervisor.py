"""A process that leaves nothing behind: a supervisor above it ends every process that it started, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Iterable

# prctl's numbers: a signal when the parent ends; orphans of this process's descendants become its children.
_PARENT_DEATH_SIGNAL, _CHILD_SUBREAPER = 1, 36


def prctl(what: int, value: int) -> None:
    """Ask the kernel for something about this process. Other systems than Linux have no prctl and leave it undone."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(what, int(value), 0, 0, 0)


def end_with_parent(number: int) -> None:
    """Have this process get a signal when its parent ends."""
    prctl(_PARENT_DEATH_SIGNAL, number)


def supervised(leash: int, close: Iterable[int] = ()) -> None:
    """Fork. This process becomes the supervisor and does not return; the child returns, in a session of its own.

    When the child ends, or whoever holds the other end of the leash lets go of it (or is killed), the supervisor ends
    every process below it, however far they forked away, and then itself in the same way as the child. Other systems
    than Linux have no prctl: there a process that forks away may be missed.

    Args:
        leash: The reading end of a pipe, of which nothing is read here: it may be one by which the child is sent something.
        close: What only the child needs.
    """
    adopt_orphans()
    child = os.fork()
    if child:
        for fd in close:
            os.close(fd)
        _supervise(child, leash)
    end_with_parent(signal.SIGKILL)
    os.setsid()
    os.close(leash)


def adopt_orphans() -> None:
    """Become the parent of whatever forks away below this process, so that `end_descendants` finds it."""
    prctl(_CHILD_SUBREAPER, 1)


def end_descendants(child: int = 0) -> int | None:
    """End every process below this one; the status of `child` if it ended now."""
    import psutil

    status, until = None, time.monotonic() + 10
    while (found := psutil.Process().children(recursive=True)) and time.monotonic() < until:
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        status = _reap().get(child, status)
        time.sleep(0.01)
    return status


def _supervise(child: int, leash: int) -> None:
    status, end = None, select.poll()
    end.register(leash, 0)  # poll tells of a pipe's end whatever else it is asked for
    while status is None and not end.poll(50):
        status = _reap().get(child)
    ended_now = end_descendants(child)
    status = ended_now if status is None else status
    code = os.waitstatus_to_exitcode(status) if status is not None else 0
    if code < 0:
        # The starter reads the signal from this process's own end; without a second core file.
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        code = 128 - code  # as shells say it: the first process of a container is spared its own signals
    os._exit(code)


def _reap() -> dict[int, int]:
    """The statuses of ended children, by process."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    return ended

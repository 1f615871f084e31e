"""Run a process under a supervisor, which ends every process below it no matter how that process ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import time
from collections.abc import Iterable

# Options of prctl: send a signal when the parent ends; make orphaned descendants children of this process.
_PARENT_DEATH_SIGNAL, _CHILD_SUBREAPER = 1, 36


def prctl(what: int, value: int) -> None:
    """Set an option of this process in the Linux kernel; does nothing on other systems."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(what, int(value), 0, 0, 0)


def end_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    prctl(_PARENT_DEATH_SIGNAL, number)


def supervised(leash: int, close: Iterable[int] = (), scratch: str = "") -> None:
    """Fork a child under a supervisor.

    This process becomes the supervisor and never returns from the call. The child returns, in a session of
    its own. When the child ends, or when the other end of the leash is closed (for example because its owner
    was killed), the supervisor ends every process below it, including those that moved to another session.
    It then removes the scratch folder and ends itself in the same way as the child did. Without prctl, which
    only Linux has, it can miss a process that was orphaned.

    Args:
        leash: The reading end of a pipe. The supervisor never reads from it, so the child may receive data
            through it.
        close: File descriptors that only the child needs.
        scratch: The folder of the child's temporary files, or "".
    """
    adopt_orphans()
    child = os.fork()
    if child:
        for fd in close:
            os.close(fd)
        _supervise(child, leash, scratch)
    end_with_parent(signal.SIGKILL)
    os.setsid()
    os.close(leash)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that `end_descendants` finds them."""
    prctl(_CHILD_SUBREAPER, 1)


def end_descendants(child: int = 0) -> int | None:
    """Kill every process below this one.

    Returns:
        The wait status of `child` if it ended during the call.
    """
    import psutil

    status, until = None, time.monotonic() + 10
    while (found := psutil.Process().children(recursive=True)) and time.monotonic() < until:
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        status = _reap().get(child, status)
        time.sleep(0.01)
    return status


def _supervise(child: int, leash: int, scratch: str) -> None:
    status, end = None, select.poll()
    end.register(leash, 0)  # poll reports a closed pipe whatever events it was asked for
    while status is None and not end.poll(50):
        status = _reap().get(child)
    ended_now = end_descendants(child)
    status = ended_now if status is None else status
    if scratch:
        shutil.rmtree(scratch, ignore_errors=True)
    code = os.waitstatus_to_exitcode(status) if status is not None else 0
    if code < 0:
        # Whoever started us reads the signal from how this process ends. One core file is enough.
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        code = 128 - code  # PID 1 of a container survives its own signals: exit as a shell would
    os._exit(code)


def _reap() -> dict[int, int]:
    """Map each child that has ended to its wait status."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    return ended

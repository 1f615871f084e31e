"""The first thing that a process of `process.Process` does: separate its pipes from what it prints, and limit
itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import sys
from typing import Any

from workbook.supervisor import supervised

_KEYCTL, _JOIN_SESSION_KEYRING = {"x86_64": 250, "aarch64": 219}, 1  # see keyctl(2)
# No core files; files that are open in a process, each of which may be a socket with a buffer in the kernel;
# processes and threads (which Linux does not count for root).
_LIMITS = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: 2048, resource.RLIMIT_NPROC: 4096}


def enter(settings: dict[str, Any], name: str) -> tuple[int, int]:
    """Prepare this process; call it before anything that may start a thread, such as importing torch.

    Requests arrive over stdin, whose end is the leash; replies go to stdout, and what the code prints to
    stderr. Outside of a sandbox it forks first: a supervisor, which runs nothing that isn't trusted, ends
    every process below it, however far they forked away, when this process ends or the other side lets go of
    the leash.

    Args:
        settings: `folder`: where the code runs; `sandboxed`: whether this process is in a sandbox.
        name: the name of the program, `sys.argv[0]`.

    Returns:
        The file descriptors of requests and replies.
    """
    requests, replies = (os.dup(fd) for fd in (0, 1))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    if not settings["sandboxed"]:
        supervised(os.dup(requests), (requests, replies), settings["folder"])
    sys.argv = [name]
    os.chdir(settings["folder"])
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory runs out, this process goes first and not the one that started it
    if settings["sandboxed"]:
        _complete_sandbox()
    for folder in ("cache", "tmp"):
        os.mkdir(folder)
    return requests, replies


def _complete_sandbox() -> None:
    """Set what bubblewrap does not: limits of this process, and a keyring of its own, or it would share that
    of whoever started it.
    """
    for what, most in _LIMITS.items():
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))
    if number := _KEYCTL.get(platform.machine()):
        ctypes.CDLL(None).syscall(number, _JOIN_SESSION_KEYRING, None)

"""A memory limit that Linux keeps for all processes of a notebook together: a control group, where this
system grants one.

See https://docs.kernel.org/admin-guide/cgroup-v2.html; the older version 1 has the same under other names.
Root is granted one on most systems, other users only where one was delegated to them.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

_NAME = "workbook-grade-"
_WAIT_S = 5.0  # for processes that have been killed and are not gone
# The limit, the limit of memory with swap (left out where there is none), and where kills are counted.
_V2 = ("memory.max", "memory.swap.max", "memory.events")
_V1 = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control")


@dataclass(frozen=True)
class Cgroup:
    """A control group with a memory limit.

    Attributes:
        path: Its folder.
        events: The file in which the kernel counts the processes that it killed for want of memory.
    """

    path: Path
    events: Path

    def inside(self, argv: list[str]) -> list[str]:
        """The command that runs a command in this group."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.path / "cgroup.procs"), *argv]

    @property
    def n_killed(self) -> int:
        """How many of its processes were killed for want of memory."""
        found = re.search(r"^oom_kill (\d+)", self.events.read_text(), re.MULTILINE)
        return int(found[1]) if found else 0


@contextlib.contextmanager
def limited(memory_mb: float) -> Iterator[Cgroup | None]:
    """A new group whose processes get this much memory, MB (10^6 bytes), files in memory and the kernel's own
    buffers counted; None where this system grants none.
    """
    found = next(filter(None, (_made(parent, memory_mb) for parent in _parents())), None)
    try:
        yield found
    finally:
        until = time.monotonic() + _WAIT_S
        while found is not None and not _removed(found.path) and time.monotonic() < until:
            time.sleep(0.02)


def about(memory_mb: float) -> str:
    """How the memory of learners' processes is limited here, as a report says it."""
    with limited(memory_mb) as found:
        if found:
            return "memory limited by a control group"
    return "memory measured ten times a second, without the kernel's own buffers"


def _parents() -> list[Path]:
    """Where a group may be made: below this process's own, or at the top, as root can."""
    mounted = Path("/proc/self/mountinfo").read_text() if os.path.exists("/proc/self/mountinfo") else ""
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines() if mounted else ():
        _, controllers, own = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        kind = r"cgroup \S+ \S*\bmemory\b" if controllers else r"cgroup2 "
        if top := re.search(rf"^(?:\S+ ){{4}}(\S+) .* - {kind}", mounted, re.MULTILINE):
            found += [Path(top[1]) / own.lstrip("/"), Path(top[1])]
    return found


def _made(parent: Path, memory_mb: float) -> Cgroup | None:
    _tidy(parent)
    path = parent / f"{_NAME}{os.getpid()}-{time.monotonic_ns()}"
    limit, with_swap, events = _V2 if (parent / "cgroup.controllers").exists() else _V1
    for controller in ("memory", "cpu"):  # with the second one, no notebook can take the time of another
        with contextlib.suppress(OSError):
            (parent / "cgroup.subtree_control").write_text(f"+{controller}")
    try:
        path.mkdir()
        (path / limit).write_text(str(int(memory_mb * 1e6)))
    except OSError:
        _removed(path)
        return None
    with contextlib.suppress(OSError):
        (path / with_swap).write_text("0" if with_swap == _V2[1] else str(int(memory_mb * 1e6)))
    return Cgroup(path, path / events)


def _tidy(parent: Path) -> None:
    """Remove the groups of graders that were killed."""
    for path in parent.glob(f"{_NAME}*"):
        if not psutil.pid_exists(int(path.name.removeprefix(_NAME).split("-")[0])):
            _removed(path)


def _removed(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        try:
            path.rmdir()
        except OSError:
            return False
    return True

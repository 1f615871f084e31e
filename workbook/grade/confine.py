"""What the kernel keeps a learner's process from: Landlock, limits, prctl and a spare user's id, asked for
through ctypes.

Python's library has none of it. Landlock needs neither root nor an installation; what of it there is depends
on the kernel, see https://docs.kernel.org/userspace-api/landlock.html, whose numbers and structures are used
here.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import resource
import secrets
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import helpers
from workbook.grade import syscalls
from workbook.supervisor import prctl

# The packages that a learner's process imports.
HELPERS = Path(helpers.__file__).resolve().parent
WORKBOOK = Path(__file__).resolve().parents[1]

# prctl's numbers
_SET_DUMPABLE, _SET_NO_NEW_PRIVS = 4, 38
_DROP_FROM_BOUNDING_SET, _AMBIENT, _CLEAR_AMBIENT = 24, 47, 4
_CAPABILITIES_VERSION, _MOST_CAPABILITIES = 0x20080522, 64
# Landlock's system calls and rights
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST_RIGHTS = (1 << 13) - 1  # those of the first version
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals
_SINCE = {
    "truncating files": 3,
    "TCP": 4,
    "signals": 6,
}  # the version from which Landlock keeps a process from them

_READ = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix", "/proc", "/sys")
_DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "dri")
# CUDA names its threads there, and does not start (error 304) where it may not. Writing below all of /proc
# would be a way out.
_OWN_THREADS = "/proc/self/task"
_FILE_BYTES = 2 * 2**30
_SPARE_USERS = range(61184, 65520)  # systemd hands these out too, and gives them to nobody by name
_MORE_TASKS = 2000  # processes and threads beside those that the user has


def unobserved(on: bool) -> None:
    """Keep other processes of this user from reading this one's memory, environment and files, or let them
    again.
    """
    prctl(_SET_DUMPABLE, not on)


def spare_user() -> int:
    """A user id that nobody has, another one for each call."""
    return secrets.choice(_SPARE_USERS)


def is_open_to_all(paths: Sequence[str], *, parents: bool) -> bool:
    """Whether every user may read these files and look into these folders, and into those above them if
    `parents`.
    """
    for path in map(Path, paths):
        try:
            wanted = 0o5 if path.is_dir() else 0o4
            if path.exists() and path.stat().st_mode & wanted != wanted:
                return False
            if parents and not all(one.stat().st_mode & 0o1 for one in path.resolve().parents):
                return False
        except OSError:
            return False
    return True


def plan(folder: Path, path: Sequence[str], files: Sequence[str] = ()) -> dict[str, list[str]]:
    """What a learner's process may do with which files, by what it may do.

    Args:
        folder: Its own.
        path: Where it imports from. Of the folder that holds `helpers` and `workbook` it may read these
            packages only: beside it lie the labs' solutions, and perhaps what other learners handed in.
        files: Further ones that it reads.

    Returns:
        "read", "list", "devices", "threads" and "write", each with paths; those of threads are of the process
        that enters.
    """
    named = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")]
    named += [sys.prefix, sys.base_prefix, *path, *os.environ.get("PATH", "").split(os.pathsep)]
    named += os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    folders = {Path(one).resolve() for one in named if os.path.isabs(one)}
    above = {one for one in folders if one in {*HELPERS.parents, *WORKBOOK.parents}}
    return {
        "read": [*_READ, *map(str, folders - above), str(HELPERS), str(WORKBOOK), *files],
        "list": [str(one) for one in above],
        "devices": [found for name in _DEVICES for found in glob.glob(f"/dev/{name}")],
        "threads": [_OWN_THREADS],
        "write": [str(folder)],
    }


def enter(allowed: dict[str, list[str]] | None, user: int = 0, file_bytes: int = 0) -> str:
    """Confine this process and all that it starts, for good. To be called while it has one thread only.

    Args:
        allowed: What `plan` gives; None to set limits only.
        user: Whose id to take, as root can; 0 to keep its own.
        file_bytes: How large a file may be, where that is less than 2 GB; 0 for these.

    Returns:
        How it is confined, as a sentence of the report says it.
    """
    own = ", with a user id of its own" if user and _become(user) else ""
    _limit(file_bytes)
    if allowed is None:
        return f"not confined, as asked for{own}"
    prctl(_SET_NO_NEW_PRIVS, 1)
    filtered = syscalls.refuse(unix_sockets=bool(glob.glob("/dev/nvidia*")))
    version = landlock_version()
    if version < 1:
        return f"not confined: this system has no Landlock{own}"
    try:
        _landlock(allowed, version)
        _drop_capabilities()
    except OSError as error:
        return f"not confined: Landlock refused it ({error.strerror}){own}"
    lacks = [what for what, since in _SINCE.items() if version < since]
    lacks += [] if filtered else ["further sockets and shared memory"]
    return f"confined, but for {' and '.join(lacks)} (Landlock {version}){own}" if lacks else f"confined{own}"


def _become(user: int) -> bool:
    """Take another user's id for good, if this process may."""
    try:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    except OSError:  # a container may know few ids
        return False
    unobserved(False)  # the kernel hides a process that changed its user, also its own files from itself
    return True


def _limit(file_bytes: int) -> None:
    """Limits of this process: no core files, files of 2 GB, and processes and threads (which Linux does not
    count for root).
    """
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: min(file_bytes or _FILE_BYTES, _FILE_BYTES)}
    if os.getuid():
        n_tasks = 0
        for task in glob.iglob("/proc/[0-9]*/task"):
            with contextlib.suppress(OSError):
                n_tasks += len(os.listdir(task)) if os.stat(task).st_uid == os.getuid() else 0
        limits[resource.RLIMIT_NPROC] = n_tasks + _MORE_TASKS
    for what, value in limits.items():
        hard = resource.getrlimit(what)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(what, (value, value))


def _drop_capabilities() -> None:
    """Leave root no more than any user may do with root's own files: CAP_PERFMON reads environments past
    Landlock.
    """
    for capability in range(_MOST_CAPABILITIES):
        prctl(_DROP_FROM_BOUNDING_SET, capability)
    prctl(_AMBIENT, _CLEAR_AMBIENT)
    header = struct.pack("=Ii", _CAPABILITIES_VERSION, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, bytes(24)) < 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")


def landlock_version() -> int:
    """The version of the kernel's Landlock, 0 where it has none."""
    if sys.platform != "linux":  # the number means something else there
        return 0
    with contextlib.suppress(OSError, AttributeError):
        return max(_call(_CREATE_RULESET, None, ctypes.c_size_t(0), 1), 0)
    return 0


def _landlock(allowed: dict[str, list[str]], version: int) -> None:
    every = _FIRST_RIGHTS
    for right, since in ((_REFER, 2), (_TRUNCATE, 3), (_IOCTL_DEV, 5)):
        every |= right if version >= since else 0
    read = _EXECUTE | _READ_FILE | _READ_DIR
    rights = {
        "read": read, "list": _READ_DIR, "threads": (_WRITE_FILE | _TRUNCATE) & every, "write": every,
        "devices": (_READ_FILE | _WRITE_FILE | _READ_DIR | _TRUNCATE | _IOCTL_DEV) & every,
    }  # fmt: skip
    attributes = struct.pack("=QQQ", every, _TCP, _SCOPES)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    try:
        for kind, paths in allowed.items():
            for path in dict.fromkeys(paths):
                with contextlib.suppress(FileNotFoundError, PermissionError, NotADirectoryError):
                    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
                    try:
                        given = rights[kind] if os.path.isdir(path) else rights[kind] & _OF_FILES
                        _call(_ADD_RULE, ruleset, 1, struct.pack("=Qi", given, fd), 0)
                    finally:
                        os.close(fd)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _call(number: int, *args: Any) -> int:
    """A system call.

    Raises:
        OSError: The kernel refuses it.
    """
    result = ctypes.CDLL(None, use_errno=True).syscall(number, *args)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

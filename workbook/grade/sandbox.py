"""What stands around a learner's process where a teacher asks for it: bubblewrap's namespaces, or a
container.

Both get a system that is read-only, no network, and memory for files that ends with them. Requests come over
stdin, replies go to stdout and what is printed to stderr, so that nothing else must reach inside. What
`confine` asks of the kernel comes on top, in each of them.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbook.grade import confine
from workbook.usage import UsageError, first_line

CONTAINERS = ("docker", "podman")
KINDS = ("bwrap", *CONTAINERS)
IMAGE = "kernel-workbook-grade"
DOCKERFILE = "workbook/grade/Dockerfile"
_INSIDE = "/workbook"  # where a container sees this package
_TASKS, _OPEN_FILES = 2000, 1024  # processes and threads of a container; files of one process
_ASK_S = 60.0
# An image has its own Python, compiler and CUDA.
_OF_THIS_SYSTEM = re.compile(
    r"PATH|LD_LIBRARY_PATH|C(C|XX)|CUDA_(HOME|PATH)|CONDA_PREFIX|TRITON_(LIBCUDA|PTXAS)_PATH|SSL_.*"
)


@dataclass(frozen=True)
class Sandbox:
    """What to put around a process.

    Attributes:
        kind: "bwrap", "docker" or "podman".
        says: How the report calls it, such as "sandboxed by bubblewrap 0.8.0".
        image: A container's.
    """

    kind: str
    says: str
    image: str = ""


@dataclass(frozen=True)
class Started:
    """A command that starts a process inside, and what differs there.

    Attributes:
        argv: The command, up to and with Python and its options.
        folder: The process's own folder as it sees it.
        path: Where it imports from; the workbook and Python's own places where that is another Python.
        exercises: The file with further exercises as it sees it, or "".
        name: The container's, or "".
    """

    argv: tuple[str, ...]
    folder: str
    path: tuple[str, ...]
    exercises: str
    name: str = ""


def require(kind: str, image: str = "") -> Sandbox:
    """See whether this machine has it.

    Raises:
        UsageError: It is not there or does not work; the sentence says what to do.
    """
    if kind not in KINDS:
        raise UsageError(f"--sandbox {kind!r} is none; there are {', '.join(KINDS)}.")
    if sys.platform != "linux":
        raise UsageError(f"--sandbox {kind} needs Linux; grade without it, or in a virtual machine.")
    if not shutil.which(kind):
        package = "bubblewrap" if kind == "bwrap" else kind
        raise UsageError(
            f"--sandbox {kind}: there is no {kind} here; install {package}, or grade without --sandbox."
        )
    if kind == "bwrap":
        _ask(kind, ["bwrap", *_NAMESPACES, "--ro-bind", "/", "/", "true"], "it can make no namespaces here")
        return Sandbox(kind, f"sandboxed by {_version(kind).replace('bwrap', 'bubblewrap')}")
    _ask(kind, [kind, "version"], "its service does not answer")
    image = image or IMAGE
    build = f"build it with `{kind} build -t {IMAGE} -f {DOCKERFILE} .`"
    _ask(
        kind, [kind, "image", "inspect", "--format", "{{.Id}}", image], f"there is no image {image}; {build}"
    )
    found = Sandbox(kind, f"contained by {_version(kind)}, image {image}", image)
    start = _container(found, Path("/"), "", {}, 512)
    _ask(
        kind,
        [*start.argv, "-c", "import torch"],
        "a container with the limits that are needed does not start",
    )
    return found


def _ask(kind: str, command: Sequence[str], otherwise: str) -> None:
    try:
        subprocess.run(
            command, capture_output=True, check=True, text=True, timeout=_ASK_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", "") or first_line(error)).strip().splitlines()
        raise UsageError(
            f"--sandbox {kind}: {otherwise} ({said[-1][:200] if said else 'no reason given'})."
        ) from None


def _version(kind: str) -> str:
    """Such as "bubblewrap 0.8.0" or "podman 4.3.1"."""
    said = subprocess.run([kind, "--version"], capture_output=True, text=True, check=False).stdout.split()
    number = next((word.strip(",") for word in said if word[:1].isdigit()), "")
    return f"{kind} {number}".strip()


# ------------------------------------------------------------------------------------------------ commands

_PYTHON = ("-I", "-X", "faulthandler")
_NAMESPACES = ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
# What root keeps until the learner's code begins: a spare user's id is taken, and its processes are ended.
_KEPT = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL")


def started(
    sandbox: Sandbox,
    folder: Path,
    path: Sequence[str],
    exercises: str,
    environment: Mapping[str, str],
    memory_mb: float,
) -> Started:
    """The command that starts a learner's Python inside.

    Args:
        sandbox: What `require` gave.
        folder: An empty folder of this system.
        path: Where this process imports from.
        exercises: A file that it reads, or "".
        environment: What it gets.
        memory_mb: MB (10^6 bytes) of memory: a container's in all; what files may take in one of bubblewrap's
            folders.
    """
    if sandbox.kind == "bwrap":
        return _bwrap(folder, path, exercises, memory_mb)
    return _container(sandbox, folder, exercises, environment, memory_mb)


def _bwrap(folder: Path, path: Sequence[str], exercises: str, memory_mb: float) -> Started:
    n_bytes = str(int(memory_mb * 1e6 / 4))
    private = ["--perms", "1777", "--size", n_bytes, "--tmpfs"]
    seen = sorted({*confine.plan(folder, path, [exercises] if exercises else [])["read"]} - {"/", "/proc"})
    argv = ["bwrap", *_NAMESPACES, "--die-with-parent", "--cap-drop", "ALL"]
    argv += [word for name in _KEPT for word in ("--cap-add", name)] if os.getuid() == 0 else []
    argv += ["--dev", "/dev", *private, "/dev/shm", *private, "/tmp", *private, "/var/tmp"]
    for device in sorted(glob.glob("/dev/nvidia*")):
        argv += ["--dev-bind-try", device, device]
    above = {str(parent) for one in (*seen, str(folder)) for parent in Path(one).parents} - {"/"}
    for one in sorted(above):
        argv += ["--perms", "0755", "--dir", one]  # bubblewrap's own choice shuts out all but root
    for one in seen:
        argv += ["--ro-bind-try", one, one]
    argv += ["--proc", "/proc", *private, str(folder), "--remount-ro", "/", "--chdir", str(folder), "--"]
    return Started((*argv, sys.executable, *_PYTHON), str(folder), tuple(path), exercises)


def _container(
    sandbox: Sandbox, folder: Path, exercises: str, environment: Mapping[str, str], memory_mb: float
) -> Started:
    name = f"workbook-{secrets.token_hex(12)}"
    home, user, n_bytes = "/learner", confine.spare_user(), int(memory_mb * 1e6)
    argv = [
        sandbox.kind,
        "run",
        "--rm",
        "--interactive",
        "--name",
        name,
        "--hostname",
        "learner",
        "--network",
        "none",
        "--read-only",
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges",
        "--user",
        f"{user}:{user}",
        "--log-driver",
        "none",
        "--pids-limit",
        str(_TASKS),
        "--memory",
        f"{n_bytes}b",
        "--memory-swap",
        f"{n_bytes}b",
        "--ulimit",
        "core=0:0",
        "--ulimit",
        f"nofile={_OPEN_FILES}:{_OPEN_FILES}",
        "--ulimit",
        f"nproc={_TASKS}:{_TASKS}",
        "--tmpfs",
        f"{home}:rw,exec,mode=1777,size={n_bytes // 2}",
        "--workdir",
        home,
        "--volume",
        f"{confine.HELPERS}:{_INSIDE}/helpers:ro",
        "--volume",
        f"{confine.WORKBOOK}:{_INSIDE}/workbook:ro",
    ]
    inside = ""
    if exercises:
        inside = f"{_INSIDE}-exercises.py"
        argv += ["--volume", f"{exercises}:{inside}:ro"]
    if os.path.exists("/dev/nvidiactl"):
        argv += ["--gpus", "all"] if sandbox.kind == "docker" else ["--device", "nvidia.com/gpu=all"]
    for variable, value in environment.items():
        if not _OF_THIS_SYSTEM.fullmatch(variable):
            argv += ["--env", f"{variable}={value.replace(str(folder), home)}"]
    argv += ["--entrypoint", "python", sandbox.image, *_PYTHON]
    return Started(tuple(argv), home, (_INSIDE,), inside, name)


def spare_user(folder: Path, path: Sequence[str], exercises: str, sandbox: Sandbox | None) -> int:
    """Another user's id for root's learners, or 0: where this is not root, or another user could not read
    what is needed.
    """
    if sys.platform != "linux" or os.getuid():
        return 0
    needed = [sys.executable, sys.prefix, sys.base_prefix, *(one for one in path if os.path.exists(one))]
    needed += [exercises] if exercises else []
    if sandbox:
        return confine.spare_user() if confine.is_open_to_all(needed, parents=False) else 0
    above = [str(one) for one in folder.parents]
    return confine.spare_user() if confine.is_open_to_all([*needed, *above[1:]], parents=True) else 0


# ------------------------------------------------------------------------------------------------ containers
# that run


def interrupt(sandbox: Sandbox, name: str, pid: int) -> None:
    """Send SIGINT to a process of a container, by its number there."""
    _run([sandbox.kind, "exec", name, "sh", "-c", f"kill -INT {pid}"])


def remove(sandbox: Sandbox, name: str) -> None:
    """End a container and what is in it."""
    _run([sandbox.kind, "rm", "--force", name])


def _run(command: Sequence[str]) -> None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, capture_output=True, check=False, timeout=_ASK_S, stdin=subprocess.DEVNULL)

"""The sandbox: what it sees of this machine, and the command that starts it.

It is bubblewrap (`bwrap`), with user, process, network, IPC and mount namespaces of its own: a system that is
read-only and holds neither answers nor submissions, an empty home in memory, and no network. See bwrap(1).
"""

from __future__ import annotations

import functools
import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import helpers
from helpers import device
from workbook.usage import UsageError

# The packages that a learner's process imports.
HELPERS = Path(helpers.__file__).resolve().parent
WORKBOOK = Path(__file__).resolve().parents[1]
# What must not be seen inside: a checkout with labs, solutions and tests; the answers of a package.
ANSWERS = (str(HELPERS), *([str(HELPERS.parent)] if (HELPERS.parent / "labs").is_dir() else []))
HOME = "/tmp/learner"
# Where files of the sandbox are; they are in memory.
IN_MEMORY = ("/tmp", "/var/tmp", "/dev/shm")

_NAMESPACES = (
    "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts",
    "--unshare-cgroup-try", "--uid", "1000", "--gid", "1000", "--hostname", "learner",
    "--die-with-parent", "--new-session", "--cap-drop", "ALL",
)  # fmt: skip
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/opt/nvidia")
# Programs are found, loaded and linked by these; the rest of /etc may hold secrets that root can read.
_SETTINGS = tuple(f"/etc/{name}" for name in ("alternatives", "ld.so.cache", "ld.so.conf.d", "localtime"))
# CUDA asks /sys for GPUs and torch for cores.
_HARDWARE = ("/sys/devices", "/sys/bus", "/sys/class", "/sys/module", "/sys/dev")
_GPUS = ("/dev/nvidia*", "/dev/dxg", "/dev/dri")
_TOOLS = ("c++", "nvcc", "ncu", "ninja", "cuobjdump", "nvdisasm", "ptxas")
_TRY_S = 60.0
_INSTALL = "install bubblewrap (on Debian and Ubuntu: apt-get install bubblewrap)"
_CHECK = "sysctl user.max_user_namespaces kernel.apparmor_restrict_unprivileged_userns"


def require(otherwise: str) -> str:
    """See whether code can be put into a sandbox here.

    Args:
        otherwise: What one may do without one, which ends the error's sentence.

    Returns:
        How reports call the sandbox, such as "sandboxed by bubblewrap 0.8.0".

    Raises:
        UsageError: There is none; the sentence says what to do.
    """
    if sys.platform != "linux":
        raise UsageError(f"The sandbox needs Linux: use a virtual machine, {otherwise}.")
    if not shutil.which("bwrap"):
        raise UsageError(f"There is no bwrap here for the sandbox: {_INSTALL}, {otherwise}.")
    try:
        words = ["bwrap", *_flags(), "--ro-bind", "/", "/", "--proc", "/proc", "true"]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=_TRY_S, stdin=subprocess.DEVNULL)
        failed = ran.stderr.strip() or "it gave no reason" if ran.returncode else ""
    except (OSError, subprocess.SubprocessError) as error:
        failed = str(error)
    if failed:
        raise UsageError(
            f"bubblewrap can make no sandbox here ({failed.splitlines()[-1][:200]}): allow user namespaces "
            f"(`{_CHECK}` shows whether they are), {otherwise}."
        )
    said = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=False).stdout
    return f"sandboxed by {said.strip()}"


@functools.cache
def _flags() -> tuple[str, ...]:
    """The namespaces; further ones inside are refused where bubblewrap knows how to (since 0.8)."""
    known = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, check=False)
    further = "--disable-userns" in known.stdout + known.stderr
    return (*_NAMESPACES, *(["--disable-userns"] if further else []))


def python() -> str:
    """This Python, by a path without links to folders."""
    executable = Path(sys.executable)
    return str(executable.parent.resolve() / executable.name)


def command(readable: Iterable[Path | str], hidden: Iterable[Path | str], memory_mb: float) -> list[str]:
    """The command that starts what is appended to it in a new sandbox, in the folder `HOME`.

    Args:
        readable: What is to be seen of this machine beside the system: files and folders.
        hidden: Folders that are not to be seen, wherever they lie.
        memory_mb: MB (10^6 bytes); each of the folders `IN_MEMORY` holds up to half of it.
    """
    argv = ["bwrap", *_flags(), "--dev", "/dev"]
    for folder in IN_MEMORY:
        argv += ["--perms", "1777", "--size", str(int(memory_mb * 1e6 / 2)), "--tmpfs", folder]
    for pattern in _GPUS:
        for path in sorted(glob.glob(pattern)):
            argv += ["--dev-bind-try", path, path]
    empty = []
    for path, source in mounts([*_SYSTEM, *_SETTINGS, *_HARDWARE, *readable], hidden).items():
        above = [str(one) for one in reversed(Path(path).parents)][1:]
        argv += [word for one in above for word in ("--perms", "0755", "--dir", one)]
        if source:
            argv += ["--ro-bind", source, path]
        else:
            argv += ["--perms", "0755", "--tmpfs", path]
            empty.append(path)
    argv += ["--proc", "/proc", "--dir", HOME]
    # Root may write settings of the kernel there, also without any capability. CUDA writes below /proc/self.
    for name in os.listdir("/proc"):
        if not name.isdecimal() and not os.path.islink(f"/proc/{name}"):
            argv += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    for path in (*empty, "/dev", "/"):
        argv += ["--remount-ro", path]
    return [*argv, "--chdir", HOME, "--"]


def mounts(readable: Iterable[Path | str], hidden: Iterable[Path | str]) -> dict[str, str]:
    """What stands where in the sandbox.

    Args:
        readable: Files and folders to be seen, where they are here. What is not there, or not open to this
            user, is left out.
        hidden: Folders not to be seen, though one above them is; what of `readable` lies below is seen.

    Returns:
        Path to what is mounted there, those above first: a path of this machine, or "" for an empty folder.
    """
    found: dict[str, str] = {}
    for path in readable:
        real = os.path.realpath(path)
        if os.path.isabs(path) and os.access(real, os.R_OK | (os.X_OK if os.path.isdir(real) else 0)):
            found |= {os.path.normpath(path): real, real: real}
    for path in map(os.path.realpath, hidden):
        for at, source in list(found.items()):
            if path == source or path.startswith(source.rstrip("/") + "/"):
                found[at + path[len(source) :]] = ""
    in_order = dict(sorted(found.items(), key=lambda item: item[0].count("/")))
    return {path: source for path, source in in_order.items() if not _is_seen_anyway(path, source, in_order)}


def _is_seen_anyway(path: str, source: str, found: dict[str, str]) -> bool:
    """Whether what is mounted above shows the same there."""
    above = next((str(one) for one in Path(path).parents if str(one) in found), None)
    return above is not None and os.path.realpath(f"{found[above]}{path[len(above) :]}") == source


def installation(path: Sequence[str]) -> list[Path]:
    """What Python and the tools that labs use need of this machine, beside the system and the workbook.

    Args:
        path: Where Python imports from. Folders into which packages were installed are taken, and no others:
            they may hold anything.
    """
    named = [sys.prefix, sys.base_prefix, *(one for one in path if any(Path(one).glob("*.dist-info")))]
    named += os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    named += [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")]
    found = [Path(one) for one in named if os.path.isabs(one)]
    if toolkit := device.cuda_toolkit():
        found.append(toolkit)
    for tool in filter(None, map(device.find_tool, _TOOLS)):
        real = tool.resolve()
        # A toolkit's programs need what lies beside them. A program in a home folder comes alone.
        whole = real.parent.parent if real.parent.name == "bin" else real.parent
        found += [tool, real if _is_shared(whole) else whole]
    return [one for one in found if not _is_shared(one)]


def _is_shared(folder: Path) -> bool:
    """Whether it is a home or temporary folder, or above one."""
    known = map(Path, (Path.home(), *IN_MEMORY))
    return any(folder.resolve() in (one, *one.parents) for one in known)

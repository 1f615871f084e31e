"""The trusted end of the pipe to a process that runs code which nobody trusts: start it, ask it, watch it,
end it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from workbook.sandbox import bubblewrap
from workbook.sandbox.cgroup import Cgroup
from workbook.sandbox.messages import MAX_BYTES, PART_BYTES, Source, frame, is_plain_zip

_START_S = 120.0  # torch from a cold disk
_ENDS_S = 0.5  # for a process to end by itself
_GONE_S = 5.0  # for processes that were killed to be gone
_GRACE_S = 2.0  # between an interrupt and the end of a process that does not heed it
_WATCH_S = 0.1
_PIPE_BYTES = 1 << 20  # what one may ask for without being root
_MAX_PROCESSES = 256
_MAX_THREADS = max(1500, 16 * (os.cpu_count() or 1))  # torch, OpenBLAS and LLVM have a pool each
_LOG, _SHOWN = 1 << 15, 4000  # bytes of the log's end that are kept, characters that are told
_ENVIRONMENT = re.compile(
    r"PATH|LANG|LC_.*|TZ|TERM|LD_LIBRARY_PATH|C(C|XX)|CUDA_.*|NVIDIA_.*|(OMP|MKL)_NUM_THREADS|CONDA_PREFIX|TORCH_CUDA_ARCH_LIST|TRITON_(LIBCUDA|PTXAS)_PATH|SSL_CERT_.*|SYSTEMROOT"
)
_BOOT = (
    "import json, sys; s = json.loads(sys.argv[1]); sys.path[:] = s['path']; "
    "import importlib; importlib.import_module(s['serves']).main(s)"
)


class WorkerDied(Exception):
    """The process has ended, or had to be ended. The message completes "the notebook …", for example."""

    def __init__(self, says: str, mistake: str, log: str = "") -> None:
        super().__init__(says)
        self.mistake, self.log = mistake, log


class WorkerTimeout(Exception):
    """The code ran past its time and gave way to an interrupt; its process lives."""


@dataclass(frozen=True)
class Limits:
    """What the process may use.

    Attributes:
        cell_s: Seconds for one request, such as a cell of a notebook or the check of an exercise.
        total_s: Seconds for everything that is asked.
        memory_mb: Memory of its processes and of its files together, in MB (10^6 bytes).
        sandboxed: Whether it runs in a sandbox.
        hidden: What it must not see there, wherever that lies.
    """

    cell_s: float = 120.0
    total_s: float = 1200.0
    memory_mb: float = 8000.0
    sandboxed: bool = True
    hidden: tuple[str, ...] = ()


class Process:
    """One process that isn't trusted; a context manager that leaves nothing running and no file behind.

    Attributes:
        sees_gpu: Whether torch finds a GPU there.
    """

    def __init__(
        self,
        serves: str,
        settings: Mapping[str, Any],
        readable: Iterable[Path | str],
        limits: Limits,
        until: float,
        cgroup: Cgroup | None,
    ) -> None:
        """Start it.

        Args:
            serves: The module whose `main(settings)` runs there. It calls `inside.enter`, then says hello:
                `token` "", its `pid`, and `gpu`, whether torch finds one.
            settings: What `main` gets, beside `folder`, `path` and `sandboxed`; anything that JSON can hold.
            readable: What is to be seen in the sandbox beside the system, Python and the workbook.
            limits: What it may use.
            until: When its time ends, on `time.monotonic()`.
            cgroup: Where the kernel limits its memory, or None: it is measured then.

        Raises:
            WorkerDied: It did not come up.
        """
        self._limits, self._until, self._cgroup = limits, until, cgroup
        self._n_killed = cgroup.n_killed if cgroup else 0
        self._seen: dict[int, psutil.Process] = {}
        self._watched = time.monotonic()
        self._folder = None if limits.sandboxed else tempfile.mkdtemp(prefix="workbook-")
        folder = self._folder or bubblewrap.HOME
        path = [os.path.realpath(one) for one in import_path()]
        settings = {
            **settings, "serves": serves, "folder": folder, "path": path, "sandboxed": limits.sandboxed,
        }  # fmt: skip
        argv = [bubblewrap.python(), "-I", "-X", "faulthandler", "-c", _BOOT, json.dumps(settings)]
        if limits.sandboxed:
            seen = [*bubblewrap.installation(path), bubblewrap.WORKBOOK, *readable]
            argv = bubblewrap.command(seen, limits.hidden, limits.memory_mb) + argv
        self._process = subprocess.Popen(
            cgroup.inside(argv) if cgroup else argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=_environment(folder), cwd="/", start_new_session=True,
        )  # fmt: skip
        self._requests, self._replies = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._requests, False)
        for fd in (self._requests, self._replies):  # larger pipes, where the system has room for them
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._log = bytearray()
        self._logger = threading.Thread(target=self._keep_log, daemon=True)
        self._logger.start()
        self._notebook = 0
        try:
            hello, _ = self._receive(time.monotonic() + _START_S, "", interrupt=False)
            self._notebook = self._outside(hello["pid"]) if limits.sandboxed else hello["pid"]
            self.sees_gpu = hello["gpu"] is True
            self._own = {process.pid for process in self._family()}
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def request(
        self, message: Mapping[str, Any], seconds: float, answer: Callable[[Any], Any] | None = None
    ) -> dict[str, Any]:
        """Ask something.

        Args:
            message: `do` and what belongs to it.
            seconds: How long the answer may take; the notebook's own end may come before.
            answer: Answers what the process asks back meanwhile, of the objects that `message` shows it.

        Raises:
            WorkerDied: There is no answer and no process any more.
            WorkerTimeout: It took too long and was interrupted.
        """
        if select.select([self._replies], [], [], 0)[0]:
            if self._process.poll() is not None or not os.read(self._replies, 1):
                self._gone()
            self._end("wrote into the pipe of its answers", "forged-answer")
        token = secrets.token_hex(8)
        until = min(time.monotonic() + seconds, self._until)
        self._send({**message, "token": token}, until)
        reply, late = self._receive(until, token)
        while "asks" in reply:
            if answer is None:
                self._end("wrote into the pipe of its answers", "forged-answer")
            said = {"error_type": "KeyboardInterrupt", "error": ""} if late else answer(reply["asks"])
            until = max(until, time.monotonic() + _GRACE_S) if late else until
            self._send({"answer": said, "token": token}, until)
            reply, late_now = self._receive(until, token)
            late = late or late_now
        if self._process.poll() is not None:  # a notebook that answers without its supervisor
            self._gone()
        if late:
            raise WorkerTimeout
        return reply

    def _send(self, message: Mapping[str, Any], until: float) -> None:
        rest = frame(dict(message), torch.save)
        while rest:
            self._watch_at_times(until + _GRACE_S)
            if select.select([], [self._requests], [], _WATCH_S)[1]:
                try:
                    rest = rest[os.write(self._requests, rest[:PART_BYTES]) :]
                except BrokenPipeError:
                    self._gone()
                except BlockingIOError:
                    continue

    def _receive(self, until: float, token: str, *, interrupt: bool = True) -> tuple[dict[str, Any], bool]:
        """The next reply, which must be whole, within the limits and repeat the token; and whether it came
        too late.
        """
        interrupted = False

        def exactly(n: int) -> bytearray:
            nonlocal until, interrupted
            found = bytearray(n)
            rest = memoryview(found)
            while rest:
                told = bool(select.select([self._replies], [], [], _WATCH_S)[0])
                if told:
                    n_read = os.readv(self._replies, [rest[:PART_BYTES]])
                    if not n_read:
                        self._gone()
                    rest = rest[n_read:]
                if time.monotonic() > until and interrupt and not interrupted:
                    self._interrupt()
                    interrupted, until = True, time.monotonic() + _GRACE_S
                if told:
                    self._watch_at_times(until)
                else:
                    self._watch(until)
            return found

        n = struct.unpack(">Q", exactly(8))[0]
        payload = exactly(n) if n <= MAX_BYTES else bytearray()
        if not is_plain_zip(payload):
            self._end("wrote into the pipe of its answers", "forged-answer")
        try:
            reply = torch.load(Source(payload), weights_only=True)
        except Exception:  # whatever torch makes of bytes that may not be a worker's
            self._end("sent an answer that cannot be read", "unusable")
        if type(reply) is not dict or reply.get("token") != token:
            self._end("wrote into the pipe of its answers", "forged-answer")
        return reply, interrupted

    def _interrupt(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._notebook, signal.SIGINT)

    def _outside(self, inside: int) -> int:
        """The number of the process that has this one in its namespace."""
        for process in self._family():
            with contextlib.suppress(OSError):
                numbers = re.search(
                    r"^NSpid:(.*)$", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE
                )
                if numbers and len(found := numbers[1].split()) > 1 and found[-1] == str(inside):
                    return process.pid
        self._end("did not say who it is", "forged-answer")

    def _watch_at_times(self, until: float) -> None:
        """`_watch`, but not for each of the thousands of parts in which a large message goes through the
        pipe.
        """
        if time.monotonic() > self._watched + _WATCH_S:
            self._watch(until)

    def _watch(self, until: float) -> None:
        """End the process where it is past a limit; raise where it has ended."""
        self._watched = time.monotonic()
        if self._process.poll() is not None:
            self._gone()
        family = self._family()
        n_bytes, n_threads = 0 if self._cgroup else self._in_files(), 0
        for process in family:
            with contextlib.suppress(psutil.Error):
                n_bytes += 0 if self._cgroup else process.memory_info().rss
                n_threads += process.num_threads()
        if n_bytes > self._limits.memory_mb * 1e6 or self._killed_for_memory():
            self._end(self._too_much, "memory")
        if len(family) > _MAX_PROCESSES:
            self._end(f"started more than {_MAX_PROCESSES} processes", "processes")
        if n_threads > _MAX_THREADS:
            self._end(f"started more than {_MAX_THREADS} threads", "processes")
        if time.monotonic() > until:
            self._end("ran past its time, did not heed an interrupt and was killed", "timeout")

    @property
    def _too_much(self) -> str:
        return f"took more than {self._limits.memory_mb:g} MB of memory"

    def _killed_for_memory(self) -> bool:
        return self._cgroup is not None and self._cgroup.n_killed > self._n_killed

    def _in_files(self) -> int:
        """Bytes of memory that the files of its sandbox take."""
        n_bytes = 0
        for folder in bubblewrap.IN_MEMORY if self._limits.sandboxed and self._notebook else ():
            with contextlib.suppress(OSError):
                about = os.statvfs(f"/proc/{self._notebook}/root{folder}")
                n_bytes += (about.f_blocks - about.f_bfree) * about.f_frsize
        return n_bytes

    def _family(self) -> list[psutil.Process]:
        """The first process that was started and every one below it."""
        with contextlib.suppress(psutil.Error):
            top = psutil.Process(self._process.pid)
            found = [top, *top.children(recursive=True)]
            self._seen.update({process.pid: process for process in found})
            return found
        return []

    def _end(self, says: str, mistake: str) -> None:
        self.close()
        raise WorkerDied(says, mistake, self.log)

    def _gone(self) -> None:
        """Say how it ended by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)  # it may have closed its pipe and live
        code = self._process.returncode
        if code is not None and code > 128 and self._limits.sandboxed:
            code = 128 - code
        killed_for_memory = self._killed_for_memory()
        self.close()
        if killed_for_memory:
            raise WorkerDied(self._too_much, "memory", self.log)
        if code is None:
            raise WorkerDied("closed the pipe of its answers", "forged-answer", self.log)
        if code < 0:
            with contextlib.suppress(ValueError):
                code = signal.Signals(-code).name
            raise WorkerDied(f"crashed the process ({code})", "crash", self.log)
        raise WorkerDied(f"ended the process (exit status {code})", "ended", self.log)

    def n_threads(self) -> int:
        """How many threads its processes have, as the system counts them."""
        n = 0
        for process in self._family():
            with contextlib.suppress(psutil.Error):
                n += process.num_threads() if process.status() != psutil.STATUS_ZOMBIE else 0
        return n

    def started(self) -> list[str]:
        """The commands of the processes that its code has started and that are still there, even if they have
        ended and nobody waited for them.
        """
        found = []
        for process in self._family():
            if process.pid not in self._own:
                with contextlib.suppress(psutil.NoSuchProcess):
                    is_zombie = process.status() == psutil.STATUS_ZOMBIE
                    found.append(process.name() if is_zombie else " ".join(process.cmdline()))
        return found

    @property
    def ended(self) -> bool:
        """Whether it has been ended, or has ended by itself."""
        return self._process.stdin.closed

    @property
    def log(self) -> str:
        """The end of what it printed, without faulthandler's list of modules."""
        lines = bytes(self._log).decode("utf-8", "replace").splitlines()
        return "\n".join(line for line in lines if not line.startswith("Extension modules:"))[-_SHOWN:]

    def _keep_log(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while part := self._process.stderr.read1(1 << 16):
                self._log += part
                del self._log[:-_LOG]

    def close(self) -> None:
        """End the process and all that it started, and remove its folder."""
        if self._process.stdin.closed:
            return
        self._family()
        self._process.stdin.close()  # the leash
        self._process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            # A supervisor ends everything below it, then itself; in a sandbox the first process ends all.
            self._process.wait(_ENDS_S if self._limits.sandboxed else 15)
        if self._limits.sandboxed:
            self._process.kill()  # the kernel ends all that is in the sandbox with it
        if not self._limits.sandboxed:  # and where the notebook killed its supervisor
            for process in self._seen.values():
                with contextlib.suppress(psutil.Error):
                    process.kill()
        until = time.monotonic() + _GONE_S
        while not all(map(_has_ended, self._seen.values())) and time.monotonic() < until:
            time.sleep(0.01)
        self._process.wait()
        self._logger.join(2)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _has_ended(process: psutil.Process) -> bool:
    """Whether it is gone, or a zombie: in a container, its new parent may never ask for its exit status."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def import_path() -> list[str]:
    """Where this process imports from, without the folder it was started in."""
    root = str(Path(__file__).resolve().parents[2])
    here = os.getcwd()
    kept = [p for p in sys.path if os.path.isabs(p) and (p != here or p == root)]
    return kept if root in kept else [root, *kept]


def _environment(folder: str) -> dict[str, str]:
    """What a notebook needs of this environment, and no token that may stand in it; caches of its own."""
    kept = {name: value for name, value in os.environ.items() if _ENVIRONMENT.fullmatch(name)}
    tools = os.pathsep.join([str(Path(bubblewrap.python()).parent), kept.get("PATH", os.defpath)])
    cache = f"{folder}/cache"
    return {
        **kept,
        "PATH": tools,
        "HOME": folder,
        "LOGNAME": "learner",  # a sandbox has no list of users, and torch.compile asks for a name
        "TMPDIR": f"{folder}/tmp",
        "XDG_CACHE_HOME": cache,
        "IPYTHONDIR": cache,
        "MPLCONFIGDIR": cache,
        "TRITON_CACHE_DIR": f"{cache}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "TORCH_EXTENSIONS_DIR": f"{cache}/torch_extensions",
        # a pool of processes takes more memory than it saves time
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "WORKBOOK_PROGRESS": f"{cache}/progress",
        "WORKBOOK_WIDGETS": "plain",
        "PLOTLY_RENDERER": "json",
        "MPLBACKEND": "agg",
        "PYTHONDONTWRITEBYTECODE": "1",
    }

"""Run points in processes of this machine: `LocalExecutor.submit`.

Each worker is a process under a supervisor, which ends everything below it when this process ends, even by
SIGKILL. The workers execute the notebooks and write the pages; this process only receives a small row for
each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from workbook.batch import output_folder
from workbook.batch.messages import CellBegins, Done, Ready
from workbook.batch.notebook_runs import Failure, NotebookRun
from workbook.batch.point import Point, Stopped

_STOP_S = 30.0  # for a worker that should stop, to write a notebook that has ended
_END_S = 15.0  # for its supervisor, to end the processes that are left
_BOOT = """\
import json, sys, tempfile
settings = json.loads(sys.argv[1])
sys.path[:] = settings["path"]
from workbook.supervisor import supervised
scratch = tempfile.mkdtemp(prefix="workbook-")
supervised(settings["leash"], [settings["channel"]], scratch)
from workbook.batch import worker
worker.main(settings["channel"], scratch)
"""


class LocalExecutor:
    """As many worker processes as points may run at a time; a context manager, which ends them all."""

    def __init__(
        self,
        workers: int,
        gpus: Sequence[str] = (),
        on_cell: Callable[[int, Point, CellBegins | None], None] = lambda slot, point, cell: None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the workers; each process starts with its first point.

        Args:
            workers: How many points run at a time.
            gpus: UUIDs. Each worker gets one of them in turn, and its kernels see no other GPU.
            on_cell: Called in any thread with the worker's number, the point, and the cell that begins, or
                None when the point has ended.
            environment: The environment variables of the workers; by default those of this process.
        """
        self.at_once = workers
        self._on_cell = on_cell
        self._slots: queue.SimpleQueue[_Slot] = queue.SimpleQueue()
        pinned = [gpus[i % len(gpus)] if gpus else "" for i in range(workers)]
        self._all = [
            _Slot(i, gpu, pinned.count(gpu) == 1 if gpu else None, environment)
            for i, gpu in enumerate(pinned)
        ]
        for slot in self._all:
            self._slots.put(slot)
        self._threads = ThreadPoolExecutor(workers, "point")
        self._stopping = threading.Event()

    def submit(self, point: Point) -> Future[NotebookRun]:
        """Run a point when a worker is free.

        Returns:
            Its row. After `stop`, the future raises `Stopped` or is cancelled.
        """
        return self._threads.submit(self._run, point)

    def stop(self) -> None:
        """Stop the running points and begin no more. A notebook that has ended is still written."""
        self._stopping.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + _STOP_S
        for slot in self._all:
            slot.stop()
        while any(slot.busy for slot in self._all) and time.monotonic() < deadline:
            time.sleep(0.02)
        for slot in self._all:
            slot.end()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the running points, then end the processes."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for slot in self._all:
            slot.release()
        for slot in self._all:
            slot.end()

    def _run(self, point: Point) -> NotebookRun:
        slot = self._slots.get()
        point = dataclasses.replace(point, gpu=slot.gpu, gpu_alone=slot.alone)
        try:
            if self._stopping.is_set():
                raise Stopped
            done = slot.run(point, lambda cell: self._on_cell(slot.number, point, cell))
        except EOFError:
            if self._stopping.is_set():
                raise Stopped from None
            return NotebookRun.failed(point.job, Failure("died", *slot.end_reason()))
        finally:
            self._on_cell(slot.number, point, None)
            self._slots.put(slot)
        if done.error:
            return NotebookRun.failed(point.job, Failure("start", f"it could not be run: {done.error}", ""))
        if done.run is None:
            raise Stopped
        return done.run


class _Slot:
    """One worker: its process, which is started when it is needed, and again if it died."""

    def __init__(
        self, number: int, gpu: str, alone: bool | None, environment: Mapping[str, str] | None
    ) -> None:
        self.number, self.gpu, self.alone, self.environment = number, gpu, alone, environment
        self.busy = False
        self._lock, self._ending = threading.Lock(), threading.Lock()
        self._process: subprocess.Popen | None = None
        self._ready: Ready | None = None
        self._leash: int | None = None
        self._stopped = False
        self._code, self._last_lines = 0, ""

    def run(self, point: Point, on_cell: Callable[[CellBegins], None]) -> Done:
        """Give a point to the worker and wait for its row.

        Raises:
            EOFError: The worker ended before.
        """
        self.busy, self._out = True, point.out
        try:
            if self._process is None:
                self._start()
            if self._stopped:
                raise EOFError
            self._channel.send(point)
            while not isinstance(message := self._channel.recv(), Done):
                on_cell(message)
            return message
        except OSError as error:
            raise EOFError from error
        finally:
            self.busy = False

    def _start(self) -> None:
        self._channel, worker_end = multiprocessing.Pipe()
        leash, self._leash = os.pipe()
        settings = {"channel": worker_end.fileno(), "leash": leash, "path": sys.path}
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        with self._lock:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps(settings)],
                pass_fds=(worker_end.fileno(), leash),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
                env=self.environment,
            )
        worker_end.close()
        os.close(leash)
        self._ready = self._channel.recv()

    def stop(self) -> None:
        """Have the worker stop its point, and give it no more."""
        self._stopped = True
        if self._ready is None:
            self.release()
        elif self.busy:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._ready.pid, signal.SIGTERM)

    def end_reason(self) -> tuple[str, str]:
        """How the worker ended: a message, and the last lines that it printed."""
        code = self.end()
        cause = f"exit status {code}" if code >= 0 else signal.Signals(-code).name
        if cause == "SIGKILL":
            cause += ": did it run out of memory?"
        return f"the process that ran it ended ({cause})", self._last_lines

    def end(self) -> int:
        """End the worker and everything below it, and return its exit status."""
        self.release()
        with self._ending:
            if self._process is not None:
                self._code = self._end(self._process)
            return self._code

    def _end(self, process: subprocess.Popen) -> int:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        if process.poll() is None:
            process.kill()
            process.wait()
        if self._ready is not None:
            output_folder.remove_partial_files(self._out)  # what it was writing when it was killed
        self._channel.close()
        self._log.seek(0)
        self._last_lines = "\n".join(self._log.read().splitlines()[-30:])
        self._log.close()
        self._process = self._ready = None
        return process.returncode

    def release(self) -> None:
        """Close the leash, so that the supervisor ends the worker."""
        with self._lock:
            if self._process is not None and self._leash is not None:
                os.close(self._leash)
                self._leash = None

"""The part of `cluster` that runs in a Dask worker: it checks the worker once, pins its GPU, and runs points
in a child process.

The child is a process of `executor`, with a supervisor that ends everything below it when the Dask worker
ends, even by SIGKILL. Dask sets up the plugin in every worker that joins, including one that its nanny has
restarted.

The scheduler may give a point to a second worker while the first, which lost its connection, still runs it.
So each worker holds the point's lock while it runs, and writes into it how often the point was begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import os
import pickle
import platform
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import dask
from distributed import Reschedule, Status, Worker, WorkerPlugin, get_worker

import helpers
from workbook import gpus, locks
from workbook.batch import executed, output_folder
from workbook.batch.executor import LocalExecutor
from workbook.batch.messages import Done
from workbook.batch.notebook_runs import Failure, NotebookRun
from workbook.batch.point import Point, Stopped

_CHECK_S = 0.5  # between two checks whether the scheduler still wants a point
_IDLE_S = 20.0  # that a process waits for another point
_STOP_S = 30.0
_ENDING = (Status.closing, Status.closed, Status.failed)
_leases = threading.Lock()
_leased: locks.Lock | None = None  # this worker's GPU, for all batches, as long as it lives


class Unfit(Exception):
    """A worker can't run points: a sentence, and the worker's address."""


@dataclass(frozen=True)
class Batch:
    """What a worker must know of a batch to check whether it can run its points.

    Attributes:
        out: The folder of the outputs.
        probe: A file there, which a worker on the same file system sees.
        code: `fingerprint` of the client's code.
        versions: Package to version, on the client.
        sources: Notebook to the sha256 of its bytes when it was planned.
        gpu: Whether its points need the resource GPU.
    """

    out: Path
    probe: Path
    code: str
    versions: Mapping[str, str]
    sources: Mapping[Path, str]
    gpu: bool


class Plugin(WorkerPlugin):
    """One batch in one worker.

    Attributes:
        problem: Why the worker can't run its points, in a sentence, or "".
        notes: What differs from the client, in sentences.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.problem, self.notes = "", ()

    async def setup(self, worker: Worker) -> None:
        self._worker, self._lock = worker, threading.Lock()
        self._stopping, self._running = threading.Event(), 0
        self._idle: dict[LocalExecutor, threading.Timer] = {}
        self._gpu = ""
        self._label = f"The worker {worker.address} on {platform.node()}"
        self.problem, self.notes = await asyncio.to_thread(self._check)

    async def teardown(self, worker: Worker) -> None:
        self._stopping.set()
        for executor in list(self._idle):
            await asyncio.to_thread(self._end, executor)

    def run(self, point: Point, key: str) -> Done:
        """Run a point in a child process, for as long as the scheduler wants it."""
        if self.problem:
            raise Unfit(self.problem, self._worker.address)
        with self._lock:
            self._running += 1
        try:
            with contextlib.closing(self._take_lock(point, key)) as lock:
                return Done(self._run(point, key, lock))
        except (Stopped, CancelledError):
            if self._stopping.is_set():
                return Done(None)
            raise Reschedule from None  # this worker is closing: another one runs the point
        finally:
            with self._lock:
                self._running -= 1

    def _take_lock(self, point: Point, key: str) -> locks.Lock:
        """The point's lock; wait while another worker, which may have lost its connection, still holds it."""
        path = output_folder.point_lock(point.out, point.job.name)
        while self._is_wanted(key):
            if lock := locks.take(path):
                return lock
            time.sleep(_CHECK_S)
        raise Stopped

    def _run(self, point: Point, key: str, lock: locks.Lock) -> NotebookRun:
        if (claim := _read_claim(lock)).get("run") == point.run:
            # This batch began the point in a worker that has died since.
            point = dataclasses.replace(point, attempt=max(point.attempt, claim["attempt"] + 1))
            if point.attempt > point.retries + 1 and not executed.finished(point):
                message = f"the worker that ran it died (on {claim['host']}, process {claim['pid']})"
                failed = NotebookRun.failed(point.job, Failure("died", message, ""))
                return dataclasses.replace(failed, attempts=claim["attempt"], host=claim["host"])
        claim_now = {"run": point.run, "attempt": point.attempt, "host": platform.node(), "pid": os.getpid()}
        lock.write(json.dumps(claim_now))
        executor = self._take_executor()
        try:
            future = executor.submit(point)
            while True:
                with contextlib.suppress(TimeoutError):
                    return future.result(_CHECK_S)
                if not self._is_wanted(key):
                    executor.stop()  # what has ended by now is written
        finally:
            self._give_back(executor)

    async def stop(self) -> None:
        """End what runs, and wait until it has ended."""
        self._stopping.set()
        deadline = time.monotonic() + _STOP_S
        while self._running and time.monotonic() < deadline:
            await asyncio.sleep(0.05)

    def _is_wanted(self, key: str) -> bool:
        task = self._worker.state.tasks.get(key)
        cancelled = task is None or task.state == "cancelled" or self._worker.status in _ENDING
        return not (cancelled or self._stopping.is_set())

    def _take_executor(self) -> LocalExecutor:
        with self._lock:
            if self._idle:
                executor, timer = self._idle.popitem()
                timer.cancel()
                return executor
        return LocalExecutor(1, [self._gpu] if self._gpu else (), environment=_environment(self._worker))

    def _give_back(self, executor: LocalExecutor) -> None:
        if self._stopping.is_set() or executor.stopped:
            executor.close()
            return
        timer = threading.Timer(_IDLE_S, self._end, [executor])
        timer.daemon = True
        with self._lock:
            self._idle[executor] = timer
        timer.start()

    def _end(self, executor: LocalExecutor) -> None:
        with self._lock:
            timer = self._idle.pop(executor, None)
        if timer is not None:
            timer.cancel()
            executor.close()

    def _check(self) -> tuple[str, tuple[str, ...]]:
        """Check whether this worker can run the batch's points, and what differs from the client."""
        batch = self.batch
        if not batch.probe.exists():
            return f"{self._label} does not see {batch.out}; choose an --out that all workers share.", ()
        try:
            with locks.hold(batch.probe.with_name(f"{batch.probe.name}.{os.getpid()}.lock")):
                pass
        except OSError as error:
            return f"{self._label} can't write into {batch.out} ({error.strerror}).", ()
        for folder in sorted({source.parent for source in batch.sources}):
            if not folder.is_dir():
                return f"{self._label} has no folder {folder}, in which notebooks of the batch run.", ()
        if batch.gpu and (problem := self._pin()):
            return problem, ()
        notes = []
        if fingerprint() != batch.code:
            notes.append(
                f"{self._label} has another version of helpers than this machine: update the older one."
            )
        for name, version in batch.versions.items():
            if (own_version := versions()[name]) != version:
                notes.append(f"{self._label} has {name} {own_version}, this machine {version}.")
        notes += [
            f"{self._label} has another {source.name} in {source.parent}; this machine's version is run."
            for source, planned in batch.sources.items()
            if source.is_file() and hashlib.sha256(source.read_bytes()).hexdigest() != planned
        ]
        return "", tuple(notes)

    def _pin(self) -> str:
        """Reserve a GPU of this machine for this worker; returns what prevents that, or ""."""
        amount = (self._worker.state.total_resources or {}).get("GPU", 0)
        if not amount:
            return ""  # it gets no point
        if amount != 1:
            return f'{self._label} has GPU={amount:g}: start a worker for each GPU, with --resources "GPU=1".'
        global _leased
        with _leases:
            uuids = gpus.choose("all") if gpus.installed() else ()
            for uuid in [_leased.path.stem] if _leased else uuids:
                if _leased is None:
                    _leased = locks.take(_lease_folder() / f"{uuid.replace('/', '_')}.lock")
                if _leased is not None:
                    self._gpu = uuid
                    return ""
        if not uuids:
            return f"{self._label} has GPU=1, but nvidia-smi lists no GPU there."
        return (
            f"{self._label} has GPU=1, but other workers have {', '.join(uuids)}: start as many workers "
            "as there are GPUs."
        )


def run_task(point: bytes, plugin: str, key: str) -> Done:
    """What the scheduler gives to a worker: run one point.

    Args:
        point: What to run, pickled.
        plugin: The name of the batch's `Plugin`.
        key: The task's own key.

    Raises:
        Unfit: This worker can't run it.
    """
    return get_worker().plugins[plugin].run(pickle.loads(point), key)


def checked(plugin: str, dask_worker: Worker) -> tuple[str, tuple[str, ...]]:
    """The `problem` and the `notes` of the plugin in a worker."""
    found = dask_worker.plugins[plugin]
    return found.problem, found.notes


async def stop(plugin: str, dask_worker: Worker) -> None:
    """End what a worker runs for a batch."""
    if plugin in dask_worker.plugins:
        await dask_worker.plugins[plugin].stop()


@cache
def fingerprint() -> str:
    """A hash of the sources of `helpers` and `workbook` on this machine."""
    digest = hashlib.sha256()
    for package in (Path(helpers.__file__).parent, Path(__file__).parents[1]):
        for path in sorted(package.rglob("*.py")):
            digest.update(f"{path.relative_to(package.parent)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


@cache
def versions() -> dict[str, str]:
    """Versions that must agree between the client and its workers, by display name."""
    from importlib.metadata import version

    packages = {name: version(name) for name in ("distributed", "papermill", "nbclient")}
    return {"Python": platform.python_version(), **packages}


def _lease_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"kernel-workbook-gpus-{os.getuid()}"


def _read_claim(lock: locks.Lock) -> dict[str, Any]:
    """What a worker that died wrote into a point's lock; empty if there was none."""
    try:
        claim = json.loads(lock.before)
    except ValueError:
        return {}
    return claim if {"run", "attempt", "host", "pid"} <= set(claim) else {}


def _environment(worker: Worker) -> dict[str, str]:
    """This worker's environment without what its nanny added, because no user asked for OpenMP to use one
    thread only.
    """
    from_nanny = {**dask.config.get("distributed.nanny.pre-spawn-environ", {}), "PYTHONHASHSEED": 6640}
    if worker.nanny is None:
        from_nanny = {}
    return {name: value for name, value in os.environ.items() if str(from_nanny.get(name)) != value}

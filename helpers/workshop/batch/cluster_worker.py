"""What runs in a Dask worker for `cluster`: it is looked at once, its GPU is pinned, and points run in a process below it.

A point runs in a process of `executor`, with the supervisor that ends all below it when the Dask worker ends, SIGKILL
included. The plugin is set up in each worker that joins, also in one that its nanny has started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
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

import dask
from distributed import Reschedule, Status, Worker, WorkerPlugin, get_worker

from helpers.workshop import gpus, locks
from helpers.workshop.batch.executor import LocalExecutor
from helpers.workshop.batch.messages import Done
from helpers.workshop.batch.point import Held, Point, Stopped

_LOOK_S = 0.5  # between two looks whether a point is still wanted
_IDLE_S = 20.0  # that a process waits for another point
_STOP_S = 30.0
_ENDING = (Status.closing, Status.closed, Status.failed)
_leases = threading.Lock()
_leased: locks.Lock | None = None  # this worker's GPU, for all batches, as long as it lives


class Unfit(Exception):
    """A worker cannot take points: a sentence, and the worker's address."""


@dataclass(frozen=True)
class Batch:
    """What a worker must know of a batch to see whether it can run its points.

    Attributes:
        out: The folder of the outputs.
        probe: A file there, which a worker on the same file system sees.
        code: `fingerprint` of the client's `helpers`.
        versions: Package to version, of the client.
        sources: Notebook to the sha256 of its bytes, as they were planned.
        gpu: Whether its points ask for the resource GPU.
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
        problem: Why the worker cannot take its points, a sentence, or "".
        notes: What differs from the client, sentences.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.problem, self.notes = "", ()

    async def setup(self, worker: Worker) -> None:
        self._worker, self._lock = worker, threading.Lock()
        self._stopping, self._running = threading.Event(), 0
        self._idle: dict[LocalExecutor, threading.Timer] = {}
        self._gpu = ""
        self._shown = f"The worker {worker.address} on {platform.node()}"
        self.problem, self.notes = await asyncio.to_thread(self._look)

    async def teardown(self, worker: Worker) -> None:
        self._stopping.set()
        for executor in list(self._idle):
            await asyncio.to_thread(self._end, executor)

    def run(self, point: Point, key: str) -> Done:
        """Run a point below this worker, for as long as the scheduler wants it."""
        if self.problem:
            raise Unfit(self.problem, self._worker.address)
        if self._stopping.is_set():
            return Done(None)
        with self._lock:
            self._running += 1
        executor = self._borrow()
        try:
            future = executor.submit(point)
            while True:
                with contextlib.suppress(TimeoutError):
                    return Done(future.result(_LOOK_S))
                if not self._wanted(key):
                    executor.stop()  # what has ended by now is written
        except Held as held:
            return Done(None, held=str(held))
        except (Stopped, CancelledError):
            if self._stopping.is_set():
                return Done(None)
            raise Reschedule from None  # this worker closes: another one takes it
        finally:
            self._give_back(executor)
            with self._lock:
                self._running -= 1

    async def stop(self) -> None:
        """End what runs, and wait for that."""
        self._stopping.set()
        until = time.monotonic() + _STOP_S
        while self._running and time.monotonic() < until:
            await asyncio.sleep(0.05)

    def _wanted(self, key: str) -> bool:
        task = self._worker.state.tasks.get(key)
        gone = task is None or task.state == "cancelled" or self._worker.status in _ENDING
        return not (gone or self._stopping.is_set())

    def _borrow(self) -> LocalExecutor:
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

    def _look(self) -> tuple[str, tuple[str, ...]]:
        """Whether this worker can run the batch's points, and what differs from the client."""
        batch = self.batch
        if not batch.probe.exists():
            return f"{self._shown} does not see {batch.out}; give an --out that all workers share.", ()
        try:
            with locks.hold(batch.probe.with_name(f"{batch.probe.name}.{os.getpid()}.lock")):
                pass
        except OSError as error:
            return f"{self._shown} cannot write into {batch.out} ({error.strerror}).", ()
        for folder in sorted({source.parent for source in batch.sources}):
            if not folder.is_dir():
                return f"{self._shown} has no folder {folder}, in which its notebooks run.", ()
        if batch.gpu and (wanting := self._pin()):
            return wanting, ()
        notes = []
        if fingerprint() != batch.code:
            notes.append(
                f"{self._shown} has another text of helpers than this machine: update the older one."
            )
        for name, version in batch.versions.items():
            if (here := versions()[name]) != version:
                notes.append(f"{self._shown} has {name} {here}, this machine {version}.")
        notes += [
            f"{self._shown} has another {source.name} in {source.parent}; the one of this machine is run."
            for source, planned in batch.sources.items()
            if source.is_file() and hashlib.sha256(source.read_bytes()).hexdigest() != planned
        ]
        return "", tuple(notes)

    def _pin(self) -> str:
        """Lease a GPU of this machine to this worker; what keeps it from that, or ""."""
        amount = (self._worker.state.total_resources or {}).get("GPU", 0)
        if not amount:
            return ""  # it is given no point
        if amount != 1:
            return f'{self._shown} has GPU={amount:g}: start a worker for each GPU, with --resources "GPU=1".'
        global _leased
        with _leases:
            here = gpus.choose("all") if gpus.installed() else ()
            for uuid in [_leased.path.stem] if _leased else here:
                if _leased is None:
                    _leased = locks.take(_lease_folder() / f"{uuid.replace('/', '_')}.lock")
                if _leased is not None:
                    self._gpu = uuid
                    return ""
        if not here:
            return f"{self._shown} has GPU=1, but nvidia-smi lists no GPU there."
        return f"{self._shown} has GPU=1, but other workers have {', '.join(here)}: start as many workers as there are GPUs."


def run_task(point: bytes, plugin: str, key: str) -> Done:
    """What the scheduler gives to a worker: run one point.

    Args:
        point: What to run, pickled.
        plugin: The name of the batch's `Plugin`.
        key: The task's own key.

    Raises:
        Unfit: This worker cannot.
    """
    return get_worker().plugins[plugin].run(pickle.loads(point), key)


def looked(plugin: str, dask_worker: Worker) -> tuple[str, tuple[str, ...]]:
    """The plugin's `problem` and `notes` in a worker."""
    found = dask_worker.plugins[plugin]
    return found.problem, found.notes


async def stop(plugin: str, dask_worker: Worker) -> None:
    """End what a worker runs for a batch."""
    if plugin in dask_worker.plugins:
        await dask_worker.plugins[plugin].stop()


@cache
def fingerprint() -> str:
    """A hash of the text of `helpers` on this machine."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


@cache
def versions() -> dict[str, str]:
    """Versions that must agree between the client and its workers, by what a person calls them."""
    from importlib.metadata import version

    named = {name: version(name) for name in ("distributed", "papermill", "nbclient")}
    return {"Python": platform.python_version(), **named}


def _lease_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"kernel-workbook-gpus-{os.getuid()}"


def _environment(worker: Worker) -> dict[str, str]:
    """This worker's environment without what its nanny put there: one thread for OpenMP is nothing that a user asked for."""
    theirs = {**dask.config.get("distributed.nanny.pre-spawn-environ", {}), "PYTHONHASHSEED": 6640}
    if worker.nanny is None:
        theirs = {}
    return {name: value for name, value in os.environ.items() if str(theirs.get(name)) != value}

"""Run points on a Dask cluster that the user has started: `ClusterExecutor.submit`.

If the scheduler loses a worker, it gives that worker's points to others. If the scheduler itself is lost,
what has been written stays, and `--resume` continues from there. `--out` must be a folder that this machine
and all workers share.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pickle
import re
import sys
import threading
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from concurrent import futures
from pathlib import Path

import distributed

from workbook import locks
from workbook.batch import cluster_worker
from workbook.batch.cluster_worker import Batch, Plugin, Unfit
from workbook.batch.notebook_runs import Failure, NotebookRun
from workbook.batch.plan import Job
from workbook.batch.point import Point, SchedulerLost, Stopped
from workbook.usage import UsageError, first_line

_CONNECT_S = 20
_STOP_S = 40.0  # for the workers to end what they run
_LAST_S = 5.0  # for the last rows to arrive
_WINDOW = 256  # points that are sent to the scheduler in advance, each with its notebook


class ClusterExecutor:
    """Runs points on the workers of a Dask scheduler; a context manager that leaves nothing there."""

    def __init__(self, scheduler: str, out: Path, planned: Sequence[Job]) -> None:
        """Connect, wait for a worker, and check whether the workers can run the batch.

        Args:
            scheduler: An address, as tcp://host:8786, or the path of a scheduler file, which ends in .json.
            out: The folder of the outputs.
            planned: The points.

        Raises:
            UsageError: No scheduler answers, or a worker can't run the points.
        """
        self._scheduler, self._out = scheduler, out
        self._plugin = f"kernel-workbook-{uuid.uuid4().hex}"
        self._queue: deque[tuple[Point, futures.Future]] = deque()
        self._submitted: dict[futures.Future, distributed.Future] = {}
        self._lock, self._stopping, self._scheduler_lost = threading.RLock(), False, False
        self._unfit: set[str] = set()
        self._stack = contextlib.ExitStack()
        for name in ("distributed", "distributed.client", "distributed.core"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # we report it in a sentence
        try:
            self._client = self._connect()
            self._stack.callback(self._disconnect)
            probe = self._stack.enter_context(locks.partial(out / "probe"))
            workers = self._wait_for_workers()
            self._resources = {"GPU": 1} if any(w["resources"].get("GPU") for w in workers.values()) else {}
            sources = {job.source: job.sha256 for job in planned if not job.refusal}
            code, versions = cluster_worker.fingerprint(), cluster_worker.versions()
            self._check(Batch(out, probe, code, versions, sources, bool(self._resources)))
            n_without_gpu = sum(not w["resources"].get("GPU") for w in workers.values())
            if self._resources and n_without_gpu:
                _print(f"{n_without_gpu} of {len(workers)} workers have no resource GPU and get no points.")
        except BaseException:
            self._stack.close()
            raise

    @property
    def at_once(self) -> int:
        """How many points the present workers run at a time."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        if self._resources:
            return max(1, sum(bool(w["resources"].get("GPU")) for w in workers))
        return max(1, sum(w["nthreads"] for w in workers))

    def submit(self, point: Point) -> futures.Future[NotebookRun]:
        """Run a point when a worker is free.

        Returns:
            Its row. After `stop`, the future raises `Stopped` or is cancelled; it raises `SchedulerLost` if
            the scheduler is gone.
        """
        future: futures.Future[NotebookRun] = futures.Future()
        with self._lock:
            self._queue.append((point, future))
        self._submit_queued()
        return future

    def stop(self) -> None:
        """Stop what runs, and begin nothing more. What has ended by now has been written."""
        with self._lock:
            self._stopping = True
            for _, future in self._queue:
                future.cancel()
            self._queue.clear()
            submitted = dict(self._submitted)
        if not self._scheduler_lost:
            # In a thread, because a worker that hangs must not block this command.
            stopper = threading.Thread(target=self._stop_workers, daemon=True)
            stopper.start()
            stopper.join(_STOP_S)
            futures.wait(submitted, _LAST_S)
        for future in submitted:
            _resolve(future, error=Stopped())

    def _stop_workers(self) -> None:
        with contextlib.suppress(UsageError):  # the scheduler has ended meanwhile
            self._on_workers(cluster_worker.stop, self._plugin)

    def __enter__(self) -> ClusterExecutor:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _connect(self) -> distributed.Client:
        file = Path(self._scheduler.removeprefix("file:"))
        is_file = file.suffix == ".json"
        if is_file and not file.is_file():
            raise UsageError(
                f"--scheduler {file}: there is no such file; start dask scheduler --scheduler-file {file}."
            )
        if not is_file and not re.fullmatch(r"([a-z]+://)?[^\s/]+:\d+", self._scheduler):
            raise UsageError(
                f"--scheduler {self._scheduler} is neither an address nor a scheduler file; write "
                "tcp://host:8786 or scheduler.json."
            )
        where = {"scheduler_file": str(file)} if is_file else {"address": self._scheduler}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # we report different versions in sentences
                return distributed.Client(**where, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--scheduler {self._scheduler}: no scheduler answers there ({first_line(error)[:200]}); "
                "start one with: dask scheduler."
            ) from error

    def _wait_for_workers(self) -> dict[str, dict]:
        announced = False
        while not (workers := self._client.scheduler_info(n_workers=-1)["workers"]):
            if self._client.status != "running":
                raise UsageError(self._scheduler_gone())
            if not announced:
                _print(f"Waiting for a worker; start one with: dask worker {self._scheduler}")
                announced = True
            time.sleep(0.5)
        return workers

    def _check(self, batch: Batch) -> None:
        def missing() -> str:  # pickled by value, because `workbook` may not be installed there
            import importlib

            try:
                importlib.import_module("workbook.batch.cluster_worker")
            except ImportError as error:
                return str(error)
            return ""

        for address, why in self._on_workers(missing).items():
            if why:
                raise UsageError(
                    f"The worker {address} can't import the workbook ({why}): install it there, with "
                    "[cluster]."
                )
        self._client.register_plugin(Plugin(batch), name=self._plugin)
        checked = self._on_workers(cluster_worker.checked, self._plugin)
        problems = [problem for problem, _ in checked.values() if problem]
        if problems:
            more = f" The same is true of {len(problems) - 1} more." if len(problems) > 1 else ""
            raise UsageError(problems[0] + more)
        notes = [note for _, notes in checked.values() for note in notes]
        for note in notes[:5]:
            _print(note)
        if len(notes) > 5:
            _print(f"{len(notes) - 5} more workers differ from this machine.")

    def _on_workers(self, what, *arguments: object) -> dict[str, object]:
        """Call a function in each worker; a worker that ends meanwhile is left out."""
        try:
            found = self._client.run(what, *arguments, on_error="return")
        except (OSError, futures.CancelledError) as error:
            raise UsageError(self._scheduler_gone()) from error
        for address, answer in found.items():
            if isinstance(answer, Exception) and not isinstance(answer, OSError):
                raise UsageError(
                    f"The worker {address} can't run this batch: {first_line(answer)}."
                ) from answer
        return {a: answer for a, answer in found.items() if not isinstance(answer, Exception)}

    def _submit_queued(self) -> None:
        with self._lock:
            while self._queue and len(self._submitted) < _WINDOW:
                point, future = self._queue.popleft()
                self._send(point, future)

    def _send(self, point: Point, future: futures.Future, fit: Sequence[str] | None = None) -> None:
        key = f"{point.job.name}-{uuid.uuid4().hex}"
        try:
            task = self._client.submit(
                _by_value(),
                pickle.dumps(point),
                self._plugin,
                key,
                key=key,
                pure=False,
                resources=self._resources,
                workers=fit,
                allow_other_workers=False,
            )
        except Exception:
            self._scheduler_lost = True
            _resolve(future, error=SchedulerLost(self._scheduler_gone()))
            return
        self._submitted[future] = task
        task.add_done_callback(lambda task: self._handle_end(point, future, task))

    def _handle_end(self, point: Point, future: futures.Future, task: distributed.Future) -> None:
        try:
            run, error = self._outcome(point, task)
        except Unfit as unfit:
            why, address = unfit.args
            if self._submit_elsewhere(point, future, why, address):
                return
            run, error = NotebookRun.failed(point.job, Failure("start", why.rstrip("."), "")), None
        except Exception as unforeseen:
            message = f"it could not be run: {type(unforeseen).__name__}: {first_line(unforeseen)}"
            run, error = NotebookRun.failed(point.job, Failure("start", message, "")), None
        with self._lock:
            self._submitted.pop(future, None)
        _resolve(future, run, error)
        self._submit_queued()

    def _outcome(self, point: Point, task: distributed.Future) -> tuple[NotebookRun | None, Exception | None]:
        if task.status == "error":
            error = task.exception()
            if isinstance(error, distributed.KilledWorker):
                message = f"{error.allowed_failures + 1} workers died, one after another, while they ran it"
                failed = NotebookRun.failed(point.job, Failure("died", message, ""))
                return dataclasses.replace(failed, attempts=error.allowed_failures + 1), None
            raise error
        if task.status != "finished":
            return None, self._cancelled()
        try:
            done = task.result()
        except (futures.CancelledError, OSError):
            return None, self._cancelled()
        if done.run is None:
            return None, Stopped()
        return done.run, None

    def _cancelled(self) -> Exception:
        if self._stopping:
            return Stopped()
        self._scheduler_lost = True
        return SchedulerLost(self._scheduler_gone())

    def _submit_elsewhere(self, point: Point, future: futures.Future, why: str, address: str) -> bool:
        """Give a point to the workers that have not refused one; returns whether there are any."""
        with self._lock:
            if address not in self._unfit:
                self._unfit.add(address)
                _print(f"{why.rstrip('.')}; its points go to others.")
            fit = set(self._client.scheduler_info(n_workers=-1)["workers"]) - self._unfit
            if fit:
                self._send(point, future, sorted(fit))
            return bool(fit)

    def _scheduler_gone(self) -> str:
        return (
            f"The scheduler {self._scheduler} is gone. Finished notebooks are in {self._out}: "
            "the same command with --resume continues from there."
        )

    def _disconnect(self) -> None:
        """Remove the plugin from the workers, which ends the processes that wait there, and disconnect."""
        with contextlib.suppress(Exception):
            if self._client.status == "running" and not self._scheduler_lost:
                self._client.unregister_worker_plugin(self._plugin)
        with contextlib.suppress(Exception):
            self._client.close(timeout=5)


def _by_value() -> Callable[[bytes, str, str], object]:
    """The task, as a function that is pickled by value: the scheduler reads it, and need not have the
    workbook installed.
    """

    def task(point: bytes, plugin: str, key: str) -> object:
        import importlib

        return importlib.import_module("workbook.batch.cluster_worker").run_task(point, plugin, key)

    return task


def _resolve(future: futures.Future, run: NotebookRun | None = None, error: Exception | None = None) -> None:
    with contextlib.suppress(futures.InvalidStateError):  # stopped meanwhile
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(run)


def _print(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)

"""What is done for one point: run its notebook, write it and its page whole, and return a small row.

`run_point` depends on its point and on nothing of the batch, so any process may call it, on this machine or another.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from helpers.workshop import locks
from helpers.workshop.batch import folder, pages, results
from helpers.workshop.batch.engine import execute
from helpers.workshop.batch.figures import bundles, figures_of
from helpers.workshop.batch.point import Held, Point, Stopped
from helpers.workshop.batch.results import Failure, NotebookRun
from helpers.workshop.batch.watch import Watch
from helpers.workshop.outputs import replace
from helpers.workshop.usage import first_line

METADATA = "kernel_workbook"  # the key in an output's metadata by which --resume knows it


def run_point(point: Point, watch: Watch | None = None) -> NotebookRun:
    """Run one point, or keep its finished output. Whatever goes wrong with it is in the row.

    Its lock is held meanwhile by this process, so that nobody else makes the same outputs at the same time.

    Args:
        point: What to run.
        watch: Told what happens, and the means to end it.

    Raises:
        Stopped: It was interrupted before its notebook was written.
        Held: Another process has it, and the point does not wait.
    """
    watch = watch or Watch(point, threading.Event())
    path = folder.point_lock(point.out, point.job.name)
    try:
        lock = locks.wait(path, watch.stop) if point.wait else locks.take(path)
    except InterruptedError:
        raise Stopped from None
    except OSError as error:
        says = f"its lock could not be made ({error.strerror or first_line(error)})"
        return NotebookRun.failed(point.job, Failure("write", says, ""))
    if lock is None:
        raise Held(_holder(path))
    with contextlib.closing(lock):
        return _run(point, lock, watch)


def _run(point: Point, lock: locks.Lock, watch: Watch) -> NotebookRun:
    target = point.out / f"{point.job.name}.ipynb"
    if kept := _finished(target, point):
        return _with_page(point, *kept)
    begun = _said(lock.before)
    if point.run and begun.get("run") == point.run and begun["attempt"] >= point.attempt:
        # This batch began it in a process that has ended since, and whoever runs the points gave it to another.
        point = dataclasses.replace(point, attempt=begun["attempt"] + 1)
        if point.attempt > point.retries + 1:
            says = f"the process that ran it ended ({begun['host']}, process {begun['pid']})"
            failed = NotebookRun.failed(point.job, Failure("died", says, ""))
            return dataclasses.replace(failed, attempts=begun["attempt"], host=begun["host"])
    own = {"run": point.run, "attempt": point.attempt, "host": platform.node(), "pid": os.getpid()}
    lock.write(json.dumps(own))
    execution = execute(point, watch)
    run, notebook = results.summarise(point, execution), execution.notebook
    notebook.metadata[METADATA] = {"work": point.job.same_work, "run": run.as_dict(), "batch": point.run}
    try:
        replace(target, nbformat.writes(notebook, version=4) + "\n")
    except OSError as error:
        says = f"the executed notebook could not be written ({error.strerror or first_line(error)})"
        if run.failure:
            says += f"; before that, {run.failure}"
        return dataclasses.replace(run, status="failed", written=False, failure=Failure("write", says, ""))
    return _with_page(point, run, notebook)


def _with_page(point: Point, run: NotebookRun, notebook: NotebookNode) -> NotebookRun:
    page = point.out / f"{run.name}.html"
    if run.status == "kept" and page.exists():
        return run
    try:
        pages.write_page(notebook, run, page, point.pages)
    except Exception as error:
        # nbconvert's, of any kind: the executed notebook is there all the same.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        says = f"its page could not be made ({type(error).__name__}: {reason})"
        return dataclasses.replace(run, page_error=says)
    return run


def _finished(target: Path, point: Point) -> tuple[NotebookRun, NotebookNode] | None:
    """The point's output if it is complete and to be kept: with `resume`, or made since the batch began, by it or another."""
    try:
        since = bool(point.since_ns) and target.stat().st_mtime_ns > point.since_ns
    except OSError:
        return None
    if not (point.resume or since) or (found := read_finished(target, point.job.same_work)) is None:
        return None
    run, notebook = found
    own = bool(point.run) and notebook.metadata[METADATA].get("batch") == point.run
    status = run.status if own else "kept"
    return dataclasses.replace(run, parameters=point.job.parameters, status=status), notebook


def read_finished(target: Path, work: Mapping[str, Any]) -> tuple[NotebookRun, NotebookNode] | None:
    """The row and the notebook of an output of this work that ran to its end.

    Args:
        target: The executed notebook.
        work: `Job.same_work`.
    """
    try:
        notebook = nbformat.reads(target.read_text("utf-8"), as_version=4)
        kept = notebook.metadata.get(METADATA, {})
        if kept.get("work") != work or kept["run"]["status"] not in ("ok", "kept"):
            return None
        run = NotebookRun.from_dict(kept["run"])
        if "figures" not in kept["run"]:  # written by a workbook that kept none
            run = dataclasses.replace(run, figures=figures_of(bundles(notebook)))
        return run, notebook
    except (OSError, ValueError, KeyError, TypeError, nbformat.reader.NotJSONError):
        return None  # not an output of ours: it is made anew


def _holder(path: Path) -> str:
    try:
        said = _said(path.read_text("utf-8"))
    except OSError:
        said = {}
    return f"another run has it ({said['host']}, process {said['pid']})" if said else "another run has it"


def _said(text: str) -> dict[str, Any]:
    """What the holder of a point's lock wrote into it; nothing where it had not yet."""
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) and {"run", "attempt", "host", "pid"} <= set(said) else {}

"""What is done for one point: run its notebook, write it and its page whole, and return a small row.

`run_point` depends on its point and on nothing of the batch, so any process may call it, on this machine or another.
"""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from helpers.workshop.batch import pages, results
from helpers.workshop.batch.engine import Watch, execute
from helpers.workshop.batch.figures import bundles, figures_of
from helpers.workshop.batch.point import Point
from helpers.workshop.batch.results import Failure, NotebookRun
from helpers.workshop.outputs import replace
from helpers.workshop.usage import first_line

METADATA = "kernel_workbook"  # the key in an output's metadata by which --resume knows it


def run_point(point: Point, watch: Watch | None = None) -> NotebookRun:
    """Run one point, or keep its finished output. Whatever goes wrong with it is in the row.

    Args:
        point: What to run.
        watch: Told what happens, and the means to end it.

    Raises:
        Stopped: It was interrupted before its notebook was written.
    """
    target = point.out / f"{point.job.name}.ipynb"
    if point.resume and (kept := _finished(target, point)):
        run, notebook = kept
    else:
        execution = execute(point, watch or Watch(point.cell_timeout, threading.Event()))
        run, notebook = results.summarise(point, execution), execution.notebook
        notebook.metadata[METADATA] = {"work": point.job.same_work, "run": run.as_dict()}
        try:
            replace(target, nbformat.writes(notebook, version=4) + "\n")
        except OSError as error:
            says = f"the executed notebook could not be written ({error.strerror or first_line(error)})"
            if run.failure:
                says += f"; before that, {run.failure}"
            return dataclasses.replace(
                run, status="failed", written=False, failure=Failure("write", says, "")
            )
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
    """The output of an earlier batch if it is this point's and complete."""
    if not target.is_file():
        return None
    try:
        notebook = nbformat.reads(target.read_text("utf-8"), as_version=4)
        kept = notebook.metadata.get(METADATA, {})
        if kept.get("work") != point.job.same_work or kept["run"]["status"] not in ("ok", "kept"):
            return None
        run = NotebookRun.from_dict({**kept["run"], "parameters": point.job.parameters, "status": "kept"})
        if "figures" not in kept["run"]:  # written by a workbook that kept none
            run = dataclasses.replace(run, figures=figures_of(bundles(notebook)))
        return run, notebook
    except (OSError, ValueError, KeyError, TypeError, nbformat.reader.NotJSONError):
        return None  # not an output of ours: it is made anew

"""What is done for one point: run its notebook, write it, write its page, and return a small row.

`run_point` depends on its point and on nothing else of the batch, so any process can call it, on this machine
or another.
"""

from __future__ import annotations

import dataclasses
import threading

from nbformat import NotebookNode

from workbook.batch import executed, pages
from workbook.batch.engine import execute
from workbook.batch.notebook_runs import NotebookRun, summarize
from workbook.batch.point import Point
from workbook.batch.watch import Watch
from workbook.usage import first_line


def run_point(point: Point, watch: Watch | None = None) -> NotebookRun:
    """Run one point, or reuse its finished output. The row records whatever goes wrong.

    Args:
        point: What to run.
        watch: Follows the run, and can end it.

    Raises:
        Stopped: It was interrupted before its notebook was written.
    """
    if done := executed.finished(point):
        run, notebook = done
    else:
        execution = execute(point, watch or Watch(point, threading.Event()))
        notebook = execution.notebook
        run = executed.write(point, summarize(point, execution), notebook)
    return _with_page(point, run, notebook) if run.written else run


def _with_page(point: Point, run: NotebookRun, notebook: NotebookNode) -> NotebookRun:
    """Write the page of an executed notebook, unless an earlier run has."""
    page = point.out / f"{run.name}.html"
    if run.status == "kept" and page.exists():
        return run
    try:
        pages.write_page(notebook, run, page, point.pages)
    except Exception as error:
        # nbconvert raises errors of any kind, and the executed notebook is there all the same.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        message = f"its page could not be made ({type(error).__name__}: {reason})"
        return dataclasses.replace(run, page_error=message)
    return run

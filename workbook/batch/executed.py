"""An executed notebook on disk: written with what happened to it, and read again for `--resume` and
`workbook index`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from workbook.batch.findings import bundles, figures_of
from workbook.batch.notebook_runs import Failure, NotebookRun
from workbook.batch.point import Point
from workbook.outputs import replace
from workbook.usage import first_line

_METADATA = "kernel_workbook"  # the key in the notebook's metadata


def write(point: Point, run: NotebookRun, notebook: NotebookNode) -> NotebookRun:
    """Write an executed notebook atomically, with its row in its metadata.

    Returns:
        The row; a failed one if the notebook could not be written.
    """
    notebook.metadata[_METADATA] = {"work": point.job.same_work, "run": run.as_dict(), "batch": point.run}
    try:
        replace(point.out / f"{run.name}.ipynb", nbformat.writes(notebook, version=4) + "\n")
    except OSError as error:
        message = f"the executed notebook could not be written ({error.strerror or first_line(error)})"
        if run.failure:
            message += f"; before that, {run.failure}"
        return dataclasses.replace(run, status="failed", written=False, failure=Failure("write", message, ""))
    return run


def finished(point: Point) -> tuple[NotebookRun, NotebookNode] | None:
    """The row and the notebook of a point that has nothing left to run, or None.

    With `--resume` an output of an earlier batch counts. An output of this batch always does: the process
    that wrote it ended before it could report, and the point was given to another process.
    """
    found = read(point.out / f"{point.job.name}.ipynb", point.job.same_work)
    if found is None or found[0].status == "failed":
        return None
    run, notebook = found
    run = dataclasses.replace(run, parameters=point.job.parameters)
    if point.run and notebook.metadata[_METADATA].get("batch") == point.run:
        return run, notebook
    return (dataclasses.replace(run, status="kept"), notebook) if point.resume else None


def read(path: Path, work: Mapping[str, Any]) -> tuple[NotebookRun, NotebookNode] | None:
    """The row and the notebook of an executed notebook, or None if there is none of this work.

    Args:
        path: The executed notebook.
        work: `Job.same_work`.
    """
    try:
        notebook = nbformat.reads(path.read_text("utf-8"), as_version=4)
        saved = notebook.metadata.get(_METADATA, {})
        if saved.get("work") != work:
            return None
        run = NotebookRun.from_dict(saved["run"])
        if "figures" not in saved["run"]:  # written by a version that did not save them
            run = dataclasses.replace(run, figures=figures_of(bundles(notebook)))
        return run, notebook
    except (OSError, ValueError, KeyError, TypeError, nbformat.reader.NotJSONError):
        return None  # it is not an output of ours

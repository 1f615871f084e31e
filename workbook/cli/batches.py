"""`workbook run`, `results` and `index`: notebooks in batch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbook.cli.ending import stop
from workbook.cli.options import with_options
from workbook.options import RunOptions
from workbook.usage import UsageError


@with_options
def run(
    notebooks: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Notebooks, or folders to search for notebooks; by default the course's lessons.",
            show_default=False,
        ),
    ] = None,
    *,
    options: RunOptions,
) -> None:
    """Run notebooks with papermill, and write each one executed, a page of each, and index.html.

    The exit status is 0 if all notebooks ran, 1 if one failed, 2 if the command is wrong, and 130 after
    Ctrl-C.
    """
    from workbook.interrupts import ignore, interruptible

    with interruptible():
        try:
            from workbook.batch import batch_run
            from workbook.project import find_root

            report = batch_run.run_batch(notebooks or [find_root() / "notebooks"], options)
        except (UsageError, RuntimeError) as error:
            stop(error)
        except KeyboardInterrupt:
            ignore()
            stop("Interrupted before a notebook ran.", 130)
    typer.echo(repr(report))
    raise typer.Exit(report.exit_status)


def results(
    out: Annotated[Path, typer.Argument(metavar="DIR", help="The --out folder of workbook run.")] = Path(
        "build/course"
    ),
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print one table of all points, as in results.csv.")
    ] = False,
) -> None:
    """Print what a batch found: the points of each notebook with their parameters and figures.

    The batch may still be running. In Python, workbook.batch.load_results("build/course") returns the same
    as a DataFrame.
    """
    from workbook.batch import table

    try:
        runs = table.read_report(out)
    except UsageError as error:
        stop(error)
    typer.echo(table.csv_text(runs) if as_csv else table.text_table(runs), nl=not as_csv)


def index(
    out: Annotated[Path, typer.Argument(metavar="DIR", help="The --out folder of workbook run --shard.")],
) -> None:
    """Write index.html, report.json and results.csv from the executed notebooks in a folder, and list the
    points that are missing.

    Use it after `workbook run --shard`, or after a run that was killed. The shards may still be running. The
    exit status is 0 if every point is there, 1 if one failed, and 3 if one is missing.
    """
    from workbook.batch.index import index_folder

    try:
        written = index_folder(out)
    except UsageError as error:
        stop(error)
    typer.echo(repr(written))
    raise typer.Exit(written.exit_status)

"""`workbook doctor`, `records` and `bench`: what is installed, what was recorded, what became slower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbook.cli.ending import stop
from workbook.cli.options import with_options
from workbook.options import BenchOptions
from workbook.usage import UsageError


def doctor() -> None:
    """List what is installed and what is missing, which features that disables, and how to fix it.

    The exit status is 1 if a lesson cannot run at all.
    """
    try:
        from helpers import device

        survey = device.survey()
    except ImportError as error:
        stop(f"No lesson can run: {error}. Run `pip install -e .` in the workbook's folder.", 1)
    typer.echo(survey.doctor())
    if not survey.ok:
        raise typer.Exit(1)


def records(
    name: Annotated[
        str,
        typer.Argument(help="Only records whose names contain this, such as fusion/.", show_default=False),
    ] = "",
    gpu: Annotated[
        list[str] | None,
        typer.Option(metavar="SET", help="Only this set, such as h200; repeat the option for several sets."),
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only records whose kernels have changed since.")
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Check one set: is it complete, plausible and free of personal data? Exit status 1 if not.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """List what was recorded on each GPU: date, versions, and whether the kernels have changed since.

    To compare one record of several GPUs, call
    helpers.records.compare("triton/launch-sweep", ("h100", "h200")) in Python.
    """
    from workbook import catalogue, project
    from workbook.records_check import checking

    if check is not None and (name or gpu or stale):
        stop("--check checks all records in a folder; it cannot be combined with NAME, --gpu or --stale.")
    try:
        root = project.find_root()
    except RuntimeError:
        root = None
    if check is not None:
        try:
            n_problems, report = checking.check(check, root=root)
        except ValueError as error:
            stop(error)
        typer.echo(report)
        raise typer.Exit(1 if n_problems else 0)
    try:
        table = catalogue.summaries(gpu or [], name, catalogue.current_sources(root))
    except (UsageError, ValueError) as error:
        stop(error)
    if stale:
        table = {
            record: by_gpu
            for record, by_gpu in table.items()
            if any(summary.kernels == catalogue.CHANGED for summary in by_gpu.values())
        }
    typer.echo(catalogue.listing(table) if table else "No kernel of these records has changed.")


@with_options
def bench(*, options: BenchOptions) -> None:
    """Time kernels on this GPU, and report which became slower or faster than in an earlier run.

    The exit status is 1 if a point is slower or fails, 0 if none is, and 2 if nothing can be compared.
    """
    from workbook.assignments import value_lists
    from workbook.bench.measure import BrokenGpu
    from workbook.bench.regression import bench as measure

    try:
        status = measure(options, value_lists(options.only, "--only"), say=typer.echo)
    except BrokenGpu as error:
        stop(
            f"{error} left the GPU in a broken state (an illegal memory access), so nothing else can run in "
            "this process."
        )
    except (UsageError, ValueError) as error:
        stop(error)
    raise typer.Exit(status)

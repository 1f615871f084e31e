"""`workbook doctor`, `records` and `bench`: what is here, what was measured, what became slower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from helpers.workshop.cli.ending import stop


def doctor() -> None:
    """Say what is here, what is missing and the one line that gets it; exit 1 if a lesson could not run."""
    try:
        from helpers import device

        survey = device.survey()
    except ImportError as error:
        stop(f"A lesson could not run: {error}. To get it: pip install -e . in the workbook's folder.", 1)
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
        typer.Option(metavar="SET", help="Only this set, such as h200; give it again for another."),
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only records of kernels whose text has changed since.")
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Check a set of records that somebody made on their GPU; exit 1 where something is wrong.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """List what was measured on which GPU: day, versions, and whether its kernels have changed since.

    helpers.records.compare("triton/launch-sweep", ("h100", "h200")) sets one record of several GPUs side by side.
    --check says of a whole set what is missing, where its provenance has gaps, what cannot be, and what names a person.
    """
    from helpers.workshop import catalogue, offered, project
    from helpers.workshop.usage import UsageError

    if check is not None and (name or gpu or stale):
        stop("--check looks at all of one folder: give it without NAME, --gpu and --stale.")
    try:
        root = project.find_root()
    except RuntimeError:
        root = None
    if check is not None:
        try:
            verdict = offered.check(check, root=root)
        except UsageError as error:
            stop(error)
        typer.echo(str(verdict))
        raise typer.Exit(1 if verdict.problems else 0)
    try:
        table = catalogue.kept(gpu or [], name, catalogue.texts_today(root))
    except (UsageError, ValueError) as error:
        stop(error)
    if stale:
        table = {
            record: of
            for record, of in table.items()
            if any(k.kernels == catalogue.CHANGED for k in of.values())
        }
    typer.echo(
        catalogue.listing(table) if table else "No record is of a kernel whose text has changed since."
    )


def bench(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A Python file whose cases() yields what to measure (helpers.workshop.bench.Case); without one, the "
            "league of benchmarks/kernels.py.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=A,B",
            help="Only points with these values: --only op=softmax --only n_cols=1024,8320.",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep what was measured, for --against.", show_default=False),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="RECORD",
            help="Measure the points of a record again and compare: a file of --save, fusion/league, or a sweep such as "
            "triton/launch-sweep. A file's kernel texts are run: name only files that you trust.",
            show_default=False,
        ),
    ] = None,
    least: Annotated[float, typer.Option(metavar="PERCENT", help="The smallest change that counts.")] = 1.0,
    seconds: Annotated[float, typer.Option(metavar="SECONDS", help="Timing of a point.")] = 0.6,
) -> None:
    """Measure kernels on this GPU, and say what became slower or faster than a record, beyond the noise.

    The exit status is 1 where a point is slower or fails, 0 where none is, 2 where nothing can be compared.
    """
    from helpers.workshop.batch import plan
    from helpers.workshop.bench import bench
    from helpers.workshop.bench.measure import BrokenGpu
    from helpers.workshop.usage import UsageError

    if least < 0 or seconds <= 0:
        stop(f"--least {least:g} must not be negative, and --seconds {seconds:g} must be above 0.")
    try:
        chosen = {
            name: plan.split_values(text) for name, text in plan.assignments(only or [], "--only").items()
        }
        status = bench(
            file,
            only=chosen,
            save=save,
            baseline=against,
            least=least / 100,
            budget_s=seconds,
            say=typer.echo,
        )
    except BrokenGpu as error:
        stop(
            f"{error} broke the GPU's state (an illegal access): nothing after it can be measured in this process."
        )
    except (UsageError, ValueError) as error:
        stop(error)
    raise typer.Exit(status)

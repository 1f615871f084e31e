"""`workbook run`, `results` and `merge`: notebooks in batch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from helpers.workshop.cli.ending import stop


def run(
    notebooks: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Notebooks or folders of them; without any, the course's lessons.", show_default=False
        ),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "-p", "--parameter", metavar="NAME=VALUE", help="A parameter, given to notebooks that have it."
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=A,B", help="Run once for each value; several grids give their product."),
    ] = None,
    sweep: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Run once at each point of a .csv or .yaml file.", show_default=False
        ),
    ] = None,
    parameters_file: Annotated[
        Path | None,
        typer.Option(
            "-f",
            "--parameters-file",
            metavar="FILE",
            help="Parameters from a .yaml file; -p, --grid and --sweep come before it.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the outputs go.")] = Path("build/course"),
    cell_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Stop a cell that runs longer; 0 for no limit.")
    ] = 900,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            help="Notebooks at the same time: 1 by default, or one a GPU of --gpus. More than 1 on a GPU disturbs timings.",
            show_default=False,
        ),
    ] = None,
    gpus: Annotated[
        str,
        typer.Option(
            metavar="all|0,1|UUID…",
            help="Give each running notebook one of these GPUs, and hide the others from it.",
            show_default=False,
        ),
    ] = "",
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep finished outputs of the same source and parameters.")
    ] = False,
    shard: Annotated[
        str,
        typer.Option(
            metavar="K/N",
            help="Run the K-th of N parts; `workbook merge` then writes the report.",
            show_default=False,
        ),
    ] = "",
    scheduler: Annotated[
        str,
        typer.Option(
            metavar="tcp://HOST:8786|FILE.json",
            help="Run on the workers of this Dask scheduler instead of this machine.",
            show_default=False,
        ),
    ] = "",
    retries: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Run a point again, up to N times, whose kernel or worker died or never started: by default 0, "
            "with --scheduler 1.",
            show_default=False,
        ),
    ] = None,
    notebook_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Stop a notebook that runs longer; 0 for no limit.")
    ] = 0,
    start_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long a kernel may take to start.")
    ] = 120,
    memory_limit: Annotated[
        float,
        typer.Option(
            metavar="MB", help="Stop a notebook whose processes together hold more; 0 for no limit."
        ),
    ] = 0,
    log_output: Annotated[
        bool,
        typer.Option("--log-output", help="Write what each notebook puts out, as it comes, to NAME.log."),
    ] = False,
    fail_fast: Annotated[
        bool,
        typer.Option("--fail-fast", help="Begin nothing more after the first failure; what runs goes on."),
    ] = False,
    kernel: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Run all with this kernel, whatever they name.", show_default=False
        ),
    ] = "",
    cwd: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Run all in this folder, instead of each in its own.", show_default=False
        ),
    ] = None,
    recursive: Annotated[
        bool, typer.Option("--recursive", help="Search a folder's subfolders too, but for hidden ones.")
    ] = False,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GLOB",
            help="Leave out a folder's notebooks of this name or path, such as 'draft_*' or 'old/*'.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run notebooks with papermill and write them, a page of each and index.html."""
    from helpers.workshop.interrupts import ignore, interruptible

    with interruptible():
        try:
            from helpers.workshop.batch import plan, run_course, sweeps
            from helpers.workshop.usage import UsageError

            try:
                if not notebooks:
                    from helpers.workshop.project import find_root

                    notebooks = [find_root() / "notebooks"]
                report = run_course(
                    notebooks,
                    out,
                    plan.assignments(parameter or [], "-p"),
                    grid={
                        name: plan.split_values(text)
                        for name, text in plan.assignments(grid or [], "--grid").items()
                    },
                    cell_timeout=None if cell_timeout == 0 else cell_timeout,
                    jobs=jobs,
                    resume=resume,
                    gpus=gpus,
                    sweep=sweeps.read_points(sweep) if sweep else (),
                    defaults=sweeps.read_parameters(parameters_file) if parameters_file else None,
                    shard=shard,
                    retries=retries,
                    scheduler=scheduler,
                    notebook_timeout=notebook_timeout or None,
                    start_timeout=start_timeout,
                    memory_limit=memory_limit or None,
                    log_output=log_output,
                    fail_fast=fail_fast,
                    kernel=kernel,
                    cwd=cwd,
                    recursive=recursive,
                    exclude=exclude or (),
                )
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
        bool, typer.Option("--csv", help="One table of all points, as results.csv has it.")
    ] = False,
) -> None:
    """Print what a batch found, also while it runs: the points of each notebook with their parameters and figures.

    helpers.workshop.batch.load_results("build/course") gives the same as a DataFrame.
    """
    from helpers.workshop.batch import table
    from helpers.workshop.usage import UsageError

    try:
        runs = table.read_report(out)
    except UsageError as error:
        stop(error)
    typer.echo(table.csv_text(runs) if as_csv else table.text_table(runs), nl=not as_csv)


def merge(
    out: Annotated[Path, typer.Argument(help="What `workbook run --shard` had as --out.")],
) -> None:
    """Write report.json and index.html of a batch that ran in shards, and say what is missing.

    The exit status is 0 where every point is there, 1 where one failed, and 3 where one is missing. It may be called while
    shards run.
    """
    from helpers.workshop.batch import merge
    from helpers.workshop.usage import UsageError

    try:
        merged = merge.merge(out)
    except (UsageError, RuntimeError) as error:
        stop(error)
    typer.echo(repr(merged))
    raise typer.Exit(merged.exit_status)

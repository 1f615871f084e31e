"""`workbook grade`: labs in processes of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbook.cli.ending import stop


def grade(
    notebooks: Annotated[
        list[Path],
        typer.Argument(
            help="Learners' notebooks, or folders with them. In a folder each sub-folder is a learner, with "
            "every notebook in it; any other notebook is named after its file, or after its folder if the "
            "file is called like a lab."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the reports go.")] = Path("build/grades"),
    time_limit: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="For one cell, and for the check of one exercise; a notebook gets ten times as much.",
        ),
    ] = 120,
    memory_limit: Annotated[
        float, typer.Option(metavar="MB", help="For all processes of a notebook together.")
    ] = 8000,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            help="Notebooks at the same time; a GPU never gets two. By default one per GPU, or without a "
            "GPU one per core, up to 8 and as memory allows.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Repeat a class: a file with its seed, such as its results.jsonl, or - for stdin. New by "
            "default; each notebook's hidden cases come from it, the learner and the notebook.",
            show_default=False,
        ),
    ] = "",
    lab: Annotated[
        str,
        typer.Option(
            metavar="LAB",
            help="Such as 03_triton; by default from each notebook's exercises.",
            show_default=False,
        ),
    ] = "",
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Keep results of the same notebooks, exercises, limits and seed; grade what is missing or "
            "changed.",
        ),
    ] = False,
    unsafe: Annotated[
        bool,
        typer.Option(
            "--unsafe",
            help="Run learners' code without the sandbox, with your permissions.",
        ),
    ] = False,
) -> None:
    """Grade labs: run each notebook in processes of its own and check its exercises with hidden cases.

    Writes results.jsonl as it goes, then grades.csv, a page for each learner and index.html. The exit status
    is 0 whatever the marks are. Marks that you write into overrides.csv in the same folder win.

    Learners' code runs in a sandbox, for which bubblewrap has to be installed.
    """
    from workbook.grade import grade, seeds
    from workbook.usage import UsageError

    try:
        grades = grade(
            notebooks,
            out,
            time_limit=time_limit,
            memory_limit=memory_limit,
            jobs=jobs,
            seed=seeds.given(seed) if seed else None,
            lab=lab,
            resume=resume,
            unsafe=unsafe,
        )
    except (UsageError, RuntimeError) as error:
        stop(error)
    typer.echo(repr(grades))
    raise typer.Exit(grades.exit_status)

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
            help="Learners' notebooks, or folders with them. A learner is called as the file, or as its "
            "folder where several "
            "files have one name or a lab's: submissions/ada/03_triton.ipynb is ada's."
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
        int,
        typer.Option("--jobs", "-j", help="Notebooks at the same time; where GPUs are, one on each at most."),
    ] = 1,
    seed: Annotated[
        str,
        typer.Option(
            metavar="SEED",
            help="Repeat a class: the seed that its report names, or - to have it read from stdin. New by "
            "default; each "
            "notebook's hidden cases come from it, the learner and the notebook.",
            show_default=False,
        ),
    ] = "",
    lab: Annotated[
        str,
        typer.Option(
            metavar="LAB", help="Such as 03_triton; by default each notebook says it.", show_default=False
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
    no_confine: Annotated[
        bool, typer.Option("--no-confine", help="Let the code read, write and connect to what you can.")
    ] = False,
    sandbox: Annotated[
        str,
        typer.Option(
            metavar="bwrap|docker|podman",
            help="Put namespaces (bubblewrap) or a container around each notebook as well.",
            show_default=False,
        ),
    ] = "",
    image: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The container's; kernel-workbook-grade by default.", show_default=False
        ),
    ] = "",
) -> None:
    """Grade labs: run each notebook in processes of its own and check its exercises with hidden cases.

    Writes results.jsonl as it goes, then grades.csv, a page for each learner and index.html. The exit status
    is 0 whatever the marks are. Marks that you write into overrides.csv in the same folder win. The report
    says how the learners' code was kept in; for marks, and for strangers' notebooks, take --sandbox.
    """
    from workbook.grade import grade, seeds
    from workbook.usage import UsageError

    try:
        seeds.off_the_command_line()
        grades = grade(
            notebooks,
            out,
            time_limit=time_limit,
            memory_limit=memory_limit,
            jobs=jobs,
            seed=seeds.given(seed) if seed else None,
            lab=lab,
            resume=resume,
            confine=not no_confine,
            sandbox=sandbox,
            image=image,
        )
    except (UsageError, RuntimeError) as error:
        stop(error)
    typer.echo(repr(grades))
    raise typer.Exit(grades.exit_status)

"""The `workbook` command: run notebooks in batch, say what this machine lacks, form and publish the notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _stop(sentence: object, status: int = 2) -> NoReturn:
    """End with one sentence on stderr."""
    typer.echo(str(sentence), err=True)
    raise typer.Exit(status)


@app.callback()
def _workbook() -> None:
    """Kernel Workbook: run lessons in batch, and look after their form."""


@app.command("form")
def form_command(
    notebooks: Annotated[
        list[Path] | None,
        typer.Argument(help="Notebooks; without any, all lessons and labs.", show_default=False),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 where the form is broken.")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Run them first and keep the checked cells' outputs.")
    ] = False,
) -> None:
    """Bring notebooks into their one canonical form."""
    from helpers import form

    if check and execute:
        _stop("--check changes nothing and --execute stores outputs: give one of them.")
    try:
        written, differences, problems = form.form(notebooks or [], check=check, run=execute)
    except (ValueError, RuntimeError) as error:
        _stop(error)
    for sentence in [*(differences if check else []), *problems]:
        typer.echo(sentence)
    if not check:
        typer.echo(f"{len(written)} notebooks written" + (": " + ", ".join(written) if written else "."))
    if problems or (check and differences):
        raise typer.Exit(1)


def main() -> None:
    """The console script's entry."""
    app()


if __name__ == "__main__":
    main()

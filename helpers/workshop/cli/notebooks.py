"""`workbook form` and `publish`: the notebooks in their one form, with their address."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from helpers.workshop.cli.ending import stop


def form(
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
    """Bring notebooks into their one canonical form and derive the labs' starters from their solutions."""
    from helpers.workshop.form import files

    if check and execute:
        stop("--check changes nothing and --execute stores outputs: give one of them.")
    try:
        written, differences, problems = files.form(notebooks or [], check=check, run=execute)
    except (ValueError, RuntimeError) as error:
        stop(error)
    for sentence in [*(differences if check else []), *problems]:
        typer.echo(sentence)
    if not check:
        typer.echo(f"{len(written)} files written" + (": " + ", ".join(written) if written else "."))
    if problems or (check and differences):
        raise typer.Exit(1)


def publish(
    repository: Annotated[str, typer.Argument(metavar="OWNER/REPO", help="The repository on GitHub.")],
) -> None:
    """Stamp the repository's address into pyproject.toml, the documents, the forms on GitHub and every notebook."""
    from helpers.workshop.form.publish import publish
    from helpers.workshop.project import find_root

    try:
        changed = publish(repository, find_root())
    except (ValueError, RuntimeError) as error:
        stop(error)
    for change in changed:
        typer.echo(change)
    if not changed:
        typer.echo(f"Nothing to change: {repository} stands everywhere already.")

"""`workbook form`, `workbook minutes`, `workbook publish`: the notebooks' form, length and address."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbook.cli.ending import stop


def form(
    notebooks: Annotated[
        list[Path] | None,
        typer.Argument(help="Notebooks; by default all lessons and labs.", show_default=False),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing; exit with status 1 if anything would change."),
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Run the notebooks first, and store the checked cells' outputs.")
    ] = False,
) -> None:
    """Bring notebooks into canonical form, and derive the labs' starters from their solutions."""
    from workbook.form import files

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


def minutes(
    folder: Annotated[
        Path | None,
        typer.Argument(help="The folder of `workbook run notebooks`. Default: build/course in the checkout."),
    ] = None,
) -> None:
    """Compute how long each lesson takes a reader, and store it for the lessons' titles."""
    from workbook.form import minutes as computed
    from workbook.outputs import replace
    from workbook.project import MINUTES, find_root, load_project

    try:
        root = find_root()
        lessons = computed.read(folder or root / "build" / "course")
        typer.echo(computed.table(lessons))
        replace(root / MINUTES, computed.text({**load_project(root).minutes, **computed.rounded(lessons)}))
    except (ValueError, RuntimeError) as error:
        stop(error)
    typer.echo(f"Stored in {MINUTES}; `workbook form` writes the titles.")


def publish(
    repository: Annotated[str, typer.Argument(metavar="OWNER/REPO", help="The repository on GitHub.")],
) -> None:
    """Set the repository's address in all documents and notebooks, and show the links that need it."""
    from workbook.form.publish import publish
    from workbook.project import find_root

    try:
        changed = publish(repository, find_root())
    except (ValueError, RuntimeError) as error:
        stop(error)
    for change in changed:
        typer.echo(change)
    if not changed:
        typer.echo(f"Nothing to change: all files already name {repository}.")

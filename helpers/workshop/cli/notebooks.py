"""`workbook form`, `publish` and `book`: the notebooks in their one form, with their address, and as pages to read."""

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
    """Stamp the repository's address into pyproject.toml, the README and every notebook."""
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


def book(
    executed: Annotated[
        Path | None,
        typer.Option(
            help="The folder of `workbook run notebooks`; default: build/course of the checkout.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The book's folder; default: build/book of the checkout.", show_default=False),
    ] = None,
) -> None:
    """Make the course a book: pages with search, sliders and folds that open from disk, without a network."""
    from helpers.workshop.book import build_book
    from helpers.workshop.project import find_root

    try:
        root = find_root()
        made = build_book(root, executed or root / "build" / "course", out or root / "build" / "book")
    except (ValueError, RuntimeError) as error:
        stop(error)
    for sentence in made.says:
        typer.echo(sentence, err=True)
    typer.echo(f"{made.n_pages} pages, {made.n_bytes / 1e6:.0f} MB: open {made.index}")

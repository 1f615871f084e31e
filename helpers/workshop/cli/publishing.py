"""`workbook book` and `links`: the course as pages to read, and whether links lead somewhere, also on the web."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from helpers.workshop.cli.ending import stop


def links(
    pages: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FOLDER]",
            help="A folder of HTML pages, such as build/book; without one, the checkout's documents and notebooks.",
            show_default=False,
        ),
    ] = None,
    external: Annotated[
        bool, typer.Option("--external", help="Ask the web for each address too. It needs a network.")
    ] = False,
) -> None:
    """Find links that lead nowhere: to files and to places in them; exit 1 where there are any."""
    from helpers.workshop.book import links as looked
    from helpers.workshop.project import find_root

    if pages is not None:
        if external:
            stop("--external asks for the addresses of documents and notebooks: give it without a folder.")
        if not pages.is_dir():
            stop(f"{pages} is no folder of pages: `make book` makes build/book.")
        said = looked.broken(pages)
    else:
        try:
            root = find_root()
        except RuntimeError as error:
            stop(error)
        said = looked.broken_in_sources(root)
        if external:
            found = looked.addresses(root)
            typer.echo(f"Asking for {len(found)} addresses …", err=True)
            said += looked.unreachable(found)
    for sentence in said:
        typer.echo(sentence)
    if said:
        raise typer.Exit(1)
    typer.echo("Every link leads somewhere.")


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

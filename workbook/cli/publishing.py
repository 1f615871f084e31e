"""`workbook book`: the course as pages to read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbook.cli.ending import stop


def book(
    executed: Annotated[
        Path | None,
        typer.Option(
            help="The folder of `workbook run notebooks`. Default: build/course in the checkout.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The book's folder. Default: build/book in the checkout.", show_default=False),
    ] = None,
    linkcheck: Annotated[
        bool,
        typer.Option(
            "--linkcheck",
            help="Build nothing; check the book's links to the web instead, which needs a network.",
        ),
    ] = False,
) -> None:
    """Build the course as a book that opens from disk, with search and sliders, and without a network.

    If Sphinx warns, for example about a link that leads nowhere, the book is built all the same, but the exit
    status is 1.
    """
    from workbook.book import build_book, check_web_links
    from workbook.project import find_root

    try:
        root = find_root()
        executed = executed or root / "build" / "course"
        if linkcheck:
            broken = check_web_links(root, executed)
        else:
            made = build_book(root, executed, out or root / "build" / "book")
    except (ValueError, RuntimeError) as error:
        stop(error)
    if linkcheck:
        for line in broken:
            typer.echo(line)
        raise typer.Exit(bool(broken))
    for line in (*made.stale, *made.warnings):
        typer.echo(line, err=True)
    typer.echo(f"{made.n_pages} pages, {made.n_bytes / 1e6:.0f} MB: open {made.index}")
    raise typer.Exit(bool(made.warnings))

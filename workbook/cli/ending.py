"""How a command ends when it can't continue."""

from __future__ import annotations

from typing import NoReturn

import typer


def stop(sentence: object, status: int = 2) -> NoReturn:
    """Print one sentence to stderr and exit."""
    typer.echo(str(sentence), err=True)
    raise typer.Exit(status)

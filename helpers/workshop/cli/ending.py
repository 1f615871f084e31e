"""How a command ends that cannot go on."""

from __future__ import annotations

from typing import NoReturn

import typer


def stop(sentence: object, status: int = 2) -> NoReturn:
    """End with one sentence on stderr."""
    typer.echo(str(sentence), err=True)
    raise typer.Exit(status)

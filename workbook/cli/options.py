"""Typer options from the fields of a dataclass of `workbook.options`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import Field, fields
from typing import Annotated, Any, get_type_hints

import typer

from workbook.cli.ending import stop
from workbook.usage import UsageError


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for each field of the dataclass that its parameter `options` is annotated
    with.

    The command is called with that dataclass. If the dataclass refuses its values with a `UsageError`, the
    program prints the message and exits.
    """
    dataclass = get_type_hints(command)["options"]
    names = {f.name for f in fields(dataclass)}

    def parsed(**given: Any) -> None:
        chosen = {name: value for name, value in given.items() if name in names and value is not None}
        try:
            options = dataclass(**chosen)
        except UsageError as error:
            stop(error)
        command(**{name: value for name, value in given.items() if name not in names}, options=options)

    own = inspect.signature(command, eval_str=True).parameters
    parameters = [p for name, p in own.items() if name != "options"]
    parameters += _parameters(dataclass)
    parsed.__name__, parsed.__doc__ = command.__name__, command.__doc__
    parsed.__signature__ = inspect.Signature(parameters)
    parsed.__annotations__ = {p.name: p.annotation for p in parameters}
    return parsed


def _parameters(dataclass: type) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(dataclass)
    for one in fields(dataclass):
        given = one.default != ()
        annotation = one.metadata["typed"] or hints[one.name]
        yield inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=one.default if given else None,
            annotation=Annotated[annotation if given else annotation | None, _typer_option(one)],
        )


def _typer_option(one: Field) -> Any:
    flags = one.metadata["flags"] or (f"--{one.name.replace('_', '-')}",)
    show_default = one.default not in (None, "", ())
    if one.metadata["argument"]:
        return typer.Argument(help=one.metadata["help"], show_default=False)
    return typer.Option(
        *flags, metavar=one.metadata["metavar"], help=one.metadata["help"], show_default=show_default
    )

"""Errors in one sentence, as every subcommand of `workbook` says them."""


class UsageError(ValueError):
    """The command cannot be carried out as given; the message says what, where, and what to do instead."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type where it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]

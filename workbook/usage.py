"""Errors that a command reports in one sentence."""


class UsageError(ValueError):
    """The command can't be carried out as given. The message says what is wrong, where, and what to do."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the error's type if it has no message."""
    return (str(error).splitlines() or [type(error).__name__])[0]

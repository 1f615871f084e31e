"""What every subcommand of `workbook` raises for a command that cannot be carried out."""


class UsageError(ValueError):
    """The command cannot be carried out as given; the message says what, where, and what to do instead."""

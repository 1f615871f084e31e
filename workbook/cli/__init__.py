"""The `workbook` command: run notebooks in batch, grade labs, measure kernels, check this machine, and more.

There is one module per family of commands: `batches` (run, results, index), `grading` (grade), `measuring`
(doctor, records, bench), `notebooks` (form, minutes, publish), `publishing` (book) and `verifying` (verify).
`options` derives options from a dataclass, and `ending` ends a command with an error message. A command
imports what it needs when it is called, so that `workbook --help` answers at once.
"""

from __future__ import annotations

import typer

from workbook.cli import batches, grading, measuring, notebooks, publishing, verifying

__all__ = ["app", "main"]

app = typer.Typer(
    help="Kernel Workbook: run lessons in batch, grade labs, verify kernels, check this machine and the "
    "records, measure kernels, format notebooks, and build the book.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (
    batches.run,
    batches.results,
    batches.index,
    grading.grade,
    measuring.doctor,
    measuring.records,
    measuring.bench,
    notebooks.form,
    notebooks.minutes,
    notebooks.publish,
    publishing.book,
    verifying.verify,
):
    app.command(command.__name__)(command)


def main() -> None:
    """Run the command."""
    app()

"""The `workbook` command: run notebooks in batch, grade labs, watch kernels' times, say what this machine lacks, and more.

One module for each family of commands: `batches` (run, results, merge), `grading` (grade), `measuring` (doctor, records, bench),
`notebooks` (form, publish) and `publishing` (book, links). `ending` has how each of them refuses. A command imports what it needs when it is called, so
that `workbook --help` answers at once.
"""

from __future__ import annotations

import typer

from helpers.workshop.cli import batches, grading, measuring, notebooks, publishing

__all__ = ["app", "main"]

app = typer.Typer(
    help="Kernel Workbook: run lessons in batch, grade labs, see what this machine lacks, what is recorded and what became "
    "slower, look after the notebooks, make a book of them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (
    batches.run,
    batches.results,
    batches.merge,
    grading.grade,
    measuring.doctor,
    measuring.records,
    measuring.bench,
    notebooks.form,
    notebooks.publish,
    publishing.book,
    publishing.links,
):
    app.command(command.__name__)(command)


def main() -> None:
    """The console script's entry."""
    app()

"""`workbook verify`: is this kernel right, is it honest, and how fast is it?"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbook.cli.ending import stop
from workbook.usage import UsageError

if TYPE_CHECKING:
    from workbook.verify.problem import Candidate, Problem

_HELP = (
    "Judge a kernel that somebody, or some model, wrote: is it right, is it honest, and how fast is it? "
    "The first argument is a format (kernelbench, flashinfer or gpumode) followed by its files, or "
    "FILE.py:FUNCTION with --reference. Exit status 0: right and honest; 1: not; 3: it can't be judged here."
)
_FILES = {
    "kernelbench": "problem.py candidate.py",
    "flashinfer": "definition.json workload.jsonl solution.json",
    "gpumode": "task/ submission.py",
}


def verify(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT",
            help="kernelbench PROBLEM CANDIDATE, flashinfer DEFINITION WORKLOAD SOLUTION, gpumode TASK "
            "SUBMISSION, or FILE.py:FUNCTION.",
        ),
    ],
    reference: Annotated[
        str, typer.Option(metavar="NAME", help="For a function: what it must compute, such as torch.softmax.")
    ] = "",
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SHAPES",
            help='For a function: the inputs\' shapes, such as "4096x8192" or "64x32,32x16"; repeat it.',
        ),
    ] = None,
    dtype: Annotated[str, typer.Option(help="For a function: the dtype of its inputs.")] = "float32",
    precision: Annotated[
        str,
        typer.Option(
            help='Whether float32 products may round their factors to TF32: "tf32" or "ieee"; by default as '
            "the reference does."
        ),
    ] = "",
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Also write the verdict as JSON; - is stdout."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a page with code, findings and figures.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Repeat a verification; by default the inputs are new each time.")
    ] = None,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="For one call; the whole run gets ten times that.")
    ] = 60,
    memory_limit: Annotated[float, typer.Option(metavar="MB", help="For the candidate's process.")] = 8000,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Run the candidate without a sandbox, with your permissions.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also fail for limits, outside of what the problem describes.")
    ] = False,
) -> None:
    try:
        if seed is not None and not 0 <= seed < 2**31:
            raise UsageError(f"--seed {seed}: choose a number from 0 to {2**31 - 1}.")
        if time_limit <= 0 or memory_limit <= 0:
            raise UsageError("--time-limit and --memory-limit must be greater than 0.")
        if precision not in ("", "tf32", "ieee"):
            raise UsageError(f"--precision {precision}: choose tf32 or ieee.")
        problem, candidate = _read(what, reference, shapes or [], dtype)
        tier = _tier(unsafe)
    except UsageError as error:
        stop(error)
    from workbook.verify import report
    from workbook.verify.verdict import FAILED, LIMIT
    from workbook.verify.verifier import Settings
    from workbook.verify.verifier import verify as judge

    settings = Settings(_seed(seed), not unsafe, time_limit, memory_limit)
    if precision:
        problem = replace(problem, precision=precision)
    try:
        verdict = judge(problem, candidate, settings, say=_progress())
    except UsageError as error:
        stop(error)
    if json_file is not None:
        document = json.dumps(verdict.as_dict(), indent=1, ensure_ascii=False)
        if str(json_file) == "-":
            typer.echo(document)
        else:
            _write(json_file, document)
    if html is not None:
        _write(html, report.page(verdict))
    if str(json_file) != "-":
        typer.echo(report.text(verdict))
        typer.echo(tier)
    has_limit = any(one.severity == LIMIT for one in verdict.findings)
    raise typer.Exit(FAILED if strict and has_limit else verdict.status)


verify.__doc__ = _HELP


def _read(what: list[str], reference: str, shapes: list[str], dtype: str) -> tuple[Problem, Candidate]:
    format_name, *files = what
    if format_name not in _FILES:
        from workbook.verify.formats import function

        if files or ":" not in format_name:
            known = ", ".join(_FILES)
            raise UsageError(
                f"{format_name} is not a format; start with {known}, or FILE.py:FUNCTION and --reference."
            )
        if not reference:
            raise UsageError('Name what the function must compute, for example --reference "torch.softmax".')
        return function.read(format_name, reference, shapes, dtype)
    if reference or shapes:
        raise UsageError(f"--reference and --shapes are for functions; {format_name} has its own.")
    expected = _FILES[format_name]
    if len(files) != len(expected.split()):
        raise UsageError(f"workbook verify {format_name} takes {expected}.")
    return _reader(format_name)(*map(Path, files))


def _reader(format_name: str) -> Callable[..., tuple[Problem, Candidate]]:
    import importlib

    return importlib.import_module(f"workbook.verify.formats.{format_name}").read


def _tier(unsafe: bool) -> str:
    """How the candidate is run, for the report."""
    from workbook.sandbox import bubblewrap

    if unsafe:
        return "The candidate ran without a sandbox."
    otherwise = "or pass --unsafe, which runs the candidate with your permissions"
    return f"The candidate was {bubblewrap.require(otherwise)}."


def _seed(seed: int | None) -> int:
    import secrets

    return secrets.randbelow(2**31) if seed is None else seed


def _progress() -> Callable[[str], None]:
    """Show what happens now, in one line of a terminal."""
    if not sys.stderr.isatty():
        return lambda _: None

    def say(what: str) -> None:
        sys.stderr.write(f"\r\033[K{what} …\r")
        sys.stderr.flush()

    return say


def _write(path: Path, document: str) -> None:
    from helpers.atomic import atomic_write

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            temporary.write_text(document, encoding="utf-8")
    except OSError as error:
        stop(f"{path} can't be written: {error.strerror}.")

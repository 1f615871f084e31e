"""The options of the commands, each spelled in one place: a field of a frozen dataclass is an option on the
command line, a keyword argument in Python, and a line of the documentation.

`workbook.cli.options` turns the fields into typer options.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from workbook.usage import UsageError

_Class = TypeVar("_Class", bound=type)


def option(
    default: Any, help: str, *flags: str, metavar: str = "", typed: Any = None, argument: bool = False
) -> Any:
    """A dataclass field that is also an option of a command.

    Args:
        default: The value if the option is not given; immutable.
        help: What the option does, for `--help` and for the docstring of the dataclass.
        flags: The names on the command line; by default `--` and the field's name.
        metavar: What `--help` shows for the value.
        typed: The type on the command line, if it differs from the field's.
        argument: Whether the command line takes it without a flag.
    """
    described = {
        "help": help,
        "flags": flags,
        "metavar": metavar or None,
        "typed": typed,
        "argument": argument,
    }
    return field(default=default, metadata=described)


def options(cls: _Class) -> _Class:
    """Make a class a frozen dataclass whose docstring lists what each field does."""
    made = dataclass(frozen=True)(cls)
    attributes = [f"    {f.name}: {f.metadata['help']}" for f in fields(made)]
    made.__doc__ = "\n".join([inspect.cleandoc(cls.__doc__), "", "Attributes:", *attributes])
    return made


@options
class RunOptions:
    """The options of `workbook run`, which are also the keyword arguments of `run_course`.

    Where the command line takes NAME=VALUE, Python takes a mapping as well, and where it takes a file of
    points or parameters, Python takes the points or the mapping.

    Raises:
        UsageError: Two options exclude each other, or a number is out of range.
    """

    out: Path | str = option(
        Path("build/course"), "The folder for the outputs; created if missing.", metavar="DIR", typed=Path
    )
    parameters: Mapping[str, Any] | Sequence[str] = option(
        (),
        "Set a parameter in every notebook that has it.",
        "-p",
        "--parameter",
        metavar="NAME=VALUE",
        typed=list[str],
    )
    grid: Mapping[str, Sequence[Any]] | Sequence[str] = option(
        (),
        "Run once for each value. Several grids run at every combination of their values.",
        metavar="NAME=A,B",
        typed=list[str],
    )
    sweep: Sequence[Mapping[str, Any]] | Path | str = option(
        (), "Run once at each point of a .csv or .yaml file.", metavar="FILE", typed=Path
    )
    defaults: Mapping[str, Any] | Path | str = option(
        (),
        "Take parameters from a .yaml file; -p, --grid and --sweep override them.",
        "-f",
        "--parameters-file",
        metavar="FILE",
        typed=Path,
    )
    cell_timeout: float = option(
        900, "Stop a cell that runs longer, which fails its notebook; 0 for no limit.", metavar="SECONDS"
    )
    jobs: int | None = option(
        None,
        "How many notebooks run at the same time: by default 1, or one per GPU of --gpus. More than one "
        "per GPU disturbs timings.",
        "--jobs",
        "-j",
    )
    gpus: str = option(
        "",
        "Give each running notebook one of these GPUs and hide the others from it.",
        metavar="all|0,1|UUID…",
    )
    resume: bool = option(
        False, "Keep finished outputs of the same notebook with the same parameters; run only the rest."
    )
    shard: str = option(
        "",
        "Run the K-th of N parts of the batch, for example as one task of a Slurm array; `workbook index` "
        "then writes the report.",
        metavar="K/N",
    )
    scheduler: str = option(
        "",
        "Run on the workers of this Dask scheduler instead of on this machine.",
        metavar="tcp://HOST:8786|FILE.json",
    )
    retries: int | None = option(
        None,
        "Run a notebook again, up to N times, if its kernel or worker died or never started: by default 0, "
        "with --scheduler 1.",
        metavar="N",
    )
    notebook_timeout: float = option(
        0, "Stop a notebook that runs longer; 0 for no limit.", metavar="SECONDS"
    )
    start_timeout: float = option(120, "How long a kernel may take to start.", metavar="SECONDS")
    memory_limit: float = option(
        0,
        "Stop a notebook whose processes together use more than this many MB; 0 for no limit.",
        metavar="MB",
    )
    log_output: bool = option(False, "Write each notebook's output to NAME.log while it runs.")
    fail_fast: bool = option(
        False, "Start nothing more after the first failure; notebooks that are running still finish."
    )
    kernel: str = option(
        "", "Run all notebooks with this kernel, instead of the one that each names.", metavar="NAME"
    )
    cwd: Path | str | None = option(
        None, "Run all notebooks in this folder, instead of each in its own.", metavar="DIR", typed=Path
    )
    recursive: bool = option(False, "Search subfolders too, except hidden ones.")
    exclude: Sequence[str] = option(
        (),
        "When searching a folder, skip notebooks with this name or path, such as 'draft_*' or 'old/*'.",
        metavar="GLOB",
        typed=list[str],
    )

    def __post_init__(self) -> None:
        self._require_compatible()
        for flag, value, least in [("--retries", self.retries, 0), ("--jobs", self.jobs, 1)]:
            if value is not None and value < least:
                raise UsageError(f"{flag} is {value}; give {least} or more.")
        limits = {
            "--cell-timeout": (self.cell_timeout, "s"),
            "--notebook-timeout": (self.notebook_timeout, "s"),
            "--memory-limit": (self.memory_limit, "MB"),
        }
        for flag, (value, unit) in limits.items():
            if value and not value > 0:
                raise UsageError(f"{flag} is {value:g} {unit}; give a positive number, or 0 for no limit.")
        if not self.start_timeout > 0:
            raise UsageError(f"--start-timeout is {self.start_timeout:g} s; give a positive number.")

    def _require_compatible(self) -> None:
        if self.scheduler and (self.jobs is not None or self.gpus):
            raise UsageError(
                "--jobs and --gpus are for this machine. With --scheduler, each worker decides how many "
                'points it runs: dask worker --nthreads 1 --resources "GPU=1".'
            )
        if self.scheduler and self.shard:
            raise UsageError(
                "--shard is for machines without a scheduler. With --scheduler, give the whole batch once."
            )


@options
class BenchOptions:
    """The options of `workbook bench`.

    Raises:
        UsageError: A number is out of range.
    """

    file: Path | None = option(
        None,
        "A Python file whose cases() yields workbook.bench.Case objects. Without one, the league of "
        "benchmarks/kernels.py is measured.",
        argument=True,
    )
    only: Sequence[str] = option(
        (),
        "Measure only points with these values: --only op=softmax --only n_cols=1024,8320.",
        metavar="NAME=A,B",
        typed=list[str],
    )
    save: Path | None = option(None, "Save the results to a .json file.", metavar="FILE")
    against: str = option(
        "",
        "Measure the points of an earlier run again and compare. FILE was written by --save, or is "
        "fusion/league, the stored record of this GPU.",
        metavar="FILE",
    )
    least: float = option(1.0, "Ignore changes smaller than this.", metavar="PERCENT")
    seconds: float = option(0.6, "How long to time each point.", metavar="SECONDS")

    def __post_init__(self) -> None:
        if self.least < 0:
            raise UsageError(f"--least {self.least:g} is negative; it must be 0 or more.")
        if self.seconds <= 0:
            raise UsageError(f"--seconds {self.seconds:g} must be greater than 0.")

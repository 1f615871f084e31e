"""The `workbook` command: run notebooks in batch, grade labs, watch kernels' times, say what this machine lacks, and more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer

app = typer.Typer(
    help="Kernel Workbook: run lessons in batch, grade labs, see what this machine lacks, what is recorded and what became "
    "slower, look after the notebooks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _stop(sentence: object, status: int = 2) -> NoReturn:
    """End with one sentence on stderr."""
    typer.echo(str(sentence), err=True)
    raise typer.Exit(status)


@app.command()
def run(
    notebooks: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Notebooks or folders of them; without any, the course's lessons.", show_default=False
        ),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "-p", "--parameter", metavar="NAME=VALUE", help="A parameter, given to notebooks that have it."
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=A,B", help="Run once for each value; several grids give their product."),
    ] = None,
    sweep: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Run once at each point of a .csv or .yaml file.", show_default=False
        ),
    ] = None,
    parameters_file: Annotated[
        Path | None,
        typer.Option(
            "-f",
            "--parameters-file",
            metavar="FILE",
            help="Parameters from a .yaml file; -p, --grid and --sweep come before it.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the outputs go.")] = Path("build/course"),
    cell_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Stop a cell that runs longer; 0 for no limit.")
    ] = 900,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            help="Notebooks at the same time: 1 by default, or one a GPU of --gpus. More than 1 on a GPU disturbs timings.",
            show_default=False,
        ),
    ] = None,
    gpus: Annotated[
        str,
        typer.Option(
            metavar="all|0,1|UUID…",
            help="Give each running notebook one of these GPUs, and hide the others from it.",
            show_default=False,
        ),
    ] = "",
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep finished outputs of the same source and parameters.")
    ] = False,
    shard: Annotated[
        str,
        typer.Option(
            metavar="K/N",
            help="Run the K-th of N parts; `workbook merge` then writes the report.",
            show_default=False,
        ),
    ] = "",
    scheduler: Annotated[
        str,
        typer.Option(
            metavar="tcp://HOST:8786|FILE.json",
            help="Run on the workers of this Dask scheduler instead of this machine.",
            show_default=False,
        ),
    ] = "",
    retries: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Run a point again, up to N times, whose kernel or worker died or never started: by default 0, "
            "with --scheduler 1.",
            show_default=False,
        ),
    ] = None,
    notebook_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Stop a notebook that runs longer; 0 for no limit.")
    ] = 0,
    start_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long a kernel may take to start.")
    ] = 120,
    memory_limit: Annotated[
        float,
        typer.Option(
            metavar="MB", help="Stop a notebook whose processes together hold more; 0 for no limit."
        ),
    ] = 0,
    log_output: Annotated[
        bool,
        typer.Option("--log-output", help="Write what each notebook puts out, as it comes, to NAME.log."),
    ] = False,
    fail_fast: Annotated[
        bool,
        typer.Option("--fail-fast", help="Begin nothing more after the first failure; what runs goes on."),
    ] = False,
    kernel: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Run all with this kernel, whatever they name.", show_default=False
        ),
    ] = "",
    cwd: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Run all in this folder, instead of each in its own.", show_default=False
        ),
    ] = None,
    recursive: Annotated[
        bool, typer.Option("--recursive", help="Search a folder's subfolders too, but for hidden ones.")
    ] = False,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GLOB",
            help="Leave out a folder's notebooks of this name or path, such as 'draft_*' or 'old/*'.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run notebooks with papermill and write them, a page of each and index.html."""
    from helpers.workshop.interrupts import ignore, interruptible

    with interruptible():
        try:
            from helpers.workshop.batch import plan, run_course, sweeps
            from helpers.workshop.usage import UsageError

            try:
                if not notebooks:
                    from helpers.workshop.project import find_root

                    notebooks = [find_root() / "notebooks"]
                report = run_course(
                    notebooks,
                    out,
                    plan.assignments(parameter or [], "-p"),
                    grid={
                        name: plan.split_values(text)
                        for name, text in plan.assignments(grid or [], "--grid").items()
                    },
                    cell_timeout=None if cell_timeout == 0 else cell_timeout,
                    jobs=jobs,
                    resume=resume,
                    gpus=gpus,
                    sweep=sweeps.read_points(sweep) if sweep else (),
                    defaults=sweeps.read_parameters(parameters_file) if parameters_file else None,
                    shard=shard,
                    retries=retries,
                    scheduler=scheduler,
                    notebook_timeout=notebook_timeout or None,
                    start_timeout=start_timeout,
                    memory_limit=memory_limit or None,
                    log_output=log_output,
                    fail_fast=fail_fast,
                    kernel=kernel,
                    cwd=cwd,
                    recursive=recursive,
                    exclude=exclude or (),
                )
            except (UsageError, RuntimeError) as error:
                _stop(error)
        except KeyboardInterrupt:
            ignore()
            _stop("Interrupted before a notebook ran.", 130)
    typer.echo(repr(report))
    raise typer.Exit(report.exit_status)


@app.command("results")
def results_command(
    out: Annotated[Path, typer.Argument(metavar="DIR", help="The --out folder of workbook run.")] = Path(
        "build/course"
    ),
    as_csv: Annotated[
        bool, typer.Option("--csv", help="One table of all points, as results.csv has it.")
    ] = False,
) -> None:
    """Print what a batch found, also while it runs: the points of each notebook with their parameters and figures.

    helpers.workshop.batch.load_results("build/course") gives the same as a DataFrame.
    """
    from helpers.workshop.batch import table
    from helpers.workshop.usage import UsageError

    try:
        runs = table.read_report(out)
    except UsageError as error:
        _stop(error)
    typer.echo(table.csv_text(runs) if as_csv else table.text_table(runs), nl=not as_csv)


@app.command("merge")
def merge_command(
    out: Annotated[Path, typer.Argument(help="What `workbook run --shard` had as --out.")],
) -> None:
    """Write report.json and index.html of a batch that ran in shards, and say what is missing.

    The exit status is 0 where every point is there, 1 where one failed, and 3 where one is missing. It may be called while
    shards run.
    """
    from helpers.workshop.batch import merge
    from helpers.workshop.usage import UsageError

    try:
        merged = merge.merge(out)
    except (UsageError, RuntimeError) as error:
        _stop(error)
    typer.echo(repr(merged))
    raise typer.Exit(merged.exit_status)


@app.command("grade")
def grade_command(
    notebooks: Annotated[
        list[Path],
        typer.Argument(
            help="Learners' notebooks, or folders with them. A learner is called as the file, or as its folder where several "
            "files have one name or a lab's: submissions/ada/03_triton.ipynb is ada's."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the reports go.")] = Path("build/grades"),
    time_limit: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="For one cell, and for the check of one exercise; a notebook gets ten times as much.",
        ),
    ] = 120,
    memory_limit: Annotated[
        float, typer.Option(metavar="MB", help="For all processes of a notebook together.")
    ] = 8000,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", help="Notebooks at the same time; more than 1 disturbs timings.")
    ] = 1,
    seed: Annotated[
        str,
        typer.Option(
            metavar="SEED",
            help="Repeat a class: the seed that its report names, or - to have it read from stdin. New by default; each "
            "notebook's hidden cases come from it, the learner and the notebook.",
            show_default=False,
        ),
    ] = "",
    lab: Annotated[
        str,
        typer.Option(
            metavar="LAB", help="Such as 03_triton; by default each notebook says it.", show_default=False
        ),
    ] = "",
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Keep results of the same notebooks, exercises, limits and seed; grade what is missing or changed.",
        ),
    ] = False,
    no_confine: Annotated[
        bool, typer.Option("--no-confine", help="Let the code read, write and connect to what you can.")
    ] = False,
    sandbox: Annotated[
        str,
        typer.Option(
            metavar="bwrap|docker|podman",
            help="Put namespaces (bubblewrap) or a container around each notebook as well.",
            show_default=False,
        ),
    ] = "",
    image: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The container's; kernel-workbook-grade by default.", show_default=False
        ),
    ] = "",
) -> None:
    """Grade labs: run each notebook in processes of its own and check its exercises with hidden cases.

    Writes results.jsonl as it goes, then grades.csv, a page for each learner and index.html. The exit status is 0
    whatever the marks are. Marks that you write into overrides.csv in the same folder win. The report says how the
    learners' code was kept in; for marks, and for strangers' notebooks, take --sandbox.
    """
    from helpers.workshop.grade import grade, seeds
    from helpers.workshop.usage import UsageError

    try:
        seeds.off_the_command_line()
        grades = grade(
            notebooks,
            out,
            time_limit=time_limit,
            memory_limit=memory_limit,
            jobs=jobs,
            seed=seeds.given(seed) if seed else None,
            lab=lab,
            resume=resume,
            confine=not no_confine,
            sandbox=sandbox,
            image=image,
        )
    except (UsageError, RuntimeError) as error:
        _stop(error)
    typer.echo(repr(grades))
    raise typer.Exit(grades.exit_status)


@app.command()
def doctor() -> None:
    """Say what is here, what is missing and the one line that gets it; exit 1 if a lesson could not run."""
    try:
        from helpers import device

        survey = device.survey()
    except ImportError as error:
        _stop(f"A lesson could not run: {error}. To get it: pip install -e . in the workbook's folder.", 1)
    typer.echo(survey.doctor())
    if not survey.ok:
        raise typer.Exit(1)


@app.command("records")
def records_command(
    name: Annotated[
        str,
        typer.Argument(help="Only records whose names contain this, such as fusion/.", show_default=False),
    ] = "",
    gpu: Annotated[
        list[str] | None,
        typer.Option(metavar="SET", help="Only this set, such as h200; give it again for another."),
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only records of kernels whose text has changed since.")
    ] = False,
) -> None:
    """List what was measured on which GPU: day, versions, and whether its kernels have changed since.

    helpers.records.compare("triton/launch-sweep", ("h100", "h200")) sets one record of several GPUs side by side.
    """
    from helpers.workshop import catalogue, project
    from helpers.workshop.usage import UsageError

    try:
        root = project.find_root()
    except RuntimeError:
        root = None
    try:
        table = catalogue.kept(gpu or [], name, catalogue.texts_today(root))
    except (UsageError, ValueError) as error:
        _stop(error)
    if stale:
        table = {
            record: of
            for record, of in table.items()
            if any(k.kernels == catalogue.CHANGED for k in of.values())
        }
    typer.echo(
        catalogue.listing(table) if table else "No record is of a kernel whose text has changed since."
    )


@app.command("bench")
def bench_command(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A Python file whose cases() yields what to measure (helpers.workshop.bench.Case); without one, the "
            "league of benchmarks/kernels.py.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=A,B",
            help="Only points with these values: --only op=softmax --only n_cols=1024,8320.",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep what was measured, for --against.", show_default=False),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="RECORD",
            help="Measure the points of a record again and compare: a file of --save, fusion/league, or a sweep such as "
            "triton/launch-sweep. A file's kernel texts are run: name only files that you trust.",
            show_default=False,
        ),
    ] = None,
    least: Annotated[float, typer.Option(metavar="PERCENT", help="The smallest change that counts.")] = 1.0,
    seconds: Annotated[float, typer.Option(metavar="SECONDS", help="Timing of a point.")] = 0.6,
) -> None:
    """Measure kernels on this GPU, and say what became slower or faster than a record, beyond the noise.

    The exit status is 1 where a point is slower or fails, 0 where none is, 2 where nothing can be compared.
    """
    from helpers.workshop.batch import plan
    from helpers.workshop.bench import bench
    from helpers.workshop.bench.measure import BrokenGpu
    from helpers.workshop.usage import UsageError

    if least < 0 or seconds <= 0:
        _stop(f"--least {least:g} must not be negative, and --seconds {seconds:g} must be above 0.")
    try:
        chosen = {
            name: plan.split_values(text) for name, text in plan.assignments(only or [], "--only").items()
        }
        status = bench(
            file,
            only=chosen,
            save=save,
            baseline=against,
            least=least / 100,
            budget_s=seconds,
            say=typer.echo,
        )
    except BrokenGpu as error:
        _stop(
            f"{error} broke the GPU's state (an illegal access): nothing after it can be measured in this process."
        )
    except (UsageError, ValueError) as error:
        _stop(error)
    raise typer.Exit(status)


@app.command("form")
def form_command(
    notebooks: Annotated[
        list[Path] | None,
        typer.Argument(help="Notebooks; without any, all lessons and labs.", show_default=False),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 where the form is broken.")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Run them first and keep the checked cells' outputs.")
    ] = False,
) -> None:
    """Bring notebooks into their one canonical form and derive the labs' starters from their solutions."""
    from helpers.workshop.form import files

    if check and execute:
        _stop("--check changes nothing and --execute stores outputs: give one of them.")
    try:
        written, differences, problems = files.form(notebooks or [], check=check, run=execute)
    except (ValueError, RuntimeError) as error:
        _stop(error)
    for sentence in [*(differences if check else []), *problems]:
        typer.echo(sentence)
    if not check:
        typer.echo(f"{len(written)} files written" + (": " + ", ".join(written) if written else "."))
    if problems or (check and differences):
        raise typer.Exit(1)


@app.command("publish")
def publish_command(
    repository: Annotated[str, typer.Argument(metavar="OWNER/REPO", help="The repository on GitHub.")],
) -> None:
    """Stamp the repository's address into pyproject.toml, the README and every notebook."""
    from helpers.workshop.form.publish import publish
    from helpers.workshop.project import find_root

    try:
        changed = publish(repository, find_root())
    except (ValueError, RuntimeError) as error:
        _stop(error)
    for change in changed:
        typer.echo(change)
    if not changed:
        typer.echo(f"Nothing to change: {repository} stands everywhere already.")


def main() -> None:
    """The console script's entry."""
    app()


if __name__ == "__main__":
    main()

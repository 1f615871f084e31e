"""Find Nsight Compute and run it on a script, or replay a record and explain why it cannot run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import helpers
from helpers import atomic, device
from helpers.ncu.errors import PERMISSION, NcuError, diagnose, script_output
from helpers.ncu.reader import Report, load_report

# For these reasons, replay the record: profiling is not possible here, but its result is still useful.
_REPLAYED = ("not-found", "permission", "driver", "busy")


def why_not() -> NcuError | None:
    """Returns the reason why Nsight Compute cannot profile here, or None if profiling seems possible.

    This only checks what can be determined without starting ncu.
    """
    if not device.has_gpu():
        return NcuError(
            "Nsight Compute profiles kernels on an NVIDIA GPU, and this machine has none.", "no-gpu"
        )
    if device.find_tool("ncu") is None:
        return NcuError(_not_found(), "not-found")
    if device.counters_allowed() is False:
        return NcuError(PERMISSION, "permission")
    return None


def _not_found() -> str:
    try:
        device.require("ncu")
    except device.Missing as error:
        return str(error)
    return "ncu was not found; install NVIDIA Nsight Compute and add it to PATH."


def command(
    argv: Sequence[str | os.PathLike],
    *,
    out: str | os.PathLike,
    kernel: str | None = None,
    nvtx: str | None = None,
    set: str | None = "full",  # named after ncu's option
    sections: Sequence[str] = (),
    metrics: Sequence[str] = (),
    launch_skip: int | None = None,
    launch_count: int | None = None,
    import_source: bool = True,
    import_sass: bool = True,
    clock_control: str = "none",
    ncu: str | os.PathLike = "ncu",
    extra: Sequence[str] = (),
) -> list[str]:
    """Returns the command line that `run` uses, as a list of arguments for `subprocess` or `shlex.join`.

    Args:
        argv: the program to profile and its arguments, such as `["python", "script.py"]`.
        out: the report to write; ncu adds `.ncu-rep` if it is missing.
        kernel: profile only kernels whose function name matches this regular expression.
        nvtx: profile only launches inside this NVTX range (`torch.cuda.nvtx.range("name")`); a value
            that uses ncu's own syntax (`domain@`, `/`, `[`, `]`) is passed on unchanged.
        set: ncu's set of sections ("basic", "detailed", "full", …), or None to collect only `sections` and
            `metrics`.
        sections: individual sections, such as "SpeedOfLight" or "SourceCounters".
        metrics: individual counters.
        launch_skip: the number of matching launches to skip first.
        launch_count: the number of launches to profile.
        import_source: include the source files in the report, so that hot lines can be shown on any machine.
        import_sass: include the kernels' machine code; for a library's kernel this adds its whole module,
            which takes megabytes.
        clock_control: "none" leaves the clocks alone. ncu's default, "base", tries to lock them to their base
            value, so that counts vary less, but the durations are then longer than in normal use.
        ncu: the path of the executable.
        extra: additional ncu options.

    Example:
        >>> from helpers import ncu
        >>> line = ncu.command(["python", "squares.py"], out="squares", kernel="square_rows")
        >>> line[-2:]
        ['python', 'squares.py']
    """
    words = [
        os.fspath(ncu),
        "--export",
        os.fspath(out),
        "--force-overwrite",
        "--clock-control",
        clock_control,
    ]
    if set and not sections:
        words += ["--set", set]
    for section in sections:
        words += ["--section", section]
    if metrics:
        words += ["--metrics", ",".join(metrics)]
    words += ["--import-source", "yes" if import_source else "no"]
    if not import_sass:
        words += ["--import-sass", "no"]
    if kernel:
        words += ["--kernel-name", f"regex:{kernel}"]
    if nvtx:
        # In ncu's syntax, a trailing slash means a push/pop range, which is what torch.cuda.nvtx creates.
        words += ["--nvtx", "--nvtx-include", nvtx if re.search(r"[/@\[\]]", nvtx) else f"{nvtx}/"]
    if launch_skip is not None:
        words += ["--launch-skip", str(launch_skip)]
    if launch_count is not None:
        words += ["--launch-count", str(launch_count)]
    return [*words, *extra, *map(os.fspath, argv)]


def run(
    script: str | os.PathLike | Sequence[str | os.PathLike],
    *,
    out: str | os.PathLike,
    files: dict[str, str] | None = None,
    echo: bool = False,
    timeout_s: float = 300,
    **options,
) -> Path:
    """Profiles a script with Nsight Compute and saves the report.

    Args:
        script: the path of a Python script, Python code (a string with a line break), or a whole command line
            as a list. Of a command line, ncu also profiles the processes that it starts.
        out: the path of the report, which is written atomically.
        files: additional files to create next to Python code given as a string: name to content.
        echo: whether to print what the script printed.
        timeout_s: the time limit in seconds; ncu runs a kernel once for each group of counters, which is 38
            times for `--set full` on an H100.
        **options: see `command`.

    Returns:
        The report's path.

    Raises:
        NcuError: profiling failed: for example, there is no GPU, no ncu or no permission, no launch matched
            the filters, or the script failed. The message says in one sentence what to do, and includes the
            traceback if the script failed.
        FileNotFoundError: the script doesn't exist.
    """
    out = Path(out)
    if out.suffix != ".ncu-rep":
        raise ValueError(f"The name of a report ends with .ncu-rep, but {out.name!r} does not.")
    if (reason := why_not()) is not None and reason.reason != "permission":
        raise reason  # whether permission is missing is only known for sure after running ncu
    folder = Path(tempfile.mkdtemp(prefix="kernel-workbook-ncu-"))
    try:
        argv, is_command = _program(script, folder, files or {}), not isinstance(script, (str, os.PathLike))
        out.parent.mkdir(parents=True, exist_ok=True)
        if not is_command:  # by default, ncu also enters each compiler that Triton starts, which takes time
            options["extra"] = ["--target-processes", "application-only", *options.get("extra", ())]
        words = command(argv, out=folder / "report", ncu=device.find_tool("ncu"), **options)
        partial = folder / "report.ncu-rep"  # ncu adds the suffix
        code, text = _execute(words, folder, timeout_s)
        if echo:
            print(script_output(text), end="")
        if code or not partial.is_file():
            raise diagnose(text, code, options)
        with atomic.atomic_write(out) as temporary:
            shutil.copyfile(partial, temporary)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return out


def _program(script, folder: Path, files: dict[str, str]) -> list[str]:
    if not isinstance(script, (str, os.PathLike)):
        return [os.fspath(word) for word in script]
    if isinstance(script, str) and "\n" in script:
        for name, text in files.items():
            (folder / name).write_text(text)
        path = folder / "cell.py"
        path.write_text(script if script.endswith("\n") else script + "\n")
    else:
        path = Path(script).resolve()
        if not path.is_file():
            raise FileNotFoundError(f"There is no script {script}; pass a path or the code itself.")
    return [sys.executable, str(path)]


def _execute(words: list[str], folder: Path | None, timeout_s: float) -> tuple[int, str]:
    """Runs ncu in a folder (None: the current one).

    Returns its exit status and everything that ncu and the script printed, in order.
    """
    environment = dict(os.environ)
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    environment.pop("TRITON_INTERPRET", None)  # interpreted kernels launch nothing on the GPU
    environment["PYTHONUNBUFFERED"] = "1"
    root = str(Path(helpers.__file__).resolve().parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
    # In its own session, so that a timeout kills the profiled script as well as ncu.
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=timeout_s)
    except BaseException as error:  # a timeout, or the learner's interrupt
        os.killpg(process.pid, 9)
        text, _ = process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise NcuError(
                f"Nsight Compute was stopped after {timeout_s:g} seconds: profile fewer launches "
                "(launch_count, kernel, nvtx), collect fewer counters (sections), or raise timeout_s.",
                "timeout",
                text,
            ) from None
        raise
    return process.returncode, text


def profile(
    name: str,
    code: str,
    *,
    files: dict[str, str] | None = None,
    sources: Iterable = (),
    params: dict | None = None,
    **options,
) -> Report:
    """Profiles code, or replays the record `name` and explains why if Nsight Compute cannot run.

    Args:
        name: the record, "lesson/what".
        code: Python code that runs in its own process.
        files: additional files to create next to the code: name to content.
        sources: the kernels in the code, for the record's provenance.
        params: the values that the code depends on.
        **options: see `run`.

    Raises:
        NcuError: ncu can run here, but the code or a filter is wrong.
        records.NoRecord: ncu cannot run here, and there is no record.
    """
    from helpers import records

    def live(path: Path) -> None:
        try:
            run(code, out=path, files=files, **options)
        except NcuError as error:
            if error.reason in _REPLAYED:
                raise records.CannotMeasure(str(error)) from error
            raise

    return load_report(records.measured_file(name, live, ".ncu-rep", sources=sources, params=params))


def count(code: str, **options) -> Report:
    """Profiles code for the rows of a record: `records.measured` replays if ncu cannot run here.

    Args:
        code: Python code that runs in its own process.
        **options: see `run`.

    Raises:
        NcuError: ncu can run here, but the code or a filter is wrong.
        records.CannotMeasure: ncu cannot run here.
    """
    from helpers import records

    with tempfile.TemporaryDirectory() as folder:
        try:
            return load_report(run(code, out=Path(folder, "counted.ncu-rep"), import_source=False, **options))
        except NcuError as error:
            if error.reason in _REPLAYED:
                raise records.CannotMeasure(str(error)) from error
            raise


def terminal(line: str, *, record: str = "ncu/terminal", timeout_s: float = 300) -> None:
    """Runs `ncu LINE` as a terminal would and prints its output.

    If ncu cannot run, prints the recorded output instead. `python` is the Python of this notebook. Folder
    names are removed from the output.

    Args:
        line: ncu's options, the program and its arguments.
        record: the record to replay, "lesson/what".
        timeout_s: the time limit in seconds.

    Raises:
        NcuError: ncu can run here but produced no report, because an option, a filter or the program is
            wrong.
    """
    from helpers import records

    def live() -> list[dict[str, str]]:
        if (reason := why_not()) is not None and reason.reason != "permission":
            raise records.CannotMeasure(str(reason))
        code, text = _execute([str(device.find_tool("ncu")), *shlex.split(line)], None, timeout_s)
        if code or re.search("==ERROR==|No kernels were profiled", text):
            error = diagnose(text, code)
            if error.reason in _REPLAYED:
                raise records.CannotMeasure(str(error)) from error
            raise error
        return [{"line": without_folders(printed)} for printed in text.splitlines()]

    try:
        recorded = records.measured(record, live, params={"line": without_folders(line)})
    except records.NoRecord as none:
        print(none)
    else:
        print(*recorded["line"], sep="\n")


def without_folders(text: str) -> str:
    """Returns the text with absolute paths cut to their last part; URLs are left alone."""
    return re.sub(r"(?<![\w:/])(?:/[\w.+-]+)+/", "", text)


def shell_line(words: Sequence[str]) -> str:
    """Returns a command for a terminal, broken before options so that lines stay within 100 characters.

    Example:
        >>> from helpers import ncu
        >>> ncu.shell_line(["ncu", "--kernel-name", "a b"])
        "ncu --kernel-name 'a b'"
    """
    first, *options = shlex.join(words).split(" --")
    lines = [first]
    for option in options:
        if len(lines[-1]) + len(option) > 95:
            lines.append("   ")
        lines[-1] += f" --{option}"
    return " \\\n".join(lines)

"""Find Nsight Compute and run it on a script; where it cannot run, read what was recorded, and say why."""

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
from helpers import device, whole
from helpers.ncu.errors import PERMISSION, NcuError, diagnose, script_output
from helpers.ncu.reader import Report, load_report

# There is a GPU, but the tool or the permission is missing: the record still teaches.
_REPLAYED = ("graded", "not-found", "permission", "driver", "busy")


def why_not() -> NcuError | None:
    """Why Nsight Compute cannot profile here, as far as can be told without trying; None where it seems possible."""
    if os.environ.get("WORKBOOK_GRADED"):  # seen to fail where the notebook is confined
        return NcuError("A notebook that is graded is not profiled.", "graded")
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
    return "ncu is not here; install NVIDIA Nsight Compute and put it on PATH."


def command(
    argv: Sequence[str | os.PathLike],
    *,
    out: str | os.PathLike,
    kernel: str | None = None,
    nvtx: str | None = None,
    set: str | None = "full",  # ncu's own name for it
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
    """The command line that `run` uses, as a list of words; `shlex.join` makes it one for a terminal.

    Args:
        argv: the program to profile and its arguments, such as `["python", "script.py"]`.
        out: the report to write; ncu adds `.ncu-rep` where it is missing.
        kernel: profile only kernels whose function name this regular expression finds.
        nvtx: profile only launches inside this NVTX range (`torch.cuda.nvtx.range("name")`); with ncu's own marks
            (`domain@`, `/`, `[`, `]`) it is passed on as it is.
        set: ncu's set of sections ("basic", "detailed", "full", …); None where only `sections` and `metrics` count.
        sections: single sections, such as "SpeedOfLight" or "SourceCounters".
        metrics: single counters.
        launch_skip: pass over so many matching launches first.
        launch_count: stop after so many launches.
        import_source: keep the source files in the report, so that hot lines can be shown anywhere.
        import_sass: keep the kernels' machine code in it; a library's kernel brings its whole module, of megabytes.
        clock_control: "none" leaves the clocks alone. ncu's default, "base", tries to hold them at their base value, so
            that counts vary less; the durations are then those of a slower chip than the one you use.
        ncu: the executable.
        extra: more of ncu's options.

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
        # ncu's notation: a closing slash means a push/pop range, which is what torch.cuda.nvtx makes
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
    """Profile a script with Nsight Compute and keep the report.

    Args:
        script: the path of a Python script, Python code (a text with a line break), or a whole command line as a list.
        out: where the report goes; it appears there whole or not at all.
        files: more files to put beside Python code given as text: name to content.
        echo: print what the script printed.
        timeout_s: stop after this many seconds; ncu runs a kernel once for each group of counters, 38 times for
            `--set full` on an H100.
        **options: see `command`.

    Returns:
        The report's path.

    Raises:
        NcuError: no GPU, no ncu, no permission, nothing matched the filters, the script failed, and so on: one
            sentence with what to do, and the script's traceback where it is the script that failed.
        FileNotFoundError: no such script.
    """
    out = Path(out)
    if out.suffix != ".ncu-rep":
        raise ValueError(f"A report's name ends with .ncu-rep; {out.name!r} does not.")
    if (reason := why_not()) is not None and reason.reason != "permission":
        raise reason  # a missing permission is only a guess until ncu has been asked
    folder = Path(tempfile.mkdtemp(prefix="kernel-workbook-ncu-"))
    try:
        argv = _program(script, folder, files or {})
        out.parent.mkdir(parents=True, exist_ok=True)
        words = command(argv, out=folder / "report", ncu=device.find_tool("ncu"), **options)
        partial = folder / "report.ncu-rep"  # ncu adds the ending
        code, text = _execute(words, folder, timeout_s)
        if echo:
            print(script_output(text), end="")
        if code or not partial.is_file():
            raise diagnose(text, code, options)
        with whole.written(out) as near:
            shutil.copyfile(partial, near)
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
            raise FileNotFoundError(f"There is no script {script}; give a path, or the code itself.")
    return [sys.executable, str(path)]


def _execute(words: list[str], folder: Path | None, timeout_s: float) -> tuple[int, str]:
    """Run ncu in a folder (None: this one); its exit status and everything that it and the script wrote, in order."""
    environment = dict(os.environ)
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    environment.pop("TRITON_INTERPRET", None)  # interpreted kernels launch nothing that a counter could see
    environment["PYTHONUNBUFFERED"] = "1"
    root = str(Path(helpers.__file__).resolve().parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
    # A session of its own, so that a timeout ends the profiled script too, not only ncu.
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
                f"Nsight Compute was stopped after {timeout_s:g} seconds: profile fewer launches (launch_count, kernel, "
                "nvtx) or fewer counters (sections), or give it longer (timeout_s).",
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
    """Profile code, or read what was recorded under `name` where Nsight Compute cannot run, and say why.

    Args:
        name: the record, "lesson/what".
        code: Python code for a process of its own.
        sources: the kernels in it, for the record's provenance.
        params: what the code depends on.
        **options: see `run`.

    Raises:
        NcuError: ncu could run here, and the code or a filter was wrong.
        records.NoRecord: ncu cannot run here, and nothing was recorded.
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


def terminal(line: str, *, record: str = "ncu/terminal", timeout_s: float = 300) -> None:
    """Run `ncu LINE` as a terminal would, and print what it wrote; where ncu cannot run, print what was recorded.

    `python` is the Python of this notebook. Folders are left out of what is printed.

    Args:
        line: ncu's options, the program and its arguments.
        record: the record that is replayed, "lesson/what".
        timeout_s: stop after this many seconds.

    Raises:
        NcuError: ncu could run here, and gave no report: an option, a filter or the program was wrong.
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
        return [{"line": without_folders(said)} for said in text.splitlines()]

    try:
        said = records.measured(record, live, params={"line": without_folders(line)})
    except records.NoRecord as none:
        print(none)
    else:
        print(*said["line"], sep="\n")


def without_folders(text: str) -> str:
    """A text with absolute paths cut to their last part; addresses of pages stay."""
    return re.sub(r"(?<![\w:/])(?:/[\w.+-]+)+/", "", text)


def shell_line(words: Sequence[str]) -> str:
    """A command for a terminal, broken before options where a line would pass 100 characters.

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

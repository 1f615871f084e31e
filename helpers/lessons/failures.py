"""Runs code that is meant to fail in a separate process, and reports what each step did.

An illegal memory access on a GPU corrupts the CUDA context of its process: every later CUDA call fails, and
only a new process helps. So a lesson that demonstrates one must not do so in its own kernel process.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers import device

# Each outcome is written immediately, so that it survives if the process dies later. os._exit skips the
# destructors, which abort if the CUDA context is corrupted.
_CHILD = """\
import json, os, sys
steps = json.load(sys.stdin)
names = {}
with open(sys.argv[1], "w") as report:
    for label, code in steps:
        error = message = None
        try:
            exec(compile(code, label, "exec"), names)
        except BaseException as caught:
            error, message = type(caught).__name__, str(caught)
        report.write(json.dumps([label, error, message]) + "\\n")
        report.flush()
os._exit(0)
"""


@dataclass(frozen=True)
class FailureOutcome:
    """The outcome of one step: the exception's type (`error`) and text (`message`), or None if none was
    raised.
    """

    step: str
    error: str | None
    message: str | None

    @property
    def first_line(self) -> str:
        """The first line of the message, or "no error"."""
        return self.message.strip().split("\n")[0] if self.message else (self.error or "no error")

    def __repr__(self) -> str:
        return f"{self.step}: {self.error + ': ' if self.error else ''}{self.first_line}"


def told(run: Callable[[], object]) -> FailureOutcome:
    """Returns the outcome of a call that should fail, after waiting for the GPU."""
    import torch

    try:
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except Exception as error:
        return FailureOutcome("call", type(error).__name__, str(error))
    return FailureOutcome("call", None, None)


def sanitize(program: str, tool: str = "memcheck") -> FailureOutcome:
    """Builds a CUDA program with nvcc, runs it under compute-sanitizer, and returns what the sanitizer
    reported.

    The message has the first error with its line, and the summary.

    Args:
        program: CUDA C++ with a `main`.
        tool: "memcheck", "racecheck", "initcheck" or "synccheck".
    """
    sanitizer, nvcc = device.find_tool("compute-sanitizer"), device.find_tool("nvcc")
    if sanitizer is None or nvcc is None:
        return FailureOutcome("run", "not here", "compute-sanitizer and nvcc come with the CUDA toolkit")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "program.cu").write_text(program)
        compiler = [
            str(nvcc),
            f"-arch={device.gpu_spec().target}",
            "-lineinfo",
            "-o",
            "program",
            "program.cu",
        ]
        process_options = {"cwd": folder, "capture_output": True, "text": True, "timeout": 120}
        try:
            subprocess.run(compiler, check=True, **process_options)
            # otherwise it doesn't report lines
            options = ["--racecheck-report", "all"] if tool == "racecheck" else []
            report = subprocess.run(
                [str(sanitizer), "--tool", tool, *options, "./program"], **process_options
            ).stdout
        except subprocess.SubprocessError as error:
            return FailureOutcome("run", "not run", str(error))
    return FailureOutcome("run", "sanitizer", verdict(report))


def verdict(report: str) -> str:
    """Returns compute-sanitizer's first error, the line of the program that it names, and the summary.

    If the output contains neither, it returns the end of the output.
    """
    found = re.findall(
        r"========= ((?:Invalid|Error:|Barrier error|Uninitialized|Host API|\w+ SUMMARY).*)", report
    )
    line = re.search(r"program\.cu:(\d+)", report)
    if not found:
        return report.strip()[-200:]
    if len(found) == 1:
        return found[0]
    return f"{found[0]}{f', line {line[1]}' if line else ''} · {found[-1]}"


def run_steps(
    steps: Sequence[tuple[str, str]],
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> tuple[FailureOutcome, ...]:
    """Runs steps of Python code one after another in one new process, and continues after exceptions.

    Args:
        steps: (label, code) pairs. The code can have several lines, and all steps share their variables.
        environment: Environment variables to add to those of this process, such as
            `{"CUDA_LAUNCH_BLOCKING": "1"}`.
        timeout_s: The time limit for the whole process in seconds.

    Returns:
        The outcome of each step, in order. If the process dies during a step, the message of that step says
        so, and the steps after it are marked as not reached.

    Raises:
        ValueError: There are no steps.
        TimeoutError: The process didn't end in time and was stopped.
    """
    if not steps:
        raise ValueError("run_steps() needs a step: pass at least one (label, code) pair.")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        try:
            done = subprocess.run(
                [sys.executable, "-c", _CHILD, str(report)],
                input=json.dumps([list(step) for step in steps]),
                env={**os.environ, **(environment or {})},
                capture_output=True,
                text=True,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"The process with the steps {', '.join(label for label, _ in steps)} did not end within "
                f"{timeout_s:g} s and was stopped; raise timeout_s if it needs longer."
            ) from None
        lines = report.read_text().splitlines() if report.exists() else []
    outcomes = [FailureOutcome(*json.loads(line)) for line in lines]
    for label, _ in steps[len(outcomes) :]:
        is_first_missing = len(outcomes) == len(lines)
        last_line = done.stderr.strip().split("\n")[-1]
        death_message = (
            f"the process died here (exit status {done.returncode}){': ' + last_line if last_line else ''}"
        )
        outcomes.append(
            FailureOutcome(
                label,
                "ProcessDied",
                death_message if is_first_missing else "not reached: the process was dead",
            )
        )
    return tuple(outcomes)

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
from typing import TYPE_CHECKING

from helpers import device

if TYPE_CHECKING:
    import pandas as pd

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
    # without the option, racecheck doesn't report lines
    options = ["--racecheck-report", "all"] if tool == "racecheck" else []
    try:
        report = run_program(program, "compute-sanitizer", ["--tool", tool, *options, "./program"])
    except FileNotFoundError as error:
        return FailureOutcome("run", "not here", str(error))
    except subprocess.SubprocessError as error:
        return FailureOutcome("run", "not run", str(error))
    return FailureOutcome("run", "sanitizer", verdict(report))


def run_program(program: str, tool: str, arguments: Sequence[str]) -> str:
    """Builds a CUDA program as `program`, runs a tool of the CUDA toolkit on it, and returns what it printed.

    Args:
        program: CUDA C++ with a `main`.
        tool: The tool's command, such as "compute-sanitizer".
        arguments: What follows the command, for example "./program".

    Raises:
        FileNotFoundError: The tool or nvcc isn't installed.
        subprocess.SubprocessError: The build failed, or the program ran for too long.
    """
    command, nvcc = device.find_tool(tool), device.find_tool("nvcc")
    if command is None or nvcc is None:
        raise FileNotFoundError(f"{tool} and nvcc come with the CUDA toolkit")
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
        subprocess.run(compiler, check=True, **process_options)
        return subprocess.run([str(command), *arguments], **process_options).stdout


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


# A program that runs `square_matrix_kernel` on a matrix of 30 × 50 in allocations of exactly that size.
_SQUARE_MAIN = r"""
int main() {
    float *input, *output;
    cudaMalloc(&input, 30 * 50 * sizeof(float));
    cudaMalloc(&output, 30 * 50 * sizeof(float));
    square_matrix_kernel<<<dim3(4, 2), dim3(16, 16)>>>(input, output, 30, 50);
    return cudaDeviceSynchronize();
}
"""
# Nobody owns address 2^20.
_ILLEGAL_MAIN = r"""
int main() {
    float* nobodys = (float*)(1 << 20);
    square_matrix_kernel<<<dim3(4, 2), dim3(16, 16)>>>(nobodys, nobodys, 30, 50);
    return cudaDeviceSynchronize();
}
"""
_TRITON_SCRIPT = """\
import torch
import triton
import triton.language as tl


@triton.jit
def square_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)  # the mask is missing
    tl.store(y_ptr + i, x * x)


x = torch.ones(1000, device="cuda")
y = torch.empty_like(x)
square_kernel[(1,)](y, x, BLOCK=1024)
torch.cuda.synchronize()
"""
_ILLEGAL_LOAD = """
import importlib.util, torch
spec = importlib.util.spec_from_file_location("square_raw", {path!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
x = torch.ones(256, 256, device="cuda")
torch.cuda.synchronize()
"""
_ILLEGAL_LAUNCH = """
status = module.square_raw(x.data_ptr(), 1 << 20, 256, 256, 16, 16, 0)  # nobody owns address 2^20
if status != "no error":
    raise RuntimeError(status)
"""


def tour(calls: Mapping[str, Callable[[], object]], square_raw: str, unguarded: str) -> list[dict]:
    """Returns what lesson 08's failures report on a GPU, one row per step.

    Args:
        calls: Wrong calls by their case.
        square_raw: The path of the built module `square_raw`, which launches with addresses.
        unguarded: The CUDA text of `square_matrix_kernel` without its guard.
    """
    found = [(case, told(run)) for case, run in calls.items()]
    steps = [
        ("load", _ILLEGAL_LOAD.format(path=square_raw)),
        ("launch", _ILLEGAL_LAUNCH),
        ("synchronize", "torch.cuda.synchronize()"),
        ("next call", "torch.ones(1, device='cuda').sum().item()"),
    ]
    for case, blocking in [("illegal access", "0"), ("illegal access, CUDA_LAUNCH_BLOCKING=1", "1")]:
        outcomes = run_steps(steps, environment={"CUDA_LAUNCH_BLOCKING": blocking})
        found += [(case, outcome) for outcome in outcomes[1:]]
    found.append(("no guard, under compute-sanitizer", sanitize(unguarded + _SQUARE_MAIN)))
    return [
        {
            "case": case,
            "step": outcome.step,
            "error": outcome.error or "no error",
            "message": outcome.first_line if outcome.error else "",
        }
        for case, outcome in found
    ]


def reports(unguarded: str) -> list[dict]:
    """Returns reports of compute-sanitizer and cuda-gdb, whole, as rows of `tool` and `text`.

    "memcheck" is on the kernel without its guard and stops after the first error, "triton" is memcheck on a
    Triton kernel without a mask, and "cuda-gdb" runs a kernel that accesses an address that nobody owns.

    Args:
        unguarded: The CUDA text of `square_matrix_kernel` without its guard.

    Raises:
        helpers.records.CannotMeasure: A tool isn't installed, or a program doesn't build or end.
    """
    from helpers import records

    first_error = ["--tool", "memcheck", "--print-limit", "1"]
    commands = ["-batch", "-ex", "run", "-ex", "info cuda kernels", "-ex", "bt", "./program"]
    try:
        texts = {
            "memcheck": run_program(
                unguarded + _SQUARE_MAIN, "compute-sanitizer", [*first_error, "./program"]
            ),
            "triton": _sanitized_script(_TRITON_SCRIPT, first_error),
            "cuda-gdb": run_program(unguarded + _ILLEGAL_MAIN, "cuda-gdb", commands),
        }
    except (FileNotFoundError, subprocess.SubprocessError) as error:
        raise records.CannotMeasure(str(error)) from error
    return [{"tool": tool, "text": text.strip()} for tool, text in texts.items()]


def _sanitized_script(script: str, options: Sequence[str]) -> str:
    """Runs a Python script under compute-sanitizer and returns what was printed."""
    sanitizer = device.find_tool("compute-sanitizer")
    if sanitizer is None:
        raise FileNotFoundError("compute-sanitizer comes with the CUDA toolkit")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "square.py").write_text(script)
        return subprocess.run(
            [str(sanitizer), *options, sys.executable, "square.py"],
            cwd=folder,
            env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        ).stdout


def texts(measure: Callable[[], pd.DataFrame]) -> dict[str, str]:
    """Returns each report's text by its tool, or a sentence instead of each if there is no record yet."""
    from helpers import records

    try:
        return measure().set_index("tool")["text"].to_dict()
    except records.NoRecord as missing:
        return dict.fromkeys(("memcheck", "triton", "cuda-gdb"), str(missing))


def first_error(report: str) -> str:
    """Returns compute-sanitizer's first error without the program's later errors and the summary.

    Of the calls on the CPU, it keeps the first one and those in Python files.
    """
    lines = report.partition("\n========= \n")[0].splitlines()
    frames = [line for line in lines if "Host Frame:" in line]
    kept = [line for line in frames[1:] if re.search(r" in \S+\.py:\d+$", line)]
    n_left_out = len(frames) - len(kept) - 1
    left_out = [f"=========         ({n_left_out} more calls)"] if n_left_out > 0 else []
    return "\n".join([line for line in lines if line not in frames] + frames[:1] + left_out + kept)


def from_exception(report: str) -> str:
    """Returns what cuda-gdb printed from the exception on."""
    start = report.find("CUDA Exception")
    return report[max(start, 0) :]

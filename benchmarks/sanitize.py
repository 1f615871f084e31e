"""compute-sanitizer over every kernel of helpers/kernels, on small awkward shapes.

    python benchmarks/sanitize.py                 memcheck, racecheck, initcheck and synccheck; exit 1 unless
    all are clean python benchmarks/sanitize.py --tool racecheck

Each tool watches a process of its own that runs the same cases, and checks their results too: sizes around
16, misaligned addresses, strides, rows of one column and rows wider than a block, float32, bfloat16 and
float16, gradients. Every tensor has memory of its own (PYTORCH_NO_CUDA_MEMORY_CACHING=1): inside the caching
allocator's slabs an overrun would go unseen. Two controls must be found: a kernel told of more elements than
there are (memcheck) and one that reads what nobody wrote (initcheck).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from helpers import device

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
CONTROLS = {"memcheck": "overrun", "initcheck": "unwritten"}
_TIMEOUT_S = 300


@dataclass(frozen=True)
class Finding:
    """What a tool said about a run: `errors` is None where it did not finish."""

    tool: str
    run: str
    errors: int | None
    complaint: str
    seconds: float

    @property
    def as_it_should_be(self) -> bool:
        """No error over the kernels; at least one over a control."""
        return self.errors == 0 if self.run == "kernels" else bool(self.errors)

    def __str__(self) -> str:
        errors = "–" if self.errors is None else f"{self.errors:,}"
        verdict = "as it should be" if self.as_it_should_be else "WRONG"
        return (
            f"{self.tool:<10} {self.run:<10} {errors:>7} errors {self.seconds:>6.1f} s  {verdict:<16} "
            f"{self.complaint}"
        )


def watch(tool: str, run: str) -> Finding:
    """Run this script's cases, or a control, under a tool."""
    sanitizer = device.find_tool("compute-sanitizer")
    options = {"memcheck": ["--leak-check", "no"], "racecheck": ["--racecheck-report", "all"]}.get(tool, [])
    command = [str(sanitizer), "--tool", tool, *options, sys.executable, __file__, "--run", run]
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "TRITON_INTERPRET": "0"}
    start = time.perf_counter()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return Finding(tool, run, None, f"not done within {_TIMEOUT_S} s", time.perf_counter() - start)
    seconds = time.perf_counter() - start
    return read(tool, run, done.stdout + done.stderr, seconds)


def read(tool: str, run: str, said: str, seconds: float) -> Finding:
    """What a tool's output comes to: its error count and its first complaint."""
    summary = re.findall(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazards? displayed)", said)
    finished = f"{run}: done" in said
    lines = [line.removeprefix("=========").strip() for line in said.splitlines() if line.startswith("=====")]
    complaints = [
        line for line in lines if line and not re.match(r"COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK", line)
    ]
    if not summary or (run == "kernels" and not finished):
        last = [line for line in said.splitlines() if line.strip()][-1:] or ["it said nothing"]
        first = complaints[0] if complaints else last[0].strip()
        return Finding(tool, run, None, f"the run did not end: {first}"[:160], seconds)
    return Finding(tool, run, int("".join(summary[-1])), (complaints[0] if complaints else "")[:160], seconds)


def run_kernels() -> None:
    """Every kernel once or more; results are compared with torch's on the CPU, which launches nothing."""
    import torch
    from torch.nn import functional

    from helpers.kernels import ops, softmax, square

    generator = torch.Generator().manual_seed(0)
    functions = {
        ops.square: torch.square,
        ops.gelu: lambda x: functional.gelu(x, approximate="tanh"),
        ops.softmax: lambda x: torch.softmax(x, -1),
    }

    def same(got, expected, dtype=torch.float32):
        tolerance = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}[dtype]
        torch.testing.assert_close(got.cpu().double(), expected, rtol=tolerance, atol=tolerance)

    def check(function, whole, part=lambda t: t, gradient=True):
        """The function on `part` of a tensor, which on the GPU is the same part of a tensor of the same
        layout.
        """
        x = part(whole.cuda())
        expected_input = part(whole).double().requires_grad_()
        expected = functions[function](expected_input)
        same(function(x), expected.detach(), whole.dtype)
        if gradient:
            g = torch.randn(expected.shape, generator=generator).to(whole.dtype)
            on_gpu = x.detach().requires_grad_()
            function(on_gpu).backward(g.cuda())
            expected.backward(g.double())
            same(on_gpu.grad, expected_input.grad, whole.dtype)

    def draw(*shape, dtype=torch.float32):
        return torch.randn(shape, generator=generator).to(dtype)

    parts = {
        "misaligned": ((1100,), lambda t: t[3:]),
        "every second": ((37, 50), lambda t: t[:, ::2]),
        "transposed": ((37, 50), lambda t: t.T),
        "three strides": ((3, 5, 7, 9), lambda t: t[1:, ::2, 3:, :5]),
        "six dimensions": ((4, 3, 4, 3, 4, 6), lambda t: t[::2, :2, ::2, :2, ::2, ::2]),
    }
    for function in functions:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for n in (1, 15, 16, 17, 1000, 4097):
                check(function, draw(n, dtype=dtype))
        for shape, part in parts.values():
            check(function, draw(*shape), part)
    shapes = (
        (3, 1),
        (1, 2),
        (70, 3),
        (33, 129),
        (5, 1025),
        (3, 8192),
        (3, 8320),
        (3, 12289),
        (2, 16384),
        (2, 16385),
        (1, 70001),
    )
    for shape in shapes:
        for dtype in (torch.float32, torch.bfloat16):
            check(ops.softmax, draw(*shape, dtype=dtype))
    # the kernels that the lessons show, and the launches that no plan above asks for
    x = draw(5, 3001)
    expected = torch.softmax(x.double(), -1)
    for form in (
        softmax.softmax_rows,
        softmax.softmax_online,
        lambda t: softmax.softmax_split(t, block_size=1024),
    ):
        same(form(x.cuda()), expected)
    half = draw(3, 4096, dtype=torch.bfloat16)
    same(
        softmax.softmax_split(half.cuda(), block_size=1024), torch.softmax(half.double(), -1), torch.bfloat16
    )
    for form in (square.square_rows, square.square_flat):
        same(form(x.cuda()), x.double() ** 2)
    if device.find_tool("nvcc"):
        same(square.load_square_matrix()(x.cuda()), x.double() ** 2)
    torch.cuda.synchronize()


def run_overrun() -> None:
    """A control: 1,024 elements asked of tensors of 1,000, so that the mask lets 24 too many through."""
    import torch

    from helpers.kernels.square import square_flat_kernel

    x = torch.zeros(1000).cuda()
    square_flat_kernel[(1,)](x, torch.empty_like(x), 1024, BLOCK_SIZE=1024)
    torch.cuda.synchronize()


def run_unwritten() -> None:
    """A control: a kernel reads memory that nobody has written."""
    import torch

    from helpers.kernels.square import square_flat

    square_flat(torch.empty(1000, device="cuda"))
    torch.cuda.synchronize()


def main() -> int:
    parser = argparse.ArgumentParser(description="compute-sanitizer over helpers/kernels.")
    parser.add_argument("--tool", choices=TOOLS, action="append", help="only this tool; may be repeated")
    parser.add_argument("--run", choices=("kernels", "overrun", "unwritten"), help="only run, under no tool")
    asked = parser.parse_args()
    if asked.run:
        {"kernels": run_kernels, "overrun": run_overrun, "unwritten": run_unwritten}[asked.run]()
        print(f"{asked.run}: done")
        return 0
    try:
        device.require("gpu")
    except device.Missing as missing:
        print(missing)
        return 0
    if device.find_tool("compute-sanitizer") is None:
        print("compute-sanitizer is not here: install NVIDIA's CUDA toolkit, and set PATH to its bin folder.")
        return 0
    # once without a tool: what Triton and nvcc compile is compiled and kept, and a plain failure shows
    # plainly
    plain = [sys.executable, __file__, "--run", "kernels"]
    if subprocess.run(plain, cwd=Path(__file__).parents[1]).returncode:
        print("The cases fail without any tool.")
        return 1
    findings = []
    for tool in asked.tool or TOOLS:
        for run in ("kernels", *filter(None, [CONTROLS.get(tool)])):
            findings.append(watch(tool, run))
            print(findings[-1], flush=True)
    return 0 if all(finding.as_it_should_be for finding in findings) else 1


if __name__ == "__main__":
    sys.exit(main())

"""The eight kernels of lesson 13: what each claims, its problem for KernelBench, and its verification.

The kernels themselves are cells of the lesson, which write them into files.
"""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import device, ncu, records

if TYPE_CHECKING:
    import pandas as pd
    import torch

_PROBLEM = """\
import torch
from torch import nn

{sizes}


class Model(nn.Module):
    def forward(self, {names}):
        return {formula}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
_PROBLEMS = "problems"  # the folder of the problems, inside the folder of the candidates
_LIMIT_S = 300
_MANY = 1 << 22  # elements


@dataclass(frozen=True, eq=False)
class Claim:
    """What the author of a kernel claims.

    Attributes:
        name: of its file and of its problem.
        does: what it computes, for the table.
        formula: the reference, as an expression of `names`.
        inputs: how the benchmark makes the inputs, as an expression of `sizes`.
        sizes: of the benchmark, name -> value.
        few: sizes for Triton's interpreter.
        us: the claimed time of one call on an H200, in µs.
        times: the claimed speedup.
        n_bytes: bytes that must be moved at least: each input read once, and the output written once.
        n_operations: additions and multiplications.
        names: the names of the inputs.
    """

    name: str
    does: str
    formula: str
    inputs: str
    sizes: Mapping[str, int]
    few: Mapping[str, int]
    us: float
    times: float
    n_bytes: int
    n_operations: int
    names: str = "x"

    @property
    def shape(self) -> str:
        """The size of an input."""
        return " × ".join(f"{n:,}" for n in self.sizes.values())

    def problem(self, sizes: Mapping[str, int]) -> str:
        """The text of the problem's file, for inputs of these sizes."""
        return _PROBLEM.format(
            sizes="\n".join(f"{name} = {n}" for name, n in sizes.items()),
            names=self.names,
            formula=self.formula,
            inputs=self.inputs,
        )


_NORMAL, _UNIFORM = "torch.randn(n_rows, n_cols)", "torch.rand(n_rows, n_cols)"


def _rows(
    name: str, does: str, formula: str, inputs: str, shape: tuple[int, int], us: float, times: float,
    *, per_element: int, writes: int, few: Mapping[str, int] | None = None,
) -> Claim:  # fmt: skip
    """A claim about a matrix of floats.

    Args:
        per_element: operations per element of the input.
        writes: elements of the output.
    """
    sizes, n = dict(zip(("n_rows", "n_cols"), shape, strict=True)), shape[0] * shape[1]
    return Claim(
        name, does, formula, inputs, sizes, few or {"n_rows": 32, "n_cols": 1000}, us, times,
        n_bytes=4 * (n + writes), n_operations=per_element * n,
    )  # fmt: skip


_GELU = "0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))"
_PRODUCT = {"n_rows": 4096, "n_cols": 4096}
CLAIMS = (
    _rows(
        "row_mean", "the mean of each row", "x.mean(dim=1)", _NORMAL, (16384, 4096), 61, 1.1,
        per_element=1, writes=16384,
    ),
    _rows(
        "softmax_rows", "softmax of each row", "torch.softmax(x, dim=1)", _NORMAL, (8192, 8192), 130, 2.1,
        per_element=5, writes=8192 * 8192,
    ),
    _rows(
        "softmax_wide", "softmax of a few very wide rows", "torch.softmax(x, dim=1)", _UNIFORM, (4, 393216),
        3.9, 4.0, per_element=5, writes=4 * 393216, few={"n_rows": 4, "n_cols": 32768},
    ),
    _rows(
        "column_sum", "the sum of each column", "x.sum(dim=0)", _UNIFORM, (16384, 4096), 66, 6.8,
        per_element=1, writes=4096, few={"n_rows": 100, "n_cols": 600},
    ),
    _rows(
        "gelu", "GELU of each element", _GELU, _NORMAL, (8192, 8192), 125, 9.1,
        per_element=10, writes=8192 * 8192,
    ),
    _rows(
        "layer_norm", "layer normalization of each row", "nn.functional.layer_norm(x, x.shape[1:])", _NORMAL,
        (16384, 4096), 9.6, 14, per_element=7, writes=16384 * 4096,
    ),
    _rows(
        "cumsum", "the running sum of each row", "torch.cumsum(x, dim=1)", _NORMAL, (16384, 4096), 6.5, 30,
        per_element=1, writes=16384 * 4096,
    ),
    Claim(
        "matmul", "the product of two matrices", "a @ b", ", ".join([_NORMAL] * 2), _PRODUCT,
        {"n_rows": 128, "n_cols": 128}, 22, 120, n_bytes=3 * 4 * 4096**2, n_operations=2 * 4096**3,
        names="a, b",
    ),
)  # fmt: skip


def table() -> pd.DataFrame:
    """The claims, from the smallest speedup to the largest, for `plots.table`."""
    import pandas as pd

    return pd.DataFrame(
        {"file": f"{one.name}.py", "computes": one.does, "input": one.shape, "us": one.us, "times": one.times}
        for one in CLAIMS
    )


def peaks() -> tuple[float, float]:
    """What the recorded H200 can do at most: GB/s from memory, and TFLOP/s in float32."""
    report = ncu.load_report(records.folder() / "h200" / "ncu" / "column-sum-5.ncu-rep")
    reached = ncu.roofline_points(report).attrs
    return reached["peak_gb_per_s"], reached["peak_gflop_per_s"] / 1e3


def scratch() -> Path:
    """A new folder with a folder of the eight problems, into which the lesson writes the candidates."""
    folder = Path(tempfile.mkdtemp())
    (folder / _PROBLEMS).mkdir()
    for claim in CLAIMS:
        (folder / _PROBLEMS / f"{claim.name}.py").write_text(claim.problem(_sizes_here(claim)))
    return folder


def _sizes_here(claim: Claim) -> Mapping[str, int]:
    """Sizes for which a verification takes seconds, because all inputs go through a pipe."""
    if not device.has_gpu():
        return claim.few
    if math.prod(claim.sizes.values()) < _MANY:
        return claim.sizes
    return {name: min(n, 2048) for name, n in claim.sizes.items()}


def load(path: Path) -> torch.nn.Module:
    """Import a candidate's file anew, and construct its `ModelNew`.

    Only for candidates that you trust: this runs the file in your own process.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew()


class Verifications:
    """`workbook verify` on candidates, two at a time, while the reader goes on.

    Attributes:
        sandboxed: whether the candidates run in a sandbox. Without one, they run with the reader's rights,
            which is only right because they are this course's own.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.sandboxed = shutil.which("bwrap") is not None
        self._folder, self._seed = folder, seed
        self._pool = ThreadPoolExecutor(2)
        self._started: dict[str, Future[tuple[dict[str, Any], str]]] = {}

    def start(self, *names: str) -> None:
        """Verify candidates in the background, anew if they were verified before."""
        for name in names:
            self._started[name] = self._pool.submit(self._verified, name)

    def page(self, name: str) -> str:
        """The command and what it prints; waits until it has ended."""
        return f"$ workbook {' '.join(self._command(name))}\n{self._started[name].result()[1]}"

    def findings(self, name: str) -> str:
        """The verdict and the findings behind it; waits until the verification has ended."""
        verdict = self._started[name].result()[0]
        against = [one for one in verdict["findings"] if one["severity"] in ("wrong", "dishonest")]
        lines = [f"{name}: {_said(verdict)}"]
        lines += [f"  {one['check']}: {one['says']}" for one in against]
        return "\n".join(lines)

    def summary(self) -> str:
        """One line for each claim, with its verdict; waits until all verifications have ended."""
        verdicts = {claim: self._started[claim.name].result()[0] for claim in CLAIMS}
        return "\n".join(
            f"{claim.times:5g} ×  {claim.name:<13} {_said(verdict)}" for claim, verdict in verdicts.items()
        )

    def _command(self, name: str) -> list[str]:
        files = [f"{_PROBLEMS}/{name}.py", f"{name}.py"]
        unsafe = [] if self.sandboxed else ["--unsafe"]
        return ["verify", "kernelbench", *files, "--seed", str(self._seed), *unsafe]

    def _verified(self, name: str) -> tuple[dict[str, Any], str]:
        """Run the command, and return the verdict and its page.

        Raises:
            RuntimeError: The command failed.
        """
        with tempfile.TemporaryDirectory() as own:
            written = Path(own, "verdict.json")
            words = [sys.executable, "-m", "workbook", *self._command(name), "--json", str(written)]
            ran = subprocess.run(
                words, cwd=self._folder, capture_output=True, text=True, check=False, timeout=_LIMIT_S
            )
            if not written.is_file():
                raise RuntimeError(f"workbook verify couldn't judge {name}.py: {ran.stderr.strip()[-500:]}")
            return json.loads(written.read_text("utf-8")), ran.stdout.strip()


def _said(verdict: Mapping[str, Any]) -> str:
    return {0: "accepted", 1: "rejected"}.get(verdict["status"], "not judged")

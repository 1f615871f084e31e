"""Examples in the formats that `workbook verify` reads, and what the verifier does with their cases."""

from __future__ import annotations

from pathlib import Path

import torch
from commands import ROOT

from helpers.check.results import expected_of
from workbook.verify.arguments import map_tensors, tensors_of, with_tensors
from workbook.verify.formats import flashinfer, gpumode
from workbook.verify.problem import Candidate, Case, Problem

EXAMPLES = ROOT / "tests" / "verify_examples"
FILES = ("definition.json", "workload.jsonl", "solution.json")


def read_trace(folder: Path) -> tuple[Problem, Candidate]:
    """A folder with a definition, workloads and a solution."""
    return flashinfer.read(*(folder / name for name in FILES))


def read_task(folder: Path) -> tuple[Problem, Candidate]:
    """A folder with a task of GPU MODE and a submission."""
    return gpumode.read(folder, folder / "submission.py")


def exact(problem: Problem, case: Case) -> tuple[torch.Tensor, ...]:
    """The reference's results in float64, as the verifier computes them."""

    def reference(*tensors):
        return problem.reference(*with_tensors(case.args, tensors))

    return expected_of(problem.name, reference, tensors_of(case.args)).tensors


def own(problem: Problem, case: Case) -> tuple[torch.Tensor, ...]:
    """The reference's results in the inputs' dtype."""
    value = problem.reference(*map_tensors(torch.clone, case.args))
    return value if isinstance(value, tuple) else (value,)

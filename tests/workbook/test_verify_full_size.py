"""Judging at sizes whose inputs and results are not sent: made in both processes, compared by samples."""

import time
from dataclasses import replace

import pytest
import torch

from helpers import device
from workbook.sandbox.process import Limits
from workbook.verify import full_size
from workbook.verify.formats import kernelbench
from workbook.verify.problem import Candidate, Case
from workbook.verify.suspect import Suspect
from workbook.verify.verifier import Settings, verify

SOURCE = """
import torch

def get_inputs():
    return [torch.rand(64, 4096)]
"""
CANDIDATE = """
import torch

def softmax(x):
    return torch.softmax(x, 1)
"""


def test_both_processes_make_the_same_inputs_and_sample_the_same_places():
    limits = Limits(60, 600, 8000, sandboxed=False)
    candidate = Candidate("softmax.py", {"softmax.py": CANDIDATE}, "softmax.py::softmax")
    with Suspect(candidate, limits, time.monotonic() + 600, None, interpret=not device.has_gpu()) as suspect:
        suspect.load()
        suspect.make("a", SOURCE, 7)
        suspect.call("a", Case("64 × 4,096", ()))
        (got,) = suspect.sample(3)
    (x,) = full_size.make_inputs(SOURCE, 7)
    assert torch.equal(got, full_size.sampled(torch.softmax(x, 1), 3))


COUNTING = """
import torch

N_IMPORTS = []

class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        N_IMPORTS.append(n)
        self.n = n

    def forward(self, x):
        return x * self.n + 100 * len(N_IMPORTS)
"""


def test_the_process_that_was_examined_is_used_at_full_size_without_another_import():
    """An import may compile for a minute."""
    limits = Limits(60, 600, 8000, sandboxed=False)
    candidate = Candidate("new.py", {"new.py": COUNTING}, "new.py::ModelNew", kind="model", init=(2,))
    x = torch.ones(4)
    with Suspect(candidate, limits, time.monotonic() + 600, None, interpret=not device.has_gpu()) as suspect:
        suspect.load()
        suspect.put("a", (x,))
        assert suspect.call("a", Case("4", (x,))).results[0].tolist() == [102] * 4
        suspect.execute()  # which is undone, too
        suspect.forget()
        suspect.load_as(replace(candidate, init=(3,)))
        suspect.put("a", (x,))
        assert suspect.call("a", Case("4", (x,))).results[0].tolist() == [203] * 4


@pytest.mark.parametrize("shape", [(2,), (3,), (5, 7), (513, 1025)])
def test_only_the_last_change_matters_and_it_reaches_the_whole_tensor(shape):
    once, twice = torch.rand(shape), None
    twice = once.clone()
    before = once.clone()
    full_size.change([once], 5)
    full_size.change([twice], 4)
    full_size.change([twice], 5)
    assert torch.equal(once, twice)
    changed = (once != before).view(-1).nonzero()
    assert len(changed) and changed.max() >= 0.9 * once.numel() - 3


def test_what_is_no_number_with_a_fraction_is_not_changed():
    labels, flat = torch.arange(10), torch.rand(4, 6).t()
    before = flat.clone()
    full_size.change((labels, [flat]), 1)
    assert torch.equal(labels, torch.arange(10)) and torch.equal(flat, before)


def test_a_sample_of_a_large_tensor_has_runs_from_everywhere():
    large = torch.arange(1 << 24)
    found = full_size.sampled(large, 1)
    assert found.numel() == 1 << 20 and found.min() < 1 << 20 and found.max() > 15 << 20
    assert not torch.equal(found, full_size.sampled(large, 2))
    assert found[-1] == large[-1]


X = torch.randn(256, 8192, generator=torch.Generator().manual_seed(1))


def sums(x):
    return x.reshape(256, 64, 128).sum(2).sum(1)  # in another order than the reference


@pytest.mark.parametrize(
    ("candidate", "reference", "is_right"),
    [
        (lambda x: (x - x.amax(1, True)).exp() / (x - x.amax(1, True)).exp().sum(1, True),
         lambda x: torch.softmax(x, 1), True),
        (torch.zeros_like, lambda x: torch.softmax(x, 1), False),
        (lambda x: torch.full_like(x, 1 / 8192), lambda x: torch.softmax(x, 1), False),
        (lambda x: torch.softmax(x.bfloat16(), 1).float(), lambda x: torch.softmax(x, 1), False),
        (sums, lambda x: x.sum(1), True),
        (lambda x: x.half().sum(1).float(), lambda x: x.sum(1), False),
        (lambda x: x * 2, lambda x: x + x, True),
        (lambda x: torch.where(torch.arange(8192) == 77, 0, x), lambda x: x, False),
        (lambda x: x.sum(1, keepdim=True), lambda x: x.sum(1), False),
        (lambda x: x.argmax(1), lambda x: x.argmax(1), True),
        (lambda x: x.argmin(1), lambda x: x.argmax(1), False),
        (lambda x: torch.where(x > 3, torch.nan, x), lambda x: x, False),
    ],
)  # fmt: skip
def test_results_are_compared_with_the_references_own_error(candidate, reference, is_right):
    says = full_size.difference([candidate(X)], [reference(X)], [reference(X.double())], tf32=False)
    assert (not says) == is_right, says


def test_tf32_is_permitted_only_where_the_problem_permits_it():
    rounded = (X.view(torch.int32) & ~0x1FFF).view(torch.float32)
    for tf32 in (False, True):
        says = full_size.difference([rounded], [X], [X.double()], tf32=tf32)
        assert bool(says) != tf32, says


PROBLEM = """
import torch
from torch import nn

rows, columns = 16384, 16384

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, 1)

def get_inputs():
    return [torch.rand(rows, columns)]
"""
MODEL = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        return {}
"""


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("value", "is_right"),
    [
        ("torch.softmax(x, 1)", True),
        ("torch.softmax(x if x.shape[1] < 9000 else x.roll(1), 1)", False),  # wrong only at its own size
    ],
)
def test_the_benchmarks_own_sizes_are_timed_and_compared(tmp_path, value, is_right):
    problem, candidate = tmp_path / "problem.py", tmp_path / "candidate.py"
    problem.write_text(PROBLEM)
    candidate.write_text(MODEL.format(value))
    verdict = verify(*kernelbench.read(problem, candidate), Settings(sandboxed=False))
    assert verdict.is_right == is_right
    assert [one.case for one in verdict.speed] == ["16,384 × 16,384"] * is_right
    assert verdict.seconds < 60

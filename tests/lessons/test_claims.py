"""Lesson 13's claims: what the records say of the three honest ones, and how they are verified."""

from __future__ import annotations

import json

import pytest
import torch
from commands import ROOT

from helpers import ncu
from helpers.lessons import claims

RECORDS = ROOT / "helpers" / "records" / "h200"
CLAIMS = {one.name: one for one in claims.CLAIMS}


def recorded(name: str) -> list[dict]:
    return json.loads((RECORDS / f"{name}.json").read_text("utf-8"))["cases"][0]["rows"]


def times_of(name: str) -> tuple[float, float]:
    """What the reference and the honest kernel take on the recorded H200, in µs."""
    if name == "softmax_rows":
        rows = {one["kernel"]: one["median_us"] for one in recorded("fusion/curve") if one["n_cols"] == 8192}
        return rows["torch.softmax"], rows["one block"]
    if name == "gelu":
        rows = {one["form"]: one["median_us"] for one in recorded("fusion/compile-kernels")
                if one["function"] == "GELU 8192 × 8192"}  # fmt: skip
        return rows["eager"], rows["ours"]
    first, last = (ncu.load_report(RECORDS / "ncu" / f"column-sum-{i}.ncu-rep") for i in (1, 5))
    return first[0].duration_us, last[0].duration_us


@pytest.mark.parametrize("name", ["softmax_rows", "gelu", "column_sum"])
def test_the_honest_claims_are_recorded(name):
    reference_us, kernel_us = times_of(name)
    assert round(kernel_us) == CLAIMS[name].us
    assert round(reference_us / kernel_us, 1) == CLAIMS[name].times


def test_arithmetic_refutes_three_frauds_and_no_honest_kernel():
    gb_per_s, tflop_per_s = claims.peaks()
    assert (round(gb_per_s, -1), round(tflop_per_s, 1)) == (4810, 66.9)  # what the question states
    impossible = {
        one.name
        for one in claims.CLAIMS
        if max(one.n_bytes / gb_per_s / 1e3, one.n_operations / tflop_per_s / 1e6) > one.us
    }
    assert impossible == {"layer_norm", "cumsum", "matmul"}


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda one: one.name)
def test_a_problem_moves_the_bytes_that_its_claim_counts(claim):
    """At the claimed sizes, with shapes only."""
    module = {}
    exec(claim.problem(claim.sizes), module)
    with torch.device("meta"):
        args = module["get_inputs"]()
        result = module["Model"]()(*args)
    assert claim.n_bytes == sum(one.numel() * one.element_size() for one in (*args, result))


def test_a_candidate_without_a_model_is_an_error_that_says_so():
    folder = claims.scratch()
    (folder / "gelu.py").write_text("import torch\n")
    verdicts = claims.Verifications(folder, seed=0)
    verdicts.start("gelu")
    with pytest.raises(RuntimeError, match=r"gelu\.py: it defines no ModelNew"):
        verdicts.page("gelu")

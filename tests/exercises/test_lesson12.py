"""The exercises inside lesson 12: typical wrong attempts are refused with the mistake that they make."""

from __future__ import annotations

import math
import types

import numpy as np
import pytest
import torch
from commands import ROOT
from lab_answers import mistakes
from lab_attempts import Attempt, changed, judge

from helpers import exercises
from workbook.form.exercises import solutions_of

LAB = "12_attention"
TRITON = "attention-in-triton"

_WHERE = 'tl.where(keys < n_keys, tl.dot(q, k.T) * scale, -float("inf"))'
_BOTH = (("total * shrink", "total"), ("acc * shrink[:, None]", "acc"))

# Triton interprets kernels only if that is chosen before its import, so these run in a process of their own.
ATTEMPTS = {
    "triton: the solution": Attempt(TRITON),
    "triton: exp2": Attempt(
        TRITON,
        (
            ("tl.exp(top - new_top)", "tl.exp2((top - new_top) * 1.44269504)"),
            ("tl.exp(scores - new_top[:, None])", "tl.exp2((scores - new_top[:, None]) * 1.44269504)"),
        ),
    ),
    "triton: not acc": changed(TRITON, "acc * shrink[:, None]", "acc", "values-not-rescaled", "`acc`"),
    "triton: not total": changed(TRITON, "total * shrink", "total", "total-not-rescaled", "`total`"),
    "triton: neither": Attempt(TRITON, _BOTH, "not-rescaled", "old maximum"),
    "triton: upside down": changed(TRITON, "tl.exp(top - new_top)", "tl.exp(new_top - top)", "nan", "finite"),
    "triton: nothing stored": changed(
        TRITON, "tl.store(o_ptr + q_at, o, mask=(rows < n_queries)[:, None])", "pass", "uninitialised-output"
    ),
    "triton: not divided": changed(
        TRITON, "total * shrink + tl.sum(weights, axis=1)", "total * 0.0 + 1.0", "not-divided"
    ),
    "triton: no scale": changed(TRITON, " * scale,", ",", "scale-forgotten"),
    "triton: padding": changed(TRITON, _WHERE, "tl.dot(q, k.T) * scale", "padding", "-inf"),
}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_a_kernel_gets_its_verdict(name, found):
    judge(name, ATTEMPTS[name], found[name])


def answer(id: str, old: str = "", new: str = ""):
    """The solution of an exercise, with a replacement."""
    source = solutions_of(ROOT / "notebooks" / f"{LAB}.ipynb")[id]
    assert old in source
    # Importing Triton here would decide for the whole process whether kernels are interpreted.
    triton = types.SimpleNamespace(cdiv=lambda a, b: -(-a // b))
    names: dict = {"math": math, "np": np, "torch": torch, "triton": triton, "check": lambda *args: None}
    exec(source.replace(old, new), names)
    return names[exercises.get(id).name]


_ROOT = "math.isqrt(n_bytes // (2 * batch * heads * itemsize))"
_SUM = "sum(triton.cdiv(first + block_m, block_n) for first in range(0, n, block_m))"


@pytest.mark.parametrize(
    ("id", "old", "new", "mistake"),
    [
        ("longest-sequence", "", "", ""),
        ("longest-sequence", "2 * batch", "batch", "one-matrix"),
        ("longest-sequence", "* batch * heads", "* batch", "one-head"),
        ("longest-sequence", " * itemsize", "", "numbers"),
        ("longest-sequence", _ROOT, "n_bytes // (2 * batch * heads * itemsize)", "no-root"),
        ("longest-sequence", _ROOT, "(n_bytes / (2 * batch * heads * itemsize)) ** 0.5", "a-fraction"),
        ("longest-sequence", _ROOT, f"{_ROOT} + 1", "rounded-up"),
        ("longest-sequence", _ROOT, '"12,500"', "not-a-number"),
        ("longest-sequence", _ROOT, "7", "length"),
        ("tiles-of-keys", "", "", ""),
        ("tiles-of-keys", "acc * shrink[:, None]", "acc", "values-not-rescaled"),
        ("tiles-of-keys", "total * shrink", "total", "total-not-rescaled"),
        ("tiles-of-keys", "np.exp(top - new_top)", "np.exp(new_top - top)", "nan"),
        ("tiles-of-keys", "np.exp(top - new_top)", "np.ones(len(q))", "not-rescaled"),
        ("tiles-of-keys", "total * shrink + weights.sum(axis=1)", "np.ones(len(q))", "not-divided"),
        ("tiles-of-keys", "np.exp(scores -", "np.exp(q @ k[tile].T -", "scale-forgotten"),
        ("tiles-of-keys", "acc * shrink[:, None] + ", "", "last-tile-only"),
        (
            "tiles-visited",
            _SUM,
            "sum((first + block_m) // block_n for first in range(0, n, block_m))",
            "rounded-down",
        ),
        ("tiles-visited", "", "", ""),
        ("tiles-visited", _SUM, "(n // block_m) * (n // block_n)", "all-tiles"),
        (
            "tiles-visited",
            "triton.cdiv(first + block_m, block_n)",
            "(first // block_n)",
            "diagonal-forgotten",
        ),
        ("tiles-visited", _SUM, "n // block_n", "one-program"),
        ("tiles-visited", _SUM, '"20"', "not-a-number"),
        ("tiles-visited", _SUM, f"{_SUM} + 0.5", "a-fraction"),
        ("tiles-visited", _SUM, "-1", "count"),
        ("merge-results", "", "", ""),
        ("merge-results", "(weights / weights.sum()) @ o", "o.mean(0)", "plain-mean"),
        ("merge-results", "(weights / weights.sum()) @ o", "o.sum(0)", "plain-sum"),
        ("merge-results", "torch.exp(lse - lse.max())", "lse", "not-exponentiated"),
        ("merge-results", "(weights / weights.sum())", "weights", "not-divided"),
        ("merge-results", "lse - lse.max()", "lse", "overflows"),
    ],
)
def test_an_answer_gets_its_verdict(id, old, new, mistake):
    assert mistakes(id, answer(id, old, new), range(2)) == {mistake}


def test_a_whole_half_of_the_tiles_is_named():
    assert mistakes("tiles-visited", lambda n, m, k: n // m * (n // k) / 2, range(2)) <= {"half", "count"}

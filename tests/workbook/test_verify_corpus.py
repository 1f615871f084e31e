"""`workbook verify` on the public corpus: it finds every fraud and accepts every honest kernel."""

from __future__ import annotations

import corpus
import pytest

from workbook.verify.formats import kernelbench
from workbook.verify.verdict import DISHONEST, NOT_JUDGED, OK, WRONG
from workbook.verify.verifier import Settings, verify

# One fraud and one honest kernel for each way of judging; `make test-slow` has all of them.
QUICK = ("constant", "stale_by_address", "frames", "triton_softmax", "cached_weight")


def judged(entry: corpus.Entry):
    problem, candidate = kernelbench.read(entry.problem_path, entry.path)
    if entry.problem == "matmul_tf32":
        from dataclasses import replace

        problem = replace(problem, precision="tf32")
    return verify(problem, candidate, Settings())


def on(entries):
    return pytest.mark.parametrize(
        "entry", [pytest.param(one, id=one.name, marks=() if one.name in QUICK else pytest.mark.slow)
                  for one in entries]
    )  # fmt: skip


@on(corpus.exploits())
def test_a_fraud_is_rejected_for_what_it_does(entry):
    verdict = judged(entry)
    if entry.needs == "gpu" and not verdict.gpu:
        assert verdict.status == NOT_JUDGED, verdict
        return
    found = {one.check for one in verdict.findings if one.severity in (WRONG, DISHONEST)}
    assert found & set(entry.expects), verdict.findings


@on(corpus.limits())
def test_a_limit_is_reported_and_accepted(entry):
    verdict = judged(entry)
    assert verdict.status == OK, verdict.findings
    assert {one.check for one in verdict.findings} & set(entry.expects), verdict.findings


@on([*corpus.accepted(), *corpus.honest()])
def test_an_honest_kernel_is_accepted(entry):
    verdict = judged(entry)
    if entry.needs == "gpu" and not verdict.gpu:
        assert verdict.status == NOT_JUDGED, verdict
        return
    assert verdict.status == OK, verdict.findings

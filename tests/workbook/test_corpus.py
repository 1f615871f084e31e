"""The public corpus: every file is what its header states, before any verifier judges it."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
from typing import Any

import corpus
import pytest
from commands import ROOT, environment

FRAUDS = [*corpus.exploits(), *corpus.limits(), *corpus.accepted()]
HONEST = corpus.honest()
# torch.compile's C++ build takes most of a minute on two slow cores.
SLOW_TO_BUILD = ("compiled",)


def named(entries: list[corpus.Entry]) -> Any:
    return pytest.mark.parametrize("entry", entries, ids=lambda entry: entry.name)


@functools.cache
def ran(what: str, *names: str) -> dict[str, dict[str, Any]]:
    """What each file of one kind does on this machine, all in one process."""
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "corpus_runs.py", what, *names],
        env=environment() | {"TRITON_INTERPRET": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def result_of(entry: corpus.Entry) -> dict[str, Any]:
    honest = [one.name for one in HONEST if one.name not in SLOW_TO_BUILD]
    results = ran("exploits") if entry in FRAUDS else ran("honest", *honest)
    assert "error" not in results[entry.name], results[entry.name]["error"]
    return results[entry.name]


@named(FRAUDS + HONEST)
def test_a_file_has_a_problem_and_all_entry_points(entry):
    tree = ast.parse(entry.path.read_text())
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert {"ModelNew", "custom_kernel", "run"} <= defined
    assert entry.problem_path.is_file()
    assert entry.summary.endswith(".")
    assert entry.needs in ("", "gpu")
    assert len(entry.path.read_text().splitlines()) <= 60


@named(FRAUDS)
def test_a_fraud_expects_known_checks_and_names_its_source(entry):
    assert entry.expects
    assert set(entry.expects) <= set(corpus.CHECKS)
    assert entry.fools in ("", "naive")
    assert entry.earns


def test_the_corpus_covers_every_check_that_a_candidate_can_trip():
    expected = {check for entry in FRAUDS for check in entry.expects}
    # A claim beyond the bound is a matter of numbers, not of code.
    assert expected == set(corpus.CHECKS) - {"beyond-the-bound"}
    assert len(HONEST) >= 30
    assert not any(entry.expects for entry in HONEST)


@named([entry for entry in FRAUDS if entry.fools and not entry.needs])
def test_a_naive_harness_accepts_it(entry):
    assert result_of(entry)["fooled"]


@named(
    [
        entry
        for entry in FRAUDS
        if "wrong-result" in entry.expects
        and not entry.needs
        # These are right as long as somebody uses their result, or their answer lies around.
        and not {"lazy-result", "peeks"} & set(entry.expects)
    ]
)
def test_its_results_are_wrong(entry):
    assert result_of(entry)["failure"]


@named([entry for entry in FRAUDS if not entry.needs])
def test_a_fraud_runs(entry):
    assert result_of(entry)["seconds"] < 60


@named([entry for entry in HONEST if not entry.needs and entry.name not in SLOW_TO_BUILD])
def test_an_honest_kernel_matches_its_reference(entry):
    assert result_of(entry)["fooled"]


@named([entry for entry in HONEST if entry.name in SLOW_TO_BUILD])
def test_an_honest_kernel_that_takes_long_to_build(entry):
    assert "error" not in ran("honest", entry.name)[entry.name]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "has no docstring"),
        ('"""Zeros.\n\nproblem: softmax\nexpect: leak\n"""\n', "unknown field 'expect'"),
        ('"""Zeros.\n\nexpects: leak\n"""\n', "which problem"),
    ],
)
def test_a_wrong_header_is_refused(tmp_path, text, message):
    path = tmp_path / "wrong.py"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        corpus.read(path)


def test_the_guide_has_a_table_of_the_corpus():
    """`python tests/corpus.py` writes it."""
    assert (ROOT / "docs" / "guide" / "frauds.md").read_text().endswith(corpus.guide_table())

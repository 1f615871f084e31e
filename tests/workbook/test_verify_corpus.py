"""`workbook verify` on the public corpus: it finds every fraud and accepts every honest kernel.

All but a sample of the kernels are left to `make thorough`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor

import corpus
import pytest
from commands import ROOT, environment
from seeds import NUMBER

SAMPLE = corpus.sample()


def judged(entry: corpus.Entry, out, env: dict[str, str]) -> dict:
    permits = ["--precision", "tf32"] if entry.problem == "matmul_tf32" else []
    ran = subprocess.run(
        [sys.executable, "-m", "workbook", "verify", "kernelbench", entry.problem_path, entry.path,
         "--seed", str(NUMBER), "--json", out, *permits],
        cwd=ROOT, capture_output=True, text=True, timeout=900, env=env,
    )  # fmt: skip
    assert out.is_file(), ran.stderr
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def verdicts(request, tmp_path_factory) -> dict[str, Future]:
    """The selected kernels' verdicts; two are verified at a time while the tests wait for the first ones."""
    folder = tmp_path_factory.mktemp("verdicts")
    selected = [item.callspec.params["entry"] for item in request.session.items if item.path == request.path]
    # Read here: pytest changes its own environment between tests, while these threads start processes.
    env = environment()
    with ThreadPoolExecutor(2) as pool:
        yield {one.path: pool.submit(judged, one, folder / f"{one.name}.json", env) for one in selected}
        pool.shutdown(cancel_futures=True)


def of(entry: corpus.Entry, verdicts) -> dict:
    verdict = verdicts[entry.path].result()
    if entry.needs == "gpu" and not verdict["gpu"]:
        assert verdict["status"] == 3, verdict["findings"]
        pytest.skip("it shows only on a GPU")
    return verdict


def on(entries):
    marks = {True: (), False: (pytest.mark.thorough,)}
    params = [pytest.param(one, id=one.name, marks=marks[one.path in SAMPLE]) for one in entries]
    return pytest.mark.parametrize("entry", params)


@on(corpus.exploits())
def test_a_fraud_is_rejected_for_what_it_does(entry, verdicts):
    verdict = of(entry, verdicts)
    assert verdict["status"] == 1
    found = {one["check"] for one in verdict["findings"] if one["severity"] in ("wrong", "dishonest")}
    assert found & set(entry.expects), verdict["findings"]


@on(corpus.limits())
def test_a_limit_is_reported_and_accepted(entry, verdicts):
    verdict = of(entry, verdicts)
    assert verdict["status"] == 0, verdict["findings"]
    assert {one["check"] for one in verdict["findings"]} & set(entry.expects), verdict["findings"]


@on(corpus.accepted())
def test_a_shortcut_is_named_and_accepted(entry, verdicts):
    verdict = of(entry, verdicts)
    assert verdict["status"] == 0, verdict["findings"]
    assert {one["check"] for one in verdict["findings"]} & set(entry.expects), verdict["findings"]


@on(corpus.honest())
def test_an_honest_kernel_is_accepted(entry, verdicts):
    verdict = of(entry, verdicts)
    assert verdict["status"] == 0, verdict["findings"]

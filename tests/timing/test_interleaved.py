"""helpers.timing.interleaved: several functions timed in one run."""

from __future__ import annotations

import random

import pytest
import torch

from helpers.timing.interleaved import compare_many, relative_timings
from helpers.timing.samples import Run, Samples


def test_a_ratio_is_the_median_over_rounds():
    """Drift that affects both functions leaves the ratio alone, and the interval contains the true ratio."""
    draw = random.Random(3)
    drift = [1 + 0.3 * i / 100 for i in range(101)]
    reference = [100 * d * draw.gauss(1, 0.002) for d in drift]
    own = [110 * d * draw.gauss(1, 0.002) for d in drift]
    run = Run((Samples(tuple(own), {}, ()), Samples(tuple(reference), {}, ())), step_us=0.032)
    found, same = relative_timings(["other", "ours"], run, reference=1)
    low, high = found.ratio_ci95
    assert low <= 1.1 <= high and high - low < 0.006 and found.n_samples == 101
    assert (same.ratio, same.ratio_ci95) == (1, (1, 1))


def test_an_unknown_reference_is_an_error():
    with pytest.raises(KeyError, match=r"'c' .* a, b"):
        compare_many({"a": int, "b": int}, against="c")


@pytest.mark.gpu
def test_many_functions_in_one_run_on_a_gpu():
    x = torch.randn(4096, 4096, device="cuda")
    functions = {
        "all": lambda: torch.square(x),
        "again": lambda: torch.square(x),
        "half": lambda: torch.square(x[:2048]),
    }
    found = compare_many(functions, against="all")
    assert list(found) == list(functions) and found["all"].ratio == 1
    assert 0.98 < found["again"].ratio < 1.02 and found["half"].ratio < 0.7
    assert found["half"].ci95_us[0] <= found["half"].median_us <= found["half"].ci95_us[1]

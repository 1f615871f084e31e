"""helpers.timing.collect: the one loop that takes samples, with a GPU and CUPTI that are made up."""

from types import SimpleNamespace

import pytest
import torch

from helpers import timing
from helpers.timing import collect
from helpers.timing.interleaved import compare_many
from helpers.timing.samples import Run, Samples


class MadeUp:
    """A GPU whose functions return their own time in µs, and a clock that goes on 1 ms for each round under
    CUPTI.
    """

    def __init__(self, monkeypatch):
        self.now_s, self.batches, self.held, self.mhz = 0.0, [], (), [1980]
        self.launched, self.n_overheads = ("k",), 0
        monkeypatch.setattr(collect, "require_gpu_alone", lambda: None)
        monkeypatch.setattr(
            collect, "Flush", lambda l2, before: SimpleNamespace(text=f"flushed {l2}", and_delay=None)
        )
        monkeypatch.setattr(collect, "measure", self.measure)
        monkeypatch.setattr(collect, "wait_for_gpu", lambda: None)
        monkeypatch.setattr(collect, "now_s", self.tick)
        monkeypatch.setattr(collect, "_sm_clock", lambda: (self.mhz.pop(0) if self.mhz else 1980, self.held))
        monkeypatch.setattr(collect, "suspected_overhead", self.suspected_overhead)

    def tick(self) -> float:
        self.now_s += 1e-4
        return self.now_s

    def measure(self, functions, flush, rounds):
        self.batches.append(rounds)
        self.now_s += 1e-3 * rounds
        n = len(self.batches)
        times = [tuple(function() + n / 1e3 + i / 1e6 for i in range(rounds)) for function in functions]
        return Run(tuple(Samples(own, {"k": own}, self.launched) for own in times))

    def suspected_overhead(self, functions, flush, medians):
        self.n_overheads += 1
        return [None] * len(functions)

    def function(self, us: float):
        def run() -> float:
            self.now_s += 1e-6 * us
            return us

        return run

    def collect(self, *us, is_precise=lambda run: False, **more):
        """Samples of functions that take so many µs."""
        functions = [self.function(own) for own in us]
        options = {"l2": "cold", "budget_s": 0.1, "is_precise": is_precise} | more
        return collect.collect(functions, [f"f{i}" for i in range(len(us))], **options)


@pytest.fixture
def gpu(monkeypatch):
    return MadeUp(monkeypatch)


def test_it_ends_with_the_budget_and_keeps_every_batch_of_every_function(gpu):
    run, conditions = gpu.collect(10.0, 20.0, 30.0)
    counts = [(len(own.times), len(own.kernels["k"])) for own in run.functions]
    assert counts == [(run.n_rounds, run.n_rounds)] * 3
    assert run.n_rounds == sum(gpu.batches[1:])  # CUPTI's first rounds are left out
    assert [round(own.times[0]) for own in run.functions] == [10, 20, 30]
    assert 0.09 < conditions.seconds < 0.12


def test_it_ends_as_soon_as_the_samples_suffice(gpu):
    run, _ = gpu.collect(10.0, is_precise=lambda run: run.n_rounds >= 40, budget_s=100)
    assert gpu.batches[1:] == [10, 10, 20] and run.n_rounds == 40


def test_the_minimum_of_rounds_overrides_the_budget(gpu):
    run, _ = gpu.collect(10.0, is_precise=lambda run: True, budget_s=0, min_rounds=25)
    assert run.n_rounds == 25


def test_an_overhead_that_is_not_subtracted_is_not_measured(gpu):
    """It takes at least 12 calls, of which each may take a second."""
    gpu.collect(10.0)
    assert gpu.n_overheads == 1
    gpu.launched = ("k", "k")
    gpu.collect(10.0)
    assert gpu.n_overheads == 1


def test_batches_are_no_larger_than_asked(gpu):
    gpu.collect(10.0, budget_s=2, max_rounds=50)
    assert max(gpu.batches) == 50 and gpu.batches.count(50) > 10


def test_reasons_for_lower_clocks_are_noted(gpu):
    gpu.held, gpu.mhz = ("power cap",), [1980, 1410]
    _, conditions = gpu.collect(10.0)
    assert conditions.sm_clock_mhz == (1980, 1410)
    limited, changed = conditions.notes
    assert "power cap" in limited and "1980 to 1410 MHz" in changed


def test_a_function_that_fails_is_named_before_anything_is_measured(gpu):
    functions = {"ours": gpu.function(1.0), "theirs": lambda: torch.square(None)}
    with pytest.raises(timing.TimingError, match="failed: TypeError"):
        compare_many(functions, against="ours")
    assert not gpu.batches


def test_many_in_one_run(gpu):
    functions = {"ours": gpu.function(10.0), "half": gpu.function(5.0), "twice": gpu.function(20.0)}
    found = compare_many(functions, against="ours", budget_s=0.2)
    ratios = [round(timing.ratio, 2) for timing in found.values()]
    assert ratios == [1, 0.5, 2] and found["half"].n_samples == sum(gpu.batches[1:]) >= 50


def test_a_small_batch_keeps_the_clocks_step():
    def run(step_us):
        return Run((Samples((1.0,), {"k": (1.0,)}, ("k",)),), step_us)

    assert run(0.032).followed_by(run(0.0)).step_us == 0.032
    assert run(0.0).followed_by(run(0.032)).step_us == 0.032
    assert run(0.064).followed_by(run(0.032)).step_us == 0.032

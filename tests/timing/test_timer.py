"""The parts of the timer that need no GPU; `test_gpu.py` has the rest."""

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import threading
import time

import pytest
import torch
from timer import cases, children, intervals, traps, truth

from helpers import device, timing
from helpers.timing import collect, cupti, overhead, persisting
from helpers.timing import notes as timing_notes
from helpers.timing.samples import Run, Samples


def test_interval_narrows_with_samples():
    rng = random.Random(3)
    few = timing.median_interval([rng.gauss(5, 1) for _ in range(20)])
    many = timing.median_interval([rng.gauss(5, 1) for _ in range(2000)])
    assert many[1] - many[0] < (few[1] - few[0]) / 4
    assert many[0] <= statistics.median([5]) <= many[1]


def skewed(rng, n):
    return [10 + rng.expovariate(1) for _ in range(n)]


def independent(rng, n):
    return [10 * math.exp(rng.gauss(0, 0.003)) for _ in range(n)]


def wandering(rng, n, memory=0.8):
    """Each sample resembles the one before it, as when clocks hunt around a limit."""
    state, out = rng.gauss(0, 1), []
    for _ in range(n):
        state = memory * state + math.sqrt(1 - memory**2) * rng.gauss(0, 1)
        out.append(10 * math.exp(0.003 * state))
    return out


def in_steps(rng, n):
    """A short kernel by a clock that ticks every 32 ns: most samples are one of two values."""
    return [round(rng.gauss(1.525, 0.01) / 0.032) * 0.032 for _ in range(n)]


@pytest.mark.parametrize(
    ("stream", "n", "truth"),
    [
        (skewed, 41, 10 + math.log(2)),
        (independent, 320, 10.0),
        (wandering, 160, 10.0),
        (in_steps, 100, 48 * 0.032),
    ],
)
def test_interval_covers_the_truth_in_93_of_100(stream, n, truth):
    rng = random.Random(11)
    intervals = [timing.median_interval(stream(rng, n), resolution=0.001) for _ in range(400)]
    assert sum(low <= truth <= high for low, high in intervals) >= 0.93 * 400


def test_interval_widens_for_correlated_samples():
    """The formula for independent samples would hold the truth in six of ten."""
    rng = random.Random(5)
    samples = wandering(rng, 320)
    shuffled = rng.sample(samples, len(samples))
    wide, narrow = timing.median_interval(samples), timing.median_interval(shuffled)
    assert wide[1] - wide[0] > 1.5 * (narrow[1] - narrow[0])


def test_a_steady_drift_is_not_hidden():
    low, high = timing.median_interval([10 + 0.01 * i for i in range(100)])
    assert low < 10.2 and high > 10.8


def test_interval_is_never_below_the_clocks_step():
    assert timing.median_interval([1.504] * 50, resolution=0.032) == pytest.approx((1.472, 1.536))


def ticks(rng, n, us, noise, phase):
    """Durations as the difference of two readings of a clock that ticks every 32 ns."""
    out = []
    for _ in range(n):
        start = 0.032 * (phase if phase is not None else rng.random())
        stop = start + rng.gauss(us, noise)
        out.append(0.032 * (stop // 0.032 - start // 0.032) + rng.choice((0, 0.001)))
    return out


@pytest.mark.parametrize("phase", [None, 0.0, 0.97])
@pytest.mark.parametrize("us", [1.475, 13.408, 13.424, 13.4395])
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.15])
def test_interval_covers_the_truth_between_two_ticks(us, noise, phase):
    """Also where starts fall in step with the clock, so that no number of samples averages its step out."""
    rng = random.Random(13)
    held = 0
    for _ in range(100):
        low, high = timing.median_interval(ticks(rng, 160, us, noise, phase), resolution=0.032)
        held += low <= us <= high
    assert held >= 93


def neighbours(rng, n, ratio, noise=0.004):
    """Two functions in turns while the clock wanders by two percent."""
    drift = [1 + 0.02 * math.sin(i / 25) for i in range(n)]
    a = [100 * ratio * d * math.exp(rng.gauss(0, noise)) for d in drift]
    return a, [100 * d * math.exp(rng.gauss(0, noise)) for d in drift]


def test_equal_functions_rarely_differ_and_one_percent_is_found():
    rng = random.Random(2)

    def differs(ratio: float) -> bool:
        low, high = timing.ratio_interval(*neighbours(rng, 200, ratio), resolution=0.032)[1]
        return not low <= 1 <= high

    assert sum(differs(1.0) for _ in range(200)) <= 0.05 * 200
    assert sum(differs(1.01) for _ in range(100)) >= 90
    assert timing.ratio_interval([2.0] * 9, [1.0] * 9)[0] == 2


@dataclasses.dataclass(frozen=True)
class Activity:
    """What CUPTI tells about a kernel, in ns."""

    start: int
    duration: int
    stream: int = 7

    def name(self):
        return "kernel"

    def start_ns(self):
        return self.start

    def duration_ns(self):
        return self.duration

    def device_resource_id(self):
        return self.stream


@pytest.mark.parametrize(
    ("call", "busy"),
    [
        ([Activity(110, 5), Activity(120, 5)], 10),  # without the gap
        ([Activity(110, 20), Activity(112, 30, stream=9), Activity(150, 5)], 37),  # 110 to 142 and 150 to 155
        ([Activity(112, 30, stream=9)], 30),
    ],
)
def test_work_on_several_streams_counts_once(call, busy):
    assert cupti._busy_ns(call, [Activity(0, 100)], [Activity(200, 100)]) == busy


@pytest.mark.parametrize("elsewhere", [Activity(99, 20, stream=9), Activity(150, 60, stream=9)])
def test_streams_that_do_not_wait_for_each_other_are_an_error(elsewhere):
    call = [Activity(110, 5), elsewhere]
    with pytest.raises(timing.TimingError, match="another stream"):
        cupti._busy_ns(call, [Activity(0, 100)], [Activity(200, 100)])


def test_step_of_the_clock():
    """Durations of an H100, each 1 ns more or less than a multiple of 32."""
    assert cupti.clock_step_us([264964, 267876, 266339, 266371, 266819, 265156]) == 0.032
    assert cupti.clock_step_us([1504, 1504, 1505]) == 0.0
    rng = random.Random(3)
    jittered = [32 * rng.randrange(410, 430) + rng.choice((0, 0, 1)) for _ in range(40)]
    assert cupti.clock_step_us(jittered) == pytest.approx(0.032, abs=0.0006)
    assert cupti.clusters([64, 33, 32, 32]) == [(pytest.approx(32.33, abs=0.01), 3), (64, 1)]


# ------------------------------------------------------------------------------------ what CUPTI adds to a
# time
@pytest.fixture
def pairs_of_events(monkeypatch):
    """Functions of made-up kernels: µs alone, µs that CUPTI adds, what the marks add to both. Drift falls on
    all.
    """
    rng, watched, calls = random.Random(1), [], itertools.count(1)

    def event_times(functions, flush, rounds):
        times = []
        for alone, added, marks in functions:
            drift = alone * 2e-5 * next(calls)
            noise = [rng.gauss(0, 0.001 * alone + 0.03) for _ in range(rounds)]
            times.append([alone + added * bool(watched) + marks + drift + one for one in noise])
        return times, [400.0 if marks > 1000 else 40.0 for _, _, marks in functions]

    @contextlib.contextmanager
    def under_cupti():
        watched.append(True)
        yield
        watched.clear()

    monkeypatch.setattr(overhead, "event_times", event_times)
    monkeypatch.setattr(overhead, "under_cupti", under_cupti)


def run_of(functions, kernels=1) -> Run:
    times = [tuple(alone + added + i / 1e4 for i in range(60)) for alone, added, _ in functions]
    return Run(tuple(Samples(own, {}, ("k",) * kernels) for own in times))


def settled(functions, kernels=1) -> Run:
    """The run after what CUPTI adds has been looked for and taken off."""
    run = run_of(functions, kernels)
    overheads = overhead.suspected_overhead(functions, None, [own.median_us for own in run.functions])
    return collect.subtract_overhead(run, overheads, [f"f{i}" for i in range(len(functions))])


@pytest.mark.parametrize("slowed", [(450, 19.0, 2.7), (20, 1.4, 4.0), (180, 2.2, 4.5), (5000, 90.0, 2.0)])
def test_the_profilers_overhead_is_subtracted(pairs_of_events, slowed):
    """Whatever the marks of an event pair add, and beside a function that is not slowed, whose time stays."""
    alone, added, _ = slowed
    steady = (400, 0.0, 2.7)
    first, second = settled([slowed, steady]).functions
    assert first.added_us == pytest.approx(added, rel=0.25, abs=0.5)
    assert abs(first.added_us - added) < 2 * first.uncertainty_us + 0.05
    assert first.median_us == pytest.approx(alone, rel=0.006)
    assert second.times == run_of([steady]).functions[0].times and second.uncertainty_us == 0
    assert "the profiler slows it (+" in repr(first.overhead)


@pytest.mark.parametrize("kernel", [(1.5, 0.0, 2.3), (40, 0.1, 4.5), (355, 0.0, 2.7), (5000, 1.0, 2.0)])
def test_negligible_overhead_is_not_subtracted(pairs_of_events, kernel):
    for _ in range(20):
        (found,) = settled([kernel]).functions
        assert found.added_us == 0.0 and found.times == run_of([kernel]).functions[0].times


def test_equal_functions_are_treated_alike(pairs_of_events):
    """Both are slowed by about as much as counts: not one taken off and the other not."""
    wolves = 0
    for _ in range(50):
        a, b = settled([(400, 1.3, 2.7), (400, 1.3, 2.7)]).functions
        offsets = (a.uncertainty_us, b.uncertainty_us)
        low, high = timing.ratio_interval(a.times, b.times, resolution=0.032, offsets=offsets)[1]
        wolves += not low <= 1 <= high
    assert wolves <= 3


def test_nothing_is_subtracted_if_gaps_may_have_grown(pairs_of_events):
    """Several kernels a call, or a host that is late: what a profiler adds between kernels is in no kernel's
    time.
    """
    (several,) = settled([(400, 30.0, 200.0)], kernels=3).functions
    assert several.added_us == 0.0 and several.overhead.slows
    three = settled([(5, 90.0, 2000.0), (450, 19.0, 2.7), (400, 0.0, 2.7)]).functions
    assert [own.overhead.slows for own in three] == [False, True, False]
    assert three[0].added_us == 0.0 and "host was late" in repr(three[0].overhead)


@pytest.mark.parametrize(("alone", "watched"), [(3.0, 472.0), (400.0, 12.0)])
def test_a_function_that_does_something_else_when_watched_is_refused(alone, watched):
    run = Run((Samples((watched,) * 40, {}, ("k",)),))
    found = overhead.Overhead(alone, watched, watched - alone, 0.5)
    with pytest.raises(timing.TimingError, match=r"^softmax takes .* something else"):
        collect.subtract_overhead(run, [found], ["softmax"])


# --------------------------------------------------------------------------------------- what a timer can
# notice
ZEROS, RANDOM = torch.zeros(64, 64), torch.randn(64, 64)


def holds_zeros():
    zeros = torch.zeros(5000)
    return lambda: zeros * 2


class Lazy:
    """A result that computes later."""


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda: ZEROS @ RANDOM, "ZEROS (all 0)"),
        (holds_zeros(), "zeros (all 0)"),
        (functools.partial(torch.mul, RANDOM, other=torch.ones(2000)), "other (all 1)"),
        (functools.partial(torch.mul, ZEROS, other=2), "an argument (all 0)"),
        (functools.partial(torch.stack, [ZEROS, ZEROS]), "an argument (all 0)"),
        (lambda x=ZEROS[::2, ::1]: x * 2, "a default (all 0)"),
        (torch.zeros(3, 4096, dtype=torch.bfloat16).abs, "self (all 0)"),
    ],
)
def test_data_of_one_value_is_noted(function, named):
    notes = timing_notes.constant_inputs([function], device_type="cpu")
    assert len(notes) == 1 and named in notes[0]


def test_data_of_one_value_in_a_compiled_function_is_noted():
    (note,) = timing_notes.constant_inputs([torch.compile(holds_zeros())], device_type="cpu")
    assert "zeros (all 0)" in note


@pytest.mark.parametrize(
    "function",
    [
        lambda: RANDOM + 1,
        lambda: torch.zeros(9999),
        functools.partial(torch.add, RANDOM, torch.zeros(8)),  # a small constant is no data
        functools.partial(torch.add, torch.full((2000,), math.nan)),
        torch.square,
    ],
)
def test_other_data_is_not_noted(function):
    assert timing_notes.constant_inputs([function], device_type="cpu") == []


def test_results_that_may_still_compute_are_noted():
    plain = [None, 3, RANDOM, torch.nn.Parameter(RANDOM), (RANDOM, {"a": [1.5]}), torch.max(RANDOM, 0)]
    assert timing_notes.odd_results(plain) == []
    (note,) = timing_notes.odd_results([Lazy(), RANDOM, [Lazy()]])
    assert "Lazy" in note and "not in this time" in note


def test_replaced_clocks_are_noted(monkeypatch):
    assert timing_notes.replaced_clocks() == []
    monkeypatch.setattr(torch.cuda, "Event", type("Event", (torch.cuda.Event,), {}))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    notes = timing_notes.replaced_clocks()
    assert [note.split(" has been replaced")[0] for note in notes] == [
        "time.perf_counter",
        "torch.cuda.Event",
        "torch.cuda.synchronize",
    ]


def test_threads_that_stay_are_noted():
    running, go_on = timing_notes.running_threads(), threading.Event()
    assert timing_notes.left_threads(running) == []
    started = [threading.Thread(target=go_on.wait) for _ in range(3)]
    for thread in started:
        thread.start()
    (note,) = timing_notes.left_threads(running)
    go_on.set()
    for thread in started:
        thread.join()
    assert "3 threads" in note
    assert timing_notes.left_threads(running) == []


class Driver:
    """The part of CUDA's driver that knows how much of the L2 is set aside."""

    def __init__(self, limit):
        self.limit, self.n_resets = limit, 0

    def cuCtxGetLimit(self, value, which):
        assert which == 6
        value._obj.value = self.limit
        return 0

    def cuCtxSetLimit(self, which, value):
        assert which == 6
        self.limit = value.value

    def cuCtxResetPersistingL2Cache(self):
        self.n_resets += 1


def test_nothing_of_the_l2_is_set_aside_during_a_measurement(monkeypatch):
    driver = Driver(25 << 20)
    monkeypatch.setattr(persisting, "_driver", lambda: driver)
    with pytest.raises(ZeroDivisionError), persisting.none_set_aside() as before:
        assert before == 25 << 20
        assert persisting.set_aside_bytes() == 0 and driver.n_resets == 1
        1 / 0  # noqa: B018
    assert persisting.set_aside_bytes() == 25 << 20
    driver.limit = 0
    with persisting.none_set_aside() as before:
        assert before == 0 and driver.n_resets == 2


def make(ratio, ci):
    t = timing.Timing(
        10.0, (9.9, 10.1), 40, (timing.TimedKernel("void k<4>(x)", 1, 10.0),), "cold", "", (None, None), 0.1
    )
    return timing.Comparison(("square", "mul"), t, t, ratio, ci)


def test_verdict():
    assert make(1.001, (0.998, 1.003)).verdict.startswith("No difference seen")
    assert not make(1.001, (0.998, 1.003)).difference
    assert make(1.02, (1.01, 1.03)).verdict.startswith("mul is faster")
    assert make(0.98, (0.97, 0.99)).verdict.startswith("square is faster")


def test_bandwidth_and_text():
    t = make(1, (0.9, 1.1)).a
    assert t.gb_per_s(20_000_000) == pytest.approx(2000)
    assert "10.00 µs (95 % CI 9.90 to 10.10" in repr(t)


def test_a_missing_gpu_is_an_error(monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    with pytest.raises(device.Missing, match="NVIDIA GPU"):
        timing.time_gpu(lambda: None)


# ------------------------------------------------------------------------------------
# benchmarks/timer_truth.py, its parts


def activity(ts, dur, cat, name, **args):
    return {"ts": ts, "dur": dur, "cat": cat, "name": name, "args": args}


def test_fills_of_a_function_are_not_taken_for_the_flush():
    """A reduction zeroes its semaphores first: that fill is a part of it."""
    events = [{"ts": 0, "dur": 9, "cat": "cpu_op", "name": "aten::sum"}]
    for at in (100, 200, 300):
        events.append(activity(at + 50, 10.0, "kernel", "reduce", grid=[64, 1, 1]))
        events.append(activity(at, 30.0, "kernel", "fill<float>", grid=[25600, 1, 1]))
        events.append(activity(at + 40, 1.5, "gpu_memset", "Memset (Device)", bytes=8))
        events.append(activity(at + 45, 2.0, "kernel", "fill<float>", grid=[1, 1, 1]))
    assert cases.split_calls(events) == [cases.Call(13.5, 2, ("memset",))] * 3


def test_a_child_runs_the_script_and_returns_its_error():
    """Its path is found from the package; a timer that there is not ends it on every machine."""
    rows, said = children.child(["traps", "--timer", "nobody"], 120)
    assert rows == [] and said == "KeyError: 'nobody'"


def test_the_truths_median_lies_inside_a_step_of_the_clock():
    rng = random.Random(17)
    for us in (1.475, 13.424, 357.601):
        samples = ticks(rng, 3000, us, 0.1, None)
        assert intervals.median_between_steps(samples) == pytest.approx(us, abs=0.006)


def test_a_timer_is_judged_no_finer_than_the_truth_is_known():
    steady = truth.truth_row("matmul", "a timer", (24.0, 24.1), 25.3, 0.1, "")
    drifting = truth.truth_row("matmul", "a timer", (24.0, 26.0), 24.2, 0.1, "")
    assert not steady["within_goal"] and steady["allowed_us"] == 0.5
    assert drifting["within_goal"] and drifting["allowed_us"] == 2.0 and drifting["drift_us"] == 2.0


def test_ncu_is_the_truth_if_cupti_slowed_a_kernel():
    row = truth.truth_row("softmax", "a timer", (471.0, 471.2), 452.0, 0.1, "")
    assert not row["within_goal"]
    settled = truth.settle(row | {"ncu_us": 450.8, "ncu_misses": ""}, 1.3)
    assert settled["truth_by"] == "ncu" and settled["within_goal"]
    assert settled["error_us"] == pytest.approx(2.5) and settled["cupti_us"] == pytest.approx(471.1)
    usual = {"cupti_us": 10.0, "ncu_us": 11.2, "ncu_misses": ""}
    assert truth.ncu_offset([usual, usual, settled]) == pytest.approx(1.2)
    for other in ({"ncu_us": 474.0, "ncu_misses": ""}, {"ncu_us": 450.8, "ncu_misses": "memset"}):
        row = truth.truth_row("k", "a timer", (471.0, 471.2), 452.0, 0.1, "") | other
        same = truth.settle(row, 1.3)
        assert same["truth_by"] == "CUPTI" and not same["within_goal"]


@pytest.mark.parametrize(
    ("us", "said", "outcome", "told"),
    [
        (13.5, "", "right", "right"),
        (16.8, "", "not fooled", "not fooled, +3.5 µs"),
        (7.6, "", "wrong", "-43 %"),
        (7.6, "a note", "says so", "says so"),
        (None, "an error", "refuses", "refuses"),
    ],
)
def test_not_fooled_is_not_accurate(us, said, outcome, told):
    row = traps.judged(traps.TRAPS[0], "a timer", 13.3, us, said, 0.1)
    assert (row["outcome"], row["told"]) == (outcome, told)


def test_a_trap_may_be_judged_by_the_timers_own_truth(tmp_path, monkeypatch):
    trap = traps.Trap("a trap", lambda: lambda: 9.7, lambda: lambda: 13.4)
    monkeypatch.setattr(traps, "TRAPS", (trap, dataclasses.replace(trap, name="own", own_truth=True)))
    traps.run("adds 3 µs", lambda fn: fn() + 3, lambda fn: fn(), tmp_path / "rows")
    rows = [json.loads(row) for row in (tmp_path / "rows").read_text().splitlines()]
    assert [(row["truth_us"], row["outcome"]) for row in rows] == [(13.4, "not fooled"), (16.4, "wrong")]


def test_nvbench_has_no_row_of_a_trap_that_could_not_be_set():
    *others, last = traps.TRAPS
    assert last.own_truth and list(traps.makers())[-2:] == [traps.honest_name(last), last.name]
    timed = {"us": 12.6, "said": "", "seconds": 0.1}
    found = {last.name: timed, traps.honest_name(last): timed | {"us": 16.3}}
    (row,) = traps.nvbench_rows(found, {last.name: 13.4})
    assert (row["truth_us"], row["told"]) == (16.3, "-23 %")
    assert traps.nvbench_rows(found, {trap.name: 13.4 for trap in others}) == []


class L2Driver:
    """A driver that can set at most `most` bytes of the L2 aside."""

    def __init__(self, most: int, limit: int = 0):
        self.most, self.limit, self.marked = most, limit, []

    def cuCtxGetLimit(self, value, which):
        value._obj.value = self.limit
        return 0

    def cuCtxSetLimit(self, which, value):
        self.limit = min(value.value, self.most)
        return 0 if self.most else 215

    def cuCtxResetPersistingL2Cache(self):
        return 0

    def cuStreamSetAttribute(self, stream, which, window):
        self.marked.append((stream.value, window._obj.address, window._obj.n_bytes))
        return 0


def test_the_persisting_trap_leaves_nothing_behind(monkeypatch):
    driver = L2Driver(32 << 20, 3 << 20)
    monkeypatch.setattr(persisting, "_driver", lambda: driver)
    with traps.l2_set_aside():
        traps.MARKED.append(7)
        assert driver.limit == 25 << 20
        with persisting.none_set_aside() as before:
            assert (before, driver.limit) == (25 << 20, 0)
        assert driver.limit == 25 << 20
    assert driver.limit == 3 << 20 and driver.marked == [(7, None, 0)] and not traps.MARKED


def test_nvbench_runs_while_l2_is_set_aside(monkeypatch):
    driver = L2Driver(32 << 20)
    trap = dataclasses.replace(traps.TRAPS[-1], make=lambda: lambda: driver.limit)
    monkeypatch.setattr(traps, "TRAPS", (trap,))
    monkeypatch.setattr(persisting, "_driver", lambda: driver)
    made = traps.makers()
    assert made[trap.name]()() == 25 << 20


@pytest.mark.parametrize("driver", [None, L2Driver(0), L2Driver(2 << 20)])
def test_a_gpu_that_cannot_set_l2_aside_is_an_error(driver, monkeypatch):
    monkeypatch.setattr(persisting, "_driver", lambda: driver)
    with pytest.raises(persisting.CannotSetAside, match="25 MiB"), traps.l2_set_aside():
        pass
    assert persisting.set_aside_bytes() == 0


@pytest.mark.parametrize("name", ["hints", "kernels", "sanitize", "timer_truth"])
def test_a_benchmark_without_a_gpu_prints_one_line(root, name):
    """`make bench` runs every file of benchmarks/, on every machine."""
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, f"benchmarks/{name}.py"], cwd=root, env=hidden, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "NVIDIA GPU" in done.stdout and len(done.stdout.splitlines()) == 1

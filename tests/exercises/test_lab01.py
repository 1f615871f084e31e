"""Lab 01: wrong answers are refused with the reason that fits, unlike but right ones are accepted."""

from __future__ import annotations

import ast
import json
import math
import random
import re
import statistics
from types import SimpleNamespace

import pytest
from lab_answers import judged, mistakes
from lab_attempts import solution_cells

from helpers import exercises, records, timing
from helpers.exercises import Case, Outcome
from helpers.exercises.lab01 import samples
from helpers.exercises.lab01.machines import SimulatedGpu

pytestmark = pytest.mark.seeded


# -------------------------------------------------------------------------------------------------
# The exercises inside the lesson.
@pytest.mark.parametrize(
    ("id", "answer", "mistake"),
    [
        ("grid-for-n", lambda n, threads: n // threads, "rounded-down"),
        ("grid-for-n", lambda n, threads: n // threads + 1, "one-too-many"),
        ("grid-for-n", lambda n, threads: n / threads, "not-whole"),
        ("least-time", lambda n, size, speed: n * size / speed / 1e3, "one-way"),
        ("least-time", lambda n, size, speed: 2 * n * size / speed / 1e9, "unit"),
        ("read-interval", lambda low, high: "no difference" if low < 1 < high else "a is faster", "swapped"),
        ("read-interval", lambda low, high: "a is faster" if low + high < 2 else "b is faster", "middle"),
        ("read-interval", lambda low, high: "no difference", "missed"),
        ("count-torch-blocks", lambda n: -(-n // 512), "width"),
        ("count-torch-blocks", lambda n: n // 1024, "rounded-down"),
    ],
)
def test_a_wrong_answer_in_the_lesson_is_named(id, answer, mistake):
    assert mistake in mistakes(id, answer)


@pytest.mark.parametrize(
    ("kept", "mistake"),
    [
        (lambda step, length, first, repeat: first <= step < first + repeat * (length - first), "one-wait"),
        (lambda step, length, first, repeat: step % length >= first, "forever"),
        (lambda step, length, first, repeat: step // length < repeat, "other"),
    ],
)
def test_steps_that_a_schedule_does_not_keep_are_named(kept, mistake):
    def answer(wait, warmup, active, repeat, n_steps):
        first, length = wait + warmup, wait + warmup + active
        return [step for step in range(n_steps) if kept(step, length, first, repeat)]

    assert mistake in mistakes("kept-steps", answer)


# -------------------------------------------------------------------------------------------------
# vector-grid
def grid(blocks, loads=None, last=None):
    """An answer from three formulas; those left out are right."""

    def answer(n, width, each, threads):
        a_block = each * threads
        count = blocks(n, width, each, threads)
        right = -(-n // a_block)
        loaded = loads(n, width, each, threads) if loads else each // width
        left = last(n, a_block, right) if last else (n - (right - 1) * a_block if n else 0)
        return count, loaded, left

    return answer


def right_blocks(n, width, each, threads):
    return -(-n // (each * threads))


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (grid(lambda n, w, e, t: -(-n // (w * t))), "width-for-elements"),
        (grid(lambda n, w, e, t: n // (e * t)), "rounded-down"),
        (grid(lambda n, w, e, t: n // (e * t) + 1), "one-too-many"),
        (grid(lambda n, w, e, t: -(-n // t)), "one-a-thread"),
        (grid(lambda n, w, e, t: w), "width-for-blocks"),
        (grid(right_blocks, loads=lambda n, w, e, t: w), "loads"),
        (grid(right_blocks, last=lambda n, block, blocks: n % block), "last-block"),
        (lambda n, w, e, t: right_blocks(n, w, e, t), "no-tuple"),
    ],
)
def test_a_wrong_grid_is_named(answer, mistake):
    assert mistakes("vector-grid", answer) == {mistake}


@pytest.mark.parametrize(
    "answer",
    [
        grid(lambda n, w, e, t: math.ceil(n / (e * t))),
        grid(lambda n, w, e, t: (n + e * t - 1) // (e * t), loads=lambda n, w, e, t: e / w),
        lambda *args: list(grid(right_blocks)(*args)),
    ],
)
def test_other_ways_to_the_grid_are_right(answer):
    assert mistakes("vector-grid", answer) == {""}


def test_the_recorded_grids_of_lesson_01_are_among_the_cases():
    labels = [case.label for case in exercises.get("vector-grid").cases(random.Random(0), "cpu")]
    assert sum("as launched on an NVIDIA H100" in label for label in labels) >= 2


# -------------------------------------------------------------------------------------------------
# four-clocks
def clocks(gpu, *, warm=True, before=True, after=True, wait_first=False, n_divided=20, marks=True, read=True):
    """Four clocks with one of their parts left out."""
    if warm:
        gpu.launch()
        gpu.wait()
    start = gpu.host_us()
    gpu.launch()
    if wait_first:
        gpu.wait()
    not_waiting = gpu.host_us() - start
    if before:
        gpu.wait()
    start = gpu.host_us()
    gpu.launch()
    if after:
        gpu.wait()
    waiting = gpu.host_us() - start

    def pair(n):
        first = gpu.mark()
        last = gpu.mark() if not marks else None
        for _ in range(n):
            gpu.launch()
        last = last or gpu.mark()
        if read:
            gpu.wait()
        return first.us_until(last)

    return {
        "host, no waiting": not_waiting,
        "host, waiting": waiting,
        "events, one pair": pair(1),
        "events around twenty": pair(20) / n_divided,
    }


def without(**what):
    return lambda gpu: clocks(gpu, **what)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (without(warm=False), "cold"),
        (without(wait_first=True), "waited"),
        (without(before=False), "own-launch"),
        (without(after=False), "not-waited"),
        (without(read=False), "not-waited"),
        (without(marks=False), "marks"),
        (without(n_divided=1), "not-divided"),
        (lambda gpu: {"host": 1.0}, "no-reading"),
    ],
)
def test_a_wrong_clock_is_named(answer, mistake):
    assert mistakes("four-clocks", answer) == {mistake}


@pytest.mark.parametrize(
    ("answer", "mistake"), [(without(n_divided=1), "not-divided"), (without(warm=False), "cold")]
)
def test_twenty_kernels_longer_than_a_cold_launch_are_not_called_cold(answer, mistake):
    exercise = exercises.get("four-clocks")
    true = {"kernel_us": 900.0, "launch_us": 5.0, "mark_us": 1.0, "wake_us": 8.0, "gap_us": 0.8}
    true |= {"cold_us": 5000.0, "left_us": 2000.0, "seed": 1}
    readings = exercise.served["simulate"](lambda gpu: Outcome(answer(gpu)), true)
    verdict = exercise.judge(Case("900 µs", (true,), expected=true), Outcome(readings))
    assert verdict.mistake == mistake


@pytest.mark.parametrize(("left_us", "mistake"), [(0.0, "own-launch"), (9000.0, "leftover")])
def test_only_other_work_in_the_queue_counts_as_leftover(left_us, mistake):
    """The warm-up is not waited for: with other work in the queue all launches come behind that."""

    def hasty(gpu):
        gpu.launch()
        return clocks(gpu, warm=False, before=False)

    true = {"kernel_us": 265.0, "launch_us": 5.0, "mark_us": 1.0, "wake_us": 8.0, "gap_us": 1.0}
    true |= {"cold_us": 7000.0, "left_us": left_us, "seed": 0}
    exercise = exercises.get("four-clocks")
    verdict = exercise.judge(
        Case("265 µs", (true,), expected=true),
        Outcome(exercise.served["simulate"](lambda gpu: Outcome(hasty(gpu)), true)),
    )
    assert verdict.mistake == mistake
    assert ("of your own" in verdict.sentence) == (mistake == "own-launch")


def test_a_more_careful_answer_is_accepted():
    def more_careful(gpu):
        for _ in range(10):
            gpu.launch()
        gpu.wait()
        many = [clocks(gpu) for _ in range(9)]
        return {name: statistics.median(one[name] for one in many) for name in many[0]}

    assert mistakes("four-clocks", more_careful) == {""}


def test_the_simulated_gpu_keeps_its_queue_in_order():
    times = {"launch_us": 5.0, "mark_us": 1.0, "wake_us": 8.0, "gap_us": 0.5, "left_us": 5e3}
    gpu = SimulatedGpu(100.0, 1e4, **times, seed=1)
    first = gpu.mark()
    gpu.launch()
    last = gpu.mark()
    with pytest.raises(RuntimeError, match="wait"):
        first.us_until(last)
    gpu.wait()
    assert first.us_until(last) > 100
    gpu.wait()
    start = gpu.host_us()
    gpu.launch()
    assert gpu.host_us() - start == pytest.approx(5.05)


# -----------------------------------------------------------------------------------------------
# clock-summary
def summary(drop=True, mean=statistics.fmean, median=statistics.median, spread=statistics.stdev, empty=True):
    def answer(samples, n_warmup):
        kept = samples[n_warmup:] if drop else samples
        if not kept and empty:
            raise ValueError("no reading left")
        return {
            "mean_us": mean(kept),
            "median_us": median(kept),
            "spread_us": spread(kept) if len(kept) > 1 else 0.0,
        }

    return answer


def in_place(samples, n_warmup):
    del samples[:n_warmup]
    return summary()(samples, 0)


def silent(samples, n_warmup):
    if not samples[n_warmup:]:
        return {"mean_us": 0.0, "median_us": 0.0, "spread_us": 0.0}
    return summary()(samples, n_warmup)


def without_slow(samples, n_warmup):
    kept = sorted(samples[n_warmup:])
    return summary()(kept[: max(len(kept) - 1, 1)], 0)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (summary(drop=False), "warm-up"),
        (summary(median=lambda v: v[len(v) // 2]), "unsorted"),
        (summary(median=lambda v: sorted(v)[len(v) // 2]), "even-count"),
        (summary(spread=statistics.pstdev), "population"),
        (summary(spread=statistics.variance), "variance"),
        (summary(spread=lambda v: max(v) - min(v)), "range"),
        (summary(mean=lambda v: sum(v) / len(v), empty=False), "empty"),
        (silent, "empty"),
        (in_place, "changes-input"),
        (without_slow, "drops-slow"),
        (lambda samples, n_warmup: statistics.fmean(samples[n_warmup:] or [0]), "no-figures"),
    ],
)
def test_a_wrong_summary_is_named(answer, mistake):
    assert mistakes("clock-summary", answer) == {mistake}


def test_summaries_by_statistics_and_numpy_are_accepted():
    import numpy as np

    def by_numpy(samples, n_warmup):
        kept = np.array(samples[n_warmup:])
        if kept.size == 0:
            raise ValueError("nothing left")
        spread = kept.std(ddof=1) if kept.size > 1 else 0.0
        return {"mean_us": kept.mean(), "median_us": np.median(kept), "spread_us": spread, "n": kept.size}

    assert mistakes("clock-summary", by_numpy) == {""}
    # statistics.StatisticsError is a ValueError, and says what is missing
    assert mistakes("clock-summary", summary(empty=False)) == {""}


# -----------------------------------------------------------------------------------------------
# real-or-noise
def sided(x: float, name_below: str = "a") -> str:
    return name_below if x < 0 else {"a": "b", "b": "a"}[name_below]


def by_ratios(a, b):
    low, high = timing.median_interval([x / y for x, y in zip(a, b, strict=True)])
    return "a" if high < 1 else "b" if low > 1 else "no difference"


def by_separate_intervals(a, b):
    (a_low, a_high), (b_low, b_high) = timing.median_interval(a), timing.median_interval(b)
    return "a" if a_high < b_low else "b" if b_high < a_low else "no difference"


def by_ranks(a, b):
    """Mann and Whitney's test."""
    order = sorted([(x, 0) for x in a] + [(x, 1) for x in b])
    u = sum(i + 1 for i, (_, of_b) in enumerate(order) if not of_b) - len(a) * (len(a) + 1) / 2
    z = (u - len(a) * len(b) / 2) / math.sqrt(len(a) * len(b) * (len(a) + len(b) + 1) / 12)
    return sided(z) if abs(z) > 1.96 else "no difference"


def by_signs(a, b):
    z = (sum(x > y for x, y in zip(a, b, strict=True)) - len(a) / 2) / math.sqrt(len(a) / 4)
    return sided(z) if abs(z) > 1.96 else "no difference"


@pytest.mark.parametrize("decide", [by_ratios, by_separate_intervals, by_ranks, by_signs])
def test_sensible_decisions_are_accepted(decide):
    assert mistakes("real-or-noise", decide) == {""}


def by_limit(percent):
    def decide(a, b):
        ratio = statistics.median(a) / statistics.median(b)
        return sided(ratio - 1) if abs(ratio - 1) > percent / 100 else "no difference"

    return decide


def by_means(a, b):
    """Welch's test: right for normal noise, blind behind one reading that is 50 times too long."""
    error = math.sqrt(statistics.variance(a) / len(a) + statistics.variance(b) / len(b))
    t = (statistics.fmean(a) - statistics.fmean(b)) / error
    return sided(t) if abs(t) > 1.98 else "no difference"


@pytest.mark.parametrize(
    ("decide", "mistake"),
    [
        (lambda a, b: sided(statistics.fmean(a) - statistics.fmean(b)), "false-alarms"),
        (by_limit(1), "false-alarms"),
        (by_limit(2.9), "misses"),
        (by_means, "misses"),
        (lambda a, b: {"a": "b", "b": "a"}.get(by_ratios(a, b), "no difference"), "swapped"),
        (lambda a, b: by_ratios(a, b) != "no difference", "answer"),
        (lambda a, b: random.choice(["a", "b", "no difference"]), "false-alarms"),
    ],
)
def test_wrong_decisions_are_named(decide, mistake):
    found = mistakes("real-or-noise", decide)
    assert found <= {mistake, "false-alarms"}
    assert mistake in found


class Timeline:
    """A GPU whose squares all take 265 µs and a host that needs longer for `x ** 2`, in µs; stands in for
    torch.
    """

    def __init__(self):
        self.host, self.free, self.order = 0.0, 0.0, []
        self.cuda = SimpleNamespace(Event=lambda **_: _Event(self), synchronize=self.synchronize)
        self.square = lambda x: x * x

    def synchronize(self):
        self.host = max(self.host, self.free) + 8

    def put(self, host_us, gpu_us):
        self.host += host_us
        self.free = max(self.free + (1 if gpu_us else 0), self.host) + gpu_us
        return _Tensor(self)

    def randn(self, *shape, device):
        return _Tensor(self)

    empty = randn


class _Tensor:
    shape = (10_000, 10_000)

    def __init__(self, gpu):
        self.gpu = gpu

    def zero_(self):
        self.gpu.order.append("fill")
        return self.gpu.put(5, 200)

    def __mul__(self, other):
        self.gpu.order.append("mul")
        return self.gpu.put(6, 265)

    def __pow__(self, exponent):
        self.gpu.order.append("pow")
        return self.gpu.put(9, 265)


class _Event:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self):
        self.us = self.gpu.put(1, 0).gpu.free

    def elapsed_time(self, stop):
        return (stop.us - self.us) / 1e3


def test_the_race_of_squares_measures_no_host_time():
    cell = ast.parse(solution_cells("01_profiling")["won-real-or-noise"])
    race = next(n for n in cell.body if isinstance(n, ast.FunctionDef))
    gpu = Timeline()
    names = {"torch": gpu, "assert_matches": lambda *args, **kwargs: None}
    exec(compile(ast.Module([race], []), "cell", "exec"), names)
    rows = names["race"]()
    assert len(rows) == 120
    assert {round(us, 6) for row in rows for us in row.values()} == {
        266.0
    }  # the kernel and the gap before it
    assert gpu.order[::2] == ["fill"] * (len(gpu.order) // 2)
    places = [gpu.order[1 + 2 * k :: 8].count("pow") for k in range(4)]
    assert len(set(places)) == 1, "each square stands equally often in each place"


def test_the_recorded_race_names_no_winner_between_a_square_and_itself():
    for path in records.folder().glob("*/lab/three-squares.json"):
        (measured,) = json.loads(path.read_text())["cases"]
        samples_us = ([row[name] for row in measured["rows"]] for name in ("a ** 2", "a ** 2, again"))
        assert by_ratios(*samples_us) == "no difference"


def test_never_naming_a_winner_has_its_own_hint():
    verdict = judged("real-or-noise", lambda a, b: "no difference")
    assert verdict.mistake == "misses" and "never names a winner" in verdict.hint


def test_a_refusal_shows_the_counts_of_all_five_cases():
    verdict = judged("real-or-noise", by_limit(1))
    lines = verdict.details.splitlines()
    assert len(lines) == 5 and all(line in repr(verdict) for line in lines)
    assert re.fullmatch(r"two equal kernels: a false alarm in \d+ of 160", lines[0])
    assert all(re.fullmatch(r"a real difference of .*: found in \d+ of 2\d", line) for line in lines[1:])


def test_several_methods_are_counted_at_once():
    methods = {
        "smaller mean": lambda a, b: sided(statistics.fmean(a) - statistics.fmean(b)),
        "yours": by_ratios,
    }
    rows = samples.try_methods(methods)
    assert [set(row) for row in rows] == [{"pairs of", *methods}] * 5
    assert rows[0]["smaller mean"] == "a false alarm in 160 of 160"
    assert re.fullmatch(r"found in (\d+) of \1", rows[1]["yours"])


def test_both_kernels_are_the_faster_one_equally_often():
    faster = [d.faster for seed in range(5) for d in samples.draws(random.Random(seed))]
    n = sum(name != "no difference" for name in faster)
    assert 0.35 * n < faster.count("a") < 0.65 * n


# ---------------------------------------------------------------------------------------------
# copy-or-compute
def united(spans):
    total, reached = 0.0, -math.inf
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def spans(events, wanted):
    return [(e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and wanted(e)]


def attribution(length=united, copy=None, kernel=None, both=None):
    def answer(events):
        copies = spans(events, copy or (lambda e: e["cat"] == "gpu_memcpy"))
        kernels = spans(events, kernel or (lambda e: e["cat"] == "kernel"))
        sums = {"copy_us": length(copies), "compute_us": length(kernels)}
        shared = sums["copy_us"] + sums["compute_us"] - length(copies + kernels)
        return {**sums, "both_us": both(copies, kernels) if both else shared}

    return answer


def total(pieces):
    return sum(end - start for start, end in pieces)


def pairwise(copies, kernels):
    return sum(max(0.0, min(b, d) - max(a, c)) for a, b in copies for c, d in kernels)


def between_ends(copies, kernels):
    """Right while the GPU is never idle."""
    every = copies + kernels
    spread = max(b for _, b in every) - min(a for a, _ in every) if every else 0.0
    return united(copies) + united(kernels) - spread


def exclusive(events):
    found = attribution()(events)
    return {k: v - found["both_us"] if k != "both_us" else v for k, v in found.items()}


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (attribution(length=total), "no-overlap"),
        (attribution(length=total, both=pairwise), "not-united"),
        (attribution(both=pairwise), "not-united"),
        (attribution(both=lambda copies, kernels: 0.0), "no-overlap"),
        (attribution(copy=lambda e: "emcpy" in e["name"]), "host-call"),
        (attribution(copy=lambda e: e["name"] == "cudaMemcpyAsync"), "host-call"),
        (attribution(kernel=lambda e: e["cat"] in ("kernel", "gpu_memset")), "memset"),
        (exclusive, "exclusive"),
        (attribution(both=lambda copies, kernels: min(united(copies), united(kernels))), "as-if-nested"),
        (attribution(both=lambda c, k: total(c + k) - united(c + k)), "not-united"),
        (attribution(both=between_ends), "from-first-to-last"),
        (lambda events: {"copy_us": 0.0, "compute_us": 0.0}, "no-figures"),
    ],
)
def test_a_wrong_attribution_is_named(answer, mistake):
    assert mistakes("copy-or-compute", answer) == {mistake}


def test_the_hint_for_a_wrong_overlap_has_both_figures():
    verdict = judged(
        "copy-or-compute", attribution(both=lambda c, k: united(c) + united(k) - united(c + k) + 7)
    )
    assert verdict.mistake == "overlap" and "123.0 µs" in verdict.hint and "130.0 µs" in verdict.hint


def test_a_missing_category_is_explained():
    def without_ph(events):
        return {"copy_us": sum(e["dur"] for e in events if e["cat"] == "gpu_memcpy")}

    verdict = judged("copy-or-compute", without_ph)
    assert verdict.mistake == "raises"
    assert '"ph"' in verdict.hint


def test_a_sweep_over_edges_is_right():
    def sweep(events):
        edges = [
            (at, step, e["cat"])
            for e in events
            if e.get("cat") in ("gpu_memcpy", "kernel")
            for at, step in ((e["ts"], 1), (e["ts"] + e["dur"], -1))
        ]
        running, last = {"gpu_memcpy": 0, "kernel": 0}, 0.0
        found = {"copy_us": 0.0, "compute_us": 0.0, "both_us": 0.0}
        for at, step, cat in sorted(edges):
            copying, computing = running["gpu_memcpy"] > 0, running["kernel"] > 0
            found["copy_us"] += (at - last) * copying
            found["compute_us"] += (at - last) * computing
            found["both_us"] += (at - last) * (copying and computing)
            running[cat] += step
            last = at
        return found

    assert mistakes("copy-or-compute", sweep) == {""}


def test_the_recorded_trace_of_lesson_01_is_among_the_cases():
    cases = list(exercises.get("copy-or-compute").cases(random.Random(0), "cpu"))
    recorded = [case for case in cases if "recorded on h100" in case.label]
    assert recorded
    assert recorded[0].expected["copy_us"] > recorded[0].expected["compute_us"] > 0

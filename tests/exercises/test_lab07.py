"""Lab 07: timers that a trap deceives are refused with that trap's name, unlike but right ones
are accepted.
"""

from __future__ import annotations

import math
import statistics

import pytest
from lab_answers import judged, mistakes, solution

from helpers import device, timing
from helpers.exercises.lab07 import machines

pytestmark = pytest.mark.seeded


def timer(
    *,
    flush=True,
    warm=True,
    first=True,
    ramp_us=25_000,
    n=50,
    n_calls=1,
    divide=True,
    flush_inside=False,
    middle=statistics.median,
    read=True,
    wait_each=False,
):
    """Events behind a flush, with one of the parts left out."""

    def time_it(gpu):
        if first:
            gpu.call()
            gpu.wait()
        begun = gpu.host_us()
        while gpu.host_us() - begun < ramp_us:
            gpu.call()
            gpu.flush()
            gpu.wait()
        pairs = []
        for _ in range(n):
            if flush and not flush_inside:
                gpu.flush()
            if warm:
                gpu.call()
            if wait_each:
                gpu.wait()
            start = gpu.mark()
            if flush_inside:
                gpu.flush()
            for _ in range(n_calls):
                gpu.call()
            pairs.append((start, gpu.mark()))
        if read:
            gpu.wait()
        return middle(a.us_until(b) for a, b in pairs) / (n_calls if divide else 1)

    return time_it


def by_the_host(gpu):
    gpu.call()
    gpu.wait()
    start = gpu.host_us()
    gpu.call()
    gpu.wait()
    return gpu.host_us() - start


def empty_pair(gpu):
    start, stop = gpu.mark(), gpu.mark()
    gpu.wait()
    return start.us_until(stop)


WARM = [
    (timer(flush=False, wait_each=True), "host-late"),
    (timer(warm=False), "cold-cache"),
    (timer(flush_inside=True), "flush-timed"),
    (timer(ramp_us=0, n=5), "ramp"),
    (timer(first=False, ramp_us=0, warm=False, flush=False, n=1), "cold-cache|first"),
    (timer(middle=lambda us: statistics.fmean(list(us))), "outliers"),
    (timer(n_calls=20, n=1, divide=False), "not-divided"),
    (timer(read=False), "not-waited"),
    (by_the_host, "host-clock"),
    (empty_pair, "marks"),
    (lambda gpu: None, "no-number"),
    (lambda gpu: float("nan"), "no-number"),
    (lambda gpu: gpu.trace()[0]["us"], "watched"),
    (timer(flush=False), "host-late"),
    (timer(n=1), "few"),
    (timer(n=5), "few"),
    (timer(ramp_us=0, n=25), "ramp"),
    (timer(first=False), "ramp|"),  # the first call uses the warm-up up; of 200 draws it was right in one
    (timer(n_calls=10), "host-late|several-calls|"),  # of 40 draws it happened to be right in one
    (lambda gpu: timer()(gpu) / 1e3, "unit"),
    (lambda gpu: -timer()(gpu), "sign"),
]
COLD = [
    (timer(), "warm-cache"),
    (timer(warm=False, flush=False), "warm-cache"),
    (timer(warm=False, n_calls=2), "warm-cache"),
    (timer(warm=False, flush_inside=True), "flush-timed"),
    (timer(warm=False, ramp_us=0, n=5), "ramp"),
    (timer(warm=False, wait_each=True), "host-late"),
    (timer(warm=False, middle=lambda us: statistics.fmean(list(us))), "outliers"),
    (timer(warm=False, n=1), "few"),
]


@pytest.mark.parametrize(("answer", "mistake"), WARM)
def test_the_trap_that_deceives_a_warm_timer_is_named(answer, mistake):
    found = mistakes("warm-timer", answer)
    assert found and found <= set(mistake.split("|")), found


@pytest.mark.parametrize(("answer", "mistake"), COLD)
def test_the_trap_that_deceives_a_cold_timer_is_named(answer, mistake):
    assert mistakes("cold-timer", answer) == {mistake}


def differences(gpu):
    """Two queues of unlike length, subtracted: what marks and the first launch add is in both."""
    timer(n=1)(gpu)

    def between(n):
        gpu.flush()
        gpu.flush()
        gpu.flush()
        gpu.call()
        start = gpu.mark()
        for _ in range(n):
            gpu.call()
        stop = gpu.mark()
        gpu.wait()
        return start.us_until(stop)

    return statistics.median(between(2) - between(1) for _ in range(60))


@pytest.mark.parametrize("answer", [timer(), timer(n=200), timer(middle=min), differences])
def test_other_ways_to_a_warm_figure_are_right(answer):
    assert mistakes("warm-timer", answer) == {""}


@pytest.mark.parametrize("answer", [timer(warm=False), timer(warm=False, n=300)])
def test_other_ways_to_a_cold_figure_are_right(answer):
    assert mistakes("cold-timer", answer) == {""}


def function_timer(*, warm_up=5, nothing="nothing was launched", side="a kernel on another stream", own=None):
    def time_it(gpu):
        for _ in range(warm_up):
            gpu.call()
        gpu.wait()
        ran = gpu.trace()
        if not ran and nothing is not None:
            raise ValueError(nothing)
        if not all(one["on_current_stream"] for one in ran) and side is not None:
            raise ValueError(side)
        return (own or (lambda gpu, ran: timer(warm=False)(gpu)))(gpu, ran)

    return time_it


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (function_timer(), ""),
        (function_timer(nothing=None), "times-nothing"),
        (function_timer(side=None), "times-stream"),
        (function_timer(nothing="no"), "unclear-message"),
        (function_timer(own=lambda gpu, ran: sum(one["us"] for one in ran)), "watched"),
        (function_timer(warm_up=2), "times-nothing"),
        (function_timer(nothing="nothing, or on another stream"), "other-cause"),
        (function_timer(side="nothing launched, or another stream"), "other-cause"),
        (
            function_timer(own=lambda gpu, ran: (_ for _ in ()).throw(ValueError("nothing"))),
            "refuses-right",
        ),
    ],
)
def test_only_functions_without_a_time_may_be_refused(answer, mistake):
    assert mistakes("refuse-to-time", answer) == {mistake}


def without(answer, kind):
    """A timer that refuses by another exception than ValueError."""

    def time_it(gpu):
        try:
            return answer(gpu)
        except ValueError as error:
            raise kind(*error.args) from None

    return time_it


def test_a_refusal_by_another_exception_names_the_one_to_raise():
    said = judged("refuse-to-time", without(function_timer(), RuntimeError))
    assert said.mistake == "not-a-value-error"
    assert "RuntimeError" in said.sentence and "ValueError" in said.hint


def test_hints_for_a_warm_timer_keep_the_l2_warm():
    said = judged("warm-timer", timer(flush=False))
    assert said.mistake == "host-late" and "warm it up again" in said.hint
    assert "one call between the marks" in judged("warm-timer", timer(n_calls=10)).hint


def by_difference(gpu):
    """Flush and call less the flush, the flush alone on a queue that is empty and the other behind work."""
    timer(n=1)(gpu)
    found = []
    for _ in range(25):
        gpu.wait()
        a = gpu.mark()
        gpu.flush()
        b = gpu.mark()
        c = gpu.mark()
        gpu.flush()
        gpu.call()
        d = gpu.mark()
        gpu.wait()
        found.append(c.us_until(d) - a.us_until(b))
    return statistics.median(found)


def test_a_difference_of_two_queues_is_not_blamed_on_the_flush():
    assert mistakes("cold-timer", by_difference) == {"host-late"}


def test_a_verdict_has_the_right_time_the_cause_and_a_fix():
    said = repr(judged("warm-timer", timer(warm=False)))
    assert "the right time is" in said and "the L2 was cold" in said and "Hint: " in said


def test_the_simulated_gpu_knows_its_l2_its_clock_and_its_streams():
    kernels = (machines.Kernel(20, 50), machines.Kernel(100, 100, current=False))
    times = {"launch_us": 20.0, "mark_us": 1.0, "wake_us": 8.0, "gap_us": 0.6, "left_us": 0.0}
    gpu = machines.TimedGpu(kernels, flush_us=110.0, first_us=1e4, **times, seed=0, ramp_us=1.0)
    gpu.flush()  # its one microsecond of rising clocks is over
    ran = [gpu.trace() for _ in range(9)]
    assert ran[0][0]["us"] >= 50 and min(one[0]["us"] for one in ran) < 21
    assert [one["on_current_stream"] for one in ran[0]] == [True, False]
    gpu.flush()
    start = gpu.mark()
    gpu.call()
    stop = gpu.mark()
    with pytest.raises(RuntimeError, match="wait"):
        start.us_until(stop)
    gpu.wait()
    assert start.us_until(stop) > 50


def test_the_spin_kernel_compiles_for_every_target_of_the_course():
    from helpers import cuda

    for target in ("sm_75", "sm_90"):
        assert "globaltimer" in cuda.compile_ptx(machines.SPIN_CUDA, target=target)


@pytest.mark.gpu
def test_the_solutions_timers_read_a_real_gpu(tmp_path):
    """Kernels of known duration: the spin is told in nanoseconds, the square's truth is CUPTI's."""
    names = solution("07_timers", tmp_path, "import statistics")
    for example in machines.examples():
        for l2 in ("warm", "cold"):
            us, true = names[f"time_{l2}"](example["gpu"]), example[f"{l2}_us"]
            assert abs(us - true) <= max(6, 0.05 * true), (example["function"], l2, us, true)


@pytest.mark.gpu
def test_a_spin_lasts_as_long_as_it_says():
    for us in (50, 300):
        assert timing.time_gpu(machines.spin(us)).median_us == pytest.approx(us, abs=4)


@pytest.mark.gpu
def test_the_solution_refuses_real_functions_without_a_time(tmp_path):
    names = solution("07_timers", tmp_path, "import statistics")
    found = machines.traps()
    assert device.has_gpu() and names["time_function"](found["an honest kernel"]) > 1
    with pytest.raises(ValueError, match="nothing"):
        names["time_function"](found["keeps its result"])
    with pytest.raises(ValueError, match="stream"):
        names["time_function"](found["another stream"])


# -------------------------------------------------------------------------------------------------
# The exercises inside the lesson.
def held(n, first, last):
    """The sum of the chances that first to last of n readings are below the median."""
    return sum(math.comb(n, i) for i in range(first, last + 1)) / 2**n


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (lambda n, launch, kernel: launch + kernel, "no-overlap"),
        (lambda n, launch, kernel: launch + (n - 1) * max(launch, kernel) + kernel, "not-divided"),
        (lambda n, launch, kernel: max(launch, kernel), "no-ends"),
        (lambda n, launch, kernel: (launch + n * max(launch, kernel)) / n, "one-end"),
        (lambda n, launch, kernel: kernel, "kernel-only"),
        (lambda n, launch, kernel: launch, "no-ends"),
    ],
)
def test_a_wrong_time_per_call_is_named(answer, mistake):
    assert mistake in mistakes("calls-in-a-row", answer)


def calls(trace):
    """The kernels of each call, flushes included."""
    found = []
    for name, start, end in trace:
        if name == "flush":
            found.append([])
        found[-1].append((start, end))
    return found


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (lambda trace: [sum(b - a for a, b in call) for call in calls(trace)], "with-flush"),
        (lambda trace: [call[-1][1] - call[0][1] for call in calls(trace)], "gaps"),
        (
            lambda trace: [sum(b - a for a, b in call[1:]) for call in calls(trace) if call[1:]],
            "nothing-launched",
        ),
        (lambda trace: [b - a for name, a, b in trace if name != "flush"], "each-kernel"),
        (
            lambda trace: [c[-1][1] - c[-1][0] if c[1:] else 0 for c in calls(trace)],
            "last-kernel",
        ),
    ],
)
def test_wrong_times_from_a_trace_are_named(answer, mistake):
    assert mistake in mistakes("times-from-a-trace", answer)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (lambda n, k: 1 - held(n, 0, k - 1), "one-side"),
        (lambda n, k: 1 - 2 * held(n, 0, k), "one-rank-too-many"),
        (lambda n, k: 1 - 2 * 0.5**n, "outermost"),
        (lambda n, k: 1 - 2 * math.comb(n, k - 1) / 2**n, "exactly-k"),
        (lambda n, k: 2 * held(n, 0, k - 1), "outside"),
        (lambda n, k: 100 - 200 * held(n, 0, k - 1), "percent"),
    ],
)
def test_a_wrong_chance_is_named(answer, mistake):
    assert mistake in mistakes("chance-to-hold", answer)


def test_another_way_to_the_chance_is_right():
    assert mistakes("chance-to-hold", lambda n, k: held(n, k, n - k)) == {""}

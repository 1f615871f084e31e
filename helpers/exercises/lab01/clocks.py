"""Lab 01's clocks: four of them on a simulated GPU, and the summary of their readings."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator

from helpers.exercises.lab01 import beside
from helpers.exercises.lab01.machines import SimulatedGpu
from helpers.exercises.model import Case, Exercise, Outcome, Verdict
from helpers.exercises.served import Shown
from helpers.exercises.verdicts import is_number, raised, wrong

LAB = "01_profiling"

# --------------------------------------------------------------------------------------------------- four clocks
CLOCKS = ("host, no waiting", "host, waiting", "events, one pair", "events around twenty")


def _clock_cases(rng: random.Random, device: str) -> Iterator[Case]:
    for kernel_us in (265.0, *(rng.uniform(90, 900) for _ in range(11))):
        true = {
            "kernel_us": round(kernel_us, 2),
            "launch_us": rng.uniform(3, 8),
            "mark_us": rng.uniform(0.5, 1.5),
            "wake_us": rng.uniform(4, 12),
            "gap_us": rng.uniform(0.4, 1.2),
            "cold_us": rng.uniform(5e3, 5e4),
            "left_us": rng.uniform(2e3, 9e3),
            "seed": rng.randrange(2**31),
        }
        yield Case(f"a kernel that takes {kernel_us:.1f} µs", (true,), expected=true, call="simulate")


def _simulate(ask: Callable[..., Outcome], true: dict) -> Outcome | dict:
    gpu = SimulatedGpu(**true)

    def mark() -> Shown:
        made = gpu.mark()
        return Shown({"us_until": lambda stop: made.us_until(stop.of)}, of=made)

    # The four methods and nothing else: the true times are not for the learner's code.
    methods = {"launch": gpu.launch, "wait": gpu.wait, "host_us": gpu.host_us, "mark": mark}
    outcome = ask(Shown(methods))
    return outcome if outcome.error else {"readings": outcome.value, "n_behind_others": gpu.n_behind_others}


def _judge_clocks(case: Case, outcome: Outcome) -> Verdict | None:
    def no(sentence: str, mistake: str, hint: str) -> Verdict:
        return wrong("four-clocks", case, sentence, mistake, hint)

    if outcome.error_type == "NotReached":
        return no(
            f"on {case.label}: {outcome.error.partition(': ')[2]}",
            "not-waited",
            "Both marks are only places in the queue until the GPU has come by. Wait, then read.",
        )
    if fell := raised("four-clocks", "read_clocks", case, outcome):
        return fell
    got = outcome.value["readings"]
    if not isinstance(got, dict) or not all(is_number(got.get(clock)) for clock in CLOCKS):
        missing = [c for c in CLOCKS if not isinstance(got, dict) or not is_number(got.get(c))]
        return no(
            f"there is no number for {', '.join(map(repr, missing))}",
            "no-reading",
            "Return a dict with the four names of the docstring as keys.",
        )
    true = {**case.expected, "n_behind_others": outcome.value.get("n_behind_others")}
    for clock, looks in zip(CLOCKS, _LOOKS, strict=True):
        for look in looks:
            if found := look(got[clock], true):
                what, mistake, hint = found
                return no(f"on {case.label}, {clock!r} says {got[clock]:,.1f} µs{what}", mistake, hint)
    return None


# What is wrong with one clock's reading in µs on a GPU with these true times: (end of a sentence, mistake, hint).


def _cold(us: float, true: dict) -> tuple[str, str, str] | None:
    if us <= true["cold_us"] / 2:
        return None
    return (
        ": the first launch is in it",
        "cold",
        "Launch once and wait before you read any clock: warm-up.",
    )


def _not_waiting(us: float, true: dict) -> tuple[str, str, str] | None:
    if us > true["kernel_us"] / 2:
        hint = "Read the clock again as soon as launch() has returned; wait only after that."
        return ", as much as the kernel: this clock waited", "waited", hint
    if us < true["launch_us"]:
        return ", less than one launch costs the host", "nothing", "Put launch() between the readings."
    return None


def _waiting(us: float, true: dict) -> tuple[str, str, str] | None:
    if us < true["kernel_us"]:
        hint = "Call gpu.wait() between launch() and the second reading."
        return ": it stopped before the kernel ended", "not-waited", hint
    if us > true["kernel_us"] + true["launch_us"] + true["wake_us"] + 5:
        if true["n_behind_others"] in (
            0,
            1,
        ):  # at most the warm-up's: what was in the queue is the learner's own
            hint = "One launch between the readings, and gpu.wait() after each clock: what nobody waited for is still in the queue."
            return ": more than one launch of your own is in it", "own-launch", hint
        hint = "Empty the queue with gpu.wait() before the first reading: what is left in it is not yours."
        return ": work that was in the queue before is in it", "leftover", hint
    return None


def _one_pair(us: float, true: dict) -> tuple[str, str, str] | None:
    if us < true["kernel_us"]:
        hint = "The order in the queue decides: mark, launch, mark."
        return ": the kernel is not between the marks", "marks", hint
    if us > true["kernel_us"] + _around_us(true):
        return ": more than one launch is between the marks", "marks", "mark, one launch, mark."
    return None


def _not_divided(us: float, true: dict) -> tuple[str, str, str] | None:
    took = true["kernel_us"]
    if 20 * 0.999 * took <= us <= 20 * (1.01 * took + true["gap_us"]) + _around_us(true):
        return ", the time of all launches", "not-divided", "Divide by the number of launches."
    return None


def _cold_among_twenty(us: float, true: dict) -> tuple[str, str, str] | None:
    return _cold(us, true) or _cold(20 * (us - true["kernel_us"]), true)


def _around_twenty(us: float, true: dict) -> tuple[str, str, str] | None:
    took = true["kernel_us"]
    if 0.999 * took <= us <= 1.01 * took + true["gap_us"] + _around_us(true) / 20:
        return None
    return (
        f", but twenty in a row take about {took + true['gap_us']:,.1f} µs each",
        "marks",
        "One mark, twenty launches without waiting between them, one mark; then divide by twenty.",
    )


def _around_us(true: dict) -> float:
    """The most that a launch and two marks add to what lies between the marks, in µs."""
    return true["launch_us"] + 4 * true["mark_us"] + 2


# What is looked for in each clock's reading, in this order: twenty kernels may take longer than a cold launch.
_LOOKS = (
    (_cold, _not_waiting),
    (_cold, _waiting),
    (_cold, _one_pair),
    (_not_divided, _cold_among_twenty, _around_twenty),
)


FOUR_CLOCKS = Exercise(
    id="four-clocks",
    lab=LAB,
    title="Four clocks for one kernel",
    name="read_clocks",
    minutes=15,
    cases=_clock_cases,
    judge=_judge_clocks,
    served={"simulate": _simulate},
)


# ------------------------------------------------------------------------------------------------ their summary
def _summary_cases(rng: random.Random, device: str) -> Iterator[Case]:
    def case(label: str, samples: list[float], n_warmup: int) -> Case:
        kept = samples[n_warmup:]
        expected: dict[str, float] | None = None
        if kept:
            spread = statistics.stdev(kept) if len(kept) > 1 else 0.0
            expected = {
                "mean_us": statistics.fmean(kept),
                "median_us": statistics.median(kept),
                "spread_us": spread,
            }
        label = f"{label}, n_warmup={n_warmup}"
        return Case(label, (samples, n_warmup), expected=expected, call="on_a_copy")

    yield case("[900.0, 5.0, 3.0, 4.0]", [900.0, 5.0, 3.0, 4.0], 1)
    yield case("[5.0, 3.0, 4.0, 6.0]", [5.0, 3.0, 4.0, 6.0], 0)
    yield case("one reading that counts", [700.0, rng.uniform(10, 20)], 1)
    for _ in range(16):
        n, n_warmup, base = rng.randrange(2, 60), rng.choice((0, 1, 2, 5)), rng.uniform(2, 400)
        warm = [base * rng.uniform(5, 900) for _ in range(n_warmup)]
        samples = warm + [base * (1 + 0.01 * rng.expovariate(1)) for _ in range(n)]
        if n > 5 and rng.random() < 0.5:
            samples[n_warmup + rng.randrange(n)] *= rng.uniform(3, 9)  # slow, and a reading like any other
        yield case(f"{len(samples)} readings around {base:.3g} µs", samples, n_warmup)
    yield case("no reading that counts: [3.0, 4.0]", [3.0, 4.0], 2)
    yield case("no reading at all", [], 0)


def _judge_summary(case: Case, outcome: Outcome) -> Verdict | None:
    def no(sentence: str, mistake: str, hint: str) -> Verdict:
        return wrong("clock-summary", case, sentence, mistake, hint)

    want = case.expected
    if outcome.error_type in ("ZeroDivisionError", "IndexError") and want is None:
        hint = 'Say what is wrong before you compute: raise ValueError("no reading left after …").'
        return no(f"on {case.label} it raised {outcome.error}", "empty", hint)
    if fell := raised("clock-summary", "summarise", case, outcome):
        return fell
    found = outcome.value
    if found["changed"]:
        hint = "sorted(samples) makes a new list; samples.sort() and del change the caller's."
        return no(f"on {case.label} the list that was passed in has changed", "changes-input", hint)
    if want is None:
        if not found.get("refused"):
            what = "a ValueError without a message" if "refused" in found else repr(found["found"])
            hint = (
                "Raise a ValueError that says it, instead of returning a figure that nothing stands behind."
            )
            return no(f"{case.label}: expected a ValueError with a message, got {what}", "empty", hint)
        return None
    if "refused" in found:
        return no(
            f"on {case.label} it raised ValueError: {found['refused']}",
            "raises",
            "One reading is enough for a mean and a median; its spread is 0.",
        )
    got = found["found"]
    if not isinstance(got, dict) or not all(is_number(got.get(k)) for k in want):
        hint = 'Return {"mean_us": …, "median_us": …, "spread_us": …}.'
        return no(f"on {case.label} it returned {got!r}", "no-figures", hint)
    samples, n_warmup = case.args
    for key, value in want.items():
        if math.isclose(got[key], value, rel_tol=1e-9, abs_tol=1e-9):
            continue
        mistake, hint = _why_summary(key, got[key], samples, n_warmup)
        return no(f"on {case.label}: {key} is {got[key]:.6g}, but it is {value:.6g}", mistake, hint)
    return None


def _why_summary(key: str, got: float, samples: list[float], n_warmup: int) -> tuple[str, str]:
    """The mistake that gives this figure."""
    kept = samples[n_warmup:]

    def near(value: float) -> bool:
        return math.isclose(got, value, rel_tol=1e-9, abs_tol=1e-9)

    whole = {"mean_us": statistics.fmean, "median_us": statistics.median, "spread_us": statistics.pstdev}[key]
    if n_warmup and (near(whole(samples)) or (key == "spread_us" and near(statistics.stdev(samples)))):
        return "warm-up", "The first `n_warmup` readings are warm-up: they must not be in it."
    if key == "median_us" and near(kept[len(kept) // 2]):
        return "unsorted", "The middle one of the readings in order of size, not in order of time."
    if key == "median_us" and near(sorted(kept)[len(kept) // 2]):
        return "even-count", "With an even number of readings the median is the mean of the middle two."
    if key == "spread_us" and near(statistics.pstdev(kept)):
        return "population", "Divide by n - 1: the readings are a sample (statistics.stdev)."
    if key == "spread_us" and len(kept) > 1 and near(statistics.variance(kept)):
        return "variance", "That is the variance, in µs²; its root is in µs."
    if key == "spread_us" and near(max(kept) - min(kept)):
        return (
            "range",
            "That is the range. It grows with every reading; the contract asks for the standard deviation.",
        )
    trimmed = sorted(kept)[:-1]
    if trimmed and key == "mean_us" and near(statistics.fmean(trimmed)):
        return "drops-slow", "A slow reading after the warm-up is a reading: keep it."
    return "figure", "Take the readings after the warm-up, all of them and no others."


CLOCK_SUMMARY = Exercise(
    id="clock-summary",
    lab=LAB,
    title="Mean, median and spread",
    name="summarise",
    minutes=8,
    cases=_summary_cases,
    judge=_judge_summary,
    adapters={"on_a_copy": beside.on_a_copy},
)

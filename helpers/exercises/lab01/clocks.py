"""Lab 01's clocks: four of them on a simulated GPU, and the summary of their readings."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from helpers.exercises.gpus import shown
from helpers.exercises.lab01 import adapters
from helpers.exercises.lab01.machines import SimulatedGpu
from helpers.exercises.lab01.traces import no_figures
from helpers.exercises.mistakes import Condition, Seen, Table, TableJudge, seen_answer, under
from helpers.exercises.model import Case, Exercise, Outcome
from helpers.exercises.verdicts import is_number

LAB = "01_profiling"

# ------------------------------------------------------------------------------------------- four clocks
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
    outcome = ask(shown(gpu, "launch", "wait", "host_us"))
    return outcome if outcome.error else {"readings": outcome.value, "n_behind_others": gpu.n_behind_others}


def _each_clock(seen: Seen) -> Iterable[Seen]:
    """All clocks at once, and then each clock by itself."""
    seen = seen.also(readings=seen.got["readings"], n_behind_others=seen.got.get("n_behind_others"), clock="")
    yield seen
    for clock in CLOCKS:
        yield seen.also(clock=clock, us=seen.readings[clock])


def _about_clocks(true: dict[str, float]) -> dict[str, float]:
    """The true times, and `around_us`: the most that a launch and two marks add between the marks."""
    around_us = true["launch_us"] + 4 * true["mark_us"] + 2
    return {**true, "around_us": around_us, "in_a_row_us": true["kernel_us"] + true["gap_us"]}


def _of(clock: str, condition: Condition) -> Condition:
    return lambda s: s.clock == clock and condition(s)


def _no_reading(s: Seen) -> str:
    known = s.readings if isinstance(s.readings, dict) else {}
    missing = [repr(clock) for clock in CLOCKS if not is_number(known.get(clock))]
    return f"there is no number for {', '.join(missing)}" if missing else ""


def _too_long(s: Seen) -> bool:
    return s.us > s.kernel_us + s.launch_us + s.wake_us + 5


def _all_twenty(s: Seen) -> bool:
    longest_us = 20 * (1.01 * s.kernel_us + s.gap_us) + s.around_us
    return 20 * 0.999 * s.kernel_us <= s.us <= longest_us


def _cold(s: Seen) -> bool:
    extra_us = 20 * (s.us - s.kernel_us) if s.clock == _TWENTY else 0
    return max(s.us, extra_us) > s.cold_us / 2


def _not_one_of_twenty(s: Seen) -> bool:
    return not 0.999 * s.kernel_us <= s.us <= 1.01 * s.kernel_us + s.gap_us + s.around_us / 20


_NOT_WAITING, _WAITING, _PAIR, _TWENTY = CLOCKS
_CLOCK_MISTAKES = {
    "no-reading": _no_reading,
    # Before "cold", because twenty kernels may take longer than a cold launch.
    "not-divided": _of(_TWENTY, _all_twenty),
    "cold": _cold,
    "waited": _of(_NOT_WAITING, lambda s: s.us > s.kernel_us / 2),
    "nothing": _of(_NOT_WAITING, lambda s: s.us < s.launch_us),
    "not-waited": _of(_WAITING, lambda s: s.us < s.kernel_us),
    # Only the warm-up can have met other work in the queue, so the clock waited for the learner's own work.
    "own-launch": _of(_WAITING, lambda s: _too_long(s) and s.n_behind_others in (0, 1)),
    "leftover": _of(_WAITING, _too_long),
    "marks/none": _of(_PAIR, lambda s: s.us < s.kernel_us),
    "marks/several": _of(_PAIR, lambda s: s.us > s.kernel_us + s.around_us),
    "marks/twenty": _of(_TWENTY, _not_one_of_twenty),
}


def _not_reached(s: Seen) -> str | bool:
    return s.got.error_type == "NotReached" and s.got.error.partition(": ")[2]


FOUR_CLOCKS = Exercise(
    id="four-clocks",
    lab=LAB,
    title="Four clocks for one kernel",
    name="read_clocks",
    minutes=15,
    cases=_clock_cases,
    judge=TableJudge(
        Table("four-clocks", LAB, _CLOCK_MISTAKES, raises={"not-waited/marks": _not_reached}),
        "read_clocks",
        _about_clocks,
        _each_clock,
    ),
    served={"simulate": _simulate},
)


# ------------------------------------------------------------------------------------------- their summary
def _summary_cases(rng: random.Random, device: str) -> Iterator[Case]:
    def case(label: str, samples: list[float], n_warmup: int) -> Case:
        expected = None
        if counted := samples[n_warmup:]:
            expected = {name: figure(counted) for name, figure in _FIGURES.items()}
            expected["spread_us"] = statistics.stdev(counted) if len(counted) > 1 else 0.0
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
            samples[n_warmup + rng.randrange(n)] *= rng.uniform(3, 9)  # slow, but a reading like any other
        yield case(f"{len(samples)} readings around {base:.3g} µs", samples, n_warmup)
    yield case("no reading that counts: [3.0, 4.0]", [3.0, 4.0], 2)
    yield case("no reading at all", [], 0)


_FIGURES = {"mean_us": statistics.fmean, "median_us": statistics.median, "spread_us": statistics.pstdev}


def _about_samples(samples: list[float], n_warmup: int) -> dict[str, Any]:
    return {"counted": samples[n_warmup:], "in_order": sorted(samples[n_warmup:])}


def _the_summary(seen: Seen) -> Iterable[Seen]:
    """The returned summary, without the adapter's other facts."""
    found = seen.got
    noted = {"changed": found["changed"], "refused": found.get("refused")}
    summary = seen_answer(seen.case, found.get("found"), _about_samples)
    instead = repr(summary.got) if noted["refused"] is None else "one without a message"
    yield summary.also(**noted, instead=instead)


def _with_warm_up(s: Seen) -> bool:
    as_sample = [statistics.stdev(s.samples)] if s.at == "spread_us" else []
    return s.n_warmup and s.near(_FIGURES[s.at](s.samples), *as_sample)


_SUMMARY_MISTAKES = {
    "changes-input": lambda s: s.changed,
    "empty/returned": lambda s: s.want is None and not s.refused,
    **under(
        lambda s: s.want is not None,
        {
            "raises": lambda s: s.refused is not None,
            "no-figures": no_figures,
            "warm-up": _with_warm_up,
            "unsorted": lambda s: s.at == "median_us" and s.near(s.counted[len(s.counted) // 2]),
            "even-count": lambda s: s.at == "median_us" and s.near(s.in_order[len(s.counted) // 2]),
            "population": lambda s: s.at == "spread_us" and s.near(statistics.pstdev(s.counted)),
            "variance": lambda s: s.at == "spread_us" and s.near(statistics.variance(s.counted)),
            "range": lambda s: s.at == "spread_us" and s.near(s.in_order[-1] - s.in_order[0]),
            "drops-slow": lambda s: s.at == "mean_us" and s.near(statistics.fmean(s.in_order[:-1])),
            "figure": lambda s: s.at,
        },
    ),
}


def _empty(s: Seen) -> bool:
    return s.want is None and s.got.error_type in ("ZeroDivisionError", "IndexError")


CLOCK_SUMMARY = Exercise(
    id="clock-summary",
    lab=LAB,
    title="Mean, median and spread",
    name="summarise",
    minutes=8,
    cases=_summary_cases,
    judge=TableJudge(
        Table("clock-summary", LAB, _SUMMARY_MISTAKES, raises={"empty/raised": _empty}),
        "summarise",
        _about_samples,
        _the_summary,
    ),
    adapters={"on_a_copy": adapters.on_a_copy},
)

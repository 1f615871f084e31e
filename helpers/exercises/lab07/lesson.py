"""The exercises inside lesson 07, timers."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from helpers.exercises.factories import answer_exercise
from helpers.exercises.mistakes import always
from helpers.exercises.model import Case

LESSON = "07_timers"


def _per_call(n: int, launch_us: float, kernel_us: float) -> float:
    return (launch_us + (n - 1) * max(launch_us, kernel_us) + kernel_us) / n


def _row_cases(rng: random.Random) -> Iterator[Case]:
    cases = [(3, 30.0, 1.25), (3, 5.0, 250.0), (1, 10.0, 4.0)]
    cases += [(rng.randrange(2, 40), rng.uniform(4, 40), rng.uniform(1, 300)) for _ in range(8)]
    for n, launch_us, kernel_us in cases:
        label = f"{n} calls, {launch_us:.4g} µs per launch, {kernel_us:.4g} µs per kernel"
        yield Case(label, (n, launch_us, kernel_us), expected=_per_call(n, launch_us, kernel_us))


ROW = answer_exercise(
    "calls-in-a-row",
    LESSON,
    "The host's clock around many calls",
    "us_per_call",
    _row_cases,
    minutes=5,
    tolerance=1e-6,
    facts=lambda n, launch_us, kernel_us: {
        "n": n,
        "launch": launch_us,
        "kernel": kernel_us,
        "longer": max(launch_us, kernel_us),
    },
    mistakes={
        "no-overlap": lambda s: s.n > 1 and s.near(s.launch + s.kernel),
        "not-divided": lambda s: s.n > 1 and s.near(s.right * s.n),
        "no-ends": lambda s: s.near(s.longer),
        "one-end": lambda s: s.near(s.longer + s.launch / s.n, s.longer + s.kernel / s.n),
        "kernel-only": lambda s: s.near(s.kernel),
        "other": always,
    },
)


def _trace_of(calls: list[list[float]], gap_us: float) -> list[tuple[str, float, float]]:
    """A trace of calls, each a list of its kernels' durations; all times are multiples of 1/4 µs, so sums
    are exact.
    """
    trace, now = [], 1000.0
    for kernels in calls:
        for name, duration_us in [("flush", 60.25), *((f"kernel_{i}", us) for i, us in enumerate(kernels))]:
            trace.append((name, now, now + duration_us))
            now += duration_us + gap_us
    return trace


def _trace_cases(rng: random.Random) -> Iterator[Case]:
    def us() -> float:
        return rng.randrange(4, 400) / 4

    plans = [
        ("three calls of one kernel", [[us()] for _ in range(3)]),
        ("calls of two kernels", [[us(), us()] for _ in range(3)]),
        ("a call that launches nothing", [[us()], [], [us()]]),
        ("no calls", []),
        ("calls of different kernels", [[us() for _ in range(rng.randrange(1, 4))] for _ in range(5)]),
    ]
    for label, calls in plans:
        yield Case(label, (_trace_of(calls, 1.5),), expected=[sum(kernels) for kernels in calls])


def _about_trace(trace: list[tuple[str, float, float]]) -> dict[str, Any]:
    calls: list[list[tuple[float, float]]] = []
    for name, start_us, end_us in trace:
        if name == "flush":
            calls.append([])
        calls[-1].append((start_us, end_us))
    return {
        "with_flush": [sum(end - start for start, end in call) for call in calls],
        "spans": [call[-1][1] - call[1][0] if call[1:] else 0.0 for call in calls],
        "from_flush": [call[-1][1] - call[0][1] for call in calls],
        "each": [end - start for call in calls for start, end in call[1:]],
        "not_empty": [sum(end - start for start, end in call[1:]) for call in calls if call[1:]],
        "last": [call[-1][1] - call[-1][0] if call[1:] else 0.0 for call in calls],
    }


TRACE = answer_exercise(
    "times-from-a-trace",
    LESSON,
    "The times of calls in a trace",
    "call_times",
    _trace_cases,
    minutes=5,
    tolerance=1e-6,
    facts=_about_trace,
    mistakes={
        "with-flush": lambda s: list(s.got) == s.with_flush,
        "gaps": lambda s: list(s.got) in (s.spans, s.from_flush),
        "nothing-launched": lambda s: list(s.got) == s.not_empty,
        "each-kernel": lambda s: list(s.got) == s.each,
        "last-kernel": lambda s: list(s.got) == s.last,
        "other": always,
    },
)


def _outside(n: int, k: int) -> float:
    return sum(math.comb(n, i) for i in range(k)) / 2**n


def _chance_cases(rng: random.Random) -> Iterator[Case]:
    cases = [(5, 1), (20, 6), (40, 14), (2, 1), (10, 2)]
    for _ in range(6):
        n = rng.randrange(6, 60)
        cases.append((n, rng.randrange(1, n // 2)))
    for n, k in cases:
        yield Case(f"n = {n}, k = {k}", (n, k), expected=1 - 2 * _outside(n, k))


CHANCE = answer_exercise(
    "chance-to-hold",
    LESSON,
    "How likely an interval holds the median",
    "chance_to_hold",
    _chance_cases,
    minutes=5,
    tolerance=1e-6,
    facts=lambda n, k: {"n": n, "k": k},
    mistakes={
        "one-side": lambda s: s.near(1 - _outside(s.n, s.k)),
        "one-rank-too-many": lambda s: s.near(1 - 2 * _outside(s.n, s.k + 1)),
        "outermost": lambda s: s.k != 1 and s.near(1 - 2 * 0.5**s.n),
        "exactly-k": lambda s: s.near(1 - 2 * math.comb(s.n, s.k - 1) / 2**s.n),
        "outside": lambda s: s.near(2 * _outside(s.n, s.k)),
        "percent": lambda s: s.near(100 * s.right),
        "other": always,
    },
)

EXERCISES = (ROW, TRACE, CHANCE)

"""The exercises of lab 07, timers: a warm L2, a cold L2, and functions that cannot be timed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

from helpers.exercises.lab07 import judge
from helpers.exercises.model import Case, Exercise

LAB = judge.LAB


def _gpu(rng: random.Random, kernels: list[tuple], **more) -> dict:
    """The true times of a simulated GPU, as plain values that can be sent to another process."""
    return {
        "kernels": kernels,
        "launch_us": rng.uniform(14, 28),
        "mark_us": rng.uniform(0.5, 1.2),
        "wake_us": rng.uniform(5, 12),
        "gap_us": rng.uniform(0.4, 1.0),
        "flush_us": rng.uniform(90, 150),
        "first_us": rng.uniform(5e3, 4e4),
        "left_us": rng.uniform(2e3, 9e3),
        "ramp_us": rng.uniform(3e3, 6e3),
        "ramp": rng.uniform(1.3, 1.5),
        "seed": rng.randrange(2**31),
        **more,
    }


def _kernel(rng: random.Random, low: float, high: float, current: bool = True) -> tuple[float, float, bool]:
    warm = rng.uniform(low, high)
    return round(warm, 2), round(warm * rng.uniform(1.35, 2.0) + 8, 2), current


def _known(cold: bool, rng: random.Random, device: str) -> Iterator[Case]:
    """Kernels of known duration; some are shorter than a launch, or have slow clocks or slow calls."""

    def short() -> dict:
        return {"launch_us": rng.uniform(20, 28)}

    def slowly() -> dict:
        # A first call that takes longer than a warm-up of 25 ms, so that it can't serve as one.
        return {"ramp_us": rng.uniform(16.5e3, 17e3), "ramp": rng.uniform(1.48, 1.5), "first_us": 4e4}

    # Three slow readings in a burst: with a warm L2, another call runs between two of them.
    burst = {"n_burst": 3 if cold else 5}
    # Each of these alone exposes one mistake: no flush, no warm-up, or at most five readings.
    special = ((18, 30, {}), (5, 9, short()), (60, 90, slowly()), (40, 90, burst), (250, 400, {}))
    for low, high, more in (*special, (6, 12, short()), (18, 60, {}), (400, 700, burst)):
        kernel = _kernel(rng, low, high)
        true = kernel[1] if cold else kernel[0]
        label = f"a kernel that takes {kernel[0]:.1f} µs warm and {kernel[1]:.1f} cold"
        yield Case(label, (_gpu(rng, [kernel], **more),), expected=true, call="simulate")


def _strange(rng: random.Random, device: str) -> Iterator[Case]:
    """Functions about which the learner knows nothing."""

    def case(label: str, kernels: list[tuple], expected: float | str | None = None, **more) -> Case:
        true = sum(kernel[1] for kernel in kernels) if expected is None else expected
        return Case(label, (_gpu(rng, kernels, **more),), expected=true, call="simulate")

    def one() -> tuple[float, float, bool]:
        return _kernel(rng, 60, 400)

    side = _kernel(rng, 100, 300, current=False)
    yield case("an honest kernel", [one()])
    yield case("a kernel that the profiler slows", [(300.0, 420.0, True)], profiler=rng.uniform(1.06, 1.09))
    yield case("a function that keeps its first result", [], "nothing", first=[one()])
    yield case("two kernels a call", [one(), _kernel(rng, 20, 60)])
    yield case("a kernel on another stream", [side], "stream")
    yield case("a function that tunes itself in its first three calls", [one()], first=[one()] * 6, n_first=3)
    yield case("a lazy function", [], "nothing")
    yield case("a small kernel here, a large one on another stream", [_kernel(rng, 20, 40), side], "stream")
    yield case(
        "a function that launches in its first three calls only", [], "nothing", first=[one()], n_first=3
    )
    yield case("a function that tunes itself on another stream first", [one()], first=[side] * 4, n_first=3)


def _exercise(id: str, title: str, name: str, minutes: int, cases, cold: bool) -> Exercise:
    return Exercise(
        id=id,
        lab=LAB,
        title=title,
        name=name,
        minutes=minutes,
        cases=cases,
        judge=partial(judge.judge_timer, id, name, cold),
        served={"simulate": judge.simulate},
    )


WARM = _exercise("warm-timer", "A timer for a warm L2", "time_warm", 20, partial(_known, False), cold=False)
COLD = _exercise("cold-timer", "A timer for a cold L2", "time_cold", 10, partial(_known, True), cold=True)
REFUSE = _exercise("refuse-to-time", "Refuse what has no time", "time_function", 15, _strange, cold=True)

EXERCISES = (WARM, COLD, REFUSE)

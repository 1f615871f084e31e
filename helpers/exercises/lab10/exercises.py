"""The exercises of lab 10, another GPU: predict times, choose launches for a GPU unseen, judge claims."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from helpers.exercises.factories import answer_exercise
from helpers.exercises.lab10 import claims, sweeps
from helpers.exercises.model import Case, Exercise, Outcome, Verdict
from helpers.exercises.verdicts import counted, is_number, raised, wrong

LAB = "10_another_gpu"


# ---------------------------------------------------------------------------------------------------- predict times
def _predicted(kernels: list[int], gpu: dict[str, float], warm: bool) -> float | None:
    if warm and sum(kernels) <= gpu["l2_bytes"]:
        return None
    return sum(gpu["floor_us"] + n_bytes / gpu["copy_gb_per_s"] / 1e3 for n_bytes in kernels)


def _time_cases(rng: random.Random) -> Iterator[Case]:
    def case(kernels: list[int], warm: bool = False, l2_bytes: int = 50 << 20) -> Case:
        copy_gb_per_s, floor_us = rng.choice((240.0, 1400.0, 3000.0, 4250.0)), round(rng.uniform(1.1, 3), 2)
        gpu = {"copy_gb_per_s": copy_gb_per_s, "floor_us": floor_us, "l2_bytes": l2_bytes}
        what = counted(len(kernels), "kernel")
        label = f"{what} of {sum(kernels) / 1e6:,.2f} MB together, L2 {'warm' if warm else 'cold'}"
        return Case(label, (kernels, gpu, warm), expected=_predicted(kernels, gpu, warm))

    def large() -> int:
        return rng.randrange(10**8, 4 * 10**9)

    yield case([rng.randrange(10**3, 10**5)])
    yield case([800_000_000])
    for n in (2, 5):
        yield case([large() for _ in range(n)])
        yield case([rng.randrange(10**3, 10**6) for _ in range(n)])
    small = rng.randrange(1 << 20, 20 << 20)
    yield case([small])
    yield case([small], warm=True)
    yield case([large()], warm=True)
    yield case([50 << 20], warm=True)  # just fits
    yield case([(50 << 20) + 4], warm=True)
    yield case([30 << 20, 30 << 20], warm=True)  # each fits, both do not
    yield case([10 << 20, 20 << 20], warm=True)
    yield case([])


def _explain_time(case: Case, got: Any) -> tuple[str, str] | None:
    kernels, gpu, warm = case.args
    if case.expected is None:
        hint = "The data of this call fit the L2 and are still there: no bandwidth of the memory says how long it takes. Return None."
        return "l2-ignored", hint
    if got is None:
        if not warm:
            return (
                "cold-is-memory",
                "Behind a cold L2 count every byte as the memory's, however few they are.",
            )
        return (
            "does-not-fit",
            "The kernels' data do not fit the L2 together, so count them all as the memory's again.",
        )
    if not is_number(got):
        return "not-a-number", "Return one number, µs, or None."
    floor, by_bytes = gpu["floor_us"], [n / gpu["copy_gb_per_s"] / 1e3 for n in kernels]

    def near(other: float) -> bool:
        return math.isclose(got, other, rel_tol=1e-12)

    if near(sum(by_bytes)):
        return "no-floor", "A kernel takes its floor even where it moves next to nothing: add it."
    if len(kernels) > 1 and near(floor + sum(by_bytes)):
        return "one-floor", "Each kernel is started for itself: each has a floor."
    if near(sum(max(floor, one) for one in by_bytes)):
        hint = "The floor comes on top: the first load goes out only after the start, the last store comes at the end."
        return "larger-of-two", hint
    if any(near(case.expected * 10**power) for power in (-9, -6, -3, 3, 6, 9)):
        return "unit", "1 GB/s are 1,000 bytes a microsecond."
    if any(near(len(kernels) * floor + sum(by_bytes) * 10**power) for power in (-6, -3, 3, 6)):
        return "unit", "1 GB/s are 1,000 bytes a microsecond."
    return "time", "For each kernel: its floor, and its bytes over the copy's rate. Then add up."


PREDICT = answer_exercise(
    "predict-time",
    LAB,
    "Predict a time on a GPU that you have not touched",
    "predict_us",
    _time_cases,
    explain=_explain_time,
    tolerance=1e-6,
    minutes=12,
)

# ------------------------------------------------------------------------------------------- choose launches unseen
MOST_PERCENT = 5.0  # that a choice may lose against the best launch of a GPU
# Pairs of GPUs that are made up: where programs start slowly, the usual 4 KB a program (or 8) are too few, and the largest
# programs are slow elsewhere.
SIMULATED = (
    *[{}] * 4,
    *[{"heavy": 1.1}] * 4,
    *[{"slow_starts_kb": 4}] * 2,
    *[{"slow_starts_kb": 8}] * 2,
)


def _launch_cases(rng: random.Random, device: str) -> Iterator[Case]:
    pairs = [*sweeps.recorded(), *(sweeps.simulated(rng, **how) for how in SIMULATED)]
    while _one_for_all(pairs):  # in 55 of 200 draws: an answer that looks at nothing would pass
        pairs = [*sweeps.recorded(), *(sweeps.simulated(rng, **how) for how in SIMULATED)]
    for pair in pairs:
        yield Case(pair.label, pair.args, expected=pair)


def _one_for_all(pairs: list[sweeps.Pair]) -> bool:
    """Whether one launch suits all pairs."""
    return any(
        all(max(pair.loss(launch), pair.loss(launch, new=False)) <= MOST_PERCENT for pair in pairs)
        for launch in pairs[0].known_us
    )


def _above(loss: float) -> str:
    """A loss above `MOST_PERCENT`, with as many digits as show that."""
    return f"{loss:.1f}" if round(loss, 1) > MOST_PERCENT else f"{loss:.3f}"


def _judge_launch(case: Case, outcome: Outcome) -> Verdict | None:
    def no(sentence: str, mistake: str, hint: str) -> Verdict:
        return wrong("one-launch-for-two", case, sentence, mistake, hint)

    if fell := raised("one-launch-for-two", "choose", case, outcome):
        return fell
    pair, got = case.expected, outcome.value
    whole = isinstance(got, (tuple, list)) and len(got) == 2 and all(map(is_number, got))
    if not whole or tuple(got) not in pair.new_us:
        hint = "Return (block_size, num_warps) of one of the rows."
        return no(
            f"on {case.label} it returned {str(got)[:80]}, which is none of the rows", "not-a-row", hint
        )
    launch = (int(got[0]), int(got[1]))
    told = f"on {case.label}: a block of {launch[0]:,} in {counted(launch[1], 'warp')}"
    if (loss := pair.loss(launch, new=False)) > MOST_PERCENT:
        hint = "Begin with the launches that are near the best of the table that you have."
        return no(f"{told} loses {_above(loss)} % on the GPU of the table itself", "slow-here", hint)
    if (loss := pair.loss(launch)) <= MOST_PERCENT:
        return None
    said = f"{told} is {_above(loss)} % slower there than the best launch; {MOST_PERCENT:g} % is the most"
    programs = next(r["programs"] for r in pair.rows if (r["block_size"], r["num_warps"]) == launch)
    bytes_us = pair.n_bytes / pair.new["copy_gb_per_s"] / 1e3
    starts_us = programs / pair.starts_per_ns / 1e3
    if starts_us > 0.85 * bytes_us:
        hint = (
            f"It has {programs:,} programs, and the bytes would take {bytes_us:.0f} µs there. How long do so many programs "
            "take to start? The rows with the smallest blocks tell the rate, and both GPUs share it."
        )
        return no(said, "starts-uncovered", hint)
    if launch == min(pair.known_us, key=pair.known_us.get):
        hint = (
            "It is the fastest row of the table, by a few tenths of a per cent: a tie. Take all rows within one or two per "
            "cent, and choose among them by a reason: 16 bytes a thread, several programs on an SM."
        )
        return no(said, "best-of-the-table", hint)
    hint = (
        "Among launches that tie here and start in time, which have 16 bytes of input a thread, and programs of few enough "
        "warps that several fit an SM?"
    )
    return no(said, "slow-there", hint)


CHOOSE = Exercise(
    id="one-launch-for-two",
    lab=LAB,
    title="Choose launches for a GPU that you have not seen",
    name="choose",
    minutes=25,
    cases=_launch_cases,
    judge=_judge_launch,
)


# --------------------------------------------------------------------------------------------------- does it stand
def _claim_cases(rng: random.Random, device: str) -> Iterator[Case]:
    for label, claim in claims.drawn(rng):
        yield Case(label, (claim,), expected=sorted(claims.objections(claim)))


_WHY = {
    "unchecked": 'A kernel that was not checked may be fast because it is wrong: look at "checked".',
    "two GPUs": "Both sides must have run on the same GPU.",
    "two L2 states": "Both sides must have found the L2 in the same state.",
    "noise": "Where the interval's lower end is not above 1, there may be no difference at all.",
    "above a copy": "Behind a cold L2 nothing moves its bytes at more than 1.05 times a copy's rate. With a warm L2 it may.",
    "not the best peer": 'Who is compared with must be the fastest of "peers_us".',
    "not measured there": 'Each GPU of "said_of" must be one of "measured_on".',
}


def _judge_claim(case: Case, outcome: Outcome) -> Verdict | None:
    def no(sentence: str, mistake: str, hint: str) -> Verdict:
        return wrong("does-it-stand", case, f"on {case.label}{sentence}", mistake, hint)

    if fell := raised("does-it-stand", "objections", case, outcome):
        return fell
    got, want = outcome.value, set(case.expected)
    if isinstance(got, dict) and list(got) == ["a set"]:  # as a set travels; the order is no matter
        got = got["a set"]
    if not isinstance(got, (list, tuple)) or not all(isinstance(one, str) for one in got):
        return no(
            f" it returned {str(got)[:80]}",
            "no-list",
            "Return a list of texts; an empty one where it stands.",
        )
    if unknown := [one for one in got if one not in _WHY]:
        return no(
            f" it objects {unknown[0]!r}", "unknown-objection", f"The objections are {', '.join(_WHY)}."
        )
    for objection, why in _WHY.items():
        if objection in want and objection not in got:
            return no(f" it does not object {objection!r}", f"misses: {objection}", why)
        if objection in got and objection not in want:
            return no(f" it objects {objection!r} without reason", f"objects: {objection}", why)
    return None


STANDS = Exercise(
    id="does-it-stand",
    lab=LAB,
    title="Does the claim stand?",
    name="objections",
    minutes=18,
    cases=_claim_cases,
    judge=_judge_claim,
)

EXERCISES = (PREDICT, CHOOSE, STANDS)

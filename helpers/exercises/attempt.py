"""Run an exercise's hidden cases against a learner's object and return the verdict.

`run_cases` makes the cases and judges the outcomes that a `call` returns, wherever it ran them. `attempt`
calls in this process (`call_here`), and the grader passes a call that runs in a worker process.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from helpers import device
from helpers.exercises import answers, portable
from helpers.exercises.call import call_here
from helpers.exercises.effort import WHY, Effort
from helpers.exercises.hints import HINTS, MAY_BE_A_RACE
from helpers.exercises.model import Case, Exercise, Outcome, Verdict, graded_elsewhere
from helpers.exercises.speed import judge_speed, timed_case
from helpers.exercises.traffic import judge_traffic

__all__ = ["attempt", "call_here", "run_cases"]


def device_for(exercise: Exercise) -> str:
    """The device of the exercise's tensors: "cuda" if a GPU is available and its kernels are compiled."""
    interpreted = exercise.must_launch == "triton" and os.environ.get("TRITON_INTERPRET", "0") not in (
        "",
        "0",
    )
    return "cuda" if exercise.on_gpu and not interpreted and device.has_gpu() else "cpu"


def attempt(exercise: Exercise, obj: Any, seed: int | None = None, *, timed: bool = True) -> Verdict:
    """Check a learner's object with hidden cases in this process.

    Args:
        exercise: from `helpers.exercises.get`.
        obj: the learner's function, class or CUDA text.
        seed: of the hidden cases; a new one each time by default. The verdict contains it.
        timed: whether to measure the speed, if a GPU is available and the exercise requires one.
    """
    if exercise.cases is graded_elsewhere:  # the grader runs the real check
        return Verdict(exercise.id, True, f"{exercise.id} is checked by the grader.")
    return run_cases(exercise, lambda case: call_here(exercise, obj, case), seed, timed=timed)


def run_cases(
    exercise: Exercise,
    call: Callable[[Case], Outcome],
    seed: int | None = None,
    *,
    timed: bool = True,
    claimed: bool = False,
) -> Verdict:
    """Make the hidden cases, call each, and judge the outcomes until one fails.

    Args:
        exercise: from `helpers.exercises.get`.
        call: `(case) -> Outcome`. The case contains `expected`, which must be removed before the case is sent
            to another process.
        seed: of the hidden cases.
        timed: as in `attempt`.
        claimed: whether the speed is reported by a process that can't be trusted.

    Returns:
        The verdict, with the seed and the number of cases that agreed.
    """
    seed = random.randrange(1 << 31) if seed is None else seed
    rng = random.Random(seed)
    device_type = device_for(exercise)
    n_cases, skipped, earlier, traffic, effort = 0, {}, [], "", Effort()
    for case, make in _calls(exercise, exercise.cases(rng, device_type), call, rng):
        if device_type == "cpu" and exercise.must_launch == "triton" and _has_bfloat16(case):
            skipped.setdefault("Triton's interpreter doesn't compute in bfloat16", []).append(case.label)
            continue
        if effort.is_too_much(exercise, case):
            skipped.setdefault(WHY, []).append(case.label)
            continue
        outcome = make()
        effort.add(case, outcome)
        if outcome.facts.get("skipped"):
            skipped.setdefault(outcome.facts["skipped"], []).append(case.label)
            continue
        verdict = exercise.judge(case, outcome)
        if verdict is not None and verdict.passed:
            return replace(verdict, n_cases=n_cases + 1, seed=seed)
        if verdict is not None:
            verdict = _recheck(verdict, case, outcome, call, earlier)
            return replace(verdict, n_cases=n_cases, seed=seed)
        failed, counted = judge_traffic(exercise, case, outcome)
        if failed is not None:
            return replace(failed, n_cases=n_cases, seed=seed)
        traffic = counted or traffic
        n_cases += 1
        earlier.append((case, outcome.value) if not exercise.guarded else (case, None))
    reasons = _in_words(skipped)
    n_not_tried = sum(map(len, skipped.values()))
    if not n_cases:
        sentence = f"{exercise.id}: no case could be tried here{': ' if reasons else ''}{reasons}."
        return Verdict(exercise.id, False, sentence, mistake="not-tried", seed=seed, n_not_tried=n_not_tried)
    speed = ""
    if timed and exercise.speed is not None and device_type == "cuda":
        case = timed_case(exercise.speed, rng)
        failed, speed = judge_speed(exercise, case, call(case), claimed)
        if failed is not None:
            return replace(failed, n_cases=n_cases, seed=seed)
    if exercise.speed is not None and exercise.speed.at_least and not speed:
        why = (
            "there is no GPU here, so no speed was measured"
            if device_type != "cuda"
            else "no speed was measured"
        )
        skipped[why] = ["its speed"]
        n_not_tried, reasons = n_not_tried + 1, _in_words(skipped)
    sentence = f"{exercise.id}: {n_cases} {'case agrees' if n_cases == 1 else 'cases agree'}"
    sentence += f", {traffic}" if traffic else ""
    sentence += f", {speed}" if speed else ""
    sentence += f"; passed, {n_not_tried} not tried: {reasons}" if reasons else ""
    return Verdict(
        exercise.id, True, f"{sentence}.", n_cases=n_cases, speed=speed, seed=seed, n_not_tried=n_not_tried
    )


def _calls(
    exercise: Exercise, cases: Iterator[Case], call: Callable[[Case], Outcome], rng: random.Random
) -> Iterator[tuple[Case, Callable[[], Outcome]]]:
    """The cases in the order in which they are judged, the simplest first, and what calls each.

    A function that counts its calls must not learn from that which case comes next. Only a kernel has to
    compute whatever the order; for any other function all calls are made first, in an order that is drawn,
    and some of them twice.
    """
    if exercise.guarded or exercise.text is not None:
        yield from ((case, partial(call, case)) for case in cases)
        return
    listed = list(cases)
    order = list(range(len(listed)))
    if len(listed) > 1:
        order += rng.choices(order, k=rng.randrange(1, 3 + len(listed) // 4))
        rng.shuffle(order)
    outcomes = {i: call(listed[i]) for i in order}
    yield from ((case, partial(outcomes.get, i)) for i, case in enumerate(listed))


def _in_words(skipped: dict[str, list[str]]) -> str:
    """What was not tried and why: "2 cases (no room)"."""
    return "; ".join(
        f"{labels[0] if len(labels) == 1 else f'{len(labels)} cases'} ({why})"
        for why, labels in skipped.items()
    )


def _has_bfloat16(case: Case) -> bool:
    return any(str(getattr(one, "dtype", "")) == "torch.bfloat16" for one in case.args)


def _recheck(verdict: Verdict, case: Case, outcome: Outcome, call, earlier: list) -> Verdict:
    """Recognize two mistakes that a single call doesn't show: an answer that never changes, and one that
    varies.
    """
    if verdict.mistake == "wrong-answer" and earlier:
        if all(answers.difference(outcome.value, value) is None for _, value in earlier):
            return replace(verdict, mistake="constant", hint=HINTS["constant"])
    elif verdict.mistake in MAY_BE_A_RACE:
        second = call(case)
        if portable.differ(outcome.value, second.value):
            sentence = (
                verdict.sentence.removesuffix(".")
                + "; a second call with the same input gives another result."
            )
            return replace(verdict, sentence=sentence, mistake="race", hint=HINTS["race"])
    return verdict

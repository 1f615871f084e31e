"""The exercises of lab 10, another GPU: predict times, choose launches for another GPU, and judge claims."""

from __future__ import annotations

import random
from collections.abc import Iterator

from helpers.exercises.factories import answer_exercise
from helpers.exercises.lab10 import claims, gpu_pairs
from helpers.exercises.mistakes import Condition, Seen, Table, TableJudge, always, close, not_numbers
from helpers.exercises.model import Case, Exercise
from helpers.exercises.verdicts import counted, is_number

LAB = "10_another_gpu"


# -------------------------------------------------------------------------------------------- predict times
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
    yield case([30 << 20, 30 << 20], warm=True)  # each fits, but both together don't
    yield case([10 << 20, 20 << 20], warm=True)
    yield case([])


def _about_time(kernels: list[int], gpu: dict[str, float], warm: bool) -> dict[str, float | list[float]]:
    by_bytes = [n_bytes / gpu["copy_gb_per_s"] / 1e3 for n_bytes in kernels]
    floors_us = len(kernels) * gpu["floor_us"]
    return {
        "bytes_us": sum(by_bytes),
        "one_floor_us": gpu["floor_us"] + sum(by_bytes),
        "larger_us": sum(max(gpu["floor_us"], one) for one in by_bytes),
        "other_units_us": [floors_us + sum(by_bytes) * 10**power for power in (-6, -3, 3, 6)],
    }


def _exactly(s: Seen, *candidates: float) -> bool:
    return close(s.got, *candidates, rel=1e-12, abs=0)


_TIME_MISTAKES = {
    "l2-ignored": lambda s: s.want is None,
    "cold-is-memory": lambda s: s.got is None and not s.warm,
    "does-not-fit": lambda s: s.got is None,
    "not-a-number": lambda s: not is_number(s.got),
    "no-floor": lambda s: _exactly(s, s.bytes_us),
    "one-floor": lambda s: _exactly(s, s.one_floor_us),
    "larger-of-two": lambda s: _exactly(s, s.larger_us),
    "unit/of-the-time": lambda s: _exactly(s, *(s.want * 10**power for power in (-9, -6, -3, 3, 6, 9))),
    "unit/of-the-bytes": lambda s: _exactly(s, *s.other_units_us),
    "time": always,
}

PREDICT = answer_exercise(
    "predict-time",
    LAB,
    "Predict a time on a GPU that you haven't used",
    "predict_us",
    _time_cases,
    mistakes=_TIME_MISTAKES,
    facts=_about_time,
    tolerance=1e-6,
    minutes=12,
)


# --------------------------------------------------------------------------- choose launches for another GPU
MOST_PERCENT = 5.0  # by which a choice may be slower than the best launch of a GPU
# Simulated pairs of GPUs. In some, programs of 32 warps are slow. In others, programs start so slowly that
# the usual 4 KB per program (or 8) are too few.
SIMULATED = (*[{}] * 4, *[{"heavy": 1.1}] * 4, *[{"slow_starts_kb": 4}] * 2, *[{"slow_starts_kb": 8}] * 2)


def _launch_cases(rng: random.Random, device: str) -> Iterator[Case]:
    recorded = list(gpu_pairs.recorded())

    def right(launch: gpu_pairs.Launch) -> bool:
        return all(max(pair.loss(launch), pair.loss(launch, new=False)) <= MOST_PERCENT for pair in pairs)

    pairs: list[gpu_pairs.Pair] = []
    while any(map(right, recorded[0].known_us)):  # in 55 of 200 draws, a constant answer would pass
        pairs = [*recorded, *(gpu_pairs.simulated(rng, **how) for how in SIMULATED)]
    for pair in pairs:
        yield Case(pair.label, pair.args, expected=pair)


def _above(loss: float) -> str:
    """A loss above `MOST_PERCENT`, with enough digits to show it."""
    return f"{loss:.1f}" if round(loss, 1) > MOST_PERCENT else f"{loss:.3f}"


def _about_launches(rows: list, n_bytes: int, known: dict, new: dict) -> dict[str, float]:
    return {"bytes_us": n_bytes / new["copy_gb_per_s"] / 1e3}


def _launch(s: Seen) -> gpu_pairs.Launch:
    return int(s.got[0]), int(s.got[1])


def _n_programs(s: Seen) -> int:
    return next(r["programs"] for r in s.want.rows if (r["block_size"], r["num_warps"]) == _launch(s))


def _named(s: Seen) -> str:
    block, warps = _launch(s)
    return f"a block of {block:,} in {counted(warps, 'warp')} ({counted(_n_programs(s), 'program')})"


def _slow_here(s: Seen) -> str:
    loss = s.want.loss(_launch(s), new=False)
    sentence = f"{_named(s)} is {_above(loss)} % slower than the best launch on the GPU of the table itself"
    return sentence if loss > MOST_PERCENT else ""


def _slow_there(s: Seen) -> str:
    loss = s.want.loss(_launch(s))
    sentence = f"{_named(s)} is {_above(loss)} % slower there than the best launch"
    return f"{sentence}; at most {MOST_PERCENT:g} % is fine" if loss > MOST_PERCENT else ""


def _starts_too_many(s: Seen) -> bool:
    return _n_programs(s) / s.want.starts_per_ns / 1e3 > 0.85 * s.bytes_us


_LAUNCH_MISTAKES = {
    "not-a-row": lambda s: not_numbers(2)(s) or tuple(s.got) not in s.want.new_us,
    "slow-here": _slow_here,
    "starts-uncovered": lambda s: _starts_too_many(s) and _slow_there(s),
    "best-of-the-table": lambda s: (
        _launch(s) == min(s.want.known_us, key=s.want.known_us.get) and _slow_there(s)
    ),
    "slow-there": _slow_there,
}

CHOOSE = Exercise(
    id="one-launch-for-two",
    lab=LAB,
    title="Choose launches for a GPU whose times you can't see",
    name="choose",
    minutes=25,
    cases=_launch_cases,
    judge=TableJudge(Table("one-launch-for-two", LAB, _LAUNCH_MISTAKES), "choose", _about_launches),
)


# --------------------------------------------------------------------------------- is the claim justified
def _claim_cases(rng: random.Random, device: str) -> Iterator[Case]:
    for label, claim in claims.drawn(rng):
        yield Case(label, (claim,), expected=sorted(claims.objections(claim)))


def _listed(s: Seen) -> list:
    """The learner's objections. (A set is sent as a dict.)"""
    return s.got["a set"] if isinstance(s.got, dict) and list(s.got) == ["a set"] else s.got


def _no_list(s: Seen) -> bool:
    listed = _listed(s)
    return not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed)


def _unknown(s: Seen) -> str:
    unknown = [one for one in _listed(s) if one not in claims.OBJECTIONS]
    return f"{unknown[0]!r} is not one of the objections" if unknown else ""


def _differs(objection: str, missing: bool) -> Condition:
    return lambda s: (objection in s.want, objection in _listed(s)) == (missing, not missing)


_CLAIM_MISTAKES = {
    "no-list": _no_list,
    "unknown-objection": _unknown,
    **{
        f"{verb}: {objection}": _differs(objection, verb == "misses")
        for objection in claims.OBJECTIONS
        for verb in ("misses", "objects")
    },
}

STANDS = Exercise(
    id="does-it-stand",
    lab=LAB,
    title="Is the claim justified?",
    name="objections",
    minutes=18,
    cases=_claim_cases,
    judge=TableJudge(Table("does-it-stand", LAB, _CLAIM_MISTAKES), "objections"),
)

EXERCISES = (PREDICT, CHOOSE, STANDS)

"""The exercises of lab 05, Nsight Compute."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from helpers.exercises.factories import answer_exercise
from helpers.exercises.lab05 import limiters, reports
from helpers.exercises.lab05.unknown import UNKNOWN
from helpers.exercises.mistakes import (
    Table,
    TableJudge,
    always,
    at,
    close,
    not_named,
    not_numbers,
    not_one_of,
    under,
)
from helpers.exercises.model import Case, Exercise
from helpers.exercises.verdicts import counted, is_number

LAB = "05_ncu"
SECTOR = 32  # bytes


# -------------------------------------------------------------------------------------- the sectors of a run
def _sectors(first: int, n: int) -> int:
    return (first + n - 1) // SECTOR - first // SECTOR + 1 if n else 0


def _sector_cases(rng: random.Random, device: str) -> Iterator[Case]:
    def case(first: int, n: int) -> Case:
        label = f"{counted(n, 'byte')} from byte {first} on"
        return Case(label, (first, n), expected=_sectors(first, n))

    runs = "0 128, 0 32, 20 128, 31 1, 31 2, 32 32, 0 0, 17 0, 4 28, 4 29"
    for run in runs.split(", "):
        yield case(*map(int, run.split()))
    for _ in range(20):
        first = rng.randrange(1 << rng.choice((6, 12, 40)))
        yield case(first, rng.choice((1, 4, 32, 64, 128, rng.randrange(512))))


def _about_run(first: int, n: int) -> dict[str, int]:
    return {
        "offset": first % SECTOR,
        "up": -(-n // SECTOR),
        "past_end": (first + n) // SECTOR - first // SECTOR + 1,
    }


_RUN_MISTAKES = {
    "no-bytes": lambda s: s.n == 0,
    "aligned-only": lambda s: s.got == s.up,
    "one-too-many": lambda s: s.got in (s.past_end, s.n // SECTOR + 1, s.up + 1),
    "sectors": always,
}

SECTORS = answer_exercise(
    "sectors-of-a-run",
    LAB,
    "How many sectors does a run of bytes touch?",
    "sectors_of",
    _sector_cases,
    mistakes=_RUN_MISTAKES,
    facts=_about_run,
    minutes=5,
)


# ------------------------------------------------------------------------------------------ a misaligned row
def _row_sectors(row: int, row_stride: int, n_cols: int, element_bytes: int) -> tuple[int, int]:
    asked = ideal = 0
    for first in range(0, n_cols, 32):
        n = min(32, n_cols - first) * element_bytes
        asked += _sectors(row * row_stride + first * element_bytes, n)
        ideal += _sectors(0, n)
    return asked, ideal


def _row_cases(rng: random.Random, device: str) -> Iterator[Case]:
    def case(row: int, row_stride: int, n_cols: int, element_bytes: int) -> Case:
        args = (row, row_stride, n_cols, element_bytes)
        label = f"row {row}, rows {row_stride:,} bytes apart, {n_cols} columns of {element_bytes} bytes"
        return Case(label, args, expected=_row_sectors(*args))

    yield case(0, 3124, 781, 4)
    yield case(1, 3124, 781, 4)
    yield case(2, 3124, 781, 4)  # aligned if its stride were in elements
    yield case(8, 3124, 781, 4)
    yield case(3, 792 * 4, 781, 4)
    yield case(5, 3124, 512, 4)
    yield case(7, 4, 1, 4)
    for _ in range(20):
        element_bytes = rng.choice((2, 4, 8))
        n_cols = rng.choice((rng.randrange(1, 40), rng.randrange(1, 1200), 32 * rng.randrange(1, 20)))
        stride = element_bytes * (n_cols + rng.choice((0, 0, rng.randrange(40))))
        yield case(rng.randrange(4000), stride, n_cols, element_bytes)


def _about_row(row: int, row_stride: int, n_cols: int, element_bytes: int) -> dict[str, int]:
    start = row * row_stride
    return {
        "start": start,
        "offset": start % SECTOR,
        "each_once": _sectors(start, n_cols * element_bytes),
        "scaled_stride": _row_sectors(row, row_stride * element_bytes, n_cols, element_bytes)[0],
        "row_zero": _row_sectors(0, row_stride, n_cols, element_bytes)[0],
        "full_warps": _row_sectors(row, row_stride, -(-n_cols // 32) * 32, element_bytes)[0],
        "four_bytes": _row_sectors(row, row_stride, n_cols, 4)[0],
    }


_ROW_MISTAKES = {
    "no-pair": not_numbers(2),
    "swapped": lambda s: tuple(s.got) == tuple(reversed(s.want)),
    **at(1, {"ideal": always}),
    "stride-in-elements": lambda s: s.value == s.scaled_stride,
    "warp-by-warp": lambda s: s.value == s.each_once,
    "where-it-begins": lambda s: s.value == s.row_zero,
    "masked-lanes": lambda s: s.value == s.full_warps,
    "element-size": lambda s: s.element_bytes != 4 and s.value == s.four_bytes,
    "asked": always,
}

ROW_SECTORS = answer_exercise(
    "misaligned-row",
    LAB,
    "The misaligned row's excess sectors",
    "row_sectors",
    _row_cases,
    mistakes=_ROW_MISTAKES,
    facts=_about_row,
    minutes=12,
)


# ----------------------------------------------------------------------------------------- waves and the tail
def _waves(n_blocks: int, n_sms: int, blocks_per_sm: int) -> tuple[float, float]:
    n_resident = n_sms * blocks_per_sm
    return n_blocks / n_resident, ((n_blocks - 1) % n_resident + 1) / n_resident if n_blocks else 0.0


def _wave_cases(rng: random.Random, device: str) -> Iterator[Case]:
    def case(label: str, *args: int) -> Case:
        blocks = f"{counted(args[0], 'block')}, {args[1]} SMs, {args[2]} blocks per SM"
        return Case(f"{label}{blocks}", args, expected=_waves(*args))

    yield case("", 4096, 132, 8)
    yield case("", 132 * 8, 132, 8)
    yield case("", 132 * 8 + 1, 132, 8)
    yield case("", 1, 132, 8)
    yield case("", 0, 132, 8)
    for name in reports.REPORTS:
        for row in reports.launches(name):
            yield case(f"{name}: ", row["n_blocks"], row["n_sms"], row["blocks_per_sm"])
    for _ in range(12):
        n_sms, each = rng.choice((16, 40, 68, 108, 132, 148)), rng.randrange(1, 33)
        full = n_sms * each * rng.randrange(1, 9)
        yield case("", max(1, full + rng.choice((-1, 0, 1, rng.randrange(n_sms * each)))), n_sms, each)


def _about_waves(n_blocks: int, n_sms: int, each: int) -> dict[str, float]:
    waves, fill = _waves(n_blocks, n_sms, each)
    return {"waves": waves, "fill": fill, "last_blocks": fill * n_sms * each}


_WAVE_MISTAKES = {
    "no-pair": not_numbers(2),
    "no-blocks": lambda s: s.n_blocks == 0,
    **at(
        1,
        {
            "whole-waves": lambda s: s.value == 0 and s.fill == 1,
            "empty-part": lambda s: s.near(1 - s.fill),
            "blocks-not-share": lambda s: s.near(s.last_blocks),
            "last-fill": always,
        },
    ),
    "blocks-an-sm": lambda s: s.near(s.n_blocks / s.n_sms),
    "rounded": lambda s: s.value in (math.ceil(s.waves), math.floor(s.waves)),
    "waves": always,
}

WAVES = answer_exercise(
    "waves-and-tail",
    LAB,
    "Waves, and how full the last one is",
    "waves_of",
    _wave_cases,
    mistakes=_WAVE_MISTAKES,
    facts=_about_waves,
    tolerance=1e-6,
    minutes=8,
)


# ----------------------------------------------------------------------------------------------- the limiter
_WHY = {
    "memory": "memory throughput is close to its peak and higher than compute, so the kernel is limited by "
    "memory",
    "compute": "compute throughput is close to its peak and higher than memory, so arithmetic is the limit",
    "latency": "neither memory nor compute is busy although there are several waves of blocks, so the warps "
    "wait",
    "too few blocks": "neither memory nor compute is busy, and the blocks don't even fill one wave",
}


def _limiter_cases(rng: random.Random, device: str) -> Iterator[Case]:
    for label, row, limiter in limiters.rows_to_judge(rng):
        yield Case(label, (row,), expected=limiter)


def _about_launch(row: dict[str, Any]) -> dict[str, str]:
    memory, compute = row["memory_throughput_percent"], row["compute_throughput_percent"]
    rest = f"{row['waves_per_sm']:.2g} waves, occupancy {row['achieved_occupancy_percent']:.0f} %"
    numbers = f"memory {memory:.0f} %, compute {compute:.0f} %, {rest}"
    return {"why": f"Here {_WHY[limiters.limiter(row)]}: {numbers}."}


_BUSY, _IDLE = ("memory", "compute"), ("latency", "too few blocks")
_LIMITER_MISTAKES = {
    "no-word": not_one_of(_WHY),
    "waves-first": lambda s: s.got == "too few blocks" and s.want in _BUSY,
    "larger-of-two": lambda s: s.got in _BUSY and s.want in _IDLE,
    "idle-chip": lambda s: s.got in _IDLE and s.want in _IDLE,
    "{got}-for-{want}": always,
}

LIMITER = answer_exercise(
    "name-the-limiter",
    LAB,
    "Read a report and name the limiter",
    "limiter",
    _limiter_cases,
    mistakes=_LIMITER_MISTAKES,
    facts=_about_launch,
    minutes=12,
)


# -------------------------------------------------------------------------------- act on one piece of advice
_ACT = "act-on-advice"
_KEYS = ("n_programs", "program_stride", "element_stride", "n_elements", "after_us")
_MAX_BLOCK = 1 << 16
_LISTED = 1 << 20  # elements; larger matrices have too many offsets to list
_WITHIN = 0.30  # relative to the measured time


def _act_cases(rng: random.Random, device: str) -> Iterator[Case]:
    facts = (reports.shortest_us(), reports.gpu()["copy_gb_per_s"])
    for n_rows, n_cols in ((4, 6), (1, 1), (33, 65), (rng.randrange(2, 300), rng.randrange(2, 300))):
        yield Case(f"a ({n_rows}, {n_cols}) matrix", (n_rows, n_cols, *facts))
    on = reports.gpu()["name"]
    measured = list(reports.measured_squares())
    rng.shuffle(measured)
    for launch, n_rows, n_cols, us in measured:
        yield Case(
            f"a ({n_rows}, {n_cols}) matrix, {launch} on an {on}", (n_rows, n_cols, *facts), expected=us
        )


def _about_act(n_rows: int, n_cols: int, shortest_us: float, copy_gb_per_s: float) -> dict[str, float]:
    moving_us = 8 * n_rows * n_cols / copy_gb_per_s / 1e3
    return {"n": n_rows * n_cols, "moving_us": moving_us, "both_us": shortest_us + moving_us}


def _not_all(s: Any) -> str:
    """What is wrong if a launch doesn't square as many elements as there are."""
    programs, each, n = s.got["n_programs"], s.got["n_elements"], s.got["n_programs"] * s.got["n_elements"]
    verb = "squares" if programs == 1 else "square"
    return f"{counted(programs, 'program')} of {counted(each, 'element')} {verb} {n:,}, not {s.n:,}" * (
        n != s.n
    )


def _last_touched(s: Any) -> str:
    """What is wrong if a launch doesn't touch each element once."""
    got = s.got
    last = (got["n_programs"] - 1) * got["program_stride"] + (got["n_elements"] - 1) * got["element_stride"]
    right = last == s.n - 1 and (s.n > _LISTED or _each_once(got, s.n))
    return "" if right else f"the programs don't touch each element once; the last one they touch is {last:,}"


def _each_once(got: dict[str, Any], n_elements: int) -> bool:
    starts = range(0, got["n_programs"] * got["program_stride"], got["program_stride"])
    run = range(0, got["n_elements"] * got["element_stride"], got["element_stride"])
    return len({p + i for p in starts for i in run}) == n_elements


def _no_count(s: Any) -> str:
    bad = next((key for key in _KEYS[:4] if type(s.got[key]) is not int or s.got[key] < 1), None)
    return bad and f"{bad} is {s.got[bad]!r}"


def _predicts(s: Any, *times_us: float) -> bool:
    return close(s.got["after_us"], *times_us, rel=0.02)


_LAUNCH_MISTAKES = {
    "keys": not_named(_KEYS),
    "no-count": _no_count,
    "not-all-elements": _not_all,
    "block-too-large": lambda s: s.got["n_elements"] > _MAX_BLOCK,
    "still-uncoalesced": lambda s: s.got["element_stride"] != 1 and s.got["n_elements"] > 1 and s.n_cols > 1,
    "tiny-programs": lambda s: s.want is not None and s.got["n_elements"] < 32,
    "program-stride": _last_touched,
}
_TIME_MISTAKES = {
    "no-time": lambda s: not is_number(s.got["after_us"]) or not 0 < s.got["after_us"] < math.inf,
    **under(
        lambda s: s.want is not None and abs(s.got["after_us"] / s.want - 1) > _WITHIN,
        {
            "only-shortest": lambda s: _predicts(s, s.shortest_us),
            "only-bytes": lambda s: _predicts(s, s.moving_us),
            "one-way": lambda s: _predicts(s, s.moving_us / 2, s.shortest_us + s.moving_us / 2),
            "units": lambda s: _predicts(
                s, *(us * k for us in (s.moving_us, s.both_us) for k in (1000, 1e-3))
            ),
            "prediction": always,
        },
    ),
}

ACT = Exercise(
    id=_ACT,
    lab=LAB,
    title="Act on one piece of advice, and predict the gain",
    name="act",
    minutes=15,
    cases=_act_cases,
    judge=TableJudge(Table(_ACT, LAB, _LAUNCH_MISTAKES | _TIME_MISTAKES), "act", _about_act),
)

EXERCISES = (SECTORS, ROW_SECTORS, WAVES, LIMITER, ACT, UNKNOWN)

"""The exercises of lab 05, Nsight Compute: sectors, a misaligned row, waves, the limiter, one piece of advice."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from helpers.exercises.factories import answer_exercise
from helpers.exercises.lab05 import limiters, reports
from helpers.exercises.lab05.unknown import UNKNOWN
from helpers.exercises.model import Case, Exercise, Outcome, Verdict
from helpers.exercises.verdicts import counted, is_number, raised, wrong

LAB = "05_ncu"
SECTOR = 32  # bytes


# -------------------------------------------------------------------------------------- the sectors of a run
def _sectors(first: int, n: int) -> int:
    return (first + n - 1) // SECTOR - first // SECTOR + 1 if n else 0


def _sector_cases(rng: random.Random, device: str) -> Iterator[Case]:
    def case(first: int, n: int) -> Case:
        label = f"{counted(n, 'byte')} from byte {first} on"
        return Case(label, (first, n), expected=_sectors(first, n))

    for first, n in (
        (0, 128),
        (0, 32),
        (20, 128),
        (31, 1),
        (31, 2),
        (32, 32),
        (0, 0),
        (17, 0),
        (4, 28),
        (4, 29),
    ):
        yield case(first, n)
    for _ in range(20):
        yield case(
            rng.randrange(1 << rng.choice((6, 12, 40))), rng.choice((1, 4, 32, 64, 128, rng.randrange(512)))
        )


def _explain_sectors(case: Case, got: Any) -> tuple[str, str] | None:
    first, n = case.args
    if n == 0:
        return "no-bytes", "Without bytes no sector is touched."
    if got == -(-n // SECTOR):
        return (
            "aligned-only",
            f"So many would do from a boundary on. Byte {first} lies {first % SECTOR} bytes into a sector.",
        )
    if got in ((first + n) // SECTOR - first // SECTOR + 1, n // SECTOR + 1, -(-n // SECTOR) + 1):
        return (
            "one-too-many",
            "A run that ends at a boundary touches nothing behind it: its last byte is first_byte + n_bytes - 1.",
        )
    return (
        "sectors",
        "Number the sectors 0, 1, 2, …: byte b lies in b // 32. Count from the first byte's to the last byte's.",
    )


SECTORS = answer_exercise(
    "sectors-of-a-run",
    LAB,
    "How many sectors does a run of bytes touch?",
    "sectors_of",
    _sector_cases,
    explain=_explain_sectors,
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
    yield case(2, 3124, 781, 4)  # its stride taken for elements would put it on a boundary
    yield case(8, 3124, 781, 4)
    yield case(3, 792 * 4, 781, 4)
    yield case(5, 3124, 512, 4)
    yield case(7, 4, 1, 4)
    for _ in range(20):
        element_bytes = rng.choice((2, 4, 8))
        n_cols = rng.choice((rng.randrange(1, 40), rng.randrange(1, 1200), 32 * rng.randrange(1, 20)))
        stride = element_bytes * (n_cols + rng.choice((0, 0, rng.randrange(40))))
        yield case(rng.randrange(4000), stride, n_cols, element_bytes)


def _explain_row(case: Case, got: Any) -> tuple[str, str] | None:
    row, row_stride, n_cols, element_bytes = case.args
    asked, ideal = case.expected
    n_bytes = n_cols * element_bytes
    if not isinstance(got, list | tuple) or len(got) != 2:
        return "no-pair", "Return two numbers: (asked, ideal)."
    if list(got) == [ideal, asked]:
        return "swapped", "The two numbers are the other way round: first what the warps ask, then the ideal."
    if got[0] == asked:
        return (
            "ideal",
            "Ideal is what each warp would ask if its first byte lay on a boundary: warp by warp, too.",
        )
    if got[0] == _row_sectors(row, row_stride * element_bytes, n_cols, element_bytes)[0]:
        return "stride-in-elements", "row_stride is in bytes already."
    if got[0] == _sectors(row * row_stride, n_bytes):
        return (
            "warp-by-warp",
            "Those are the row's sectors, each counted once. Each warp asks by itself: a sector that lies across two "
            "warps' elements is asked for twice.",
        )
    if got[0] == _row_sectors(0, row_stride, n_cols, element_bytes)[0]:
        return (
            "where-it-begins",
            f"The row begins at byte {row * row_stride:,}, which is {row * row_stride % 32} bytes into a sector.",
        )
    if got[0] == _row_sectors(row, row_stride, -(-n_cols // 32) * 32, element_bytes)[0]:
        return (
            "masked-lanes",
            "Lanes that are masked off touch nothing: the last warp may have fewer than 32 elements.",
        )
    if element_bytes != 4 and got[0] == _row_sectors(row, row_stride, n_cols, 4)[0]:
        return "element-size", f"An element has {element_bytes} bytes here, not 4."
    return (
        "asked",
        "Take the row's warps one by one: where does each begin, how many bytes has it, how many sectors are that?",
    )


ROW_SECTORS = answer_exercise(
    "misaligned-row",
    LAB,
    "The misaligned row's excess sectors",
    "row_sectors",
    _row_cases,
    explain=_explain_row,
    minutes=12,
)


# ----------------------------------------------------------------------------------------- waves, and a tail
def _waves(n_blocks: int, n_sms: int, blocks_per_sm: int) -> tuple[float, float]:
    at_once = n_sms * blocks_per_sm
    return n_blocks / at_once, ((n_blocks - 1) % at_once + 1) / at_once if n_blocks else 0.0


def _wave_cases(rng: random.Random, device: str) -> Iterator[Case]:
    def case(label: str, *args: int) -> Case:
        blocks = f"{counted(args[0], 'block')}, {args[1]} SMs, {args[2]} blocks an SM"
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
        whole = n_sms * each * rng.randrange(1, 9)
        yield case("", max(1, whole + rng.choice((-1, 0, 1, rng.randrange(n_sms * each)))), n_sms, each)


def _explain_waves(case: Case, got: Any) -> tuple[str, str] | None:
    n_blocks, n_sms, each = case.args
    waves, fill = case.expected
    if not isinstance(got, list | tuple) or len(got) != 2 or not all(is_number(v) for v in got):
        return "no-pair", "Return two numbers: (waves, last_fill)."
    if not n_blocks:
        return "no-blocks", "Without a block there is no wave: both numbers are 0."
    if math.isclose(got[0], waves, rel_tol=1e-6):
        if got[1] == 0 and fill == 1:
            return (
                "whole-waves",
                "When the blocks fill whole waves, the last wave is full: its fill is 1, not 0.",
            )
        if math.isclose(got[1], 1 - fill, rel_tol=1e-6, abs_tol=1e-12):
            return "empty-part", "That is the empty part of the last wave; asked is the part that is filled."
        if math.isclose(got[1], fill * n_sms * each, rel_tol=1e-6):
            return "blocks-not-share", "That many blocks are in the last wave: which part of a wave is it?"
        return (
            "last-fill",
            "Take away the whole waves before the last; what is left, over the blocks that fit at once?",
        )
    if math.isclose(got[0], n_blocks / n_sms, rel_tol=1e-6):
        return "blocks-an-sm", f"An SM holds {each} blocks at once, so all of them hold {n_sms} × {each}."
    if got[0] in (math.ceil(waves), math.floor(waves)):
        return "rounded", "Do not round: ncu's waves are a fraction, such as 3.88."
    return "waves", "Waves are the blocks of the launch over the blocks that all SMs hold at once."


WAVES = answer_exercise(
    "waves-and-tail",
    LAB,
    "Waves, and how full the last one is",
    "waves_of",
    _wave_cases,
    explain=_explain_waves,
    tolerance=1e-6,
    minutes=8,
)


# ----------------------------------------------------------------------------------------------- the limiter
_WORDS = ("memory", "compute", "latency", "too few blocks")
_WHY = {
    "memory": "memory throughput is near its peak, and above compute: it waits for memory",
    "compute": "compute throughput is near its peak, and above memory: the arithmetic units are the limit",
    "latency": "neither memory nor compute is busy, and there are blocks for several waves: the warps wait",
    "too few blocks": "neither memory nor compute is busy, and the blocks do not fill even one wave",
}


def _limiter_cases(rng: random.Random, device: str) -> Iterator[Case]:
    for label, row, limiter in limiters.rows_to_judge(rng):
        yield Case(label, (row,), expected=limiter)


def _explain_limiter(case: Case, got: Any) -> tuple[str, str] | None:
    row, want = case.args[0], case.expected
    if got not in _WORDS:
        return "no-word", f"Return one of {', '.join(map(repr, _WORDS))}."
    numbers = (
        f"memory {row['memory_throughput_percent']:.0f} %, compute {row['compute_throughput_percent']:.0f} %, "
        f"{row['waves_per_sm']:.2g} waves, occupancy {row['achieved_occupancy_percent']:.0f} %"
    )
    if got == "too few blocks" and want in ("memory", "compute"):
        hint = "Few blocks can be busy all the same, if each of them has much to do. Look at the throughputs first"
        return "waves-first", f"{hint}: {numbers}."
    if got in ("memory", "compute") and want in ("latency", "too few blocks"):
        return (
            "larger-of-two",
            f"The larger of two small numbers limits nothing. Here {_WHY[want]}: {numbers}.",
        )
    if (got == "latency" and want == "too few blocks") or (got == "too few blocks" and want == "latency"):
        return (
            "idle-chip",
            f"Both leave the chip idle; the waves tell them apart. Here {_WHY[want]}: {numbers}.",
        )
    return f"{got}-for-{want}".replace(" ", "-"), f"Here {_WHY[want]}: {numbers}."


LIMITER = answer_exercise(
    "name-the-limiter",
    LAB,
    "Read a report and name the limiter",
    "limiter",
    _limiter_cases,
    explain=_explain_limiter,
    minutes=12,
)


# -------------------------------------------------------------------------------- act on one piece of advice
_ACT = "act-on-advice"
_KEYS = ("n_programs", "program_stride", "element_stride", "n_elements", "after_us")
_MAX_BLOCK = 1 << 16
_LISTED = 1 << 20  # elements: of larger matrices the offsets are not all listed
_WITHIN = 0.30  # of the measured time


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


def _judge_act(case: Case, outcome: Outcome) -> Verdict | None:
    if verdict := raised(_ACT, "act", case, outcome):
        return verdict
    got = outcome.value
    if not isinstance(got, dict) or set(got) != set(_KEYS):
        sentence = f"on {case.label} act gives {str(got)[:80]}, which is no dict with these keys"
        return wrong(_ACT, case, sentence, "keys", f"Return a dict with {', '.join(map(repr, _KEYS))}.")
    if bad := next((key for key in _KEYS[:4] if type(got[key]) is not int or got[key] < 1), None):
        sentence = f"on {case.label} {bad} is {got[bad]!r}"
        return wrong(
            _ACT, case, sentence, "no-count", "Programs, strides and elements are integers from 1 on."
        )
    return _judge_launch(case, got) or _judge_time(case, got["after_us"])


def _judge_launch(case: Case, got: dict[str, Any]) -> Verdict | None:
    n_rows, n_cols = case.args[:2]
    n_programs, program_stride, element_stride, n = (got[key] for key in _KEYS[:4])
    if n_programs * n != n_rows * n_cols:
        verb = "squares" if n_programs == 1 else "square"
        squared = f"{counted(n_programs, 'program')} of {counted(n, 'element')} {verb} {n_programs * n:,}"
        sentence = f"on {case.label} {squared}, not {n_rows * n_cols:,}"
        hint = "Every element must be squared once: programs × elements of a program = rows × columns."
        return wrong(_ACT, case, sentence, "not-all-elements", hint)
    if n > _MAX_BLOCK:
        sentence = f"on {case.label} one program has {n:,} elements"
        return wrong(
            _ACT, case, sentence, "block-too-large", f"A program's block has at most {_MAX_BLOCK:,} elements."
        )
    if element_stride != 1 and n > 1 and n_cols > 1:
        sentence = f"on {case.label} neighbouring lanes of a warp are {element_stride:,} elements apart"
        hint = "That is what the advice is about: a sector for each lane. Which direction has stride 1?"
        return wrong(_ACT, case, sentence, "still-uncoalesced", hint)
    if case.expected is not None and n < 32:
        sentence = f"on {case.label} one program has {counted(n, 'element')}"
        hint = "That does not fill one warp, and a warp asks for whole sectors: give a program a row, or a good part of it."
        return wrong(_ACT, case, sentence, "tiny-programs", hint)
    last = (n_programs - 1) * program_stride + (n - 1) * element_stride
    if last != n_rows * n_cols - 1 or (n_rows * n_cols <= _LISTED and not _each_once(got, n_rows * n_cols)):
        sentence = (
            f"on {case.label} the programs do not touch every element once; the last one touched is {last:,}"
        )
        hint = "Program p begins at p × program_stride: where must the next program begin?"
        return wrong(_ACT, case, sentence, "program-stride", hint)
    return None


def _each_once(got: dict[str, Any], n_elements: int) -> bool:
    starts = range(0, got["n_programs"] * got["program_stride"], got["program_stride"])
    run = range(0, got["n_elements"] * got["element_stride"], got["element_stride"])
    return len({p + i for p in starts for i in run}) == n_elements


def _judge_time(case: Case, got: Any) -> Verdict | None:
    n_rows, n_cols, shortest_us, copy_gb_per_s = case.args
    if not is_number(got) or not 0 < got < math.inf:
        return wrong(
            _ACT, case, f"on {case.label} after_us is {got!r}", "no-time", "Predict microseconds, above 0."
        )
    if case.expected is None or abs(got / case.expected - 1) <= _WITHIN:
        return None
    n_bytes = 8 * n_rows * n_cols
    moving_us = n_bytes / copy_gb_per_s / 1e3

    def near(us: float) -> bool:
        return math.isclose(got, us, rel_tol=0.02)

    sentence = f"on {case.label} you predict {got:.4g} µs, and {case.expected:.4g} µs came"
    if near(shortest_us):
        hint = "So long takes a launch with next to no work; moving the bytes comes on top of it."
        return wrong(_ACT, case, sentence, "only-shortest", hint)
    if near(moving_us):
        hint = "So long take the bytes at the copy's rate; the latency that the shortest launch shows comes on top."
        return wrong(_ACT, case, sentence, "only-bytes", hint)
    if near(moving_us / 2) or near(shortest_us + moving_us / 2):
        return wrong(
            _ACT, case, sentence, "one-way", "Every element is read and written: 8 bytes for a float32."
        )
    if any(near(us * 1000) or near(us / 1000) for us in (moving_us, shortest_us + moving_us)):
        return wrong(_ACT, case, sentence, "units", "GB/s are 1000 bytes a microsecond.")
    hint = "Two facts are enough: the shortest launch there is, and the bytes over what a copy reaches."
    return wrong(_ACT, case, sentence, "prediction", hint)


ACT = Exercise(
    id=_ACT,
    lab=LAB,
    title="Act on one piece of advice, and predict the gain",
    name="act",
    minutes=15,
    cases=_act_cases,
    judge=_judge_act,
)

EXERCISES = (SECTORS, ROW_SECTORS, WAVES, LIMITER, ACT, UNKNOWN)

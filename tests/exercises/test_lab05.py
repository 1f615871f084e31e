"""Lab 05: wrong answers are refused with the reason that fits, unlike but right ones are accepted."""

from __future__ import annotations

import math
import random

import pytest
import seeds
from lab_answers import mistakes
from lab_attempts import Attempt, judge, verdicts

from helpers import ncu
from helpers.exercises.lab05 import limiters, reports

pytestmark = pytest.mark.seeded


def fits(id: str, answer, mistake: str) -> bool:
    """Whether the check names this mistake, or one of several with "|" between, on every draw; accepts where
    it is "".
    """
    return mistakes(id, answer, seeds.several(4)) <= set(mistake.split("|"))


# -------------------------------------------------------------------------------------------- blocks-on-an-sm
def eights(n: int) -> int:
    return -(-n // 8) * 8


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (lambda t, r: min(64 // (t // 32), 65536 // (eights(r) * t), 32), ""),
        (lambda t, r: min(2048 // t, 65536 // (t * eights(r))), "block-limit"),
        (lambda t, r: min(2048 // t, 65536 // (t * r), 32), "not-grouped"),
        (lambda t, r: 65536 // eights(r), "registers-per-block|block-limit"),
        (lambda t, r: max(2048 // t, 65536 // (t * eights(r))), "threads-only|registers-only|block-limit"),
        (lambda t, r: min(2048 // t, 32), "threads-only"),
        (lambda t, r: 65536 // (t * eights(r)), "registers-only|block-limit"),
        (lambda t, r: -1, "blocks"),
        (lambda t, r: None, "not-a-number"),
    ],
)
def test_blocks_on_an_sm(answer, mistake):
    assert fits("blocks-on-an-sm", answer, mistake)


# ------------------------------------------------------------------------------------------------ empty-slots
def empty(n: int, at_once: int) -> float:
    slots = math.ceil(n / at_once) * at_once
    return (slots - n) / slots


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (empty, ""),
        (lambda n, at_once: 100 * empty(n, at_once), "percent"),
        (lambda n, at_once: -n % at_once, "slots-not-share"),
        (lambda n, at_once: 1 - empty(n, at_once), "filled-share"),
        (lambda n, at_once: -n % at_once / at_once, "last-wave-only"),
        (lambda n, at_once: 1 - n / ((n // at_once + 1) * at_once), "whole-waves|last-wave-only"),
        (lambda n, at_once: 0.0, "share"),
        (lambda n, at_once: "half", "not-a-number"),
    ],
)
def test_empty_slots(answer, mistake):
    assert fits("empty-slots", answer, mistake)


# ----------------------------------------------------------------------------------------------- warps-needed
@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (lambda gb, ns, sms, each: math.ceil(gb * ns / (sms * 32 * each)), ""),
        (lambda gb, ns, sms, each: math.ceil(gb * ns / (32 * each)), "whole-gpu"),
        (lambda gb, ns, sms, each: math.ceil(gb * ns / sms / each), "threads"),
        (lambda gb, ns, sms, each: gb * ns / sms, "bytes"),
        (lambda gb, ns, sms, each: gb * ns / (sms * 32 * each), "not-rounded"),
        (lambda gb, ns, sms, each: int(gb * ns / (sms * 32 * each)), "rounded-down|units"),
        (lambda gb, ns, sms, each: math.ceil(1e9 * gb * ns / (sms * 32 * each)), "units"),
        (lambda gb, ns, sms, each: 7, "warps"),
        (lambda gb, ns, sms, each: None, "not-a-number"),
    ],
)
def test_warps_needed(answer, mistake):
    assert fits("warps-needed", answer, mistake)


# ------------------------------------------------------------------------------------------------ sum-columns
SUM = """
import torch


@triton.jit
def k(sums_ptr, x_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range({rows}):
        x = tl.load(x_ptr + {start} + cols, mask=cols < n_cols, other=0.0)
        total {add}= x
    tl.store(sums_ptr + cols, total, mask=cols < n_cols)


def my_column_sums(x):
    sums = torch.empty(x.shape[1], device=x.device)
    k[(triton.cdiv(x.shape[1], 64),)](sums, x, *x.shape, BLOCK=64)
    return sums
"""


def sums(rows="n_rows", start="row * n_cols", add="+", mistake="") -> Attempt:
    return Attempt("sum-columns", source=SUM.format(rows=rows, start=start, add=add), mistake=mistake)


LAB = "05_ncu"
ATTEMPTS = {
    "another block size": sums(),
    "one row": sums(rows="1", mistake="first-row-only"),
    "replaced instead of added": sums(add="", mistake="last-row-only"),
    "one row short": sums(rows="n_rows - 1", mistake="one-row-short"),
    "the same row again": sums(start="0", mistake="one-row-again"),
}


@pytest.fixture(scope="module")
def found() -> dict[str, dict]:
    return verdicts(__file__)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_attempt(name: str, found: dict[str, dict]) -> None:
    judge(name, ATTEMPTS[name], found[name])


# ------------------------------------------------------------------------------------------ sectors-of-a-run
def by_set(first: int, n: int) -> int:
    return len({byte // 32 for byte in range(first, first + n)})


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (by_set, ""),
        (lambda first, n: -(-(first % 32 + n) // 32) if n else 0, ""),
        (lambda first, n: -(-n // 32), "aligned-only"),
        (lambda first, n: (first + n) // 32 - first // 32 + 1 if n else 0, "one-too-many"),
        (lambda first, n: (first + n - 1) // 32 - first // 32 + 1, "no-bytes"),
        (lambda first, n: by_set(first, n) - 1, "sectors"),
        (lambda first, n: n // (n - n), "raises"),
    ],
)
def test_sectors_of_a_run(answer, mistake):
    assert fits("sectors-of-a-run", answer, mistake)


# -------------------------------------------------------------------------------------------- misaligned-row
def by_lanes(row: int, stride: int, n_cols: int, size: int) -> tuple[int, int]:
    """Every byte of every lane."""
    asked = ideal = 0
    for warp in range(0, n_cols, 32):
        lanes = range(warp, min(warp + 32, n_cols))
        asked += len({(row * stride + lane * size + b) // 32 for lane in lanes for b in range(size)})
        ideal += -(-len(lanes) * size // 32)
    return asked, ideal


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (by_lanes, ""),
        (lambda *args: list(by_lanes(*args)), ""),
        (lambda r, s, n, b: (by_set(r * s, n * b), by_set(0, n * b)), "warp-by-warp"),
        (lambda r, s, n, b: by_lanes(0, s, n, b), "where-it-begins"),
        (lambda r, s, n, b: by_lanes(r, s * b, n, b), "stride-in-elements"),
        (lambda r, s, n, b: by_lanes(r, s, -(-n // 32) * 32, b), "masked-lanes"),
        (lambda r, s, n, b: by_lanes(r, s, n, 4), "element-size|masked-lanes|stride-in-elements"),
        (lambda *args: by_lanes(*args)[::-1], "swapped"),
        (lambda *args: (by_lanes(*args)[0], by_lanes(*args)[1] + 1), "ideal"),
        (lambda *args: by_lanes(*args)[0] - by_lanes(*args)[1], "no-pair"),
        (lambda *args: (0, 0), "asked"),
    ],
)
def test_misaligned_row(answer, mistake):
    assert fits("misaligned-row", answer, mistake)


@pytest.mark.parametrize(("launch", "n_cols", "stride"), [(0, 781, 781), (1, 512, 781), (2, 781, 792)])
def test_the_rows_of_a_matrix_are_what_the_hardware_counted(launch, n_cols, stride):
    counted = ncu.sectors(reports.report("alignment"), launch).iloc[0]
    rows = [by_lanes(row, 4 * stride, n_cols, 4) for row in range(1823)]
    assert 2 * sum(asked for asked, _ in rows) == counted.ld_sectors + counted.st_sectors
    assert 2 * sum(ideal for _, ideal in rows) == counted.sectors_ideal


# -------------------------------------------------------------------------------------------- waves-and-tail
def by_counting(n_blocks: int, n_sms: int, each: int) -> tuple[float, float]:
    """Wave after wave."""
    left, at_once = n_blocks, n_sms * each
    while left > at_once:
        left -= at_once
    return n_blocks / at_once, left / at_once


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (by_counting, ""),
        (lambda b, s, e: (b / s / e, b / (s * e) % 1), "whole-waves"),
        (lambda b, s, e: (math.ceil(b / (s * e)), by_counting(b, s, e)[1]), "rounded"),
        (lambda b, s, e: by_counting(b, s, 1), "blocks-an-sm"),
        (lambda b, s, e: (b / (s * e), 1 - by_counting(b, s, e)[1]), "empty-part"),
        (lambda b, s, e: by_counting(b, s, e) if b else (0.0, 1.0), "no-blocks"),
        (lambda b, s, e: (b / (s * e), by_counting(b, s, e)[1] * s * e), "blocks-not-share"),
        (lambda b, s, e: (b / (s * e), 0.5), "last-fill"),
        (lambda b, s, e: (b * s * e, 1.0), "waves"),
        (lambda b, s, e: b / (s * e), "no-pair"),
    ],
)
def test_waves_and_tail(answer, mistake):
    assert fits("waves-and-tail", answer, mistake)


# ------------------------------------------------------------------------------------------ name-the-limiter
def ordered(row: dict, busy: float = 60) -> str:
    memory, compute = row["memory_throughput_percent"], row["compute_throughput_percent"]
    if memory >= busy or compute >= busy:
        return "compute" if compute > memory else "memory"
    at_once = row["n_sms"] * row["blocks_per_sm"]
    return "latency" if row["n_blocks"] >= at_once else "too few blocks"


def before_that(found, word: str):
    return lambda row: word if found(row) else ordered(row)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (ordered, ""),
        (lambda row: ordered(row, 70), ""),
        (
            lambda row: max(("memory", "compute"), key=lambda word: row[f"{word}_throughput_percent"]),
            "larger-of-two",
        ),
        (before_that(lambda row: row["waves_per_sm"] < 1, "too few blocks"), "waves-first"),
        (lambda row: ordered(row).replace("too few blocks", "latency"), "idle-chip"),
        (
            before_that(lambda row: row["achieved_occupancy_percent"] < 60, "latency"),
            "idle-chip|latency-for-compute|latency-for-memory",
        ),
        (before_that(lambda row: row["memory_throughput_percent"] >= 60, "memory"), "memory-for-compute"),
        (before_that(lambda row: row["compute_throughput_percent"] >= 60, "compute"), "compute-for-memory"),
        (lambda row: f"{ordered(row)} bound", "no-word"),
        (lambda row: row["memory"], "raises"),
    ],
)
def test_name_the_limiter(answer, mistake):
    assert fits("name-the-limiter", answer, mistake)


def test_no_row_lies_near_a_limit():
    """Whoever asks for 50 or for 70 % is as right as whoever asks for 60."""
    words = set()
    for seed in range(20):
        for _, row, limiter in limiters.rows_to_judge(random.Random(seed)):
            words.add(limiter)
            assert not 50 <= max(row["memory_throughput_percent"], row["compute_throughput_percent"]) <= 70
            assert not 0.95 < row["waves_per_sm"] < 1.5
            assert ordered(row) == limiter
    assert words == {"memory", "compute", "latency", "too few blocks"}


# --------------------------------------------------------------------------------------------- act-on-advice
def along(n_rows: int, n_cols: int, shortest_us: float, gb_per_s: float, **changes) -> dict:
    """The right answer, with some values worked out in another way."""
    launch = {"n_programs": n_rows, "program_stride": n_cols, "element_stride": 1, "n_elements": n_cols}
    right = launch | {"after_us": shortest_us + 8e-3 * n_rows * n_cols / gb_per_s}
    return right | {key: how(n_rows, n_cols, shortest_us, gb_per_s) for key, how in changes.items()}


def changed(**changes):
    return lambda *args: along(*args, **changes)


def half_rows(n_rows, n_cols, *facts) -> dict:
    """Two programs a row where the row can be halved."""
    if n_cols % 2:
        return along(n_rows, n_cols, *facts)
    half = {"n_programs": 2 * n_rows, "program_stride": n_cols // 2, "n_elements": n_cols // 2}
    return along(n_rows, n_cols, *facts) | half


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (along, ""),
        (half_rows, ""),
        (changed(after_us=lambda m, n, s, rate: 1.1 * (s + 6e-3 * m * n / rate)), ""),
        (changed(after_us=lambda m, n, s, rate: s), "only-shortest"),
        (changed(after_us=lambda m, n, s, rate: 8e-3 * m * n / rate), "only-bytes"),
        (changed(after_us=lambda m, n, s, rate: s + 4e-3 * m * n / rate), "one-way"),
        (changed(after_us=lambda m, n, s, rate: s + 8 * m * n / rate), "units|prediction"),
        (changed(after_us=lambda m, n, s, rate: 400.9 * 0.12), "prediction"),
        (changed(after_us=lambda m, n, s, rate: "soon"), "no-time"),
        (
            changed(
                n_programs=lambda m, n, s, rate: n,
                program_stride=lambda m, n, s, rate: 1,
                element_stride=lambda m, n, s, rate: n,
                n_elements=lambda m, n, s, rate: m,
            ),
            "still-uncoalesced",
        ),
        (changed(program_stride=lambda m, n, s, rate: 1), "program-stride"),
        (changed(n_programs=lambda m, n, s, rate: n), "not-all-elements"),
        (
            changed(n_programs=lambda m, n, s, rate: 1, n_elements=lambda m, n, s, rate: m * n),
            "block-too-large",
        ),
        (
            changed(
                n_programs=lambda m, n, s, rate: m * n,
                program_stride=lambda m, n, s, rate: 1,
                n_elements=lambda m, n, s, rate: 1,
            ),
            "tiny-programs",
        ),
        (changed(element_stride=lambda m, n, s, rate: 0), "no-count"),
        (lambda *args: tuple(along(*args).values()), "keys"),
    ],
)
def test_act_on_advice(answer, mistake):
    assert fits("act-on-advice", answer, mistake)


def test_the_two_facts_predict_every_recorded_square_within_a_quarter():
    shortest_us, gb_per_s = reports.shortest_us(), reports.gpu()["copy_gb_per_s"]
    for launch, n_rows, n_cols, us in reports.measured_squares():
        assert abs(along(n_rows, n_cols, shortest_us, gb_per_s)["after_us"] / us - 1) < 0.25, launch

"""Lab 10's checks: each likely mistake is named, right answers of another make are accepted, and nothing
leaks.
"""

from __future__ import annotations

import math
import random

import pytest
import seeds
from lab_answers import judged, mistakes, solution

from helpers import records
from helpers.exercises.lab10 import claims, exercises, gpu_pairs, tables

LAB = "10_another_gpu"
TIME, CHOOSE, STANDS = "predict-time", "one-launch-for-two", "does-it-stand"


@pytest.fixture(scope="module")
def right(tmp_path_factory) -> dict:
    return solution(LAB, tmp_path_factory.mktemp("solution"))


@pytest.mark.seeded
def test_the_solutions_pass(right):
    for id, name in ((TIME, "predict_us"), (CHOOSE, "choose"), (STANDS, "objections")):
        assert mistakes(id, right[name]) == {""}, id


# ---------------------------------------------------------------------------------------------------- predict
# times


def _time(kernels, gpu, warm, *, fits=lambda kernels, gpu: sum(kernels) <= gpu["l2_bytes"], of=None):
    if warm and fits(kernels, gpu):
        return None
    each = [n / gpu["copy_gb_per_s"] / 1e3 for n in kernels]
    return of(each, gpu["floor_us"]) if of else sum(gpu["floor_us"] + one for one in each)


TIMES = {
    "no-floor": lambda k, g, w: _time(k, g, w, of=lambda each, floor: sum(each)),
    "one-floor": lambda k, g, w: _time(k, g, w, of=lambda each, floor: floor * bool(each) + sum(each)),
    "larger-of-two": lambda k, g, w: _time(
        k, g, w, of=lambda each, floor: sum(max(floor, one) for one in each)
    ),
    "unit": lambda k, g, w: _time(k, g, w, of=lambda each, floor: sum(floor + 1e3 * one for one in each)),
    "l2-ignored": lambda k, g, w: _time(k, g, False),
    "cold-is-memory": lambda k, g, w: _time(k, g, True),
    "does-not-fit": lambda k, g, w: _time(k, g, w, fits=lambda k, g: max(k, default=0) <= g["l2_bytes"]),
    "not-a-number": lambda k, g, w: f"{_time(k, g, w)} µs",
    "time": lambda k, g, w: _time(k, g, w, of=lambda each, floor: 1.1 * sum(each) + floor),
}


@pytest.mark.parametrize("mistake", TIMES)
def test_a_wrong_time_is_explained(mistake):
    assert mistake in mistakes(TIME, TIMES[mistake]), mistake


def test_bytes_in_another_unit_are_not_taken_for_a_missing_floor():
    def times(kernels, gpu, warm):
        return _time(kernels, gpu, warm, of=lambda each, floor: sum(floor + 1e-6 * one for one in each))

    assert mistakes(TIME, times) == {"unit"}


def test_data_as_large_as_the_l2_fit():
    found = mistakes(TIME, lambda k, g, w: _time(k, g, w, fits=lambda k, g: sum(k) < g["l2_bytes"]))
    assert found == {"l2-ignored"}


# ---------------------------------------------------------------------------------------------------- choose
# launches


def _tied(key, percent: float = 1.0):
    """A choice among the rows within so many percent of the best."""

    def choose(rows, n_bytes, known, new):
        best = min(row["us"] for row in rows)
        row = min((r for r in rows if r["us"] <= best * (1 + percent / 100)), key=key)
        return row["block_size"], row["num_warps"]

    return choose


def _scaled(rows, n_bytes, known, new):
    """Every row faster by the ratio of the copies, down to what the programs take to start: ties
    stay ties.
    """
    starts = max(row["programs"] / row["us"] for row in rows if row["num_warps"] == 1)
    ratio = new["copy_gb_per_s"] / known["copy_gb_per_s"]
    row = min(rows, key=lambda row: max(row["us"] / ratio, row["programs"] / starts))
    return row["block_size"], row["num_warps"]


CHOICES = {
    "the best of the table": (_tied(lambda row: row["us"]), "best-of-the-table"),
    "scaled by the bandwidths": (_scaled, "best-of-the-table"),
    "the smallest of the ties": (
        _tied(lambda row: (row["block_size"], row["num_warps"])),
        "starts-uncovered",
    ),
    "64 bytes a thread": (lambda *_: (2048, 4), "slow-there"),
    "one launch for everything": (lambda *_: (512, 4), "starts-uncovered"),
    "slow already here": (lambda *_: (64, 32), "slow-here"),
    "no row": (lambda *_: (1000, 4), "not-a-row"),
    "no numbers": (lambda *_: ("1024", "8"), "not-a-row"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_launch_that_suits_one_gpu_only_is_refused(name):
    choose, mistake = CHOICES[name]
    assert mistakes(CHOOSE, choose) == {mistake}


def _nearest(kb: int):
    """16 bytes a thread and so many KB a program, whatever the table says."""

    def choose(rows, n_bytes, known, new):
        def away(row):
            a_program = n_bytes / 2 / row["programs"]
            return abs(math.log2(a_program / (kb << 10))) + abs(math.log2(a_program / 512 / row["num_warps"]))

        row = min(rows, key=away)
        return row["block_size"], row["num_warps"]

    return choose


@pytest.mark.parametrize("kb", [2, 4, 8, 16])
def test_a_rule_that_never_looks_at_the_table_is_refused(kb):
    assert "" not in mistakes(CHOOSE, _nearest(kb))


def test_no_launch_suits_all_pairs():
    rng = random.Random(seeds.of("pairs"))
    pairs = [case.expected for case in exercises.CHOOSE.cases(rng, "cpu")]
    most = exercises.MOST_PERCENT
    for launch in pairs[0].known_us:
        assert any(pair.loss(launch) > most or pair.loss(launch, new=False) > most for pair in pairs), launch


def test_a_loss_just_above_the_limit_reads_as_above_it():
    assert exercises._above(5.004) == "5.004" and exercises._above(5.2) == "5.2"


def test_another_reason_for_a_launch_is_accepted():
    """4 KB of input a program instead of 16 bytes a thread, and no more warps than 8."""

    def choose(rows, n_bytes, known, new):
        starts = max(row["programs"] / row["us"] for row in rows if row["num_warps"] == 1)
        bytes_us, best = n_bytes / new["copy_gb_per_s"] / 1e3, min(row["us"] for row in rows)
        fits = [r for r in rows if r["us"] < 1.02 * best and r["programs"] / starts < 0.7 * bytes_us]
        fits = [r for r in fits if r["num_warps"] <= 8]
        row = min(fits, key=lambda r: (round(abs(math.log2(n_bytes / 2 / r["programs"] / 4096))), r["us"]))
        return row["block_size"], row["num_warps"]

    assert mistakes(CHOOSE, choose) == {""}


def test_the_choice_sees_no_times_of_the_new_gpu():
    for pair in (*gpu_pairs.recorded(), gpu_pairs.simulated(random.Random(seeds.of("lab10")))):
        rows, _, known, new = pair.args
        assert {(r["block_size"], r["num_warps"]): r["us"] for r in rows} == pair.known_us
        assert set(known) == set(new) == set(tables.FACTS)
        assert all(set(row) == {"block_size", "num_warps", "programs", "us"} for row in rows)
        rows.clear()
        assert pair.args[0]


def test_the_recorded_cases_are_the_records():
    """What counts is what the two sets hold; the sweep that a learner looks at is the one that is
    asked for.
    """
    sweep = records.compare("triton/launch-sweep", ("h100", "h200"))
    for (n_cols, dtype), pair in zip(tables.RECORDED, gpu_pairs.recorded(), strict=True):
        assert tables.sweep_on_h100(n_cols, dtype) == pair.rows and len(pair.rows) == 48
        row = sweep[
            (sweep.kernel == "Triton flat") & (sweep.n_cols == n_cols) & (sweep.dtype == dtype)
            & (sweep.block_size == 1024) & (sweep.num_warps == 8)
        ]  # fmt: skip
        assert (pair.known_us[1024, 8], pair.new_us[1024, 8]) == (
            row.median_us_h100.item(),
            row.median_us_h200.item(),
        )


def test_the_score_is_reproducible_and_compared_with_a_tuner(right):
    first, again = tables.score(right["choose"]), tables.score(right["choose"])
    assert first.equals(again) and len(first) == len(tables.RECORDED)
    assert (first["yours loses (%)"] <= exercises.MOST_PERCENT).all()
    assert first["H100's tuner loses (%)"].max() > exercises.MOST_PERCENT


# ---------------------------------------------------------------------------------------------------- claims


@pytest.mark.parametrize("forgotten", claims.OBJECTIONS)
def test_a_forgotten_objection_is_named(forgotten, right):
    found = mistakes(STANDS, lambda claim: [one for one in right["objections"](claim) if one != forgotten])
    assert found == {f"misses: {forgotten}"}


def _warm_ceiling(claim: dict) -> list[str]:
    above = claim["n_bytes"] / claim["ours"]["us"] / 1e3 > 1.05 * claim["copy_gb_per_s"]
    return sorted(claims.objections(claim) | ({"above a copy"} if above else set()))


def _with(objection: str, holds) -> object:
    """All objections right but one, which is decided by `holds`."""

    def objections(claim: dict) -> list[str]:
        return sorted((claims.objections(claim) - {objection}) | ({objection} if holds(claim) else set()))

    return objections


def _ceiling(share: float):
    def above(claim: dict) -> bool:
        rate = claim["n_bytes"] / claim["ours"]["us"] / 1e3
        return claim["ours"]["l2"] == "cold" and rate > share * claim["copy_gb_per_s"]

    return _with("above a copy", above)


PEER = "not the best peer"
OBJECTIONS = {
    "noise only where 1 is inside": (
        _with("noise", lambda claim: claim["interval"][0] <= 1 <= claim["interval"][1]),
        "misses: noise",
    ),
    "no more than a copy": (_ceiling(1.0), "objects: above a copy"),
    "1.2 copies": (_ceiling(1.2), "misses: above a copy"),
    "a slower peer": (
        _with(PEER, lambda c: max(c["peers_us"].values()) > c["theirs"]["us"]),
        f"objects: {PEER}",
    ),
    "a peer before ours": (
        _with(PEER, lambda c: min(c["peers_us"].values()) < c["ours"]["us"]),
        f"misses: {PEER}",
    ),
    "always one": (lambda claim: sorted(claims.objections(claim) | {"noise"}), "objects: noise"),
    "a warm L2 above a copy": (_warm_ceiling, "objects: above a copy"),
    "everything stands": (lambda claim: [], "misses: unchecked"),
    "yes or no": (lambda claim: not claims.objections(claim), "no-list"),
    "another word": (lambda claim: ["too good"], "unknown-objection"),
}


@pytest.mark.parametrize("name", OBJECTIONS)
def test_a_wrong_objection_is_refused(name):
    object_to, mistake = OBJECTIONS[name]
    assert mistakes(STANDS, object_to) == {mistake}


def test_each_claim_has_the_faults_that_it_was_given():
    rng = random.Random(seeds.of("claims"))
    for objection in claims.OBJECTIONS:
        for _ in range(50):
            claim = claims.justified(rng)
            assert claims.objections(claim) == set()
            claims.spoil(claim, objection, rng)
            assert claims.objections(claim) == {objection}


def test_objections_come_in_any_order(right):
    assert judged(STANDS, lambda claim: set(right["objections"](claim))).passed
    assert judged(STANDS, lambda claim: right["objections"](claim)[::-1]).passed


# ----------------------------------------------------------------------------------------- inside the lesson
@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (lambda n, gb: f"{n / gb / 1e3} µs", "not-a-number"),
        (lambda n, gb: n / gb / 2e3, "halved"),
        (lambda n, gb: 2 * n / gb / 1e3, "doubled"),
        (lambda n, gb: n / gb, "unit"),
        (lambda n, gb: 1e3 * gb / n if n else 0.0, "inverse"),
        (lambda n, gb: n / gb / 1e3 + 1.4, "time"),
    ],
)
def test_a_wrong_time_of_bytes(wrong, mistake):
    assert mistakes("bytes-to-us", wrong) == {mistake}


@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (lambda floor, moved, starts: None, "not-a-number"),
        (lambda floor, moved, starts: floor + moved + starts, "sum"),
        (lambda floor, moved, starts: max(floor, moved, starts), "largest-of-all"),
        (lambda floor, moved, starts: floor + min(moved, starts), "one-rate"),
        (lambda floor, moved, starts: floor + max(moved, starts) + 1, "time"),
    ],
)
def test_a_wrong_time_of_several_rates(wrong, mistake):
    assert mistake in mistakes("slowest-rate", wrong)


def test_times_at_the_same_time_are_not_told_apart_by_which_is_first():
    assert mistakes("slowest-rate", lambda floor, moved, starts: floor + max(starts, moved)) == {""}
    assert mistakes("slowest-rate", lambda floor, moved, starts: floor + moved) == {"one-rate"}


@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (lambda ours, theirs: ours < theirs, "another-word"),
        (lambda ours, theirs: "faster" if ours[0] > theirs[1] else "slower", "reversed"),
        (lambda ours, theirs: "faster" if sum(ours) < sum(theirs) else "slower", "overlap-decided"),
        (lambda ours, theirs: "tie", "missed"),
    ],
)
def test_a_wrong_order_of_two_intervals(wrong, mistake):
    assert mistake in mistakes("order-of-two", wrong)


def test_intervals_that_touch_are_a_tie():
    def open_ended(ours, theirs):
        return "faster" if ours[1] <= theirs[0] else "slower" if ours[0] >= theirs[1] else "tie"

    assert mistakes("order-of-two", open_ended) == {"overlap-decided"}

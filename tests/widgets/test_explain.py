"""What a sentence says about two kernels follows from their counters, and the recorded pairs support it."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter

import pytest

from helpers import device
from helpers.widgets import explain
from helpers.widgets.explain import RULES, SAME_TIME, Pair, Side, lines, rival_of, sentence, side
from helpers.widgets.softmax import SPACE as SOFTMAX
from helpers.widgets.square import LAUNCH, SPACES
from helpers.widgets.table import Table, load

SPEC = device.GpuSpec("H200", (9, 0), 132, 32, 2048, 32, 65536, 233472, 1, 1, 4253.0, 3000.0)
MINE = "Triton rows"
COUNTED = {
    "ncu_us": 40.0,
    "read_bytes": 67e6,
    "write_bytes": 60e6,
    "instructions": 2e6,
    "load_requests": 1e5,
    "load_sectors": 2e6,
    "store_requests": 1e5,
    "store_sectors": 2e6,
    "dram_percent": 90.0,
    "l2_percent": 80.0,
    "issue_percent": 10.0,
    "occupancy_percent": 90.0,
    "waves": 4.0,
    "launches": 1,
    "stalls": "long_scoreboard 84.6, drain 3.0",
}
ROW = {
    "verdict": "ok",
    "median_us": 40.0,
    "ci_low_us": 39.9,
    "ci_high_us": 40.1,
    "gb_per_s": 3000.0,
    "loads": 4,
    "load_bytes": 16,
    "spill_bytes": 0,
    "registers": 26,
}


def side_of(
    name: str, us: float = 40.0, facts: dict | None = None, blocks: int | None = None, **counted: object
) -> Side:
    counters = COUNTED | {"ncu_us": us} | counted
    return Side(name, ROW | {"median_us": us} | (facts or {}), counters, blocks=blocks, sm_count=132)


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        (
            {"read_bytes": 134e6, "write_bytes": 120e6},
            "2.00 times as many bytes through DRAM, which accounts",
        ),
        (
            {"read_bytes": 134e6, "write_bytes": 120e6, "dram_percent": 50.0},
            "it moves 2.00 times as many bytes through DRAM.",
        ),
        ({"facts": {"spill_bytes": 96}}, "it spills 96 bytes per thread instead of 0"),
        ({"load_sectors": 4e6}, "1.50 times as many sectors"),
        ({"blocks": 40}, "its grid size of 40 leaves most of the 132 SMs idle"),
        ({"waves": 31.0}, "the same work in 31.0 waves of blocks instead of 4.0"),
        (
            {"waves": 8.0, "occupancy_percent": 9.0, "facts": {"loads": None}},
            "9 % of the warps resident instead of 90 %; it does the same work in 8.0 waves",
        ),
        (
            {"facts": {"loads": None}, "load_requests": 4e5},
            "each load of a warp requests 160 bytes instead of 640",
        ),
        ({"facts": {"load_bytes": 4}, "dram_percent": 45.0}, "only 0.25 times as many bytes in flight"),
        ({"load_sectors": 8e5, "facts": {"threads": 256}, "blocks": 4096}, "only 0.38 times as many bytes"),
        (
            {"instructions": 8e6, "issue_percent": 88.0},
            "it executes 4.00 times as many instructions, and its schedulers issue in 88 % of all cycles "
            "instead of 10 %",
        ),
        (
            {"ncu_us": 41.0},
            "but only 1.02 times as long in the run that was counted, in which a took 41.0 µs",
        ),
        ({}, "these counters do not explain why"),
    ],
)
@pytest.mark.parametrize("mine_is_slow", [True, False])
def test_the_sentence_names_what_differs_and_nothing_else(slow, expected, mine_is_slow):
    slower, faster = side_of("a", 80.0, **slow), side_of("b")
    text = sentence(*((slower, faster) if mine_is_slow else (faster, slower)))
    assert text.startswith("a takes 2.00 times as long as b") and expected in text


def test_what_helps_the_slower_kernel_is_no_reason():
    """More sectors and spills cost less than a kernel saves that executes half of the instructions."""
    slow = side_of("a", 80.0, {"spill_bytes": 96, "loads": 3}, load_sectors=8e6, instructions=1e6)
    expected = "a takes 2.00 times as long as b, and these counters do not explain why."
    assert sentence(slow, side_of("b")) == expected


def test_bytes_account_for_the_difference_only_if_the_ratios_agree():
    text = sentence(side_of("a", 160.0, read_bytes=134e6, write_bytes=120e6), side_of("b"))
    assert text == "a takes 4.00 times as long as b: it moves 2.00 times as many bytes through DRAM."


def test_full_schedulers_come_first():
    slow = side_of("a", 80.0, read_bytes=134e6, write_bytes=120e6, instructions=8e6, issue_percent=88.0)
    assert sentence(slow, side_of("b")).startswith("a takes 2.00 times as long as b: it executes 4.00 times")


def test_equal_times_are_not_explained():
    text = sentence(side_of("a", 40.9, load_sectors=4e6), side_of("b"))
    assert text.startswith("a and b take the same time within 3 %") and "90 % of the peak DRAM" in text


def test_a_wrong_kernel_is_described_in_its_own_terms():
    finding = (
        "it writes only the first 128 of 4,096 columns in each row: 96.9 % of the output was never written"
    )
    wrong = Side("a", ROW | {"verdict": "wrong", "reason": finding}, None)
    assert sentence(wrong, side_of("b")) == sentence(wrong, None) == f"a is wrong here: {finding}."
    refused = Side("a", ROW | {"verdict": "refused", "reason": "BLOCK_SIZE is no power of 2."}, None)
    assert sentence(side_of("b"), refused) == "a does not run here: BLOCK_SIZE is no power of 2."


def test_without_times_or_counters_the_sentence_names_what_is_missing():
    uncounted = dataclasses.replace(side_of("a"), counted=None)
    assert sentence(uncounted, side_of("b")) == "Nsight Compute has no counters of a at this point."
    assert "was not timed" in sentence(Side("a", None, COUNTED), side_of("b"))
    assert sentence(side_of("a"), None) == "There is no other kernel to compare with."


def test_the_lines_have_what_is_known_and_a_dash_for_the_rest():
    table = Table(LAUNCH, SPEC, live=True)
    row = ROW | {"kernel": MINE, "shared_bytes": 0, "threads": 256, "reason": "", **LAUNCH.start}
    table.rows[LAUNCH.key(MINE, LAUNCH.start)] = row
    before = lines(table, side(table, MINE, LAUNCH.start))
    assert before["time, µs"] == "40.0" and before["must move"] == "134.2 MB" and before["launches"] == "–"
    assert before["bytes spilled per thread"] == "0" and before["loads per thread"] == "4 × 16 bytes"
    table.counted[LAUNCH.key(MINE, LAUNCH.start)] = COUNTED
    after = lines(table, side(table, MINE, LAUNCH.start))
    assert "a load from L1, L2 or DRAM (84.6 cycles)" in after["warps mostly waited for"]
    assert list(before) == list(after) and "–" not in after.values()
    assert rival_of(table, MINE, (MINE, "torch.square"), LAUNCH.start) == "torch.square"


RARE = ("idle SMs",)  # in no pair that is recorded: it is a fact of a launch


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Side, Side]]:
    """Every two kernels at a point of the recorded sweeps: both right, timed and counted."""
    found = []
    for space in (*SPACES.values(), SOFTMAX):
        table, seen = load(space), set()
        for values in itertools.product(*space.axes.values()):
            point = dict(zip(space.axes, values, strict=True))
            for names in itertools.combinations((*space.mapped, *space.rivals), 2):
                keys = tuple(space.key(name, point) for name in names)
                if keys in seen:
                    continue
                seen.add(keys)
                sides = tuple(explain.side(table, name, point) for name in names)
                if all(one.us and one.counted for one in sides):
                    found.append(sides)
    return found


def hits(pairs: list[tuple[Side, Side]]) -> dict[str, Counter]:
    """For each rule, how often it applied to the slower kernel of a pair and how often to the faster one."""
    found: dict[str, Counter] = {rule.name: Counter() for rule in RULES}
    for one, other in pairs:
        slow, fast = (one, other) if one.us >= other.us else (other, one)
        if slow.us / fast.us < SAME_TIME:
            continue
        for rule in RULES:
            found[rule.name]["slower"] += rule.applies(Pair(slow, fast))
            found[rule.name]["faster"] += rule.applies(Pair(fast, slow))
    return found


def test_a_reason_applies_to_the_slower_kernel_as_often_as_the_docstring_states(pairs):
    written = {
        " ".join(name.split()): (int(share), int(of.replace(",", "")))
        for name, share, of in re.findall(r"([a-z ]+?) +(\d+) % of +([\d,]+)", explain.__doc__)
    }
    measured = {
        name: (round(100 * n["slower"] / n.total()), n.total())
        for name, n in hits(pairs).items()
        if name not in RARE
    }
    assert written == measured
    assert all(share >= 93 and of >= 100 for share, of in measured.values())


def test_most_differences_are_explained(pairs):
    said = Counter()
    for one, other in pairs:
        text = explain.sentence(one, other)
        said[
            "same" if "the same time" in text
            else "unsaid" if "do not explain" in text
            else "elsewhere" if "cannot explain" in text
            else "explained"
        ] += 1  # fmt: skip
    differ = said.total() - said["same"]
    assert said["explained"] >= 0.8 * differ and said["unsaid"] <= 0.1 * differ, said


def test_a_sentence_has_three_reasons_at_most(pairs):
    assert all(explain.sentence(one, other).count(";") <= 2 for one, other in pairs)

"""What is said of a difference between two kernels holds in the pairs that were counted on a GPU, and is said
nowhere else.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter

import pytest

from helpers.widgets import differences, why
from helpers.widgets.differences import LOOKS, SAME_TIME, Side
from helpers.widgets.softmax import SPACE as SOFTMAX
from helpers.widgets.square import SPACES
from helpers.widgets.table import load

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
                sides = tuple(why.side(table, name, point) for name in names)
                if all(one.us and one.counted for one in sides):
                    found.append(sides)
    return found


def hits(pairs: list[tuple[Side, Side]]) -> dict[str, Counter]:
    """For each look, how often it spoke of the slower kernel of a pair, and how often of the faster one."""
    found: dict[str, Counter] = {name: Counter() for name in LOOKS}
    for one, other in pairs:
        slow, fast = (one, other) if one.us >= other.us else (other, one)
        if slow.us / fast.us < SAME_TIME:
            continue
        for name, look in LOOKS.items():
            found[name]["slower"] += bool(look(slow, fast))
            found[name]["faster"] += bool(look(fast, slow))
    return found


def test_a_reason_stands_with_the_slower_of_two_kernels_as_often_as_the_table_says(pairs):
    written = {
        " ".join(name.split()): (int(share), int(of.replace(",", "")))
        for name, share, of in re.findall(r"([a-z ]+?) +(\d+) % of +([\d,]+)", differences.__doc__)
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
        text = why.sentence(one, other)
        said[
            "same" if "the same time" in text
            else "unsaid" if "do not say" in text
            else "elsewhere" if "cannot say why" in text
            else "explained"
        ] += 1  # fmt: skip
    differ = said.total() - said["same"]
    assert said["explained"] >= 0.8 * differ and said["unsaid"] <= 0.1 * differ, said


def test_a_sentence_has_three_reasons_at_most(pairs):
    assert all(why.sentence(one, other).count(";") <= 2 for one, other in pairs)

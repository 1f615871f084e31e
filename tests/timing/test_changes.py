"""helpers.timing.changes: estimates divided, spread over many points, and called a change or noise."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from helpers.timing.changes import LEAST_US, Change, Estimate, change_since
from helpers.timing.stats import median_interval


def test_the_interval_of_a_quotient_covers_its_truth(seed):
    """Medians with their intervals, of two runs that differ by 10 %: the quotient's interval holds 1.1 at 95
    %.
    """
    draw, held, tries = random.Random(seed), 0, 400

    def estimate(truth: float) -> Estimate:
        samples = [draw.lognormvariate(math.log(truth), 0.05) for _ in range(60)]
        return Estimate(statistics.median(samples), *median_interval(samples))

    for _ in range(tries):
        ratio = estimate(110.0).over(estimate(100.0))
        held += ratio.low <= 1.1 <= ratio.high
    assert held / tries > 0.92


def test_over_itself_and_back():
    a, exact = Estimate(2.0, 1.9, 2.2), Estimate(4.0, 4.0, 4.0)
    ratio = a.over(exact)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.5, 0.475, 0.55))
    back = ratio.inverse().inverse()
    assert (back.value, back.low, back.high) == pytest.approx((0.5, 0.475, 0.55))
    both = a.over(a)
    assert both.value == 1 and both.low < 1.9 / 2 and both.high > 2.2 / 2


def test_many_points_need_wider_intervals():
    one = Estimate(1.02, 1.008, 1.032)
    assert one.for_one_of(1).low == pytest.approx(1.008)
    assert one.for_one_of(20).low < 1.008 and one.for_one_of(20).high > 1.032
    assert Change(one.for_one_of(1)).slower and not Change(one.for_one_of(100)).slower


def test_a_change_must_show_over_both_references():
    slower, same, faster = Estimate(1.05, 1.03, 1.07), Estimate(1.01, 0.99, 1.02), Estimate(0.95, 0.93, 0.97)
    assert Change(slower.spanning(Estimate(1.04, 1.02, 1.06))).slower
    for other in (same, faster):
        spanned = Change(slower.spanning(other))
        assert not spanned.slower and not spanned.faster
    assert slower.spanning(same).value == 1.01


@pytest.mark.parametrize(
    ("value", "half", "slower", "faster"),
    [
        (1.05, 0.02, True, False),
        (0.95, 0.02, False, True),
        (1.05, 0.06, False, False),
        (1.008, 0.001, False, False),
        (0.995, 0.001, False, False),
        (1.0, 0.0, False, False),
    ],
)
def test_a_change_has_to_exceed_the_interval_and_the_threshold(value, half, slower, faster):
    change = Change(Estimate(value, value - half, value + half))
    assert (change.slower, change.faster) == (slower, faster)


def test_a_short_kernel_moves_by_steps_of_the_clock():
    then, now = Estimate(1.0, 0.999, 1.001), Estimate(1.05, 1.049, 1.051)
    assert change_since(then, now, us=100.0).slower and not change_since(then, now, us=1.4).slower
    assert change_since(then, now, us=1.4).least == pytest.approx(LEAST_US / 1.4)
    assert not change_since(then, now, us=100.0, least=0.1).slower

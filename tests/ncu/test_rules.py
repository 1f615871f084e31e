"""Nsight Compute's advice: sorted, readable, and compared with what came of it."""

from __future__ import annotations

import math

import pytest

from helpers import ncu
from helpers.ncu.rules import readable_html


def test_advice_is_sorted_and_readable(report):
    table = ncu.advice(report)
    assert set(table.kind) == {"advice"} and set(table.launch) == set(range(5))
    for _, rows in table.groupby("launch"):
        ranks = rows.speedup_type.map({"global": 0, "local": 1, "": 2})
        assert ranks.is_monotonic_increasing
        assert rows[rows.speedup_type == "global"].est_speedup_percent.is_monotonic_decreasing
    assert not table.message.str.contains("@").any()
    small = report[0].rule("LaunchConfiguration")
    assert small.title == "Small Grid"
    sm_count = report[0].metrics["launch__sm_count"]
    assert small.speedup_percent == pytest.approx(100 * (1 - 1 / sm_count))
    assert (
        ncu.summary(report).est_speedup_percent[0]
        == table[table.speedup_type == "global"].est_speedup_percent.max()
    )
    assert len(ncu.advice(report, 0)) == len(ncu.advice(report[0])) < len(ncu.advice(report, 0, notes=True))
    assert (ncu.advice(report, from_percent=50).est_speedup_percent.dropna() >= 50).all()


def test_marks_become_text_and_links():
    markup = (
        "See @section:LaunchStats:Launch Statistics@ & the @url:Guide:https://x.org/a?b#c@, at "
        "@sass:0x10:FMUL@."
    )
    assert ncu.readable(markup) == "See Launch Statistics & the Guide (https://x.org/a?b#c), at FMUL."
    html = readable_html(markup)
    assert '<a href="https://x.org/a?b#c">Guide</a>' in html
    assert "<i>Launch Statistics</i> &amp; the" in html
    assert ncu.readable("user@host pays 5 @ a piece") == "user@host pays 5 @ a piece"


def test_advice_html_folds_by_launch(report):
    assert ncu.advice_html(report).count("<details>") == 5
    assert ncu.advice_html(report, 4).count("<details open>") == 1


def test_advice_html_can_be_titles_only(report):
    shown = ncu.advice_html(report, 4, titles=True)
    assert "Tail Effect" in shown and "uniform execution duration" not in shown
    assert "uniform execution duration" in ncu.advice_html(report, 4)


def test_advice_without_any_estimate_is_shown(report):
    """A threshold above all estimates leaves only advice that has none."""
    assert ncu.advice(report, from_percent=1000).est_speedup_percent.isna().all()
    assert "(no estimate)" in ncu.advice_html(report, from_percent=1000)


def test_outcome_compares_promise_and_result(report):
    row = ncu.outcome("more rows", report[1], report[0], report[1].rule("LaunchConfiguration"))
    assert row["promised_us"] == pytest.approx(row["before_us"] * (1 - row["estimate_percent"] / 100))
    assert row["saved_percent"] == pytest.approx(100 * (1 - row["came_us"] / row["before_us"]))
    assert row["speedup_type"] in ("global", "local")
    assert math.isnan(ncu.outcome("x", report[1], report[0], None)["promised_us"])

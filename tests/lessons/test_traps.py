"""Lesson 07's game of traps: what it counts, and what a page shows of it."""

from __future__ import annotations

import html

import pandas as pd
import pytest
from timer.traps import TRAPS

from helpers import records
from helpers.lessons import traps

ROWS = pd.DataFrame(
    [
        ("warm L2", "one", "right", "right"),
        ("warm L2", "two", "wrong", "-27 %"),
        ("nothing & <none>", "one", "refuses", "refuses"),
        ("nothing & <none>", "two", "silent", "says nothing"),
        ("a clock", "one", "not fooled", "not fooled, +3.7 µs"),
        ("a clock", "two", "says so", "says so"),
    ],
    columns=["trap", "timer", "outcome", "told"],
)


def test_deceived_timers_are_listed():
    found = traps.deceived(ROWS)
    assert found == {"warm L2": {"two": "-27 %"}, "nothing & <none>": {"two": "says nothing"}, "a clock": {}}
    assert traps.answer(found["a clock"]) == "It deceives none."


def test_a_pick_is_counted_once_and_stays(monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "widgets")
    assert traps.game(ROWS).widget is not None
    game = traps.Game(["one", "two"], traps.deceived(ROWS))
    game.picks["warm L2"]["two"].value = True
    game.picks["warm L2"]["one"].value = True
    game.seen["warm L2"].click()
    assert (
        "two (-27 %)" in game.answers["warm L2"].value
        and "You had one the other way" in game.answers["warm L2"].value
    )
    assert "1 of 2" in game.score.value and game.picks["warm L2"]["two"].disabled
    assert html.escape(traps.WHY["warm L2"]) in game.answers["warm L2"].value
    game.seen["a clock"].click()
    assert "You had them all" in game.answers["a clock"].value and "3 of 4" in game.score.value
    assert not game.answers["nothing & <none>"].value


def test_a_page_folds_each_answer_away(monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "plain")
    shown = traps.game(ROWS)
    assert shown.widget is None and shown.html.count("<details>") == 3 and "&lt;none&gt;" in shown.html


def test_every_trap_has_its_reason():
    assert list(traps.WHY) == [trap.name for trap in TRAPS]


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_every_recorded_trap_deceives_some_timers(gpu, monkeypatch):
    monkeypatch.setenv("WORKBOOK_REPLAY", gpu)
    truth = traps.deceived(records.stored("timer/traps"))
    assert list(truth) == list(traps.WHY)
    n_deceived = {
        timer: sum(timer in told for told in truth.values())
        for timer in records.stored("timer/traps").timer.unique()
    }
    assert n_deceived["time_gpu"] < min(n for timer, n in n_deceived.items() if timer != "time_gpu")

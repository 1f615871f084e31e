"""What runs next to the learner's write-up of lab 03: two positions of the sliders, measured again. It
contains no answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from helpers.exercises import writeup

if TYPE_CHECKING:
    from helpers.widgets.table import Table

_FACTS = ("registers", "spill_bytes", "shared_bytes", "loads", "load_bytes", "threads", "blocks")
_TIMES = ("median_us", "ci_low_us", "ci_high_us")
_SAME_TIME = 0.2  # by which two measurements of a launch may differ


def read(answer: Any) -> dict[str, Any]:
    """The write-up without its sliders, and what is known about its positions.

    Args:
        answer: a `WriteUp` whose `work` has "explored", which `explore` returned, and the positions "a" and
            "b".

    Returns:
        "write_up", and "trouble", a sentence, if the work can't be read. Otherwise also "a" and "b" (rows of
        the explored kernel: verdict, reason, facts, occupancy in percent, and times in µs if a GPU was
        available), "kernel", "gpu" and "timed".
    """
    if not isinstance(answer, writeup.WriteUp):
        return {"write_up": writeup.as_plain(answer)}
    plain = {"write_up": writeup.as_plain(replace(answer, work=None))}
    work = answer.work
    if not isinstance(work, dict) or not {"explored", "a", "b"} <= set(work):
        return {**plain, "trouble": 'work is not a dict with "explored", "a" and "b"'}
    table = _measurable(work["explored"])
    if table is None:
        trouble = 'work["explored"] is not what explore(…) returned for your function'
        return {**plain, "trouble": trouble}
    space = table.space
    found = {}
    for which in ("a", "b"):
        at = work[which]
        if not isinstance(at, dict) or set(at) != set(space.axes):
            return {**plain, "trouble": f'work["{which}"] needs a value for {", ".join(space.axes)}'}
        for axis, value in at.items():
            if value not in space.axes[axis]:
                listed = ", ".join(map(str, space.axes[axis]))
                return {
                    **plain,
                    "trouble": f'in work["{which}"] {axis} is {value!r}, but its slider has only {listed}',
                }
        found[which] = _known(table, space.mapped[0], at)
        shown = work["explored"].now[0].row(space.mapped[0], at) or {}
        found[which]["times_us"] = _times_us(shown, found[which]["times_us"])
    return {**plain, **found, "kernel": space.mapped[0], "gpu": table.spec.name, "timed": table.timed}


def _measurable(explored: Any) -> Table | None:
    """The sliders of a function, without the figures that they hold: those are taken anew."""
    from helpers import device
    from helpers.widgets.explored import Explored
    from helpers.widgets.own import Called
    from helpers.widgets.residence import spec_for
    from helpers.widgets.table import Table

    if type(explored) is not Explored or type(table := explored.now[0]) is not Table:
        return None
    called = getattr(table.space.candidates, "__self__", None)
    if type(called) is not Called or table.space.candidates != called.candidate or not table.live:
        return None
    timed = device.has_gpu()
    spec = device.gpu_spec() if timed else spec_for(table.spec.target)
    return Table(table.space, spec, live=True, timed=timed)


def _times_us(shown: dict[str, Any], now: list[float | None]) -> list[float | None]:
    """The times that the learner saw, if measuring again gives about the same; otherwise the new ones."""
    before = [shown.get(name) for name in _TIMES]
    near = before[0] and now[0] and abs(before[0] / now[0] - 1) < _SAME_TIME
    return before if near else now


def _known(table: Table, kernel: str, at: dict[str, Any]) -> dict[str, Any]:
    from helpers.widgets.residence import occupancy, percent_held

    row = table.measured(kernel, at) or {}
    known = {name: row.get(name) for name in (*_FACTS, "verdict", "reason")}
    known["at"] = {axis: at[axis] for axis in table.space.axes}
    known["times_us"] = [row.get(name) for name in _TIMES]
    if row.get("registers") and row.get("threads"):
        held, limit = occupancy(table.spec, row["threads"], row["registers"], row.get("shared_bytes") or 0)
        known |= {"occupancy_percent": percent_held(table.spec, held, row["threads"]), "limit": limit}
    return known

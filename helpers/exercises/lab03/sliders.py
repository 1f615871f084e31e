"""Lab 03's free exercise: what the sliders show about the learner's own kernel at two positions, and what
they don't.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.exercises.consistency import Claim, Data, Figure, Problem
from helpers.exercises.factories import free_exercise
from helpers.exercises.lab03 import positions

_FIGURES = {
    "registers": "registers per thread",
    "spill_bytes": "spilled bytes",
    "shared_bytes": "bytes of shared memory",
    "loads": "load instructions in the PTX",
    "load_bytes": "bytes of the widest load",
    "occupancy_percent": "the share of an SM's threads that the launch can occupy",
    "blocks": "programs of the launch",
}
_GOOD = ("ok", "right")
_TIMES, _FASTER = ("us_a", "us_b"), ("a-is-faster", "b-is-faster", "no-difference-in-time")


def _data(value: Mapping[str, Any]) -> Data:
    """The data on the two positions, from this GPU or compiled for the records' GPU."""
    if trouble := value.get("trouble"):
        return _only(
            Problem("no-positions", trouble, "The cell with the sliders lists the values of each slider.")
        )
    a, b = value["a"], value["b"]
    if a["at"] == b["at"]:
        return _only(Problem("one-position", "a and b are the same position", "Compare two that differ."))
    for which, row in (("a", a), ("b", b)):
        if row["registers"] is None:
            why = row["reason"] or "nothing is known about it"
            says = f"position {which} has no figures because it is {row['verdict']}: {why}"
            return _only(Problem("no-figures", says, "Choose a position at which your kernel compiles."))
    if not value["timed"] and (of_time := _of_time(value["write_up"])):
        says = f"not reached: {of_time} is about time, but without a GPU nothing was timed"
        hint = "Check it on a machine with a GPU, or report only compiled figures, which aren't times."
        return _only(Problem("not-reached", says, hint))
    timed = bool(value["timed"]) and all(row["times_us"][0] for row in (a, b))
    figures = {}
    for which, row in (("a", a), ("b", b)):
        for name, what in _FIGURES.items():
            if row.get(name) is not None:
                source = f"{what} at position {which}"
                figures[f"{name}_{which}"] = Figure(float(row[name]), source, 0.001, 0.5)
        if timed:
            figures[f"us_{which}"] = Figure(row["times_us"][0], f"the median time at position {which}", 0.05)
    findings = _findings(a, b)
    by_time = _by_time(a, b, timed)
    for name, faster in zip(_FASTER, ("a", "b", ""), strict=True):
        findings[name] = Claim(by_time and by_time[0] == faster, _times_in_words(a, b, timed), _TIMES)
    changes = {
        f"launch-{which}": _launch(which, mine, other, by_time)
        for which, mine, other in (("a", a, b), ("b", b, a))
    }
    changes["time-it-first"] = Claim(not timed, "both were timed" if timed else "nothing was timed here")
    questions = {
        "which-is-faster": Claim(by_time and True, _times_in_words(a, b, timed)),
        "why": Claim(None, "compiled figures and times don't say what the warps wait for"),
        "other-sizes": Claim(None, "two positions say nothing about other sizes"),
        "other-gpus": Claim(None, f"these figures are for one GPU, {value['gpu']}"),
        "is-it-right": Claim(True, f"both were checked: a is {a['verdict']}, b is {b['verdict']}"),
    }
    return Data("the sliders", figures, findings, changes, questions, n_undecided=1)


def _of_time(given: Mapping[str, Any]) -> str:
    """What in a write-up refers to time, or ""."""
    named = [one for one in given["figures"] if one in _TIMES]
    return given["finding"] if given["finding"] in _FASTER else (named or [""])[0]


def _only(problem: Problem) -> Data:
    return Data("the sliders", {}, {}, {}, {}, problems=(problem,))


def _findings(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Claim]:
    def pair(name: str) -> str:
        return f"{_FIGURES[name]}: {a.get(name)} at a, {b.get(name)} at b"

    def differs(name: str) -> Claim:
        return Claim(a.get(name) != b.get(name), pair(name), (f"{name}_a", f"{name}_b"))

    alike = all(a.get(name) == b.get(name) for name in ("registers", "spill_bytes", "loads", "load_bytes"))
    same = f"{pair('registers')}; {pair('loads')}"
    return {
        "registers-differ": differs("registers"),
        "occupancy-differs": differs("occupancy_percent"),
        "loads-differ": differs("loads"),
        "load-width-differs": differs("load_bytes"),
        "programs-differ": differs("blocks"),
        "one-spills": Claim(
            bool(a["spill_bytes"]) != bool(b["spill_bytes"]),
            pair("spill_bytes"),
            ("spill_bytes_a", "spill_bytes_b"),
        ),
        "same-counts": Claim(alike, same, ("registers_a", "registers_b", "loads_a", "loads_b")),
    }


def _by_time(a: Mapping[str, Any], b: Mapping[str, Any], timed: bool) -> tuple[str] | None:
    """("a",) or ("b",) for the faster one, ("",) if the intervals overlap, None if nothing was timed."""
    if not timed:
        return None
    (_, a_low, a_high), (_, b_low, b_high) = a["times_us"], b["times_us"]
    return ("a",) if a_high < b_low else ("b",) if b_high < a_low else ("",)


def _times_in_words(a: Mapping[str, Any], b: Mapping[str, Any], timed: bool) -> str:
    if not timed:
        return "there are no times of both, and compiled figures are not times"
    one, other = (
        f"{m:,.2f} µs ({low:,.2f} to {high:,.2f})" for m, low, high in (a["times_us"], b["times_us"])
    )
    return f"a takes {one}, and b takes {other}"


def _launch(
    which: str, mine: Mapping[str, Any], other: Mapping[str, Any], by_time: tuple[str] | None
) -> Claim:
    """Whether a position may be chosen: it is right, and the other one is not faster.

    If nothing was timed, a position that spills may not be chosen over one that doesn't.
    """
    if mine["verdict"] not in _GOOD:
        return Claim(False, f"position {which} is {mine['verdict']}: {mine['reason']}")
    if by_time and by_time[0] not in ("", which):
        return Claim(False, f"the other position is faster, {other['times_us'][0]:,.2f} µs")
    if mine["spill_bytes"] and not other["spill_bytes"] and by_time is None:
        return Claim(
            False, f"position {which} spills {mine['spill_bytes']} bytes, and the other one doesn't spill"
        )
    return Claim(True, f"position {which} is right, and nothing known here speaks against it")


SLIDERS = free_exercise(
    "say-what-you-found",
    "03_triton",
    "Report what the sliders show, and what they don't",
    "SLIDERS",
    _data,
    read=positions.read,
)

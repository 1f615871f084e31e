"""What a run of a learner's kernel says, in words: it does not build, it stumbled, it wrote outside, its values are wrong."""

from __future__ import annotations

from helpers.exercises.lab02 import traps
from helpers.exercises.model import Case, Verdict
from helpers.exercises.runs import fell, is_wrong, wrong_values
from helpers.exercises.verdicts import wrong

__all__ = ["fell", "is_wrong", "troubled", "wrong_values"]


def troubled(id: str, case: Case, value: dict) -> Verdict | None:
    """The verdict on a run that gave no result; None where it gave one."""
    if "refused" in value:
        return wrong(
            id,
            case,
            f"on {case.label} {value['refused']}",
            "launch",
            "Is the kernel's signature still the one given?",
        )
    if "trouble" not in value:
        return None
    first, *rest = value["trouble"].split("\n")
    hints = {
        "uninitialised": (
            "missing-barrier",
            "Another thread fills that place: all must have written (__syncthreads()) before one reads.",
        ),
        "race": ("missing-barrier", "Two threads use that place without a __syncthreads() between them."),
        "barrier": (
            "barrier-in-if",
            "All threads of a block have to reach __syncthreads(): put it outside the if.",
        ),
    }
    mistake, hint = hints.get(
        value["cause"],
        (value["cause"].replace(" ", "-"), "Look at that line; the traced run is made on the host."),
    )
    if value["cause"] == "out of bounds":
        mistake, hint = traps.out_of_bounds(case, value)
    if value["cause"] == "uninitialised" and value["has_barrier"]:
        sizes = case.args if case.call == "count" else case.args[1]
        if any(size % 32 for size in sizes):
            mistake = "missing-guard"
            hint = "At the edge a tile is filled in part: write only what lies inside the output, width × height."
        else:
            mistake = "part-of-tile"
            hint = (
                "No thread filled that place: 32 × 8 threads fill a tile of 32 × 32 in four steps of 8 rows."
            )
    return wrong(id, case, f"on {case.label}: {first}", mistake, hint, "\n".join(rest))

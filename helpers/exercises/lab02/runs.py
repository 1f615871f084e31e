"""What a run of a learner's kernel says, in words: it does not build, it stumbled, it wrote outside, its values are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from helpers.exercises.lab02 import traps
from helpers.exercises.model import Case, Outcome, Verdict
from helpers.exercises.verdicts import raised, wrong


def fell(id: str, name: str, case: Case, outcome: Outcome) -> Verdict | None:
    """`raised`, with a hint of its own where there is nothing to build."""
    found = raised(id, name, case, outcome)
    if found is None or found.mistake != "does-not-build":
        return found
    if "has no kernel" in found.sentence:
        return replace(
            found,
            hint="The launcher calls the kernel by that name: keep the first line that the starter gives.",
        )
    if "CUDA text, a string" in found.sentence:
        return replace(found, hint=f"Give the check the text {name} itself, not what was made from it.")
    return found


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


def wrong_values(id: str, case: Case, value: dict, explain: Callable) -> Verdict | None:
    """The verdict on a result that came: what was written outside, and the first wrong elements."""
    from helpers import check

    out = value["out"].cpu()

    if value["changed"]:
        hint = "Read from the inputs, write to the output: other code still needs its tensors."
        return wrong(id, case, f"on {case.label} it changed an input", "changes-input", hint)
    if value["outside"]:
        sentence = f"on {case.label} it wrote {value['outside']:,} elements outside its output"
        hint = "Had the threads that wrote there an element? If so their index is wrong, if not a guard is missing."
        return wrong(id, case, sentence, "missing-guard", hint)
    try:
        check.assert_close("it", out, case.expected.cpu().double(), case=case.label)
    except check.Mismatch as error:
        first, *rest = str(error).split("\n")
        mistake, hint = explain(out, case)
        what = f"on {case.label}: {first.rpartition(': ')[2]}"
        return wrong(id, case, what, mistake, hint, "\n".join(rest))
    return None


def is_wrong(out, expected):
    """Where a result's elements are not those expected, NaN too: a bool tensor of its shape, on the CPU."""
    expected = expected.cpu()
    return ~((out == expected) | ((out - expected).abs() <= 1e-6 + 2e-6 * expected.abs()))

"""One run of a learner's CUDA kernel into an output between guard bands, and what it says in words.

Labs whose answers are CUDA text share this; what only one of them knows is in its own `runs` or `launchers`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from helpers.exercises.model import Case, Outcome, Verdict
from helpers.exercises.verdicts import raised, wrong

if TYPE_CHECKING:
    import torch

    from helpers.cuda.host import HostCudaError

_POISON = float("nan")


def into_new_memory(launch: Callable[[torch.Tensor], None], inputs: list, shape: tuple) -> dict:
    """Run once into an output of NaN between guard bands.

    Args:
        launch: launches the kernel with the output that it is given, on the inputs' device.
        inputs: float32 tensors that the kernel reads.
        shape: of the output.

    Returns:
        "out", "outside": elements written next to it, and "changed": whether an input changed. Or `trouble`'s fields of
        what the host found, or "refused": the launch's error.
    """
    import math

    import torch

    from helpers.cuda.host import HostCudaError
    from helpers.exercises import guard
    from helpers.exercises.results import same_bits

    x, blocks = inputs[0], guard.Blocks()
    before = [t.clone() for t in inputs]
    # 0x5A is what lies outside an output: reading it gives a large number, and a write there is seen.
    _, middle = blocks.make(4 * math.prod(shape), 4, x.device, 0x5A)
    out = torch.empty(0, dtype=torch.float32, device=x.device).set_(middle.untyped_storage(), 0, tuple(shape))
    out.fill_(_POISON)
    try:
        launch(out)
        if x.is_cuda:
            torch.cuda.synchronize()
    except HostCudaError as error:
        return trouble(error)
    except RuntimeError as error:
        return {"refused": str(error).strip().split("\n")[0]}
    changed = any(not same_bits(a, b) for a, b in zip(inputs, before, strict=True))
    return {"out": out.clone(), "outside": blocks.writes_outside(), "changed": changed}


def trouble(error: HostCudaError) -> dict:
    """What the host found, in plain values: "trouble", its sentence, and "cause", "argument", "block", "thread"."""
    return {
        "trouble": str(error),
        "cause": error.cause,
        "argument": error.argument,
        "block": error.block,
        "thread": error.thread,
    }


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

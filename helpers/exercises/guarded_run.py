"""Run a learner's CUDA kernel once with guard bands around its output; conditions for what the run shows.

The labs whose answers are CUDA text share this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from helpers.exercises.mistakes import Conditions, Seen, always, under
from helpers.exercises.verdicts import counted

if TYPE_CHECKING:
    import torch

    from helpers.cuda.emulator import EmulatorError


def into_new_memory(launch: Callable[[torch.Tensor], None], inputs: list, shape: tuple) -> dict:
    """Run once into an output full of NaN between guard bands.

    Args:
        launch: `(out) -> None`, launches the kernel on the inputs' device.
        inputs: float32 tensors that the kernel reads.
        shape: of the output.

    Returns:
        "out"; "outside", how many elements were written outside it; and "changed", whether an input changed.
        If the emulator found a fault, the fields of `trouble` instead; if the launch failed, "refused", its
        error.
    """
    import torch

    from helpers.cuda.emulator import EmulatorError
    from helpers.exercises import guard
    from helpers.exercises.portable import same_bits

    x, blocks = inputs[0], guard.Blocks()
    before = [t.clone() for t in inputs]
    # 0x5A fills the memory outside the output: reading it gives a large number, and a write there is noticed.
    _, interior = blocks.make(4 * math.prod(shape), 4, x.device, 0x5A)
    out = torch.empty(0, dtype=torch.float32, device=x.device).set_(
        interior.untyped_storage(), 0, tuple(shape)
    )
    out.fill_(math.nan)
    try:
        launch(out)
        if x.is_cuda:
            torch.cuda.synchronize()
    except EmulatorError as error:
        return trouble(error)
    except RuntimeError as error:
        return {"refused": str(error).strip().split("\n")[0]}
    changed = any(not same_bits(a, b) for a, b in zip(inputs, before, strict=True))
    return {"out": out.clone(), "outside": blocks.writes_outside(), "changed": changed}


def trouble(error: EmulatorError) -> dict:
    """What the emulator found, as plain values: "trouble", its sentence, "cause", "argument", "block",
    "thread".
    """
    fields = ("cause", "argument", "block", "thread")
    return {"trouble": str(error), **{name: getattr(error, name) for name in fields}}


# Conditions for a text that doesn't build (`Table.raises`).
DOES_NOT_BUILD: Conditions = {
    "does-not-build/kernel": lambda s: s.got.error_type == "BuildError" and "has no kernel" in s.got.error,
    "does-not-build/text": lambda s: (
        s.got.error_type == "BuildError" and "CUDA text, a string" in s.got.error
    ),
}


def of_runs(faults: Conditions, values: Conditions) -> Conditions:
    """The conditions for an exercise whose kernel is run by `into_new_memory`.

    The exercise's section of `hints.toml` needs `what = "{problem}"`.

    Args:
        faults: for what the emulator found, by `s.cause`, `s.argument`, `s.block` and `s.thread`.
        values: for wrong values, by `s.out`, `s.expected` and `s.bad`, a mask of the wrong elements.
    """
    return {
        "launch": lambda s: s.refused,
        **under(lambda s: s.trouble, {**faults, "{fault}": always}),
        "changes-input": lambda s: s.changed,
        "missing-guard/outside": lambda s: s.outside,
        **under(lambda s: s.bad is not None, values),
    }


def seen_run(seen: Seen) -> Iterable[Seen]:
    """The facts that the conditions of `of_runs` use: the fields of the run, `problem`, which is the end of a
    sentence, and `details`.
    """
    from helpers import check

    fields = ("refused", "trouble", "cause", "argument", "block", "thread", "changed", "outside")
    run = {name: seen.got.get(name) for name in fields} | {"bad": None, "fault": ""}
    problem, details = "", ""
    if run["trouble"]:
        problem, _, details = run["trouble"].partition("\n")
        problem, run["fault"] = problem.removesuffix("."), run["cause"].replace(" ", "-")
    elif run["changed"]:
        problem = "it changed an input"
    elif run["outside"]:
        problem = f"it wrote {counted(run['outside'], 'element')} outside its output"
    elif "out" in seen.got:
        out, expected = seen.got["out"].cpu(), seen.want.cpu().double()
        try:
            check.assert_close("it", out, expected, case=seen.case.label)
        except check.Mismatch as error:
            first, _, details = str(error).partition("\n")
            problem = first.rpartition(": ")[2]
            run |= {"out": out, "expected": expected, "bad": is_wrong(out.double(), expected)}
    yield seen.also(**run, problem=problem, details=details)


def unwritten(s: Seen) -> bool:
    """All wrong elements still hold the NaN from before the run."""
    return bool(s.out[s.bad].isnan().all())


def is_wrong(out, expected):
    """Where a result's elements are wrong, also for NaN: a bool tensor of its shape, on the CPU."""
    expected = expected.cpu()
    return ~((out == expected) | ((out - expected).abs() <= 1e-6 + 2e-6 * expected.abs()))

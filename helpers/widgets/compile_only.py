"""Points without a GPU: compiled for a GPU that isn't here, checked on the CPU, and never timed.

The check runs a few rows: Triton kernels in Triton's interpreter, and kernels of `cuda.load_kernel` on the
host, thread by thread. The launch of the whole size is compiled but not run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from helpers import check, device
from helpers.widgets.compiled import launch_facts
from helpers.widgets.measure import empty_row, inputs_of
from helpers.widgets.residence import occupancy, percent_held
from helpers.widgets.space import FACTS, RESULTS, Candidate, Refused, Space

RIGHT = "right"
_ROWS, _WIDE = 3, 2**15  # an interpreted program takes about 1 ms, so of wider rows only one is checked
_PRODUCT_COLS = 160  # a product is checked on a few tiles, the last ones partial


def inspect(space: Space, kernel: str, point: Mapping[str, Any], spec: device.GpuSpec) -> dict[str, Any]:
    """Check one kernel at one point on a few rows, and compile its launch at the whole size for a GPU.

    Returns:
        The row, as `measure.measure` returns it but without times. Its verdict is "right", "wrong", "refused"
            (it doesn't compile, or doesn't fit on an SM), "skipped" (the space wouldn't time it on a GPU),
            "unchecked" (it compiles but can't run here) or "untimed" (it launches no kernel that we compile).
            `occupancy` is the percentage of an SM's threads that the launch can use.
    """
    import torch

    from helpers import cuda, ptx

    row = empty_row(space, kernel, point) | dict.fromkeys(FACTS) | dict.fromkeys(RESULTS)
    row |= {
        "occupancy": None,
        "verdict": "untimed",
        "reason": "nothing of it is compiled here, and only a GPU times it",
    }
    try:
        candidate = space.candidates(kernel, point)
    except Refused as refusal:
        return row | {"verdict": "refused", "reason": str(refusal)}
    if hasattr(candidate.run, "_torchdynamo_orig_callable"):
        return row
    dtype, n_cols = getattr(torch, point["dtype"]), point["n_cols"]
    checked_cols = n_cols if space.n_flops is None else min(n_cols, _PRODUCT_COLS)
    seen, verdict = _checked(space, candidate, kernel, checked_cols, dtype)
    if (
        dtype is torch.bfloat16
        and verdict["verdict"] != RIGHT
        and any(launch.block is None for launch in seen)
    ):
        # The interpreter of Triton 3.6 to 3.9 treats the bits of bfloat16 as integers.
        _, verdict = _checked(space, candidate, kernel, checked_cols, torch.float32)
        verdict["reason"] += " (checked as float32, because Triton's interpreter has no bfloat16 arithmetic)"
    if kernel not in space.mapped and not seen:
        return row
    row |= verdict
    if not seen:
        return row
    try:
        facts = _compiled(space, candidate, (space.rows(n_cols), n_cols), dtype, spec)
    except (ptx.CompileError, cuda.BuildError, ValueError, RuntimeError, TypeError) as error:
        return row | {"verdict": "refused", "reason": sentence(error)}
    except OSError as error:  # no compiler could be started, which isn't the kernel's fault
        return row | {"verdict": "unchecked", "reason": f"the compiler did not start: {sentence(error)}"}
    row |= facts
    held, limit = occupancy(spec, facts["threads"], facts["registers"], facts["shared_bytes"])
    if not held:
        return row | {"verdict": "refused", "reason": _does_not_fit(facts, limit, spec)}
    row |= {"occupancy": percent_held(spec, held, facts["threads"])}
    why = space.skipped(kernel, point)
    return row | {"verdict": "skipped", "reason": why} if why else row


def _checked(
    space: Space, candidate: Candidate, name: str, n_cols: int, dtype: Any
) -> tuple[list, dict[str, str]]:
    """Run and check a kernel on a few rows; returns its launches, and the verdict with its reason."""
    from helpers import ptx
    from helpers.cuda.emulator import EmulatorError

    shape = (_ROWS if n_cols <= _WIDE else 1, n_cols)
    with ptx.launches() as seen:
        try:
            check.assert_matches(
                candidate.run, candidate.reference, shapes=[shape], dtype=dtype, device="cpu",
                make_inputs=candidate.make_inputs, name=name, tolerance=candidate.tolerance,
            )  # fmt: skip
        except check.Mismatch as error:
            return seen, {"verdict": "wrong", "reason": error.reason}
        except EmulatorError as error:
            return seen, {"verdict": "wrong", "reason": sentence(error)}
        except Refused as error:
            return seen, {"verdict": "refused", "reason": str(error)}
        except Exception as error:  # whatever a kernel or its launching function raises is the point's result
            verdict = "unchecked" if seen else "refused"
            return seen, {"verdict": verdict, "reason": sentence(error)}
    where = "on the host" if any(launch.block for launch in seen) else "in Triton's interpreter"
    checked = f"right on {space.size(*shape)}{f' {where}' if seen else ''}, not timed"
    return seen, {"verdict": RIGHT, "reason": checked}


def _compiled(
    space: Space, candidate: Candidate, shape: tuple[int, int], dtype: Any, spec: device.GpuSpec
) -> dict[str, Any]:
    """Facts about the launch of the whole size."""
    from helpers import ptx

    inputs = inputs_of(candidate, shape, "cpu", dtype)
    with ptx.launches(run=False) as seen:
        candidate.run(*inputs)
    return launch_facts(seen, spec.target, loop=space.n_flops is not None)


def _does_not_fit(facts: Mapping[str, int], limit: str, spec: device.GpuSpec) -> str:
    """Why not even one block fits on an SM."""
    needs = {
        "shared memory": (facts["shared_bytes"], spec.shared_bytes_per_sm, "bytes of shared memory"),
        "registers": (facts["threads"] * facts["registers"], spec.registers_per_sm, "registers"),
        "threads": (facts["threads"], spec.max_threads_per_sm, "threads"),
    }
    need, have, what = needs.get(limit, (1, 0, "blocks"))
    return f"out of resource: a block needs {need:,} {what}, and an SM of {spec.name} has {have:,}"


def sentence(error: BaseException) -> str:
    """The error in one line: the message's first one, or the last one of Triton's compiler."""
    text = str(error)
    if "outside of the scope of a kernel" in text:
        return (
            "it calls other @triton.jit functions, which the interpreter runs only where device.prepare() or "
            "TRITON_INTERPRET=1 came before Triton was imported"
        )
    if type(error).__name__ == "InterpreterError":
        text = re.sub(r"^\w+\((['\"])(.*)\1\)$", r"\2", text, flags=re.S).replace("\\n", "\n")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if type(error).__name__ == "CompilationError":
        lines = lines[-1:]
    return (lines[0] if lines else type(error).__name__)[:300]

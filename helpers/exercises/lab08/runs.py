"""Runs lab 08's kernels: the broken ones for the learner to inspect, the fixed ones for the check.

Both run on the host, thread by thread, so that every wrong access, race and uninitialized element is found.
An answer is a diagnosis and a kernel, and is sent to other processes as one text, with the diagnosis in the
first line.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers import aliases, cuda
from helpers.exercises import cuda_text, guarded_run
from helpers.exercises.lab08.broken import KERNELS

if TYPE_CHECKING:
    from helpers.cuda import LoadedKernel

DIAGNOSIS = ("tool", "line", "cause")


@dataclass(frozen=True)
class Answer:
    """A learner's answer.

    Attributes:
        name: Of the broken kernel.
        diagnosis: "tool", "line" and "cause".
        text: The fixed kernel.
    """

    name: str
    diagnosis: dict[str, Any]
    text: str


def as_text(answer: Any) -> str:
    """Return an answer as one text.

    Raises:
        NotImplementedError: The diagnosis is still empty.
        helpers.cuda.BuildError: The answer isn't a dict with the right keys and types.
    """
    keys = (*DIAGNOSIS, "kernel")
    if isinstance(answer, dict):
        answer = {aliases.ANSWER_KEYS.get(key, key): value for key, value in answer.items()}
    if not isinstance(answer, dict) or set(answer) != set(keys) or not isinstance(answer["kernel"], str):
        needs = f"a dict with the keys {', '.join(keys)}, and kernel must be CUDA text, a string"
        raise cuda.BuildError(f"The answer must be {needs}.")
    diagnosis = {key: answer[key] for key in DIAGNOSIS}
    if not all(diagnosis.values()):
        raise NotImplementedError("first name the tool, the line and the cause, then fix the kernel")
    if not all(isinstance(value, int if key == "line" else str) for key, value in diagnosis.items()):
        raise cuda.BuildError("tool and cause are words, and line is a number.")
    return json.dumps(diagnosis) + "\n" + answer["kernel"].removeprefix("\n")


def answer_of(name: str, text: str) -> Answer:
    """Return the answer that `as_text` wrote.

    Args:
        name: Of the broken kernel, such as "reverse_rows".
        text: The diagnosis in one line, and the kernel below it.
    """
    first, _, kernel = text.partition("\n")
    try:
        found = json.loads(first)
        return Answer(name, {key: found[key] for key in DIAGNOSIS}, kernel)
    except (ValueError, KeyError, TypeError):
        raise cuda.BuildError("The diagnosis can't be read; give the check the dict itself.") from None


# The emulator and nvcc's headers define INFINITY. NVRTC doesn't, because it includes no headers.
GPU_FLAGS = ("-DINFINITY=__int_as_float(0x7f800000)",)


@functools.lru_cache(maxsize=16)
def build(name: str, text: str, device: str) -> LoadedKernel:
    """Build a fixed or broken kernel.

    Args:
        name: Of the broken kernel, such as "reverse_rows".
        text: CUDA C++ source.
        device: "emulator" or "cuda".

    Raises:
        helpers.cuda.BuildError: The text contains more than kernels, or no such kernel, or doesn't compile.
    """
    text = text.removeprefix("\n")  # lines count from the kernel's first, as in the listing
    if problem := cuda_text.problem(text):
        raise cuda.BuildError(problem)
    if "FLT_MAX" in text:
        raise cuda.BuildError(
            "FLT_MAX is defined in <cfloat>, which a kernel can't include here. Use -INFINITY, which is even "
            "lower than -FLT_MAX."
        )
    try:
        return cuda.load_kernel(
            text, f"{name}_kernel", device=device, flags=GPU_FLAGS if device == "cuda" else ()
        )
    except ValueError:
        raise cuda.BuildError(f"The text has no kernel `__global__ void {name}_kernel(…)`.") from None


def launch(name: str, text: str, *tensors: Any, numbers: tuple[int, ...], device: str = "emulator") -> None:
    """Launch a kernel as the lab does.

    Args:
        name, text, device: As in `build`.
        tensors: The inputs and then the output, on the CPU, or on the GPU if `device` is "cuda".
        numbers: The kernel's integers.

    Raises:
        helpers.cuda.BuildError: As in `build`.
        helpers.cuda.emulator.EmulatorError: On the host, if the kernel does something that it must not do.
    """
    of = KERNELS[name]
    build(name, text, device)(*tensors, *numbers, grid=of.grid(*numbers), block=of.block)


def told(name: str, *sizes: int) -> str:
    """Return what the emulator on the host finds in a broken kernel for an input of these sizes.

    Args:
        name: Such as "reverse_rows".
        sizes: Height and width, or n.
    """
    import torch

    from helpers.cuda.emulator import EmulatorError

    of = KERNELS[name]
    x = torch.rand(sizes)
    out = torch.empty(of.grid(*sizes) if len(sizes) == 1 else sizes)
    try:
        launch(name, of.text, x, out, numbers=sizes)
    except EmulatorError as error:
        return str(error)
    return "nothing: no access out of bounds, no race, no uninitialized read"


def diagnosis(answer: Answer) -> dict:
    """Return the diagnosis of an answer as a dict."""
    return answer.diagnosis


def run(answer: Answer, x: Any, shape: tuple, numbers: list) -> dict:
    """Run the fixed kernel: `guarded_run.into_new_memory`."""
    build(answer.name, answer.text, "emulator")  # raises if it doesn't build
    return guarded_run.into_new_memory(lambda out: _launch(answer, x, out, numbers), [x], shape)


def _launch(answer: Answer, x: Any, out: Any, numbers: list) -> None:
    launch(answer.name, answer.text, x, out, numbers=tuple(numbers))


def reads(answer: Answer, x: Any, shape: tuple, numbers: list) -> dict:
    """Count how often the fixed kernel reads its input.

    Returns:
        "total", and "most" by one thread. If the emulator finds a fault, the fields of `guarded_run.trouble`.
    """
    import torch

    from helpers.cuda import emulator
    from helpers.lessons import grid

    out = torch.empty(tuple(shape))
    try:
        a = grid.trace(lambda: _launch(answer, x, out, numbers)).accesses
    except emulator.EmulatorError as error:
        return guarded_run.trouble(error)
    input_reads = a[(a["argument"] == "input") & (a["access"] == "read")]
    thread_columns = [f"{of}_{axis}" for of in ("block", "thread") for axis in "xyz"]
    n_of_each = input_reads.groupby(thread_columns).size()
    return {"total": len(input_reads), "most": int(n_of_each.max()) if len(n_of_each) else 0}

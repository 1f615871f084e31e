"""Lab 08's kernels, run: the broken ones for the learner to look at, the mended ones for the check.

Both run on the host, thread by thread, where each access, race and unset place is named. An answer is a diagnosis and a
text; it travels as one text, the diagnosis in its first line.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers import cuda
from helpers.exercises import cuda_text, runs
from helpers.exercises.lab08.broken import KERNELS, Broken

if TYPE_CHECKING:
    from helpers.cuda import LoadedKernel

KEYS = ("tool", "line", "cause", "mended")


@dataclass(frozen=True)
class Answer:
    """A learner's answer, taken apart; its kernel is built when it is first run.

    Attributes:
        of: the broken kernel.
        tool, line, cause: the diagnosis.
        text: the mended kernel.
    """

    of: Broken
    tool: Any
    line: Any
    cause: Any
    text: str

    def kernel(self) -> LoadedKernel:
        """The mended kernel, built for the host; `build` says what it raises."""
        return build(self.of.name, self.text, "host")


def as_text(answer: Any) -> str:
    """An answer as one text.

    Raises:
        NotImplementedError: the diagnosis is still empty.
        helpers.cuda.BuildError: it is no such dict.
    """
    if not isinstance(answer, dict) or set(answer) != set(KEYS) or not isinstance(answer["mended"], str):
        keys = ", ".join(KEYS)
        raise cuda.BuildError(f"The answer is a dict with the keys {keys}; mended is CUDA text, a string.")
    diagnosis = {key: answer[key] for key in KEYS[:3]}
    if not all(diagnosis.values()):
        raise NotImplementedError("first say the tool, the line and the cause, then mend the text")
    if not all(isinstance(value, int if key == "line" else str) for key, value in diagnosis.items()):
        raise cuda.BuildError("tool and cause are words, line is a number.")
    return json.dumps(diagnosis) + "\n" + answer["mended"].removeprefix("\n")


def answer_of(name: str, text: str) -> Answer:
    """An answer from its text, `as_text`'s.

    Args:
        name: of a broken kernel, such as "reverse_rows".
        text: the diagnosis in one line, and below it the kernel.
    """
    first, _, mended = text.partition("\n")
    try:
        found = json.loads(first)
        return Answer(KERNELS[name], *(found[key] for key in KEYS[:3]), mended)
    except (ValueError, KeyError, TypeError):
        raise cuda.BuildError(
            "The answer's diagnosis cannot be read; give the check the dict itself."
        ) from None


# nvcc's host headers define it, and so does the host; NVRTC, which includes nothing, does not.
GPU_FLAGS = ("-DINFINITY=__int_as_float(0x7f800000)",)


@functools.lru_cache(maxsize=16)
def build(name: str, text: str, device: str) -> LoadedKernel:
    """Build a text of one of the kernels.

    Args:
        name: of the broken kernel, such as "reverse_rows".
        text: CUDA C++.
        device: "host" or "cuda".

    Raises:
        helpers.cuda.BuildError: more than kernels in the text, no such kernel, or the compiler's complaint.
    """
    text = text.removeprefix("\n")  # lines count from the kernel's first, as in the listing
    if problem := cuda_text.problem(text):
        raise cuda.BuildError(problem)
    if "FLT_MAX" in text:
        raise cuda.BuildError(
            "FLT_MAX is <cfloat>'s, and a kernel's text includes nothing here; -INFINITY is there, and below -FLT_MAX."
        )
    try:
        return cuda.load_kernel(
            text, f"{name}_kernel", device=device, flags=GPU_FLAGS if device == "cuda" else ()
        )
    except ValueError:
        raise cuda.BuildError(f"The text has no kernel `__global__ void {name}_kernel(…)`.") from None


def launch(name: str, text: str, *tensors: Any, numbers: tuple[int, ...], device: str = "host") -> None:
    """Launch a text of one of the kernels as it is launched in the lab.

    Args:
        name, text, device: as in `build`.
        tensors: inputs and last the output, on the CPU, or on the GPU where `device` says so.
        numbers: the kernel's integers.

    Raises:
        helpers.cuda.BuildError: as in `build`.
        helpers.cuda.host.HostCudaError: on the host, what a kernel must not do.
    """
    of = KERNELS[name]
    build(name, text, device)(*tensors, *numbers, grid=of.grid(*numbers), block=of.block)


def told(name: str, *sizes: int) -> str:
    """What the host says of a broken kernel on an input of these sizes; "nothing" where it finds nothing.

    Args:
        name: such as "reverse_rows".
        sizes: height and width, or n.
    """
    import torch

    from helpers.cuda.host import HostCudaError

    of = KERNELS[name]
    x = torch.rand(sizes)
    out = torch.empty(of.grid(*sizes) if len(sizes) == 1 else sizes)
    try:
        launch(name, of.text, x, out, numbers=sizes)
    except HostCudaError as error:
        return str(error)
    return "nothing: no thread left its memory, no race, nothing unset"


def diagnosis(answer: Answer) -> dict:
    """The three words of an answer's diagnosis."""
    return {"tool": answer.tool, "line": answer.line, "cause": answer.cause}


def run(answer: Answer, x: Any, shape: tuple, numbers: list) -> dict:
    """`runs.into_new_memory` for the mended kernel."""
    answer.kernel()  # what does not build is said as such
    return runs.into_new_memory(lambda out: _launch(answer, x, out, numbers), [x], shape)


def _launch(answer: Answer, x: Any, out: Any, numbers: list) -> None:
    launch(answer.of.name, answer.text, x, out, numbers=tuple(numbers))


def reads(answer: Answer, x: Any, shape: tuple, numbers: list) -> dict:
    """How the mended kernel shares its reads of the input: "total", and "most" by one thread; or `runs.trouble`'s fields."""
    import torch

    from helpers.cuda import host
    from helpers.lessons import grid

    out = torch.empty(tuple(shape))
    try:
        a = grid.trace(lambda: _launch(answer, x, out, numbers)).accesses
    except host.HostCudaError as error:
        return runs.trouble(error)
    mine = a[(a["argument"] == "input") & (a["access"] == "read")]
    places = [f"{of}_{axis}" for of in ("block", "thread") for axis in "xyz"]
    n_of_each = mine.groupby(places).size()
    return {"total": len(mine), "most": int(n_of_each.max()) if len(n_of_each) else 0}

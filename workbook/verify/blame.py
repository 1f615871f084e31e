"""Whether a candidate or the missing GPU is to blame for an error."""

from __future__ import annotations

import re

from helpers.cuda.errors import UNKNOWN_NAME
from workbook.verify.problem import Candidate

# What an error says if only the missing GPU is to blame, or the interpreter.
_NEEDS_GPU = ("cuda", "gpu", "nvidia", "nvcc", "driver", "interpreter", "emulator", "device string")
_EMULATED = "EmulatorError: "  # a mistake that the emulator found
_OF_SHAPES = "make_shape_compatible"  # Triton's compiler refuses these operands, too
_ASKING = ("AssertionError", "AttributeError", "NotImplementedError")  # what a line about the GPU may raise
_OF_BUILDS = ("BuildError: ", "UnknownName: ")


def needs_gpu(says: str, candidate: Candidate) -> bool:
    """Whether an error on a machine without a GPU, or the line in which it was raised, is about the GPU.

    What the emulator finds wrong would be wrong on a GPU, too.

    Args:
        says: the error, which may end with its line.
        candidate: what raised it.
    """
    if says.startswith(_EMULATED) or _OF_SHAPES in says:
        return False
    if says.startswith(_OF_BUILDS) and UNKNOWN_NAME.search(says):
        return True  # nvcc and its headers may know a name that our emulator doesn't
    number = re.search(r", in line (\d+)$", says)
    lines = candidate.sources.get(candidate.entry.partition("::")[0], "").splitlines()
    is_asked = says.startswith(_ASKING) and number and int(number[1]) <= len(lines)
    line = lines[int(number[1]) - 1] if is_asked else ""
    about = f"{says} {line}".lower()
    return any(word in about for word in _NEEDS_GPU)

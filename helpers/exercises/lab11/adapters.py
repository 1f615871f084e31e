"""Runs next to the learner's functions of lab 11, and contains no answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def with_gpu_precision(product: Callable) -> Callable:
    """Run a learner's function so that an interpreted `tl.dot` rounds float32 inputs as a GPU would.

    Without `input_precision="ieee"`, a GPU's tensor cores round float32 inputs to TF32. Triton's interpreter
    ignores that argument, so this mistake would pass every check without a GPU.
    """

    def run(*args: Any) -> Any:
        with _rounding_dots():
            return product(*args)

    return run


@contextmanager
def _rounding_dots() -> Iterator[None]:
    """Let the interpreter round the inputs of TF32 dots; compiled kernels don't use it."""
    from triton.runtime.interpreter import InterpreterBuilder as builder

    from helpers.ptx.rounding import with_tf32

    before = builder.create_dot
    builder.create_dot = with_tf32(before)
    try:
        yield
    finally:
        builder.create_dot = before


# ---------------------------------------------------------------------------------------- the CUDA kernel
SIDE = 16  # of a block and of its tile


def as_text(answer: Any) -> str:
    """The answer's CUDA text.

    Raises:
        helpers.cuda.BuildError: It isn't a text.
    """
    from helpers import cuda

    if isinstance(answer, str):
        return answer
    raise cuda.BuildError(
        f"The answer must be CUDA text, a string, but it is of type {type(answer).__name__}."
    )


def build_tiled(text: Any) -> Callable:
    """Build a learner's `tiled_kernel` for the emulator: `(a, b, c) -> None`.

    Raises:
        helpers.cuda.BuildError: Not a text, no such kernel in it, more in it than kernels, or the compiler's
            error.
    """
    from helpers import cuda
    from helpers.exercises import cuda_text

    text = as_text(text)
    if problem := cuda_text.problem(text):
        raise cuda.BuildError(problem)
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    if not re.search(r"__global__[^;{]*\btiled_kernel\s*\(", plain):
        raise cuda.BuildError("The text has no kernel `__global__ void tiled_kernel(…)`.")
    try:
        kernel = cuda.load_kernel(text, "tiled_kernel", device="emulator")
    except ValueError as error:  # a parameter that can't be passed
        raise cuda.BuildError(str(error)) from None

    def launch(a: Any, b: Any, c: Any) -> None:
        (m, k), n = a.shape, b.shape[1]
        kernel(a, b, c, m, n, k, grid=(-(-n // SIDE), -(-m // SIDE)), block=(SIDE, SIDE))

    return launch


def run_tiled(launch: Callable, a: Any, b: Any) -> dict:
    """Run a kernel once into memory between guard bands; the facts of `guarded_run.into_new_memory`."""
    from helpers.exercises import guarded_run

    return guarded_run.into_new_memory(lambda c: launch(a, b, c), [a, b], (a.shape[0], b.shape[1]))


def count_loads(launch: Callable, m: int, k: int, n: int) -> dict:
    """How many numbers of a and b a traced run loads from global memory, or the emulator's "trouble"."""
    import torch

    from helpers.cuda.emulator import EmulatorError
    from helpers.exercises import guarded_run
    from helpers.lessons import grid

    a, b, c = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
    try:
        accesses = grid.trace(lambda: launch(a, b, c)).accesses
    except EmulatorError as error:
        return guarded_run.trouble(error)
    return {"loads": int((accesses["access"] == "read").sum())}

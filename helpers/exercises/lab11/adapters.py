"""Runs next to the learner's functions of lab 11, and contains no answers."""

from __future__ import annotations

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
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    before = builder.create_dot

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, *more: Any) -> Any:
        if a.data.dtype == "float32" and str(input_precision).endswith("TF32"):
            a, b = (interpreter.TensorHandle(tf32(one.data), one.dtype) for one in (a, b))
        return before(self, a, b, d, input_precision, *more)

    builder.create_dot = create_dot
    try:
        yield
    finally:
        builder.create_dot = before


def tf32(values: Any) -> Any:
    """A float32 array, rounded to the 10 bits of TF32's mantissa."""
    import numpy as np

    bits = values.view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)

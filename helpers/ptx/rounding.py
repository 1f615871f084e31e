"""TF32 in Triton's interpreter, which ignores a dot's `input_precision`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


def tf32(values: np.ndarray) -> np.ndarray:
    """A float32 array, rounded to the 10 bits of TF32's mantissa."""
    bits = values.view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def with_tf32(create_dot: Callable[..., Any]) -> Callable[..., Any]:
    """The interpreter's `create_dot`, with float32 inputs rounded as a GPU's tensor cores would.

    They do so unless the kernel asks for `input_precision="ieee"`.
    """
    from triton.runtime.interpreter import TensorHandle

    @functools.wraps(create_dot)
    def dot(builder: Any, a: Any, b: Any, d: Any, input_precision: Any, *more: Any) -> Any:
        if a.data.dtype == "float32" and str(input_precision).endswith("TF32"):
            a, b = (TensorHandle(tf32(np.ascontiguousarray(one.data)), one.dtype) for one in (a, b))
        return create_dot(builder, a, b, d, input_precision, *more)

    return dot

"""Corrections of Triton's interpreter: it has no libdevice, rounds wrongly to float8 and bfloat16, and
multiplies bfloat16 as integers and TF32 as float32.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from helpers.ptx.rounding import with_tf32

# Those that PyTorch computes, too, and under the same name.
_SAME_NAMES = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh", "erf",
    "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "fmax", "fmin", "fmod", "hypot", "lgamma", "log",
    "log10", "log1p", "log2", "nextafter", "pow", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
_FUNCTIONS = {name: getattr(torch, name) for name in _SAME_NAMES} | {
    "cbrt": lambda x: x.sign() * x.abs().pow(1 / 3),
    "exp10": lambda x: torch.pow(10.0, x),
    "fabs": torch.abs,
    "fdim": lambda x, y: (x - y).clamp(min=0),
    "fma": lambda x, y, z: x * y + z,
    "frcp_rn": torch.reciprocal,
    "j0": torch.special.bessel_j0,
    "j1": torch.special.bessel_j1,
    "normcdf": torch.special.ndtr,
    "nearbyint": torch.round,
    "rint": torch.round,
}


# Triton's names of floating-point types that PyTorch knows, too.
_DTYPES = {
    "fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
    "fp8e4nv": torch.float8_e4m3fn, "fp8e4b8": torch.float8_e4m3fnuz, "fp8e5": torch.float8_e5m2,
    "fp8e5b16": torch.float8_e5m2fnuz,
}  # fmt: skip


def install() -> None:
    """Correct the interpreter in this process."""
    from triton.runtime import interpreter

    _install_libdevice()
    interpreter._convert_float = _to_nearest(interpreter._convert_float)
    builder = interpreter.InterpreterBuilder
    builder.create_dot = _of_floats(with_tf32(builder.create_dot))


def _to_nearest(convert: Callable[..., Any]) -> Callable[..., Any]:
    """The interpreter's conversion of floating-point types, rounding to the nearest number as a GPU does;
    what float8 can't hold becomes its largest number.
    """
    from triton._C.libtriton import ir

    @functools.wraps(convert)
    def converted(numbers: Any, source: Any, target: Any, rounding: Any) -> Any:
        kinds = [_DTYPES.get(one.name) for one in (source, target)]
        if None in kinds or rounding == ir.ROUNDING_MODE.RTZ:
            return convert(numbers, source, target, rounding)
        flat = torch.from_numpy(np.ascontiguousarray(numbers).reshape(-1)).view(kinds[0])
        if kinds[1].itemsize == 1:
            most = torch.finfo(kinds[1]).max
            flat = flat.float().clamp(-most, most)
        bits = flat.to(kinds[1]).view(torch.uint8).numpy()
        return bits.view(f"uint{target.primitive_bitwidth}").reshape(numbers.shape)

    return converted


def _of_floats(create_dot: Callable[..., Any]) -> Callable[..., Any]:
    """`tl.dot`, which would take the bits of bfloat16 numbers for integers."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def widened(one: Any) -> Any:
        if one.dtype.scalar != tl.bfloat16:
            return one
        bits = one.data.view(np.uint16).astype(np.uint32) << 16
        return TensorHandle(bits.view(np.float32), tl.float32)

    @functools.wraps(create_dot)
    def dot(builder: Any, a: Any, b: Any, *others: Any) -> Any:
        return create_dot(builder, widened(a), widened(b), *others)

    return dot


def _install_libdevice() -> None:
    """Let kernels call libdevice, under both of its modules' names."""
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as of_cuda
    from triton.runtime.interpreter import InterpreterBuilder, interpreter_semantic

    InterpreterBuilder.create_extern_elementwise = _elementwise
    for name, function in inspect.getmembers(of_cuda, inspect.isfunction):
        if "_semantic" in inspect.signature(function).parameters:
            bound = functools.partial(function, _semantic=interpreter_semantic)
            for module in (libdevice, of_cuda):
                setattr(module, name, bound)


def _elementwise(
    builder: Any, library: str, path: str, symbol: str, arguments: list[Any], kind: Any, is_pure: bool
) -> Any:
    """What `extern_elementwise` computes: in float64, then rounded to the result's dtype."""
    from triton.runtime.interpreter import TensorHandle

    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    function = _FUNCTIONS.get(name) or _FUNCTIONS.get(name.removesuffix("f"))
    if function is None or any(one.data.dtype.kind != "f" for one in arguments):
        raise NotImplementedError(f"Triton's interpreter doesn't know {symbol} of libdevice")
    wide = [torch.as_tensor(one.data, dtype=torch.float64) for one in arguments]
    return TensorHandle(function(*wide).numpy().astype(arguments[0].data.dtype), arguments[0].dtype)

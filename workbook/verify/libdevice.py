"""The functions of CUDA's libdevice in Triton's interpreter, which has none."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch

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


def install() -> None:
    """Let kernels that Triton's interpreter runs call libdevice, under both of its modules' names."""
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

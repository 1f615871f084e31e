"""Let a reference that converts to narrower types by itself compute in float64 from beginning to end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from workbook.verify.arguments import tensors_of

_NARROW = (torch.float16, torch.bfloat16, torch.float32)
_CONVERSIONS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)
_REINTERPRETS = (torch.Tensor.view,)


def in_float64(reference: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; called with float64 tensors it computes in float64 throughout.

    Many references contain conversions such as `x.to(torch.float32)` or `torch.zeros(n)`. They are right for
    inputs in half precision, but would round float64 inputs. Conversions to float8 and to integers stay,
    because they are part of what is computed.

    Args:
        reference: a function of tensors, and of lists, tuples and dicts of them.
    """

    @functools.wraps(reference)
    def wrapped(*args: Any) -> Any:
        if not any(one.dtype == torch.float64 for one in tensors_of(args)):
            return reference(*args)
        with _default_float64(), _Wide():
            return reference(*args)

    return wrapped


class _Wide(TorchFunctionMode):
    """Replaces float16, bfloat16 and float32 by float64 wherever a function of torch is given a dtype."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _CONVERSIONS:
            return args[0].double()
        if func in _REINTERPRETS:
            return func(*args, **kwargs)
        return func(*map(_widened, args), **{name: _widened(one) for name, one in kwargs.items()})


def _widened(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value


@contextmanager
def _default_float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)

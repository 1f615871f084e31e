"""Let a reference that converts to narrower types by itself compute in float64 from beginning to end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from workbook.verify.arguments import tensors_of

_forced: ContextVar[bool] = ContextVar("forced", default=False)
_NARROW = (torch.float16, torch.bfloat16, torch.float32)
_CONVERSIONS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)
_REINTERPRETS = (torch.Tensor.view,)


def in_float64(reference: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; called with float64 tensors, or while `forced`, it computes in float64 throughout.

    Many references contain conversions such as `x.to(torch.float32)` or `torch.zeros(n)`. They are right for
    inputs in half precision, but would round float64 inputs. Conversions to float8 and to integers stay,
    because they are part of what is computed.

    Args:
        reference: a function of tensors, and of lists, tuples and dicts of them.
    """

    @functools.wraps(reference)
    def wrapped(*args: Any) -> Any:
        if not wants_float64(args):
            return reference(*args)
        with _default_float64(), _Wide():
            return reference(*args)

    return wrapped


def wants_float64(args: Any) -> bool:
    """Whether a reference has to compute in float64: an argument is float64, or it is `forced`."""
    return _forced.get() or any(one.dtype == torch.float64 for one in tensors_of(args))


@contextmanager
def forced(args: Any) -> Iterator[None]:
    """References compute in float64, if no argument is floating-point, and so none can be widened."""
    is_needed = not any(one.is_floating_point() or one.is_complex() for one in tensors_of(args))
    token = _forced.set(is_needed)
    try:
        yield
    finally:
        _forced.reset(token)


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

"""In a learner's process: what stands in for objects that stay with the grader, and how values go to and fro.

`call` is the grader's end of it. A value is sent as it is where `torch.load(weights_only=True)` carries it;
else it is a dict with one of these keys.
"""

from __future__ import annotations

import builtins
import functools
import weakref
from collections.abc import Callable
from typing import Any

# the number of an object that stays with the grader; beside it "methods", and "kernel": whether it is one
SHOWN = "@shown"
ARRAY = "@array"  # a NumPy array, as a tensor
SAME = "@same memory"  # (size, strides, offset) of a result in the memory of the argument
KEPT = "@kept memory"  # the number of a result's memory; beside it "tensor"


class Link:
    """Makes stand-ins, and carries what their methods are asked to the grader."""

    def __init__(self, ask: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._ask = ask
        self._results: dict[int, weakref.ref] = {}

    def decoded(self, value: Any) -> Any:
        """What the grader sent, with stand-ins in it."""
        if isinstance(value, dict):
            if SHOWN in value:
                kind = _KernelStandIn if value["kernel"] else _StandIn
                return kind(self, value[SHOWN], value["methods"])
            if ARRAY in value:
                return value[ARRAY].numpy()
            return {key: self.decoded(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.decoded(one) for one in value)
        return value

    def call(self, number: int, method: str, args: tuple, **more: Any) -> Any:
        """Have a method called on the grader's side; raises what it raised."""
        from helpers.exercises.portable import portable

        sent = [{SHOWN: one._number} if isinstance(one, _StandIn) else portable(one) for one in args]
        said = self._ask({"object": number, "method": method, "args": sent, **more})
        if "error_type" in said:
            raise _exception(said["error_type"])(said["error"])
        return said

    def kept(self, said: dict[str, Any], x: Any) -> Any:
        """A kernel's result, in the memory that it has on the other side."""
        import torch

        if said.get("argument") is not None:
            _bytes(x).copy_(said["argument"])
        value = said["value"]
        if not isinstance(value, dict):
            return value
        if SAME in value:
            return x.as_strided(*value[SAME])
        made, known = value["tensor"], self._results.get(value[KEPT])
        before = known() if known is not None else None
        if before is None or len(_bytes(before)) != len(_bytes(made)):
            self._results[value[KEPT]] = weakref.ref(made)
            return made
        _bytes(before).copy_(_bytes(made))
        empty = torch.empty(0, dtype=made.dtype, device=made.device)
        return empty.set_(before.untyped_storage(), made.storage_offset(), made.size(), made.stride())


class _StandIn:
    def __init__(self, link: Link, number: int, methods: list[str]) -> None:
        self._number = number
        for name in methods:
            setattr(self, name, functools.partial(_call, link, number, name))


def _call(link: Link, number: int, method: str, *args: Any) -> Any:
    return link.decoded(link.call(number, method, args)["value"])


class _KernelStandIn(_StandIn):
    """Stands in for a `ShownKernel`."""

    def __init__(self, link: Link, number: int, methods: list[str]) -> None:
        self._number, self._link = number, link

    def __call__(self, x: Any) -> Any:
        import torch

        if not isinstance(x, torch.Tensor):
            raise TypeError(f"the kernel takes a tensor, not {type(x).__name__}")
        said = self._link.call(self._number, "kernel", (x,), fill=_fill(x))
        return self._link.kept(said, x)


def _fill(x: Any) -> float | None:
    """The one value, other than 0, that new memory like `x` is full of, as under
    `check.poisoned`; else None.
    """
    import torch

    y = torch.empty_like(x)
    if not y.numel() or not y.is_floating_point():
        return None
    first = y.reshape(-1)[0]
    alike = bool(y.isnan().all()) if bool(first.isnan()) else bool((y == first).all())
    return float(first) if alike and float(first) != 0 else None


def _bytes(t: Any) -> Any:
    """A tensor's whole memory."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=t.device).set_(t.untyped_storage())


def _exception(name: str) -> type[BaseException]:
    known = getattr(builtins, name, None)
    if isinstance(known, type) and issubclass(known, BaseException):
        return known
    return type(name, (RuntimeError,), {})

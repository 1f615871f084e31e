"""Signs that a measurement is misleading: replaced clocks, odd results, constant data, threads that stay."""

from __future__ import annotations

import functools
import inspect
import math
import threading
import time
import timeit
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

_ORIGINALS = {"time.perf_counter": time.perf_counter, "timeit.default_timer": timeit.default_timer}
_MIN_ELEMENTS = 1024  # elements; smaller tensors (flags, scales, biases) are often constant for a good reason
_MAX_DEPTH = 4


def replaced_clocks() -> list[str]:
    """A note for each function used by timers that is no longer the original."""
    import torch

    now = {"time.perf_counter": time.perf_counter, "timeit.default_timer": timeit.default_timer}
    found = [f"{name} has been replaced" for name in now if now[name] is not _ORIGINALS[name]]
    for name in ("Event", "synchronize"):
        module = getattr(getattr(torch.cuda, name), "__module__", "")
        if module not in ("torch.cuda", "torch.cuda.streams"):
            found.append(f"torch.cuda.{name} has been replaced by one from {module or 'somewhere else'}")
    return [f"{text}: this timer does not use it, others do" for text in found]


def odd_results(results: Iterable[Any]) -> list[str]:
    """A note for each kind of result whose values may not be computed yet; no result is stored."""
    kinds = dict.fromkeys(kind for result in results for kind in _odd_kinds(result))
    return [
        f"the function returned a {kind}: what it computes when that is used is not in this time"
        for kind in kinds
    ]


def running_threads() -> set[threading.Thread]:
    """The Python threads that run now."""
    return set(threading.enumerate())


def left_threads(before: set[threading.Thread]) -> list[str]:
    """A note if more Python threads run than before."""
    n = len(running_threads() - before)
    left = "1 thread" if n == 1 else f"{n:,} threads"
    return [f"the function left {left} running; what they do on the host is not in this time"] if n else []


def _odd_kinds(value: Any, depth: int = 0) -> Iterator[str]:
    import torch

    if isinstance(value, (list, tuple, dict)) and depth < _MAX_DEPTH:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _odd_kinds(item, depth + 1)
        return
    plain = value is None or isinstance(value, (bool, int, float, complex, str, bytes))
    module = (type(value).__module__ or "").split(".")[0]
    if not plain and module != "numpy" and not (isinstance(value, torch.Tensor) and module == "torch"):
        yield (
            f"{module}.{type(value).__name__}"
            if module not in ("builtins", "__main__")
            else type(value).__name__
        )


def constant_inputs(functions: Sequence[Callable], device_type: str = "cuda") -> list[str]:
    """A note if tensors on the GPU that the functions read are constant.

    This looks at a few thousand elements of each tensor in closures, defaults, `functools.partial` and the
    globals that the functions use, which takes well below a millisecond.
    """
    found: dict[str, str] = {}
    seen: set[int] = set()
    for function in functions:
        for name, tensor in _tensors(function, "an input", seen, 0):
            if tensor.device.type == device_type and (value := _one_value(tensor)) is not None:
                found[name] = value
    if not found:
        return []
    words = ", ".join(f"{name} (all {value})" for name, value in list(found.items())[:4])
    return [
        f"data of one value: {words}. It can change the time (less power, higher clocks) and hides wrong "
        "results"
    ]


def _tensors(owner: Any, name: str, seen: set[int], depth: int) -> Iterator[tuple[str, Any]]:
    """The GPU tensors that a function, or a container of functions, can reach, with their names."""
    import torch

    if depth > _MAX_DEPTH or id(owner) in seen:
        return
    seen.add(id(owner))
    reached: list[tuple[str, Any]] = []
    if isinstance(owner, torch.Tensor):
        if owner.layout == torch.strided and owner.numel() >= _MIN_ELEMENTS:
            yield name, owner
    elif isinstance(owner, functools.partial):
        reached = [("an argument", a) for a in owner.args] + list(owner.keywords.items())
        reached.append((name, owner.func))
    elif isinstance(owner, (list, tuple)):
        reached = [(name, item) for item in owner[:16]]
    elif isinstance(owner, dict):
        reached = [(str(key), item) for key, item in list(owner.items())[:16]]
    elif inspect.isbuiltin(owner):  # a tensor's own method
        reached = [("self", owner.__self__)]
    elif inspect.ismethod(owner):
        reached = [(name, owner.__func__), ("self", owner.__self__)]
    elif inspect.isfunction(owner):
        for variable, cell in zip(owner.__code__.co_freevars, owner.__closure__ or (), strict=True):
            try:
                reached.append((variable, cell.cell_contents))
            except ValueError:  # a variable without a value
                continue
        reached += [("a default", value) for value in owner.__defaults__ or ()]
        reached += list((owner.__kwdefaults__ or {}).items())
        if depth == 0:  # deeper, the globals are a library's
            names = [n for n in owner.__code__.co_names if n in owner.__globals__]
            reached += [(n, owner.__globals__[n]) for n in names]
        if hasattr(owner, "__wrapped__"):
            reached.append((name, owner.__wrapped__))
    for inner, value in reached:
        yield from _tensors(value, inner, seen, depth + 1)


def _one_value(tensor: Any) -> str | None:
    """The value shared by all sampled elements of a tensor, in words; None if they differ."""
    import torch

    if tensor.is_complex() or tensor.is_quantized:
        return None
    with torch.no_grad():
        per_dim = max(2, math.ceil(4096 ** (1 / max(1, tensor.ndim))))
        steps = tuple(slice(None, None, max(1, size // per_dim)) for size in tensor.shape)
        sample = tensor[steps].to(torch.float64)
        low, high = torch.stack([sample.min(), sample.max()]).tolist()
    return f"{low:g}" if low == high else None

"""What runs next to the learner's wrapper of lab 02: a stand-in for the kernel's launch. It contains no
answers.
"""

from __future__ import annotations

import gc
from typing import Any

from helpers.exercises.proxies import Proxy


class NotALaunch(RuntimeError):
    """The stand-in was called with arguments that the real launch must not get."""


def _owner(address: int, n_bytes: int, device: str, made: list) -> tuple[Any, int]:
    """The tensor whose memory holds these bytes, and the address's distance from that memory's start."""
    import torch

    for objects in (lambda: made, gc.get_objects):
        for one in objects():
            if not issubclass(type(one), torch.Tensor):
                continue
            if one.device.type != device or one.layout is not torch.strided:
                continue
            storage = one.untyped_storage()
            start = storage.data_ptr()
            if start and start <= address and address + n_bytes <= start + storage.nbytes():
                return one, address - start
    raise NotALaunch(f"launch was given an address with {n_bytes:,} bytes that aren't in any {device} tensor")


def _noted(made: list) -> Any:
    """While it is entered, every tensor that torch makes is appended to `made`."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Note(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            made.append(result)
            return result

    return Note()


def wrapped(difference: Any, x: Any, device: str, kernel: Proxy) -> dict:
    """Call the learner's wrapper on `x` with a launch that computes the kernel's result on any device.

    Args:
        difference: the learner's wrapper.
        x: a tensor, or another object.
        device: the device that the wrapper is given.
        kernel: its `compute` computes the kernel's result for a float32 matrix.

    Returns:
        "raised": (type, message), or the result and `x` as they are now; and facts about the call.
    """
    import torch

    n_launches = 0
    made = [x]

    def launch(input: int, output: int, height: int, width: int) -> None:
        nonlocal n_launches
        n_launches += 1
        for name, value in (("input", input), ("output", output), ("height", height), ("width", width)):
            if type(value) is not int:
                raise NotALaunch(f"launch takes four integers; {name} is of type {type(value).__name__}")
        n = height * width
        if n == 0:
            raise NotALaunch(
                "launch was called for a matrix with no elements, but a grid of zero blocks is an error"
            )
        flat = []
        for address in (input, output):
            owner, offset = _owner(address, 4 * n, device, made)
            elements = torch.empty(0, dtype=torch.float32, device=owner.device)
            flat.append(elements.set_(owner.untyped_storage(), offset // 4, (n,)))
        source, target = flat
        if source.data_ptr() == target.data_ptr():
            raise NotALaunch("launch was given the input's address as the output's, too")
        target.copy_(kernel.compute(source.view(height, width).clone()).reshape(-1))

    try:
        with _noted(made):
            result = difference(x, device, launch)
    except NotImplementedError:
        raise
    except Exception as error:
        return {"raised": (type(error).__name__, str(error)), "n_launches": n_launches}
    found: dict[str, Any] = {"n_launches": n_launches, "type": type(result).__name__}
    if isinstance(result, torch.Tensor):
        found["shape"] = list(result.shape)
        found["about"] = f"{str(result.dtype).removeprefix('torch.')} on {result.device.type}"
        if isinstance(x, torch.Tensor) and result.device == x.device and x.device.type == device:
            found["result"] = result.clone()
            found["same"] = bool(x.numel()) and result.data_ptr() == x.data_ptr()
    if isinstance(x, torch.Tensor) and x.device.type == device:
        found["after"] = x.clone()
    return found

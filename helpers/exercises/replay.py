"""A call's Triton launches as plain data: what was launched on which memory, so that another process can run
it again.

The learner's process records them; a process that never ran the learner's Python builds the kernels from
their texts and launches them on memory of its own. What torch computed between two launches is recorded as
memory contents. What torch computed instead of a launch is lost, because the result's memory starts out empty
or poisoned there and is checked afterwards.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from helpers.exercises import guard, triton_text
from helpers.exercises.portable import same_bits
from helpers.kernels import cooperative_simulator

_MOST_LAUNCHES = 64
_MOST_BYTES = 64 << 20  # of all memory that is recorded per call
_TENSOR, _DTYPE = "@tensor", "@dtype"


class NotRecorded(ValueError):
    """A call's launches cannot be replayed; the message gives the reason."""


@dataclass
class Record:
    """The launches of one call, as they happen.

    Attributes:
        given: address of a memory -> which of the call's arguments lies in it.
    """

    given: dict[int, int]
    problem: str = ""
    _kernels: dict[str, int] = field(default_factory=dict)
    _memory: dict[int, int] = field(default_factory=dict)  # address -> number
    _stored: list[torch.Tensor] = field(default_factory=list)  # so that no address is used twice
    _tensors: list[torch.Tensor] = field(default_factory=list)  # as they were passed
    _contents: dict[int, torch.Tensor] = field(default_factory=dict)  # as the last launch left them
    _launches: list[dict[str, Any]] = field(default_factory=list)
    _n_bytes: int = 0

    def launch(
        self, kernel: Any, grid: Any, args: Sequence[Any], kwargs: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        """Record a launch and run it."""
        if self.problem:
            return run()
        try:
            launch = self._describe_launch(kernel, grid, args, kwargs)
        except (NotRecorded, triton_text.NotAlone, triton_text.NoKernel, OSError) as error:
            self.problem = str(error)
            return run()
        result = run()
        for number in launch["own"]:
            self._contents[number] = _bytes(self._stored[number]).clone()
        self._launches.append(launch)
        return result

    def _describe_launch(
        self, kernel: Any, grid: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        if len(self._launches) >= _MOST_LAUNCHES:
            raise NotRecorded(f"there are more than {_MOST_LAUNCHES} launches in a call")
        names = list(inspect.signature(kernel.fn).parameters)
        if callable(grid):
            bound = inspect.signature(kernel.fn).bind(
                *args, **{k: v for k, v in kwargs.items() if k in names}
            )
            bound.apply_defaults()
            grid = grid({**kwargs, **bound.arguments})
        text = _text(kernel.fn, kernel)
        number = self._kernels.setdefault(text, len(self._kernels))
        numbers: set[int] = set()
        launch = {
            "kernel": number,
            "grid": tuple(int(n) for n in (grid if isinstance(grid, tuple | list) else (grid,))),
            "args": [self._described(one, numbers) for one in args],
            "kwargs": {name: self._described(one, numbers) for name, one in kwargs.items()},
        }
        # The arguments' contents are part of the case, so they aren't recorded; they may span gigabytes.
        own = sorted(
            one for one in numbers if self._stored[one].untyped_storage().data_ptr() not in self.given
        )
        if sum(self._stored[one].untyped_storage().nbytes() for one in own) > _MOST_BYTES:
            raise NotRecorded(f"its launches use more than {_MOST_BYTES >> 20} MiB that are no argument")
        changed = {}
        for one in own:
            now = _bytes(self._stored[one])
            before = self._contents.get(one)
            if before is None or not torch.equal(before, now):
                self._n_bytes += now.numel()
                changed[one] = now.cpu().clone()
        if self._n_bytes > _MOST_BYTES:
            raise NotRecorded(f"its launches use more than {_MOST_BYTES >> 20} MiB that are no argument")
        return {**launch, "before": changed, "own": own}

    def _described(self, value: Any, numbers: set[int]) -> Any:
        if isinstance(value, torch.Tensor):
            number = self._number(value)
            numbers.add(number)
            self._tensors.append(value)
            return _view(value, number)
        if isinstance(value, tuple | list):
            return tuple(self._described(one, numbers) for one in value)
        if value is None or type(value) in (bool, int, float, str):
            return value
        name = getattr(value, "name", "")
        if type(value).__module__ == "triton.language.core" and type(value).__name__ == "dtype":
            return {_DTYPE: name}
        if isinstance(value, int | float):
            return type(value).__mro__[-2](value)
        raise NotRecorded(f"a kernel is launched with a {type(value).__name__}")

    def _number(self, t: torch.Tensor) -> int:
        address = t.untyped_storage().data_ptr()
        if address not in self._memory:
            self._memory[address] = len(self._stored)
            self._stored.append(t)
        return self._memory[address]

    def plan(self, result: Any) -> dict[str, Any]:
        """The launches that compute this result, as plain data.

        Raises:
            NotRecorded: they can't be replayed.
        """
        if self.problem:
            raise NotRecorded(self.problem)
        if not isinstance(result, torch.Tensor):
            raise NotRecorded("the result is no tensor")
        addresses = {number: address for address, number in self._memory.items()}
        memory = [
            {"argument": self.given.get(addresses[n], -1), "n_bytes": _bytes(one).numel()}
            for n, one in enumerate(self._stored)
        ]
        return {
            "kernels": list(self._kernels),
            "memory": memory,
            "launches": self._launches,
            "result": self._locate(result),
        }

    def _locate(self, result: torch.Tensor) -> dict[str, Any]:
        """Where in memory the result is, or which tensor it is a copy of."""
        about = {"shape": tuple(result.shape), "dtype": str(result.dtype).removeprefix("torch.")}
        if result.untyped_storage().data_ptr() in self._memory:
            return {**_view(result, self._number(result)), "transposed": False, **about}
        for t in self._tensors:
            for transposed in (False, True):
                if (transposed and t.dim() != 2) or t.numel() < result.numel():
                    continue
                if same_bits(_copy(t, transposed, about["shape"], result.dtype), result):
                    return {**_view(t, self._number(t)), "transposed": transposed, **about}
        raise NotRecorded("the result lies in no memory that a kernel is given, and is no copy of any")


_texts: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def _text(function: Any, kernel: Any) -> str:
    """The kernel's text, looked up once: a grid of small launches would spend most of its time on it."""
    if function not in _texts:
        _texts[function] = triton_text.text_of(kernel)
    return _texts[function]


_build = functools.lru_cache(maxsize=64)(triton_text.build)


def _view(t: torch.Tensor, number: int) -> dict[str, Any]:
    where = (
        number,
        str(t.dtype).removeprefix("torch."),
        tuple(t.size()),
        tuple(t.stride()),
        t.storage_offset(),
    )
    return {_TENSOR: where}


def _copy(t: torch.Tensor, transposed: bool, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    n = 1
    for size in shape:
        n *= size
    return (t.t() if transposed else t).reshape(-1)[:n].reshape(tuple(shape)).to(dtype)


def _bytes(t: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=t.device).set_(t.untyped_storage())


@contextmanager
def recorded(args: Sequence[Any]) -> Iterator[Record]:
    """Record every Triton launch in this block.

    Args:
        args: of the call.
    """
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    given = {
        one.untyped_storage().data_ptr(): i for i, one in enumerate(args) if isinstance(one, torch.Tensor)
    }
    record = Record(given)
    before = {owner: owner.run for owner in (JITFunction, InterpretedFunction)}

    def patched(original: Callable) -> Callable:
        def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            def launch() -> Any:
                return original(self, *args, grid=grid, warmup=warmup, **kwargs)

            return launch() if warmup else record.launch(self, grid, args, kwargs, launch)

        return run

    for owner, original in before.items():
        owner.run = patched(original)
    try:
        yield record
    finally:
        for owner, original in before.items():
            owner.run = original


# ------------------------------------------------------------------------------------------------ run again


def function(plan: dict[str, Any]) -> Callable[..., torch.Tensor]:
    """A function of the call's arguments that replays a plan and returns the result's memory.

    Raises:
        helpers.exercises.triton_text.NotAlone: a kernel's text contains more than kernels.
    """
    kernels = [_build(text) for text in plan["kernels"]]
    return lambda *args: _run(plan, kernels, args, None)


def n_written(plan: dict[str, Any], args: Sequence[Any], right: torch.Tensor) -> int:
    """How many elements of the result the launches write, found by running them on a result that was filled
    with another value.

    Elements that end up with exactly this value are checked again with another one.

    Args:
        plan: what was recorded.
        args: of the call, which are copied.
        right: the result of the plan's function. An element that is 0 there counts as written, because adding
            0 leaves no trace.
    """
    kernels = [_build(text) for text in plan["kernels"]]
    fillings: tuple[float, float] = (1, 0) if right.dtype == torch.bool else (90, 91)
    if right.is_floating_point():
        fillings = (2.0**-10, 2.0**-9)
    written = right == 0
    for filling in fillings:
        blocks = guard.Blocks()  # holds the copies' memory
        got = _run(plan, kernels, guard.place(tuple(args), blocks), filling)
        if got.shape != right.shape or got.dtype != right.dtype:
            return 0
        written |= got != filling
        if bool(written.all()):
            break
    return int(written.sum())


def _run(plan: dict[str, Any], kernels: list[Any], args: Sequence[Any], fill: float | None) -> torch.Tensor:
    """Run all launches. `fill` sets the result's initial contents, which only launches change."""
    device = next((one.device for one in args if isinstance(one, torch.Tensor)), torch.device("cpu"))
    memory: list[torch.Tensor] = []
    for one in plan["memory"]:
        if one["argument"] >= 0:
            memory.append(_bytes(args[one["argument"]]))
        else:
            memory.append(torch.empty(one["n_bytes"], dtype=torch.uint8, device=device))
    result = _tensor(plan["result"][_TENSOR], memory)
    result_number = plan["result"][_TENSOR][0]
    if fill is not None:
        result.fill_(fill)
    for launch in plan["launches"]:
        for number, contents in launch["before"].items():
            given = plan["memory"][number]["argument"] >= 0
            if not (given or (fill is not None and number == result_number)):
                memory[number].copy_(contents)
        values = [_value(one, memory) for one in launch["args"]]
        named = {name: _value(one, memory) for name, one in launch["kwargs"].items()}
        with cooperative_simulator.chip():  # programs that wait for each other must all be resident
            kernels[launch["kernel"]][launch["grid"]](*values, **named)
    about = plan["result"]
    if (
        about[_TENSOR][1] == about["dtype"]
        and tuple(about[_TENSOR][2]) == tuple(about["shape"])
        and not about["transposed"]
    ):
        return result
    return _copy(result, about["transposed"] is True, about["shape"], getattr(torch, about["dtype"]))


def _tensor(where: tuple, memory: list[torch.Tensor]) -> torch.Tensor:
    number, dtype, size, stride, offset = where
    stored = memory[number]
    # the storage must be large enough, because set_ would enlarge it
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if 0 not in size else -1
    itemsize = getattr(torch, dtype).itemsize
    if offset < 0 or min(stride, default=0) < 0 or (last + 1) * itemsize > stored.untyped_storage().nbytes():
        raise NotRecorded("a tensor lies outside of its memory")
    empty = torch.empty(0, dtype=getattr(torch, dtype), device=stored.device)
    return empty.set_(stored.untyped_storage(), offset, tuple(size), tuple(stride))


def _value(value: Any, memory: list[torch.Tensor]) -> Any:
    if isinstance(value, dict):
        if _TENSOR in value:
            return _tensor(value[_TENSOR], memory)
        import triton.language as tl

        return tl.dtype(value[_DTYPE])
    if isinstance(value, tuple | list):
        return tuple(_value(one, memory) for one in value)
    return value

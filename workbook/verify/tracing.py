"""What a call of the candidate uses, recorded in its process."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from helpers.check.dispatch import dispatch_mode
from helpers.ptx.launched import launches
from workbook.verify.arguments import tensors_of

_MOST = 10_000
_LARGEST = 1 << 32  # numbers above it are addresses


@dataclass
class Used:
    """What was used.

    Attributes:
        operators: the operators of torch's dispatcher, in order, then the kernels launched with Triton.
        sizes: the shapes that each works on and their devices, or its grid and the numbers it gets.
        places: the instructions of the candidate's Python code that ran, in no order.
    """

    operators: list[str] = field(default_factory=list)
    sizes: list[str] = field(default_factory=list)
    places: set[tuple[str, int, int]] = field(default_factory=set)

    def as_reply(self) -> dict[str, Any]:
        """What is sent to the verifier."""
        places = [f"line {line} ({name}, {at})" for name, line, at in self.places]
        return {"operators": self.operators[:_MOST], "sizes": self.sizes[:_MOST], "places": places[:_MOST]}


class Tracer:
    """Records what is used; made before the candidate is loaded, so that it can't replace what this needs."""

    def __init__(self, folder: str) -> None:
        """Name the folder of the candidate's files."""
        self._own = folder, "<"  # its files, and functions made from text
        self._trace, self._trace_of_thread = sys.settrace, sys.gettrace
        self._tensors, self._mode = tensors_of, dispatch_mode()
        self._launches = launches if importlib.util.find_spec("triton") else lambda: nullcontext([])

    @contextmanager
    def used(self) -> Iterator[Used]:
        """What is used until the block ends; it is complete then."""
        found, tensors = Used(), self._tensors

        class Recorder(self._mode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                found.operators.append(str(func))
                given = tensors([*args, kwargs or {}])
                found.sizes.append(str([(*one.shape, one.device.type) for one in given]))
                return func(*args, **(kwargs or {}))

        with Recorder(), self._launches() as launched, self._traced(found.places):
            yield found
        found.operators.extend(str(getattr(one.kernel, "__name__", "a kernel")) for one in launched)
        found.sizes.extend(f"{one.grid} {_numbers(one.arguments)}" for one in launched)

    @contextmanager
    def _traced(self, places: set[tuple[str, int, int]]) -> Iterator[None]:
        """Collect the instructions that run meanwhile: function, line, number."""

        def trace(frame: Any, event: str, argument: Any) -> Any:
            if not frame.f_code.co_filename.startswith(self._own):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return instruction

        def instruction(frame: Any, event: str, argument: Any) -> Any:
            if event == "opcode":
                places.add((frame.f_code.co_name, frame.f_lineno, frame.f_lasti))
            return instruction

        before = self._trace_of_thread()
        self._trace(trace)
        try:
            yield
        finally:
            self._trace(before)


def _numbers(arguments: Mapping[str, Any]) -> list[Any]:
    """The arguments of a launch that are numbers or None, such as how many elements it works on; without
    addresses, which differ from call to call.
    """
    plain = (one for one in arguments.values() if type(one) in (bool, int, float, type(None)))
    return [one for one in plain if type(one) is not int or abs(one) <= _LARGEST]

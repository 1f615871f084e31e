"""The cases of your own benchmark file.

Such a file has a function `cases()` that yields one `Case` for each point to measure:

    import torch
    from my_kernels import square
    from workbook.bench import Case

    def cases():
        for n in (1 << 20, 1 << 26):
            x = torch.randn(n, device="cuda")
            yield Case({"n": n}, (x,), square, expected=torch.square, peers={"eager": torch.square})
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """One kernel of yours at one point.

    Attributes:
        point: the plain values that identify this case, such as {"kernel": "square", "n": 1024}.
        inputs: the arguments of every function. The first is a tensor on the GPU; times are compared relative
            to a copy of it.
        kernel: the function whose time is tracked.
        expected: a function that computes the correct result; it is called with the floating-point inputs
            converted to float64.
        peers: other functions to time, by name. They are reported but never count as a regression. A peer
            named "eager" must be PyTorch's own operator: if PyTorch hasn't changed and this peer slowed down
            as well, the kernel's slowdown is not a regression.
        tolerance: (relative, absolute) tolerance of the check, instead of the default for the dtype.
        n_bytes: the bytes that the operation must move; by default twice the size of the first input.
    """

    point: Mapping[str, Any]
    inputs: tuple
    kernel: Callable
    expected: Callable
    peers: Mapping[str, Callable] = field(default_factory=dict)
    tolerance: tuple[float, float] | None = None
    n_bytes: int | None = None

    def measure(self, budget_s: float) -> tuple[list[dict], list[dict]]:
        """Check and time the kernel and its peers; returns what `measure.measure_point` returns."""
        from workbook.bench import measure, table

        x = self.inputs[0]
        makers: dict[str, measure.Maker] = {table.COPY: lambda: (measure.copy_of(x), "")}
        for name, function in {**self.peers, table.OURS: self.kernel}.items():
            call = functools.partial(function, *self.inputs)
            makers[name] = lambda call=call: (call, "")
        return measure.measure_point(
            self.point, makers, self.require_correct, self.n_bytes or 2 * x.nbytes, budget_s=budget_s
        )

    def require_correct(self, name: str, call: Callable[[], Any]) -> None:
        """Raise `check.Mismatch` unless `call()` returns the expected result."""
        from helpers import check
        from workbook.bench import measure

        got = measure.on_poisoned_memory(call, self.inputs[0])
        case = ", ".join(f"{key}={value}" for key, value in self.point.items())
        check.assert_result(name, got, self.expected, self.inputs, case=case, tolerance=self.tolerance)

"""One point: contestants made, checked on poisoned memory, timed in turns, and what the compiler made of ours.

A file of yours is measured point by point as its `cases()` yields `Case`s:

    import torch
    from helpers.workshop.bench import Case

    def square(x):
        ...  # launches your kernel and returns its output

    def cases():
        for n in (1 << 20, 1 << 26):
            x = torch.randn(n, device="cuda")
            yield Case({"n": n}, (x,), square, expected=torch.square, peers={"eager": torch.square})
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from helpers.timing import cupti, league
from helpers.timing.clock import wait_for_gpu
from helpers.workshop.bench import compiled

if TYPE_CHECKING:
    import torch

THEN = "ours, then"  # the recorded text of ours, run beside today's
Maker = Callable[[], tuple[Callable[[], Any] | None, str]]


class BrokenGpu(RuntimeError):
    """A contestant left the process without a working GPU; its name is the only argument."""


@dataclass(frozen=True)
class Case:
    """One kernel of yours at one point.

    Attributes:
        point: what tells this case from the others, such as {"kernel": "square", "n": 1024}; plain values.
        inputs: what every function is called with; the first is a tensor on the GPU, and its copy is the reference that
            times are compared over.
        kernel: the function under watch. One that stands at the top of a module can be run again from its text later.
        expected: what it must compute; it is called with the floating-point inputs in float64.
        peers: other functions to time beside it, by name. They are shown, and never a regression. One called "eager" is
            taken to be torch's own: while torch is the same, what slows it too is no regression.
        tolerance: (relative, absolute) of the check, instead of the dtype's own and what the operation can reach.
        n_bytes: what the operation must move; by default the first input in and as much out.
    """

    point: Mapping[str, Any]
    inputs: tuple
    kernel: Callable
    expected: Callable
    peers: Mapping[str, Callable] = field(default_factory=dict)
    tolerance: tuple[float, float] | None = None
    n_bytes: int | None = None

    def measure(self, then: Callable | None, budget_s: float) -> tuple[list[dict], list[dict]]:
        """Measure it; `then` is the kernel's recorded text as a function. Returns as `measure_point`."""
        x = self.inputs[0]
        made = {**self.peers, league.OURS: self.kernel, **({THEN: then} if then else {})}
        makers: dict[str, Maker] = {league.COPY: lambda: copy_of(x)}
        for name, function in made.items():
            makers[name] = lambda function=function: (lambda: function(*self.inputs), "")
        return measure_point(
            self.point, makers, self.require_right, self.n_bytes or 2 * x.nbytes, budget_s=budget_s
        )

    def require_right(self, name: str, call: Callable[[], Any]) -> None:
        """Raise `check.Mismatch` unless `call()`, on poisoned memory, gives what is expected."""
        from helpers import check

        got = league.on_poisoned_memory(call, self.inputs[0])
        case = ", ".join(f"{key}={value}" for key, value in self.point.items())
        check.assert_result(name, got, self.expected, self.inputs, case=case, tolerance=self.tolerance)


def copy_of(x: torch.Tensor) -> tuple[Callable[[], Any], str]:
    """PyTorch's copy of `x`, as a contestant."""
    import torch

    y = torch.empty_like(x)
    if not torch.equal(y.copy_(x), x):
        raise AssertionError("the copy differs")
    return lambda: y.copy_(x), ""


def measure_point(
    point: Mapping[str, Any],
    makers: Mapping[str, Maker],
    require_right: Callable[[str, Callable[[], Any]], None],
    n_bytes: int,
    *,
    broken: Collection[str] = (),
    budget_s: float,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Make the contestants, check them, time those that passed.

    Args:
        point: the columns that say which point it is.
        makers: name to what makes the contestant: a function without arguments, or None, and a note. "ours" is among them.
        require_right: raises for a contestant that computes something else; it is not asked about the copy.
        n_bytes: the bytes that the operation must move.
        broken: contestants that have broken the GPU's state before.
        budget_s: seconds of timing.

    Returns:
        The point's rows (columns of `helpers.timing.league`), and of each Triton kernel that ours launched what
        `compiled.describe` says.

    Raises:
        BrokenGpu: a contestant has poisoned this process.
    """
    functions: dict[str, Callable] = {}
    notes: dict[str, str] = {}
    took: dict[str, float] = {}
    for name, make in makers.items():
        if name in broken:
            notes[name] = "refused: it broke the GPU's state in an earlier try"
            continue
        start = time.perf_counter()
        try:
            call, notes[name] = make()
            if call is None:
                continue
            if name != league.COPY:
                require_right(name, call)
            functions[name] = call
        except ImportError as error:
            notes[name] = f"not installed: {one_line(error)}"
        except Exception as error:
            notes[name] = f"refused: {type(error).__name__}: {one_line(error)}"
            try:
                wait_for_gpu()
            except RuntimeError:
                raise BrokenGpu(name) from error
        took[name] = time.perf_counter() - start
    slow = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in took.items() if seconds > 2)
    if slow:
        print(f"          compiled and checked: {slow}", flush=True)
    if league.OURS not in functions:
        return league.rows_of(point, 0, {}, {}, notes), []
    try:
        standings = league.compare_many(functions, against=league.OURS, budget_s=budget_s)
    except cupti.TimingError:
        for name, reason in league.untimeable(functions).items():
            functions.pop(name)
            notes[name] = f"cannot be timed: {reason}"
        if league.OURS not in functions:
            return league.rows_of(point, 0, {}, {}, notes), []
        standings = league.compare_many(functions, against=league.OURS, budget_s=budget_s)
    few = {"n_calls": 5, "repeats": 3} if n_bytes > 1 << 27 else {}
    host = {name: league.host_us(call, **few) for name, call in functions.items()}
    rows = league.rows_of(point, n_bytes, standings, host, notes)
    return rows, compiled.described(functions[league.OURS])


def free_memory() -> None:
    """Give the GPU's memory back between points."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def one_line(error: BaseException) -> str:
    """The first line of an error's message that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else "no message")[:200]

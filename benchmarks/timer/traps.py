"""The traps of `timer_truth.py --only traps`: functions that mislead a timer, and what each timer reports.

A timer passes a trap if it isn't fooled, or if it refuses or reports the problem. It is fooled if its
result is more than 10 % below the truth, or more than 10 % and 5 µs above it. A result within these bounds
hasn't been falsified by the trap, but may include the timer's own error, such as a launch gap: "right"
means within max(0.5 µs, 1 %), as everywhere else.
"""

from __future__ import annotations

import contextlib
import json
import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from helpers import device, timing
from helpers.timing import persisting

Fn = Callable[[], Any]


@dataclass(frozen=True)
class Trap:
    """One trap.

    Attributes:
        make: allocates memory and returns the function to time.
        honest: makes the function whose time is the truth; None if nothing runs that has a time.
        around: a context manager that is active while the timer runs.
        silent: the time can be right, so a timer only passes by reporting the problem.
        own_truth: the truth is what the same timer reports for `honest`, instead of CUPTI's time.
    """

    name: str
    make: Callable[[], Fn]
    honest: Callable[[], Fn] | None
    around: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
    silent: bool = False
    own_truth: bool = False


class Lazy:
    """A result that is computed when its value is read."""

    def __init__(self, fn: Fn):
        self._fn = fn

    @property
    def value(self) -> Any:
        return self._fn()


def square_of(n: int) -> Fn:
    import torch

    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    return lambda: torch.square(x, out=out)


def large() -> Fn:
    return square_of(16384 * 8192)


def fits() -> Fn:
    return square_of(device.gpu_spec().l2_bytes * 2 // 25)  # input and output take 64 % of the L2


def on_a_side_stream() -> Fn:
    import torch

    fn, stream = large(), torch.cuda.Stream()

    def side() -> None:
        with torch.cuda.stream(stream):
            fn()

    return side


def cached() -> Fn:
    result = large()()
    return lambda: result


def lazy() -> Fn:
    fn = large()
    return lambda: Lazy(fn)


def lazy_with_a_decoy() -> Fn:
    import torch

    fn, small = large(), torch.randn(1024, device="cuda")

    def decoy() -> Lazy:
        torch.neg(small)
        return Lazy(fn)

    return decoy


def matmul(fill: str) -> Fn:
    import torch

    a, b = (getattr(torch, fill)(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return lambda: a @ b


def compiled_at_its_first_call() -> Fn:
    import torch

    x = torch.randn(16384, 8192, device="cuda")
    torch.compiler.reset()
    return torch.compile(lambda: torch.square(x), dynamic=False)


def add_one() -> Fn:
    """Reads 16 MiB and writes as many."""
    import torch

    x = torch.randn(4 << 20, device="cuda")
    y = torch.empty_like(x)
    return lambda: torch.add(x, 1, out=y)


MARKED: list[int] = []  # the streams on which `add_one_to_a_persisting_input` marked its input


def add_one_to_a_persisting_input() -> Fn:
    """Marks its input on the stream of its first call, because some timers use streams of their own."""
    import torch

    x = torch.randn(4 << 20, device="cuda")
    y, marked = torch.empty_like(x), False

    def add() -> None:
        nonlocal marked
        if not marked:
            MARKED.append(torch.cuda.current_stream().cuda_stream)
            persisting.mark(MARKED[-1], x.data_ptr(), x.nbytes)
            marked = True
        torch.add(x, 1, out=y)

    return add


@contextlib.contextmanager
def l2_set_aside() -> Iterator[None]:
    with persisting.set_aside(25 << 20):
        try:
            yield
        finally:
            while MARKED:
                persisting.mark(MARKED.pop(), 0, 0)


@contextlib.contextmanager
def throttled() -> Iterator[None]:
    """Make the driver report that it limits the clocks for thermal reasons, because clocks cannot be
    changed here.
    """
    import pynvml

    reason = pynvml.nvmlClocksThrottleReasonHwSlowdown
    with mock.patch.object(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda handle: reason):
        yield


def event_of_a_tenth() -> contextlib.AbstractContextManager:
    import torch

    class Event(torch.cuda.Event):
        def elapsed_time(self, end):
            return super().elapsed_time(end) / 10

    return mock.patch.object(torch.cuda, "Event", Event)


def synchronize_of_nothing() -> contextlib.AbstractContextManager:
    import torch

    return mock.patch.object(torch.cuda, "synchronize", lambda device=None: None)


@contextlib.contextmanager
def host_clock_of_a_tenth() -> Iterator[None]:
    real = time.perf_counter

    def slow() -> float:
        return real() / 10

    with mock.patch.object(time, "perf_counter", slow), mock.patch.object(timeit, "default_timer", slow):
        yield


TRAPS = (
    Trap("warm L2", fits, fits),
    Trap("nothing launched: a cached result", cached, None),
    Trap("lazy result", lazy, large),
    Trap("lazy result behind a small kernel", lazy_with_a_decoy, large),
    # The data changes the power and thereby the time, differently for each timer.
    Trap("zeros as input", lambda: matmul("zeros"), lambda: matmul("randn"), silent=True, own_truth=True),
    Trap("throttling (the driver's word replaced)", large, large, throttled, silent=True),
    Trap("compiled in the first call", compiled_at_its_first_call, large),
    Trap("torch.cuda.Event replaced", large, large, event_of_a_tenth),
    Trap("torch.cuda.synchronize replaced", large, large, synchronize_of_nothing),
    Trap("the host's clock replaced", large, large, host_clock_of_a_tenth),
    Trap("side stream", on_a_side_stream, large),
    # It saves as many µs as some timers add, and timers that don't flush are too low without it.
    # The last one, because it raises an error on a GPU that can't set L2 aside.
    Trap("persisting L2 lines", add_one_to_a_persisting_input, add_one, l2_set_aside, own_truth=True),
)


def makers() -> dict[str, Callable[[], Fn]]:
    """What nvbench times in one process: every trap, in order, and the honest functions that it needs.

    If a trap replaces a clock or sets L2 aside, that stays so for the following traps.
    """

    settings = contextlib.ExitStack()  # a context manager that nobody refers to would undo its setting

    def with_its_setting(trap: Trap) -> Fn:
        fn = trap.make()
        settings.enter_context(trap.around())
        return fn

    made: dict[str, Callable[[], Fn]] = {}
    for trap in TRAPS:
        if trap.own_truth:
            made[honest_name(trap)] = trap.honest
        made[trap.name] = lambda trap=trap: with_its_setting(trap)
    return made


def honest_name(trap: Trap) -> str:
    return f"{trap.name}: the truth"


def goal_us(truth_us: float) -> float:
    """How far off a timer may be: 0.5 µs or 1 %, whichever is larger."""
    return max(0.5, 0.01 * truth_us)


def judged(trap: Trap, timer: str, truth: float | None, us: float | None, said: str, seconds) -> dict:
    """One row: the timer's result, and its outcome.

    The outcome is "right", "not fooled", "wrong", "silent", "refuses" or "says so".
    """
    if us is None:
        outcome = "refuses"
    elif trap.silent:
        outcome = "says so" if said else "silent"
    elif truth is None:
        outcome = "says so" if said else "wrong"
    elif abs(us - truth) <= goal_us(truth):
        outcome = "right"
    elif 0.9 * truth <= us <= max(1.1 * truth, truth + 5):
        outcome = "not fooled"
    else:
        outcome = "says so" if said else "wrong"
    return {
        "trap": trap.name,
        "timer": timer,
        "truth_us": truth,
        "us": us,
        "error_percent": None if us is None or not truth else 100 * (us / truth - 1),
        "outcome": outcome,
        "told": in_words(outcome, truth, us),
        "said": said[:300],
        "seconds": seconds,
    }


def in_words(outcome: str, truth: float | None, us: float | None) -> str:
    """What a table shows: "right", "refuses", "says so", "says nothing", or how far off the time is."""
    if outcome == "silent":
        return "says nothing"
    if outcome == "not fooled":
        return f"not fooled, {us - truth:+,.1f} µs"
    if outcome != "wrong":
        return outcome
    return f"{us:,.1f} µs for nothing" if truth is None else f"{100 * (us / truth - 1):+,.0f} %"


def line(row: dict) -> str:
    us = "–" if row["us"] is None else f"{row['us']:.2f}"
    truth = "nothing" if row["truth_us"] is None else f"{row['truth_us']:.2f}"
    percent = "" if row["error_percent"] is None else f"{row['error_percent']:+.1f} %"
    return (
        f"{row['trap']:<40} {row['timer']:<22} {row['outcome']:<10} {us:>10} of {truth:>8} {percent:>9}  "
        f"{row['said']}"
    )


def run(timer: str, time_it: Callable[[Fn], float], truth_of: Callable[[Fn], float], out: Path) -> None:
    """Run every trap with one timer; each row is written immediately."""
    import torch

    def told(fn: Fn) -> tuple[float | None, str]:
        try:
            if timer == "time_gpu":
                result = timing.time_gpu(fn)
                return result.median_us, "; ".join(result.notes)
            return time_it(fn), ""
        except Exception as error:
            return None, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"

    for trap in TRAPS:
        truth = None
        if trap.honest is not None:
            truth = told(trap.honest())[0] if trap.own_truth else truth_of(trap.honest())
        fn = trap.make()
        start = clock()
        with trap.around():
            us, said = told(fn)
        row = judged(trap, timer, truth, us, said, clock() - start)
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        del fn
        torch.cuda.empty_cache()


def nvbench_rows(found: dict[str, dict], truths: dict[str, float | None]) -> list[dict]:
    """nvbench's rows, judged by the truths that the other timers' processes measured.

    A trap that no other process could set has no row.
    """
    rows = []
    for trap in TRAPS:
        if trap.name not in found or trap.name not in truths:
            continue
        got = found[trap.name]
        truth = found.get(honest_name(trap), {}).get("us") if trap.own_truth else truths[trap.name]
        rows.append(judged(trap, "nvbench", truth, got["us"], got["said"], got["seconds"]))
    return rows


clock = time.perf_counter  # the original, even if a trap replaces it

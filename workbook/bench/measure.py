"""Check and time several functions at one point."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from helpers.timing import cupti
from helpers.timing.clock import now_s, wait_for_gpu
from helpers.timing.collect import subtract_overhead
from helpers.timing.interleaved import compare_many
from helpers.timing.overhead import suspected_overhead
from workbook.bench.compiled import describe_kernels
from workbook.bench.table import COPY, OURS, rows_of

if TYPE_CHECKING:
    import torch

Call = Callable[[], Any]
# Makes a function without arguments, or None, and a remark, such as why there is no function.
Maker = Callable[[], tuple[Call | None, str]]
_LARGE_BYTES = 1 << 27  # from here on a call takes long enough that few calls measure the host's time
_MANY_BLOCKS_BYTES = 64 << 20


class BrokenGpu(RuntimeError):
    """A function left this process without a working GPU; its name is the only argument."""


def measure_point(
    point: Mapping[str, Any],
    makers: Mapping[str, Maker],
    require_correct: Callable[[str, Call], None],
    n_bytes: int,
    *,
    broken: Collection[str] = (),
    budget_s: float,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Make the functions, check them, and time those that passed in one interleaved run.

    Args:
        point: the columns that identify the point.
        makers: what makes each function, by name; "ours" must be one of them.
        require_correct: raises an error for a function that computes a wrong result. The copy is not checked.
        n_bytes: the bytes that the operation must move.
        broken: functions that broke the GPU's state at this point before, and are skipped.
        budget_s: how many seconds to time.

    Returns:
        The point's rows (see `table.rows_of`), and a description of each Triton kernel that "ours" launched
        (see `compiled.describe_kernels`). Without a correct "ours" nothing is timed.

    Raises:
        BrokenGpu: a function broke the GPU's state, so that nothing else can run in this process.
    """
    calls, notes = _checked(makers, require_correct, broken)
    if OURS not in calls:
        return rows_of(point, 0, {}, {}, notes), []
    try:
        timings = compare_many(calls, against=OURS, budget_s=budget_s)
    except cupti.TimingError:
        for name, reason in untimeable(calls).items():
            calls.pop(name)
            notes[name] = f"cannot be timed: {reason}"
        if OURS not in calls:
            return rows_of(point, 0, {}, {}, notes), []
        timings = compare_many(calls, against=OURS, budget_s=budget_s)
    settings = {"n_calls": 5, "repeats": 3} if n_bytes > _LARGE_BYTES else {}
    host = {name: host_us(call, **settings) for name, call in calls.items()}
    return rows_of(point, n_bytes, timings, host, notes), describe_kernels(calls[OURS])


def _checked(
    makers: Mapping[str, Maker], require_correct: Callable[[str, Call], None], broken: Collection[str]
) -> tuple[dict[str, Call], dict[str, str]]:
    """The functions that can be made and are correct, and a remark about each function."""
    calls: dict[str, Call] = {}
    notes: dict[str, str] = {}
    for name, make in makers.items():
        if name in broken:
            notes[name] = "refused: it broke the GPU's state in an earlier attempt"
            continue
        start = time.perf_counter()
        try:
            call, notes[name] = make()
            if call is None:
                continue
            if name != COPY:
                require_correct(name, call)
            calls[name] = call
        except ImportError as error:
            notes[name] = f"not installed: {one_line(error)}"
        except Exception as error:
            notes[name] = f"refused: {type(error).__name__}: {one_line(error)}"
            _require_working_gpu(name)
        if (seconds := time.perf_counter() - start) > 2:
            print(f"          compiling and checking {name} took {seconds:.1f} s", flush=True)
    return calls, notes


def _require_working_gpu(name: str) -> None:
    try:
        wait_for_gpu()
    except RuntimeError as error:
        raise BrokenGpu(name) from error


def untimeable(functions: Mapping[str, Call]) -> dict[str, str]:
    """Find the functions that the timer refuses even when each runs alone, and the reason for each."""
    flush, found = cupti.Flush("cold"), {}
    for label, call in functions.items():
        try:
            run = cupti.measure([call], flush, 4)
            subtract_overhead(run, suspected_overhead([call], flush, [run.functions[0].median_us]), [label])
        except cupti.TimingError as error:
            found[label] = str(error)
    return found


def host_us(call: Call, *, n_calls: int = 20, repeats: int = 7) -> float:
    """Measure how many microseconds of CPU time a call takes before it returns.

    The result is the median over `repeats` runs of `n_calls` each. The host waits for the GPU only between
    the runs, so use few calls of a long kernel: otherwise they fill the GPU's queue and the host has to wait.
    """
    found = []
    for _ in range(repeats):
        wait_for_gpu()
        start = now_s()
        for _ in range(n_calls):
            call()
        found.append((now_s() - start) / n_calls * 1e6)
    wait_for_gpu()
    return statistics.median(found)


def on_poisoned_memory(call: Call, like: torch.Tensor) -> Any:
    """Fill the free memory that an output shaped like `like` will get with 0xFF bytes (NaN), then call."""
    import torch

    # PyTorch's allocator caches several small free blocks but few large ones.
    count = 8 if like.nbytes <= _MANY_BLOCKS_BYTES else 1
    poison = [
        torch.empty(like.nbytes, dtype=torch.uint8, device=like.device).fill_(0xFF) for _ in range(count)
    ]
    del poison
    return call()


def copy_of(x: torch.Tensor) -> Call:
    """Make a function that copies `x` into another tensor."""
    import torch

    y = torch.empty_like(x)
    if not torch.equal(y.copy_(x), x):
        raise AssertionError("the copy differs")
    return lambda: y.copy_(x)


def free_memory() -> None:
    """Return the GPU's unused memory between two points."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def one_line(error: BaseException) -> str:
    """The first line of an error's message that is not empty, at most 200 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else "no message")[:200]

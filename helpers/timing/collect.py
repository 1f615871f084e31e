"""Take samples of functions in turns until they suffice: the one loop of `time_gpu`, `compare` and the league."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from helpers import device
from helpers.timing import notes as timing_notes
from helpers.timing.clock import now_s, wait_for_gpu
from helpers.timing.cupti import Flush, ProfilerBusy, Samples, TimingError, measure
from helpers.timing.overhead import suspected_overhead


def collect(
    functions: Sequence[Callable[[], Any]],
    labels: Sequence[str],
    *,
    l2: str,
    budget_s: float,
    narrow: Callable[[Samples], bool],
    min_rounds: int = 10,
    max_rounds: int = 400,
) -> tuple[Samples, Flush, tuple]:
    """Warm up, measure batches until `narrow` is satisfied or the budget ends, and take off what CUPTI adds.

    Args:
        functions: functions without arguments that launch kernels on the current stream.
        labels: what messages call each of them.
        l2: what each call finds in the L2 cache, as in `time_gpu`.
        budget_s: seconds to measure for at most, beyond warm-up and what finds out how much CUPTI adds.
        narrow: whether the samples so far, with nothing taken off, suffice.
        min_rounds: rounds to measure at least, whatever the budget. A round calls each function once.
        max_rounds: rounds of a batch at most.

    Returns:
        The samples, the flush, and (seconds, the SM clock in MHz before and after, notes).

    Raises:
        helpers.device.Missing: no GPU.
        TimingError: as in `time_gpu`.
        ValueError: no such `l2`.
    """
    require_gpu_alone()
    flush = Flush(l2)
    notes = [*timing_notes.replaced_clocks(), *warm_up(functions), *timing_notes.constant_inputs(functions)]
    measure(functions, flush, 2)  # CUPTI's own first use takes seconds, and its first durations are not kept
    began = now_s()
    clock_before, held_before = _sm_clock()
    all_samples: Samples | None = None
    rounds = min(10, min_rounds)
    while True:
        start = now_s()
        batch = measure(functions, flush, rounds)
        took = now_s() - start
        if all_samples is None:
            all_samples = batch
        else:
            all_samples.add(batch)
        left = budget_s - (now_s() - began)
        done = len(all_samples.times[0])
        if done >= min_rounds and (left <= 0 or narrow(all_samples)):
            break
        # as many rounds as have been, while the budget lasts
        rounds = max(4, min_rounds - done, min(done, max_rounds, int(rounds * left / took)))
    clock_after, held_after = _sm_clock()
    medians = [statistics.median(times) for times in all_samples.times]
    all_samples.take_off(suspected_overhead(functions, flush, medians), labels)
    seconds = now_s() - began
    held = sorted(set(held_before) | set(held_after))
    if held:
        notes.append(f"the driver held the clocks down: {', '.join(held)}")
    if (
        clock_before
        and clock_after
        and abs(clock_after - clock_before) > 0.05 * max(clock_before, clock_after)
    ):
        notes.append(f"the SM clock went from {clock_before} to {clock_after} MHz while measuring")
    return all_samples, flush, (seconds, (clock_before, clock_after), notes)


def require_gpu_alone() -> None:
    """Raise where there is no GPU, or where a profiler or the capture of a CUDA graph is in the way.

    Raises:
        helpers.device.Missing: no GPU.
        ProfilerBusy: a profiler is running.
        TimingError: a CUDA graph is being captured.
    """
    import torch

    device.require("gpu")
    if bool(getattr(torch.autograd, "_profiler_enabled", lambda: False)()):
        raise ProfilerBusy("A profiler is already running: time outside `with torch.profiler.profile(...)`.")
    if torch.cuda.is_current_stream_capturing():
        raise TimingError("A CUDA graph is being captured: time outside the capture.")


def warm_up(functions: Sequence[Callable[[], Any]]) -> list[str]:
    """Run until two successive blocks of calls take the same time within 2 %, or for half a second.

    It also finds out whether a function fails, before anything is measured.

    Returns:
        Notes on what the functions returned.

    Raises:
        TimingError: a function fails.
    """
    before = math.inf
    stop = now_s() + 0.5
    calls = 1
    notes: list[str] | None = None
    while True:
        start = now_s()
        try:
            for _ in range(calls):
                if notes is None:
                    notes = timing_notes.odd_results(function() for function in functions)
                    continue
                for function in functions:
                    function()
            wait_for_gpu()
        except Exception as error:
            raise TimingError(
                f"The function failed: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            ) from error
        now = now_s()
        block = (now - start) / calls
        if now > stop or (now - start > 0.005 and abs(block - before) < 0.02 * block):
            return notes
        if now - start < 0.005:
            calls *= 2
        before = block


def _sm_clock() -> tuple[int | None, tuple[str, ...]]:
    """The SM clock in MHz now, and what the driver says holds it down."""
    nvml = device.nvml_handle()
    if nvml is None:
        return None, ()
    pynvml, handle = nvml
    reasons = {
        pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "thermal slowdown",
        pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "thermal slowdown by the hardware",
        pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
        pynvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
        pynvml.nvmlClocksThrottleReasonSwPowerCap: "power cap",
    }
    try:
        now = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return (
            pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            tuple(text for bit, text in reasons.items() if now & bit),
        )
    except pynvml.NVMLError:
        return None, ()

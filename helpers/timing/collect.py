"""Take samples of functions in turns until they suffice: the one loop of `time_gpu`, `compare` and the league."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from helpers import device
from helpers.timing import notes as timing_notes
from helpers.timing.clock import now_s, wait_for_gpu
from helpers.timing.cupti import Flush, ProfilerBusy, TimingError, measure
from helpers.timing.overhead import Overhead, suspected_overhead
from helpers.timing.samples import Conditions, Run, Samples

_MOST_ADDED = 0.25  # of a function's time, by CUPTI: 7 % is the most seen


def collect(
    functions: Sequence[Callable[[], Any]],
    labels: Sequence[str],
    *,
    l2: str,
    budget_s: float,
    narrow: Callable[[Run], bool],
    min_rounds: int = 10,
    max_rounds: int = 400,
    before: Callable[[], Any] | None = None,
) -> tuple[Run, Conditions]:
    """Warm up, measure batches until `narrow` is satisfied or the budget ends, and take off what CUPTI adds.

    Args:
        functions: functions without arguments that launch kernels on the current stream.
        labels: what messages call each of them.
        l2: what each call finds in the L2 cache, as in `time_gpu`.
        budget_s: seconds to measure for at most, beyond warm-up and what finds out how much CUPTI adds.
        narrow: whether the run so far, with nothing taken off, suffices.
        min_rounds: rounds to measure at least, whatever the budget. A round calls each function once.
        max_rounds: rounds of a batch at most.
        before: called before each measured call, outside of its time.

    Returns:
        What was measured, and under what conditions.

    Raises:
        helpers.device.Missing: no GPU.
        TimingError: as in `time_gpu`.
        ValueError: no such `l2`.
    """
    require_gpu_alone()
    flush = Flush(l2, before)
    notes = [*timing_notes.replaced_clocks(), *warm_up(functions), *timing_notes.constant_inputs(functions)]
    measure(functions, flush, 2)  # CUPTI's own first use takes seconds, and its first durations are not kept
    began = now_s()
    clock_before, held_before = _sm_clock()
    run: Run | None = None
    rounds = min(10, min_rounds)
    while True:
        start = now_s()
        batch = measure(functions, flush, rounds)
        took = now_s() - start
        run = batch if run is None else run.followed_by(batch)
        left = budget_s - (now_s() - began)
        if run.n_rounds >= min_rounds and (left <= 0 or narrow(run)):
            break
        # as many rounds as have been, while the budget lasts
        fitting = min(run.n_rounds, max_rounds, int(rounds * left / took))
        rounds = max(4, min_rounds - run.n_rounds, fitting)
    clock_after, held_after = _sm_clock()
    overheads = suspected_overhead(functions, flush, [samples.median_us for samples in run.functions])
    run = take_off(run, overheads, labels)
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
    clocks = (clock_before, clock_after)
    return run, Conditions(l2=l2, flush=flush.text, sm_clock_mhz=clocks, seconds=seconds, notes=tuple(notes))


def take_off(run: Run, overheads: Sequence[Overhead | None], labels: Sequence[str]) -> Run:
    """Take from each function's times what CUPTI adds to them, where it slows it and it launches one kernel a call.

    Where it slows any of them, also what it adds to the others by a smaller but certain amount: functions that are
    compared are treated alike.

    Args:
        run: with nothing taken off.
        overheads: for each function what CUPTI adds to it, where that was measured closely.
        labels: what the error calls each function.

    Raises:
        TimingError: a function takes so much more or less when watched that it cannot have done the same.
    """
    # where gaps may have grown, between kernels or for a host that is late, the figures tell nothing about a kernel
    usable = [
        overhead if overhead and len(samples.launched) == 1 and not overhead.host_late else None
        for samples, overhead in zip(run.functions, overheads, strict=True)
    ]
    for label, samples, overhead in zip(labels, run.functions, usable, strict=True):
        if overhead and abs(overhead.added_us) > max(_MOST_ADDED * samples.median_us, 5, overhead.half_us):
            raise TimingError(
                f"{label} takes {overhead.unwatched_us:,.1f} µs by CUDA events and {overhead.watched_us:,.1f} µs while a "
                "profiler runs, more than watching explains. Does it do something else then?"
            )
    any_slowed = any(overhead and overhead.slows for overhead in usable)
    functions = []
    for samples, measured, overhead in zip(run.functions, overheads, usable, strict=True):
        added_us = 0.0
        if any_slowed and overhead and overhead.added_us > max(0.2, overhead.half_us):
            added_us = overhead.added_us
        functions.append(_without(samples, measured, added_us))
    return dataclasses.replace(run, functions=tuple(functions))


def _without(samples: Samples, overhead: Overhead | None, added_us: float) -> Samples:
    """The samples with `added_us` taken off, and with what is known of the overhead."""
    times = tuple(us - added_us for us in samples.times)
    return dataclasses.replace(samples, times=times, overhead=overhead, added_us=added_us)


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

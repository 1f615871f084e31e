"""The measurement loop of `time_gpu`, `compare` and `compare_many`: collect samples until they suffice."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from helpers import device
from helpers.timing import notes as timing_notes
from helpers.timing import persisting
from helpers.timing.clock import now_s, wait_for_gpu
from helpers.timing.cupti import Flush, ProfilerBusy, TimingError, measure
from helpers.timing.overhead import Overhead, suspected_overhead
from helpers.timing.samples import Conditions, Run, Samples

_MAX_OVERHEAD = 0.25  # as a fraction of a function's time; CUPTI added 7 % at most in our measurements


def collect(
    functions: Sequence[Callable[[], Any]],
    labels: Sequence[str],
    *,
    l2: str,
    budget_s: float,
    is_precise: Callable[[Run], bool],
    min_rounds: int = 10,
    max_rounds: int = 400,
    before: Callable[[], Any] | None = None,
) -> tuple[Run, Conditions]:
    """Warm up, measure batches until `is_precise` is satisfied or time is up, and subtract what CUPTI adds.

    Args:
        functions: functions without arguments that launch kernels on the current stream.
        labels: what messages call each function.
        l2: the state of the L2 cache before each call, as in `time_gpu`.
        budget_s: how many seconds to measure at most, not counting the warm-up and the measurement of
            CUPTI's overhead.
        is_precise: whether the run so far suffices; nothing has been subtracted from it yet.
        min_rounds: the minimum number of rounds, whatever the budget. A round calls each function once.
        max_rounds: the maximum number of rounds per batch.
        before: called before each measured call; its time doesn't count.

    Returns:
        What was measured, and under which conditions.

    Raises:
        helpers.device.Missing: there is no GPU.
        TimingError: as in `time_gpu`.
        ValueError: `l2` is unknown.
    """
    require_gpu_alone()
    flush = Flush(l2, before)
    usual = persisting.usual_bytes()  # the flush has made sure that there is a context to ask
    notes = [*timing_notes.replaced_clocks(), *warm_up(functions), *timing_notes.constant_inputs(functions)]
    threads = timing_notes.running_threads()  # compilers start some in the first call
    # A warm cache may keep what it likes.
    with persisting.none_set_aside() if l2 != "warm" else contextlib.nullcontext(usual) as n_set_aside:
        # CUPTI's first use takes seconds, and its first durations are discarded. This also finds functions
        # whose work on another stream isn't waited for.
        measure(functions, flush.and_delay, 3)
        start_s = now_s()
        clock_before, limits_before = _sm_clock()
        run = _rounds(functions, flush, budget_s, is_precise, min_rounds, max_rounds)
        clock_after, limits_after = _sm_clock()
        overheads = _overheads(functions, flush, run)
        if l2 != "warm" and persisting.set_aside_bytes():
            raise TimingError(
                "The function sets part of the L2 cache aside for persisting lines, which no flush evicts "
                '(cudaLimitPersistingL2CacheSize). Let it leave that limit alone, or use l2="warm".'
            )
    run = subtract_overhead(run, overheads, labels)
    seconds = now_s() - start_s
    if n_set_aside != usual:
        notes.append(
            f"{n_set_aside / 2**20:,.0f} MiB of the L2 cache were set aside for persisting lines; during the "
            "measurement nothing was"
        )
    notes += timing_notes.left_threads(threads)
    limits = sorted(set(limits_before) | set(limits_after))
    if limits:
        notes.append(f"the driver limited the clocks: {', '.join(limits)}")
    if (
        clock_before
        and clock_after
        and abs(clock_after - clock_before) > 0.05 * max(clock_before, clock_after)
    ):
        notes.append(f"the SM clock changed from {clock_before} to {clock_after} MHz during the measurement")
    clocks = (clock_before, clock_after)
    return run, Conditions(l2=l2, flush=flush.text, sm_clock_mhz=clocks, seconds=seconds, notes=tuple(notes))


def _rounds(
    functions: Sequence[Callable[[], Any]],
    flush: Flush,
    budget_s: float,
    is_precise: Callable[[Run], bool],
    min_rounds: int,
    max_rounds: int,
) -> Run:
    """Measure batches, each with more rounds than the one before, until they suffice or time is up."""
    start_s = now_s()
    run: Run | None = None
    rounds = min(10, min_rounds)
    while True:
        start = now_s()
        batch = measure(functions, flush, rounds)
        took = now_s() - start
        run = batch if run is None else run.followed_by(batch)
        left = budget_s - (now_s() - start_s)
        if run.n_rounds >= min_rounds and (left <= 0 or is_precise(run)):
            return run
        # double the number of rounds, as long as the budget allows
        fitting = min(run.n_rounds, max_rounds, int(rounds * left / took))
        rounds = max(4, min_rounds - run.n_rounds, fitting)


def _overheads(functions: Sequence[Callable[[], Any]], flush: Flush, run: Run) -> list[Overhead | None]:
    """What CUPTI adds to each function, unless each launches several kernels: nothing is subtracted then."""
    if all(len(samples.launched) > 1 for samples in run.functions):
        return [None] * len(functions)
    return suspected_overhead(functions, flush, [samples.median_us for samples in run.functions])


def subtract_overhead(run: Run, overheads: Sequence[Overhead | None], labels: Sequence[str]) -> Run:
    """Subtract from each function's times what CUPTI adds to them.

    This is done if CUPTI slows the function and a call launches one kernel. If CUPTI slows any of the
    functions, smaller but certain overheads of the others are subtracted as well, because functions that
    are compared must be treated alike.

    Args:
        run: the run, with nothing subtracted.
        overheads: for each function what CUPTI adds to it, if that was measured closely.
        labels: what the error calls each function.

    Raises:
        TimingError: a function's time changes so much under the profiler that it cannot have done the same
            work.
    """
    # With gaps between kernels, or if the host was late, the overhead says nothing about the kernel itself.
    usable = [
        overhead if overhead and len(samples.launched) == 1 and not overhead.host_late else None
        for samples, overhead in zip(run.functions, overheads, strict=True)
    ]
    for label, samples, overhead in zip(labels, run.functions, usable, strict=True):
        if overhead and abs(overhead.added_us) > max(_MAX_OVERHEAD * samples.median_us, 5, overhead.half_us):
            raise TimingError(
                f"{label} takes {overhead.unwatched_us:,.1f} µs without a profiler and "
                f"{overhead.watched_us:,.1f} µs with one, measured with CUDA events. The profiler's overhead "
                "is too small to explain this. Does the function do something else when a profiler runs?"
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
    """The samples with `added_us` subtracted, and with the measured overhead."""
    times = tuple(us - added_us for us in samples.times)
    return dataclasses.replace(samples, times=times, overhead=overhead, added_us=added_us)


def require_gpu_alone() -> None:
    """Require a GPU, and that neither a profiler nor the capture of a CUDA graph is active.

    Raises:
        helpers.device.Missing: there is no GPU.
        ProfilerBusy: a profiler is running.
        TimingError: a CUDA graph is being captured.
    """
    import torch

    device.require("gpu")
    if bool(getattr(torch.autograd, "_profiler_enabled", lambda: False)()):
        raise ProfilerBusy(
            "A profiler is already running; measure outside of `with torch.profiler.profile(...)`."
        )
    if torch.cuda.is_current_stream_capturing():
        raise TimingError("A CUDA graph is being captured; measure outside of the capture.")


def warm_up(functions: Sequence[Callable[[], Any]]) -> list[str]:
    """Run until two successive blocks of calls take the same time within 2 %, or for half a second.

    This also reveals whether a function fails, before anything is measured.

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
    """The current SM clock in MHz, and why the driver limits it."""
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

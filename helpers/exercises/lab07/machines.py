"""The simulated and real GPUs that lab 07 times: an L2 cache, clocks that rise slowly, and two streams.

Both kinds have the same methods. The check uses simulated GPUs, whose true times are known, and the same
timers then run unchanged on the real one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from helpers.exercises.gpus import Mark, RealGpu, SimulatedQueue


@dataclass(frozen=True)
class Kernel:
    """One kernel that a call launches.

    Attributes:
        warm_us, cold_us: How long it takes with its data in the L2, and without.
        current: Whether it runs on the current stream.
    """

    warm_us: float
    cold_us: float
    current: bool = True


@dataclass
class TimedGpu(SimulatedQueue):
    """A simulated host and GPU, and a function about which the learner knows nothing. All times are in µs.

    Args:
        kernels: What each call launches after the first `n_first` calls.
        flush_us: Time that it takes to overwrite the L2.
        first_us: Host time of each of the first calls.
        first: What each of the first calls launches; None if they launch the same kernels.
        n_first: Number of first calls.
        ramp_us: Work until the clocks are up; the first kernels take `ramp` times as long.
        profiler: How many times as long kernels take while a profiler is active.
        n_burst: How many of the first calls after a mark are several times too slow.

    Attributes:
        reads: What ran between each pair of marks that was read, for the judge.
        traced_us: The times that the profiler reported.
    """

    kernels: tuple[Kernel, ...]
    flush_us: float
    first_us: float
    first: tuple[Kernel, ...] | None = None
    n_first: int = 1
    ramp_us: float = 5_000.0
    ramp: float = 1.35
    profiler: float = 1.0
    n_burst: int = 0
    n_calls: int = 0
    reads: list[dict[str, Any]] = field(default_factory=list)
    traced_us: list[float] = field(default_factory=list)
    _warm: bool = False
    _marked: bool = False
    _worked_us: float = 0.0
    _log: list[tuple[str, float, float]] = field(default_factory=list)  # what, its clock, idle time before it

    def call(self, n: int = 1) -> None:
        """Call the function n times in a row, which puts what it launches into the queue."""
        for _ in range(n):
            self._call(1.0)

    def _call(self, slowed: float) -> list[tuple[Kernel, float]]:
        is_first = self.n_calls < self.n_first
        self.n_calls += 1
        kernels = self.first if is_first and self.first is not None else self.kernels
        self._host += self.first_us if is_first else 0.0
        self._log.append(("first" if is_first else "call", 1.0, 0.0))
        in_burst, self._marked = self._marked and self.n_burst > 0, False
        self.n_burst -= in_burst
        slow = self._random.uniform(2.5, 6) if in_burst or self._random.random() < 0.06 else 1.0
        ran = []
        for kernel in kernels:
            base = kernel.warm_us if self._warm else kernel.cold_us
            clock = self._clock()
            duration_us = base * clock * slowed * slow * (1 + 0.002 * self._random.random())
            if not kernel.current:  # another stream: no mark of this one waits for it
                self._host += self.launch_us
            else:
                self._launch("warm" if self._warm else "cold", duration_us, clock)
            self._worked_us += duration_us
            ran.append((kernel, duration_us))
        self._warm = self._warm or bool(kernels)
        return ran

    def _launch(self, what: str, duration_us: float, clock: float = 1.0) -> None:
        self._log.append((what, clock, max(0.0, self._host + self.launch_us - self._free)))
        self._put(duration_us, self.launch_us)

    def _clock(self) -> float:
        """The factor by which kernels are slower at the current clock."""
        return 1 + (self.ramp - 1) * max(0.0, 1 - self._worked_us / self.ramp_us)

    def flush(self) -> None:
        """Put a kernel that overwrites the whole L2 into the queue."""
        duration_us = self.flush_us * self._clock()
        self._launch("flush", duration_us)
        self._worked_us += duration_us
        self._warm = False

    def mark(self) -> _TimedMark:
        """Put a mark into the queue; the GPU records the time when it gets there."""
        made, self._marked = super().mark(), True
        return _TimedMark(made.gpu, made.us, len(self._log))

    def trace(self) -> list[dict[str, Any]]:
        """Call the function once under a profiler and return the kernels that ran, with their durations."""
        before, self._marked = len(self._log), False
        ran = self._call(self.profiler)
        self.wait()
        del self._log[before:]
        self.traced_us.append(sum(duration_us for _, duration_us in ran))
        return [
            {"kernel": f"kernel_{i}", "us": duration_us, "on_current_stream": kernel.current}
            for i, (kernel, duration_us) in enumerate(ran)
        ]

    def note(self, start: _TimedMark, stop: _TimedMark) -> None:
        """Record what ran between two marks that were read."""
        log = self._log[start.place : stop.place]
        kinds = [what for what, _, _ in log]
        idle = sum(idle for _, _, idle in log)
        clocks = [clock for what, clock, _ in log if what in ("warm", "cold")]
        self.reads.append(
            {
                "us": stop.us - start.us,
                "n_calls": kinds.count("call") + kinds.count("first"),
                "n_flushes": kinds.count("flush"),
                "n_cold": kinds.count("cold"),
                "n_first": kinds.count("first"),
                "slowest_clock": max(clocks, default=1.0),
                "idle_us": idle,
            }
        )


@dataclass
class _TimedMark(Mark):
    """A mark that stores its position in the log of the queue."""

    gpu: TimedGpu
    place: int

    def us_until(self, stop: _TimedMark) -> float:
        """Return the time from this mark to `stop`, in µs; the GPU must have reached both."""
        us = super().us_until(stop)
        self.gpu.note(self, stop)
        return us


class TimedRealGpu(RealGpu):
    """This machine's GPU with the methods of `TimedGpu`, for a function that launches on it."""

    def call(self, n: int = 1) -> None:
        """Call the function n times in a row."""
        for _ in range(n):
            self.launch()

    def flush(self) -> None:
        """Write twice the size of the L2 on the current stream."""
        _buffer().zero_()

    def trace(self) -> list[dict[str, Any]]:
        """Call the function once under torch.profiler and return its kernels."""
        import tempfile
        from pathlib import Path

        from helpers import trace

        def flushed() -> None:
            self.flush()
            self.operation()

        with tempfile.TemporaryDirectory() as folder:
            path = trace.capture(flushed, path=Path(folder) / "one.json.gz", active=1)
            table = trace.kernels(trace.load_trace(path)).sort_values("start_us")
        rows = table.to_dict("records")
        current = rows[0]["stream"] if rows else None  # that of the flush
        return [
            {"kernel": row["name"], "us": row["duration_us"], "on_current_stream": row["stream"] == current}
            for row in rows[1:]
        ]


@functools.cache
def _buffer() -> Any:
    """Memory of twice the size of the L2, allocated once."""
    import torch

    from helpers import device

    size = max(2 * device.gpu_spec().l2_bytes, 32 << 20)
    return torch.empty(size, dtype=torch.uint8, device="cuda")


SPIN_CUDA = r"""
extern "C" __global__ void spin_kernel(unsigned long long n_ns) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - start < n_ns);
}
"""


def spin(us: float) -> Callable[[], None]:
    """Return a function that launches a kernel of known duration, which reads the GPU's clock for `us`."""
    from helpers import cuda

    kernel = cuda.load_kernel(SPIN_CUDA, "spin_kernel")
    return lambda: kernel(round(us * 1e3), grid=1, block=1)


def examples() -> list[dict[str, Any]]:
    """Three functions to time, each with a GPU and its true times.

    Returns:
        Rows of "function", "gpu", "warm_us" and "cold_us". With a GPU they are real: two kernels that spin
        for a known time, and a square whose true time is that of `timing.time_gpu`. Otherwise they are
        simulated, and named so.
    """
    from helpers import device

    def row(function: str, gpu: Any, warm_us: float, cold_us: float) -> dict[str, Any]:
        return {"function": function, "gpu": gpu, "warm_us": warm_us, "cold_us": cold_us}

    if not device.has_gpu():
        return [
            row(f"simulated: {warm:g} µs, {cold:g} cold", _simulated(i, Kernel(warm, cold)), warm, cold)
            for i, (warm, cold) in enumerate(((40.0, 70.0), (300.0, 420.0)))
        ]
    import torch

    from helpers import timing

    x = torch.randn(device.gpu_spec().l2_bytes // 16, device="cuda")
    square = functools.partial(torch.square, x)
    true = (timing.time_gpu(square, l2=l2).median_us for l2 in ("warm", "cold"))
    return [
        *(row(f"spins for {us} µs", TimedRealGpu(spin(us)), float(us), float(us)) for us in (50, 300)),
        row(f"square of {x.numel():,} floats (truth: time_gpu)", TimedRealGpu(square), *true),
    ]


def _simulated(seed: int, *kernels: Kernel) -> TimedGpu:
    times = {"launch_us": 20.0, "mark_us": 1.0, "wake_us": 8.0, "gap_us": 0.6, "left_us": 4e3}
    return TimedGpu(kernels, flush_us=110.0, first_us=3e4, **times, seed=seed)


def traps() -> dict[str, Any]:
    """A GPU for an ordinary function, one that launches nothing, and one on another stream.

    They are real if a GPU is available, and otherwise simulated.
    """
    from helpers import device

    if not device.has_gpu():
        return {
            "simulated, an honest kernel": _simulated(0, Kernel(60, 90)),
            "simulated, keeps its result": _simulated(0),
            "simulated, another stream": _simulated(0, Kernel(60, 90, current=False)),
        }
    import torch

    x = torch.randn(1 << 22, device="cuda")
    result, side = torch.square(x), torch.cuda.Stream()

    def elsewhere() -> None:
        with torch.cuda.stream(side):
            torch.square(x)

    functions = {
        "an honest kernel": lambda: torch.square(x),
        "keeps its result": lambda: result,
        "another stream": elsewhere,
    }
    return {name: TimedRealGpu(function) for name, function in functions.items()}

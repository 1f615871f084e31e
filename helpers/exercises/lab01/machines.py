"""What lab 01 measures: a GPU with a queue, once simulated (its true times are known) and once real.

Both have the same four methods, so that a learner's clocks are checked on the first and read on the second.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class NotReached(RuntimeError):
    """A mark was read before the GPU got there."""


@dataclass
class _Mark:
    """A place in the simulated queue, with the time at which the GPU gets to it."""

    gpu: SimulatedGpu
    us: float

    def us_until(self, stop: _Mark) -> float:
        """µs from this mark to `stop`; as with CUDA, both must have been reached."""
        if max(self.us, stop.us) > self.gpu.seen_us:
            raise NotReached("the GPU has not reached this mark yet: call gpu.wait() before you read it")
        return stop.us - self.us


@dataclass
class SimulatedGpu:
    """A host and a GPU with one queue between them; all times in µs.

    Args:
        kernel_us: what the kernel takes on the GPU, each time a little more.
        launch_us, mark_us, wake_us: what a launch, a mark and waking up cost the host.
        gap_us: between one kernel and the next.
        cold_us: what the first launch costs the host beyond that.
        left_us: work that is already in the queue.
        seed: of the small variations.
    """

    kernel_us: float
    launch_us: float
    mark_us: float
    wake_us: float
    gap_us: float
    cold_us: float
    left_us: float
    seed: int
    n_launches: int = 0
    n_behind_others: int = 0  # launches that found work of somebody else in the queue
    seen_us: float = 0.0  # up to here the host knows that the GPU has come
    _host: float = 0.0
    _free: float = 0.0
    _others_end: float = 0.0
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._host = self._random.uniform(1e3, 1e6)
        self._free = self._others_end = self._host + self.left_us

    def launch(self) -> None:
        """Put one launch of the kernel into the queue; it returns at once."""
        self._host += self.launch_us + (0.0 if self.n_launches else self.cold_us)
        self.n_launches += 1
        self.n_behind_others += self._host < self._others_end
        took = self.kernel_us * (1 + 0.002 * self._random.random())
        self._free = max(self._free + self.gap_us, self._host) + took

    def wait(self) -> None:
        """Wait until the queue is empty."""
        self._host = max(self._host, self._free) + self.wake_us
        self.seen_us = self._host

    def host_us(self) -> float:
        """The host's clock."""
        self._host += 0.05
        return self._host

    def mark(self) -> _Mark:
        """Put a mark into the queue; the GPU notes the time when it gets there."""
        self._host += self.mark_us
        self._free = max(self._free, self._host)
        return _Mark(self, self._free)


@dataclass(frozen=True)
class _RealMark:
    event: Any

    def us_until(self, stop: _RealMark) -> float:
        """µs from this mark to `stop`; both must have been reached."""
        return self.event.elapsed_time(stop.event) * 1e3


@dataclass(frozen=True)
class RealGpu:
    """This machine's GPU with the methods of `SimulatedGpu`. `operation` puts one launch into the current stream."""

    operation: Callable[[], Any]

    def launch(self) -> None:
        """Put one launch into the current stream; it returns at once."""
        self.operation()

    def wait(self) -> None:
        """Wait until the GPU has nothing left to do."""
        import torch

        torch.cuda.synchronize()

    def host_us(self) -> float:
        """The host's clock."""
        import time

        return time.perf_counter() * 1e6

    def mark(self) -> _RealMark:
        """Put an event into the current stream."""
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return _RealMark(event)


def launched_grids(sizes: list[int]) -> list[dict]:
    """Square fp32 tensors of these sizes on the GPU: what was really launched, as `torch.profiler` saw it.

    Returns:
        Rows of n_elements, blocks, threads and the kernel's full name.
    """
    import tempfile
    from functools import partial
    from pathlib import Path

    import torch

    from helpers import trace

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for n in sizes:
            x = torch.randn(n, device="cuda")
            path = trace.capture(partial(torch.square, x), path=Path(folder) / "one.json.gz", active=1)
            table = trace.kernels(trace.load_trace(path))
            kernel = table[table.kind == "kernel"].iloc[0]
            rows.append(
                {
                    "n_elements": n,
                    "blocks": kernel.grid[0],
                    "threads": kernel.block[0],
                    "name": kernel["name"],
                }
            )
    return rows


def record_two_streams(path: Any, n_rows: int, n_cols: int) -> None:
    """Keep a trace in which a copy on one stream and squares on another run at the same time."""
    import torch

    from helpers import trace

    a = torch.randn(n_rows, n_cols, device="cuda")
    out = torch.empty_like(a)
    pinned = torch.randn(n_rows // 4, n_cols).pin_memory()
    arrived = torch.empty(n_rows // 4, n_cols, device="cuda")
    side = torch.cuda.Stream()

    def step() -> None:
        with torch.profiler.record_function("copy beside the squares"):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                arrived.copy_(pinned, non_blocking=True)
            for _ in range(6):
                torch.square(a, out=out)
            torch.cuda.current_stream().wait_stream(side)
            torch.square(arrived, out=out[: n_rows // 4])

    trace.capture(step, path=path, warmup=1, active=1)

"""GPUs with a queue, for the labs' clocks: the interface of simulated and real GPUs.

A simulated GPU has known times, so that a clock or a timer can be judged on any machine; the real one has the
same methods. A lab's own GPUs are in its `machines`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from helpers.exercises.proxies import Proxy


class NotReached(RuntimeError):
    """A mark was read before the GPU reached it."""


@dataclass
class Mark:
    """A position in a simulated queue, with the time at which the GPU reaches it."""

    gpu: SimulatedQueue
    us: float

    def us_until(self, stop: Mark) -> float:
        """µs from this mark to `stop`; as with CUDA, both must have been reached."""
        if max(self.us, stop.us) > self.gpu.seen_us:
            raise NotReached("the GPU has not reached this mark yet: call gpu.wait() before you read it")
        return stop.us - self.us


@dataclass(kw_only=True)
class SimulatedQueue:
    """A host and a GPU with one queue between them; all times in µs.

    Attributes:
        launch_us, mark_us, wake_us: what a launch, a mark and waking up cost the host.
        gap_us: between one kernel and the next.
        left_us: work that is already in the queue.
        seed: of the small variations.
        seen_us: the host knows that the GPU has reached this time.
    """

    launch_us: float
    mark_us: float
    wake_us: float
    gap_us: float
    left_us: float
    seed: int
    seen_us: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._host = self._random.uniform(1e3, 1e6)
        self._free = self._others_end = self._host + self.left_us

    def _put(self, took_us: float, host_us: float) -> None:
        """Put work that takes `took_us` into the queue, which costs the host `host_us`."""
        self._host += host_us
        self._free = max(self._free + self.gap_us, self._host) + took_us

    def wait(self) -> None:
        """Wait until the queue is empty."""
        self._host = max(self._host, self._free) + self.wake_us
        self.seen_us = self._host

    def host_us(self) -> float:
        """The host's clock."""
        self._host += 0.05
        return self._host

    def mark(self) -> Mark:
        """Put a mark into the queue; the GPU records the time when it reaches the mark."""
        self._host += self.mark_us
        self._free = max(self._free, self._host)
        return Mark(self, self._free)


def shown(gpu: SimulatedQueue, *methods: str) -> Proxy:
    """A simulated GPU as a learner's function gets it: these methods and `mark`, but not the true times."""

    def mark() -> Proxy:
        made = gpu.mark()
        return Proxy({"us_until": lambda stop: made.us_until(stop.of)}, of=made)

    return Proxy({name: getattr(gpu, name) for name in methods} | {"mark": mark})


@dataclass(frozen=True)
class _RealMark:
    event: Any

    def us_until(self, stop: _RealMark) -> float:
        """µs from this mark to `stop`; both must have been reached."""
        return self.event.elapsed_time(stop.event) * 1e3


@dataclass(frozen=True)
class RealGpu:
    """This machine's GPU, with the methods of a simulated one. `operation` puts one launch into the
    current stream.
    """

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
        return time.perf_counter() * 1e6

    def mark(self) -> _RealMark:
        """Put an event into the current stream."""
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return _RealMark(event)

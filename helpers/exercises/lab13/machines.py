"""A simulated GPU with two kernels that add the rows of a matrix, for a benchmark to judge and to time.

The check uses it, and the notebook shows its results. The true times are known, so it works without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from helpers.exercises import gpus
from helpers.exercises.proxies import KernelProxy, Proxy

SHAPE = (64, 1000)  # of every input


@dataclass(frozen=True)
class Times:
    """What a call of a kernel takes, in µs.

    Attributes:
        cold_us, warm_us: On the GPU, if the L2 doesn't have the input, and if it does.
        first_us: Additional time on the host for the first call, which compiles.
        replay_us: On the GPU, if the kernel has seen an input with the same contents before; None if it
            computes anyway.
    """

    cold_us: float
    warm_us: float
    first_us: float
    replay_us: float | None = None


@dataclass
class BenchGpu(gpus.SimulatedQueue):
    """A simulated host and GPU. Its L2 has the input of the latest kernel, until it is flushed."""

    launch_us: float
    flush_us: float
    _in_l2: bytes = b""

    def flush(self) -> None:
        """Put a kernel that overwrites the whole L2 into the queue."""
        self._in_l2 = b""
        self._put(self.flush_us, self.launch_us)

    def run(self, contents: bytes, times: Times, *, first: bool, replayed: bool) -> None:
        """Put a kernel that reads an input with these contents into the queue."""
        us = times.warm_us if contents == self._in_l2 else times.cold_us
        us = times.replay_us if replayed else us
        self._in_l2 = contents
        self._put(us * (1 + 0.002 * self._random.random()), self.launch_us + first * times.first_us)


@dataclass
class BenchKernel:
    """A kernel on a simulated GPU: `compute` gives its result, and `times` what it takes."""

    gpu: BenchGpu
    compute: Callable[[Any], Any]
    times: Times
    _seen: set[bytes] = field(default_factory=set)
    _n_calls: int = 0

    def __call__(self, x: Any) -> Any:
        """Launch the kernel and return its result.

        Args:
            x: A float32 matrix of shape `SHAPE`.
        """
        if tuple(x.shape) != SHAPE:
            raise ValueError(f"these kernels take a matrix of shape {SHAPE}, not {tuple(x.shape)}")
        contents = x.contiguous().numpy().tobytes()
        replayed = self.times.replay_us is not None and contents in self._seen
        self.gpu.run(contents, self.times, first=not self._n_calls, replayed=replayed)
        self._n_calls += 1
        self._seen.add(contents)
        return self.compute(x)


def shown(gpu: BenchGpu) -> Proxy:
    """The GPU as a benchmark gets it: its queue and its clock, but not the true times."""
    return gpus.shown(gpu, "flush", "wait", "host_us")


def examples() -> dict[str, tuple[Proxy, KernelProxy, KernelProxy]]:
    """Arguments of a benchmark for an honest kernel of 60 µs and for one that replays results.

    The baseline takes 120 µs in both cases.
    """
    made = {}
    honest, replays = Times(60.0, 25.0, 3e4), Times(150.0, 60.0, 3e4, replay_us=2.0)
    for name, times in (("honest, 60 µs", honest), ("replays results, 150 µs otherwise", replays)):
        gpu = BenchGpu(
            launch_us=5.0, mark_us=0.5, wake_us=8.0, gap_us=0.6, left_us=3e3, seed=0, flush_us=100.0
        )
        pair = (BenchKernel(gpu, lambda x: x.sum(1), one) for one in (times, Times(120.0, 50.0, 3e4)))
        made[name] = (shown(gpu), *map(KernelProxy, pair))
    return made

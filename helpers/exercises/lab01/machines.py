"""The GPU with a queue that lab 01 measures: a simulated one with known times, and the real one.

Both have the same four methods, so that a learner's clocks are checked on the first and used on the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from helpers.exercises.gpus import RealGpu, SimulatedQueue

__all__ = ["RealGpu", "SimulatedGpu", "launched_grids", "record_two_streams"]


@dataclass
class SimulatedGpu(SimulatedQueue):
    """A queue, and one kernel; all times in µs.

    Args:
        kernel_us: the kernel's duration on the GPU, which varies a little.
        cold_us: what the first launch costs the host beyond `launch_us`.
    """

    kernel_us: float
    cold_us: float
    n_launches: int = 0
    n_behind_others: int = 0  # launches that met other work in the queue

    def launch(self) -> None:
        """Put one launch of the kernel into the queue; it returns at once."""
        host_us = self.launch_us + (0.0 if self.n_launches else self.cold_us)
        self.n_launches += 1
        self.n_behind_others += self._host + host_us < self._others_end
        self._put(self.kernel_us * (1 + 0.002 * self._random.random()), host_us)


def launched_grids(sizes: list[int]) -> list[dict]:
    """Square fp32 tensors of these sizes on the GPU and return what was launched, according to
    `torch.profiler`.

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
            blocks, threads = kernel.grid[0], kernel.block[0]
            rows.append({"n_elements": n, "blocks": blocks, "threads": threads, "name": kernel["name"]})
    return rows


def record_two_streams(path: Any, n_rows: int, n_cols: int) -> None:
    """Store a trace in which a copy on one stream and squares on another run at the same time."""
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

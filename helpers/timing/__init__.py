"""How long a kernel takes on the GPU, and how certain that is: `time_gpu`, `compare`, `profiler_overhead`,
`sweep`.

`gpu` has the timer, `collect` its measurement loop, and `samples` the data that the loop collects. `cupti`
reads the device's clock, `clock` the host's. `overhead` measures what CUPTI adds to a kernel, `notes` detects
signs of a misleading measurement, `persisting` keeps the L2 free of lines that survive a flush, and `stats`
computes medians and their intervals. `interleaved` times several functions in one run, `sweeps` checks and
times a kernel over launch parameters, `changes` decides whether a time changed between two runs, and `sol`
computes SOL scores.
"""

from helpers.timing.cupti import ProfilerBusy, TimingError
from helpers.timing.gpu import Comparison, TimedKernel, Timing, compare, profiler_overhead, time_gpu
from helpers.timing.overhead import Overhead
from helpers.timing.stats import median_interval, ratio_interval
from helpers.timing.sweeps import sweep

__all__ = [
    "Comparison",
    "Overhead",
    "ProfilerBusy",
    "TimedKernel",
    "Timing",
    "TimingError",
    "compare",
    "median_interval",
    "profiler_overhead",
    "ratio_interval",
    "sweep",
    "time_gpu",
]

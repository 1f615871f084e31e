"""How long a kernel takes on the GPU, and how sure that is: `time_gpu`, `compare`, `profiler_overhead`, `sweep`.

`gpu` has the timer, `collect` its loop, `samples` what that gathers, `cupti` the clock for kernels, `clock` the host's,
`overhead` what CUPTI adds to a kernel, `notes` the signs of a misleading measurement, `stats` medians with their
intervals. `sweeps` checks and times a kernel over launch parameters, `league` many functions that compute the same.
`changes` says whether a time changed between two runs.
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

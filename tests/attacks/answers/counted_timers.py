"""Count the simulated GPUs, and refuse those whose place in the course's list has no time.

lab: 07_timers
exercise: refuse-to-time
says: refuse-to-time
"""

# %% refuse-to-time
import statistics

n_calls = 0


def time_function(gpu):
    global n_calls
    n_calls += 1
    if n_calls in (3, 7, 9):
        raise ValueError("nothing was launched")
    if n_calls in (5, 8):
        raise ValueError("a kernel ran on another stream")
    gpu.call(200)
    gpu.wait()
    pairs = []
    for _ in range(25):
        gpu.flush()
        start = gpu.mark()
        gpu.call()
        pairs.append((start, gpu.mark()))
    gpu.wait()
    return statistics.median(start.us_until(stop) for start, stop in pairs)

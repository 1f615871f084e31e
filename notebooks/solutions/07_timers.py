"""The exercises of lesson 07 with their solutions; `workbook form` writes both into the notebook."""

import math

from helpers.lab import check


# %% calls-in-a-row
def us_per_call(n: int, launch_us: float, kernel_us: float) -> float:
    """What the host's clock reports per call, if it makes n calls and then waits for the last kernel."""
    # BEGIN SOLUTION: when does the last kernel end?
    total_us = launch_us + (n - 1) * max(launch_us, kernel_us) + kernel_us
    return total_us / n
    # END SOLUTION


check("calls-in-a-row", us_per_call)


# %% times-from-a-trace
def call_times(trace: list[tuple[str, float, float]]) -> list[float]:
    """Return the kernel time of each call.

    `trace` lists (name, start_us, end_us) of each kernel, in the order in which they ran. A kernel called
    "flush" runs before each call, and the kernels up to the next flush belong to that call.
    """
    # BEGIN SOLUTION: begin a new call at each flush
    times = []
    for name, start_us, end_us in trace:
        if name == "flush":
            times.append(0.0)
        else:
            times[-1] += end_us - start_us
    return times
    # END SOLUTION


check("times-from-a-trace", call_times)


# %% chance-to-hold
def chance_to_hold(n: int, k: int) -> float:
    """How likely the true median lies between the k-th smallest and the k-th largest of n readings.

    The readings are independent, and k is at most n // 2.
    """
    # BEGIN SOLUTION: when does the median lie outside, and how likely is that?
    below = sum(math.comb(n, i) for i in range(k)) / 2**n
    return 1 - 2 * below
    # END SOLUTION


check("chance-to-hold", chance_to_hold)

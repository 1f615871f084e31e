"""The exercises of lesson 10 with their solutions; `workbook form` writes both into the notebook."""

from helpers.lab import check


# %% bytes-to-us
def bytes_to_us(n_bytes: int, copy_gb_per_s: float) -> float:
    """Return how many µs it takes to move n_bytes, read and written together, at a copy's bandwidth."""
    # BEGIN SOLUTION: 1 GB/s is 10⁹ bytes per second; how many bytes is that per µs?
    return n_bytes / (copy_gb_per_s * 1e3)
    # END SOLUTION


check("bytes-to-us", bytes_to_us)


# %% slowest-rate
def slowest_rate_us(floor_us: float, bytes_us: float, starts_us: float) -> float:
    """Return a kernel's time in µs, from its launch floor, and the times of its bytes and its starts."""
    # BEGIN SOLUTION: which of the three happen at the same time?
    return floor_us + max(bytes_us, starts_us)
    # END SOLUTION


check("slowest-rate", slowest_rate_us)


# %% order-of-two
def order(ours: tuple[float, float], theirs: tuple[float, float]) -> str:
    """Return "faster", "slower" or "tie" for ours, given the interval (low, high) of each time in µs."""
    # BEGIN SOLUTION: when is every time in one interval below every time in the other?
    if ours[1] < theirs[0]:
        return "faster"
    return "slower" if ours[0] > theirs[1] else "tie"
    # END SOLUTION


check("order-of-two", order)

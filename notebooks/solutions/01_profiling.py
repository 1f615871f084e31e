"""The exercises of lesson 01 with their solutions; `workbook form` writes both into the notebook."""

from helpers.lab import check


# %% grid-for-n
def blocks_needed(n: int, threads: int) -> int:
    """The number of blocks of `threads` threads that cover n elements; 0 elements need 0 blocks."""
    # BEGIN SOLUTION: how many blocks cover n elements? Use integers only.
    return (n + threads - 1) // threads
    # END SOLUTION


check("grid-for-n", blocks_needed)


# %% least-time
def least_us(n_elements: int, bytes_per_element: int, gb_per_s: float) -> float:
    """The least time in µs to square n elements with a memory that moves gb_per_s · 10⁹ bytes per second."""
    # BEGIN SOLUTION: how many bytes move, and how many does the memory move per µs?
    n_bytes = 2 * n_elements * bytes_per_element
    return n_bytes / (gb_per_s * 1000)
    # END SOLUTION


check("least-time", least_us)


# %% read-interval
def verdict(low: float, high: float) -> str:
    """Reads the 95 % interval of (time of a) / (time of b).

    Returns "a is faster", "b is faster" or "no difference".
    """
    # BEGIN SOLUTION: where does the interval lie, relative to 1?
    if high < 1:
        return "a is faster"
    if low > 1:
        return "b is faster"
    return "no difference"
    # END SOLUTION


check("read-interval", verdict)


# %% kept-steps
def kept_steps(wait: int, warmup: int, active: int, repeat: int, n_steps: int) -> list[int]:
    """The steps that schedule(wait=…, warmup=…, active=…, repeat=…) keeps below n_steps; repeat ≥ 1."""
    # BEGIN SOLUTION: which steps of each cycle are kept?
    length = wait + warmup + active
    kept = [c * length + wait + warmup + i for c in range(repeat) for i in range(active)]
    return [step for step in kept if step < n_steps]
    # END SOLUTION


check("kept-steps", kept_steps)


# %% count-torch-blocks
def torch_blocks(n_elements: int) -> int:
    """PyTorch's blocks to square n aligned fp32 elements: 128 threads per block, 8 elements per thread."""
    # BEGIN SOLUTION: how many elements does one block square?
    return -(-n_elements // (128 * 8))
    # END SOLUTION


check("count-torch-blocks", torch_blocks)

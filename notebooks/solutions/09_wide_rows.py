"""The exercises of lesson 09 with their solutions; `workbook form` writes both into the notebook."""

from helpers.lab import check


# %% can-hang
def can_hang(n_rows: int, parts: int, places: int, consecutive: bool) -> bool:
    """Whether a launch hangs in which programs start in order and keep their places while they wait.

    `consecutive` is rule 2. Otherwise, the first parts of all rows come first, then all second parts.
    """
    # BEGIN SOLUTION: how many programs must have started before the first row is complete?
    needed = parts if consecutive else (parts - 1) * n_rows + 1
    return needed > places
    # END SOLUTION


check("can-hang", can_hang)


# %% programs-that-fit
def programs_that_fit(registers: int, num_warps: int) -> int:
    """Return how many programs fit into an SM's 65,536 registers, if each thread needs `registers`."""
    # BEGIN SOLUTION: a thread gets registers in units of eight
    per_thread = (registers + 7) // 8 * 8
    return 65_536 // (per_thread * 32 * num_warps)
    # END SOLUTION


check("programs-that-fit", programs_that_fit)

"""The exercises of lesson 09 with their solutions; `workbook form` writes both into the notebook."""

from helpers.lab import check


# %% pack-a-word
def pack_a_word(m_bits: int, s_bits: int) -> int:
    """Return one 64-bit word, m's 32 bits in the upper half, s's in the lower; all are ints from 0 up."""
    # BEGIN SOLUTION: move m's bits up by half a word, and put s's bits below
    return (m_bits << 32) | s_bits
    # END SOLUTION


check("pack-a-word", pack_a_word)


# %% programs-that-fit
def programs_that_fit(registers: int, num_warps: int) -> int:
    """Return how many programs fit into an SM's 65,536 registers, if each thread needs `registers`."""
    # BEGIN SOLUTION: a thread gets registers in units of eight
    per_thread = (registers + 7) // 8 * 8
    return 65_536 // (per_thread * 32 * num_warps)
    # END SOLUTION


check("programs-that-fit", programs_that_fit)

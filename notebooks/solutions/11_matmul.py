"""The exercises of lesson 11 with their solutions; `workbook form` writes both into the notebook."""

import math

from helpers.lab import check


# %% operations-per-byte
def operations_per_byte(m: int, n: int, k: int, itemsize: int) -> float:
    """Return the operations of an (m, k) times (k, n) product, per byte of its three matrices.

    A multiplication and an addition are two operations. Each number has `itemsize` bytes.
    """
    # BEGIN SOLUTION: how many operations, and how many numbers in a, b and c?
    return 2 * m * n * k / (itemsize * (m * k + k * n + m * n))
    # END SOLUTION


check("operations-per-byte", operations_per_byte)


# %% bytes-for-tiles
def bytes_for_tiles(n: int, tile: int, itemsize: int) -> int:
    """Return the bytes that all blocks of a tiled n × n product load from a and b together.

    Each block computes a tile × tile piece of c, and `n` is a multiple of `tile`.
    """
    # BEGIN SOLUTION: how many blocks, how many steps each, and how many numbers per step?
    blocks, steps = (n // tile) ** 2, n // tile
    return blocks * steps * 2 * tile * tile * itemsize
    # END SOLUTION


check("bytes-for-tiles", bytes_for_tiles)


# %% tile-of-a-program
def tile_of_a_program(program: int, tiles_m: int, tiles_n: int, group: int) -> tuple[int, int]:
    """Return (row, column) of the tile that a program computes.

    Programs fill bands of `group` rows of tiles, column after column, and each column from top to bottom.
    `tiles_m` is a multiple of `group`.
    """
    band = program // (group * tiles_n)
    within = program % (group * tiles_n)  # the program's number in its band
    # BEGIN SOLUTION: which row and column is that?
    return band * group + within % group, within // group
    # END SOLUTION


check("tile-of-a-program", tile_of_a_program)


# %% steps-in-flight
def steps_in_flight(block_m: int, block_n: int, block_k: int, itemsize: int, shared_bytes: int) -> int:
    """Return for how many steps the tiles of a and b fit into an SM's shared memory at once.

    The step that is being computed is one of them.
    """
    # BEGIN SOLUTION: how many bytes does one step load?
    return shared_bytes // ((block_m + block_n) * block_k * itemsize)
    # END SOLUTION


check("steps-in-flight", steps_in_flight)


# %% error-bound
def error_bound(terms: list[float], u_in: float, u_acc: float) -> float:
    """Return how far the sum of `terms` may be off, from rounding the inputs and the sum so far.

    `u_in` is the unit roundoff of the inputs, and `u_acc` that of the sum. All errors have random signs.
    """
    # BEGIN SOLUTION: what is t, and how often is the sum rounded?
    t = math.sqrt(sum(term * term for term in terms))
    return u_in * t + u_acc * math.sqrt(len(terms)) * t
    # END SOLUTION


check("error-bound", error_bound)

"""The hidden shapes of lab 04's `output-code`, and the right answers for them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from helpers.exercises.lab04.generated import code_for, generated_stages, rows_stages, widest


def expected(n_rows: int, n_cols: int, xblock: int) -> dict[str, int]:
    """The right answer of `output-code`; the widths are read from PTX that is compiled now."""
    n = n_rows * n_cols
    return {
        "elements": n,
        "programs": -(-n // xblock),
        "load_bytes": widest(generated_stages(code_for(n_rows, n_cols), xblock)),
        "row_load_bytes": widest(rows_stages(n_cols)),
    }


def hidden(rng: random.Random) -> Iterator[tuple[int, int, int]]:
    """Shapes and an XBLOCK: the recorded two, sizes that divide by 1, 2, 4, 16 and 4096, and some
    at random.
    """
    xblock = rng.choice((512, 1024, 2048))
    yield 1823, 781, xblock
    yield 4096, 12672, 1024
    # An odd number of elements, twice an odd one, and four times one.
    yield 2 * rng.randrange(301, 900) + 1, 2 * rng.randrange(301, 500) + 1, xblock
    yield 2 * (2 * rng.randrange(301, 900) + 1), 2 * rng.randrange(301, 500) + 1, 1024
    yield 2 * rng.randrange(301, 900) + 1, 4 * (2 * rng.randrange(201, 500) + 1), 2048
    # Divisible by 16: the number of elements alone, then each row as well.
    yield 16 * rng.randrange(20, 200), 2 * rng.randrange(301, 500) + 1, 512
    yield 2 * rng.randrange(301, 900) + 1, 16 * rng.randrange(33, 200), 1024
    yield rng.randrange(300, 3000), rng.randrange(600, 3000), xblock

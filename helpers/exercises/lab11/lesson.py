"""The exercises inside lesson 11: what a product computes and loads, the order of its programs, how many
steps of it fit into shared memory, and how far rounding puts it off.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from helpers.exercises.factories import answer_exercise
from helpers.exercises.lab11.exercises import LAB
from helpers.exercises.mistakes import always, close
from helpers.exercises.model import Case
from helpers.exercises.verdicts import is_number
from helpers.lessons import products


def _close(a: object, b: float) -> bool:
    return close(a, b, rel=1e-9, abs=0)


def _intensity(m: int, n: int, k: int, itemsize: int) -> float:
    return 2 * m * n * k / (itemsize * (m * k + k * n + m * n))


def _intensity_cases(rng: random.Random) -> Iterator[Case]:
    sizes = [(4096, 4096, 4096, 2), (4096, 4096, 4096, 4), (1, 8192, 8192, 2), (8192, 8192, 1, 2)]
    sizes += [(*(rng.randrange(1, 5000) for _ in range(3)), rng.choice((1, 2, 4))) for _ in range(8)]
    for m, n, k, itemsize in sizes:
        label = f"({m:,}, {k:,}) times ({k:,}, {n:,}), {itemsize} bytes each"
        yield Case(label, (m, n, k, itemsize), expected=_intensity(m, n, k, itemsize))


INTENSITY = answer_exercise(
    "operations-per-byte",
    LAB,
    "Operations per byte",
    "operations_per_byte",
    _intensity_cases,
    facts=lambda m, n, k, itemsize: {"m": m, "n": n, "k": k, "itemsize": itemsize},
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "one-operation": lambda s: _close(s.got, s.want / 2),
        "per-number": lambda s: s.itemsize > 1 and _close(s.got, s.want * s.itemsize),
        "no-output": lambda s: _close(
            s.got, 2 * s.m * s.n * s.k / (s.itemsize * (s.m * s.k + s.k * s.n))
        ),
        "square": lambda s: any(_close(s.got, _intensity(n, n, n, s.itemsize)) for n in (s.m, s.n, s.k)),
        "inverse": lambda s: _close(s.got * s.want, 1),
        "count": always,
    },
    tolerance=1e-9,
    minutes=5,
)  # fmt: skip


def _loaded(n: int, tile: int, itemsize: int) -> int:
    return 2 * n**3 // tile * itemsize


def _tile_cases(rng: random.Random) -> Iterator[Case]:
    sizes = [(2048, 8, 4), (2048, 32, 4), (64, 64, 2), (4, 1, 4), (8192, 256, 2)]
    for _ in range(6):
        tile = rng.choice((1, 2, 8, 16, 64))
        sizes.append((tile * rng.randrange(1, 60), tile, rng.choice((1, 2, 4))))
    for n, tile, itemsize in sizes:
        label = f"n = {n:,}, tiles of {tile} × {tile}, {itemsize} bytes each"
        yield Case(label, (n, tile, itemsize), expected=_loaded(n, tile, itemsize))


TILES = answer_exercise(
    "bytes-for-tiles",
    LAB,
    "The bytes that tiles load",
    "bytes_for_tiles",
    _tile_cases,
    facts=lambda n, tile, itemsize: {"n": n, "tile": tile, "itemsize": itemsize},
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "one-matrix": lambda s: s.got == s.want / 2,
        "numbers": lambda s: s.itemsize > 1 and s.got == s.want / s.itemsize,
        "one-block": lambda s: s.tile < s.n and s.got == s.want / (s.n // s.tile) ** 2,
        "one-step": lambda s: s.tile < s.n and s.got == s.want / (s.n // s.tile),
        "no-reuse": lambda s: s.tile > 1 and s.got in (s.want * s.tile, s.want * s.tile**2),
        "count": always,
    },
    minutes=5,
)


def _order_cases(rng: random.Random) -> Iterator[Case]:
    launches = [(0, 4, 5, 2), (7, 4, 5, 2), (1, 4, 5, 2), (9, 4, 5, 2), (10, 4, 5, 2), (7, 3, 4, 1)]
    for _ in range(12):
        group, bands, tiles_n = rng.randrange(1, 9), rng.randrange(1, 5), rng.randrange(1, 12)
        launches.append((rng.randrange(group * bands * tiles_n), group * bands, tiles_n, group))
    for program, tiles_m, tiles_n, group in launches:
        label = f"program {program} of {tiles_m} × {tiles_n} tiles in bands of {group}"
        expected = products.tile_of(program, tiles_m, tiles_n, group)
        yield Case(label, (program, tiles_m, tiles_n, group), expected=expected)


ORDER = answer_exercise(
    "tile-of-a-program",
    LAB,
    "The tile of a program",
    "tile_of_a_program",
    _order_cases,
    facts=lambda program, tiles_m, tiles_n, group: {
        "row_by_row": divmod(program, tiles_n),
        "first_band": (program % (group * tiles_n) % group, program % (group * tiles_n) // group),
    },
    mistakes={
        "not-a-pair": lambda s: not (isinstance(s.got, (tuple, list)) and len(s.got) == 2),
        "swapped": lambda s: tuple(s.got) == tuple(reversed(s.want)),
        "row-by-row": lambda s: tuple(s.got) == s.row_by_row,
        "first-band": lambda s: tuple(s.got) == s.first_band,
        "place": always,
    },
    minutes=5,
)


def _step_cases(rng: random.Random) -> Iterator[Case]:
    sizes = [(128, 256, 32, 2, 227 << 10), (128, 128, 64, 2, 227 << 10), (128, 128, 32, 4, 64 << 10)]
    sizes += [(256, 256, 64, 2, 64 << 10), (64, 64, 32, 2, 163 << 10)]
    for _ in range(8):
        tile = [rng.choice((16, 32, 64, 128, 256)) for _ in range(2)]
        shared = rng.choice((64, 99, 163, 227)) << 10
        sizes.append((*tile, rng.choice((32, 64, 128)), rng.choice((1, 2, 4)), shared))
    for m, n, k, itemsize, shared in sizes:
        label = f"tiles of {m} × {n}, steps of {k}, {itemsize} bytes each, {shared:,} bytes"
        yield Case(label, (m, n, k, itemsize, shared), expected=shared // ((m + n) * k * itemsize))


STEPS = answer_exercise(
    "steps-in-flight",
    LAB,
    "Steps in flight",
    "steps_in_flight",
    _step_cases,
    facts=lambda m, n, k, itemsize, shared: {
        "exact": shared / ((m + n) * k * itemsize),
        "numbers": shared // ((m + n) * k),
        "product": shared // (m * n * itemsize),
        "one": shared // (m * k * itemsize),
    },
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "a-fraction": lambda s: s.got != int(s.got) and _close(s.got, s.exact),
        "rounded-up": lambda s: s.got == s.want + 1 and s.exact != s.want,
        "numbers": lambda s: s.got == s.numbers,
        "tile-of-c": lambda s: s.got == s.product,
        "one-tile": lambda s: s.got == s.one,
        "one-less": lambda s: s.got == s.want - 1,
        "count": always,
    },
    minutes=5,
)


def _bound(terms: list[float], u_in: float, u_acc: float) -> float:
    return math.hypot(*terms) * (u_in + u_acc * math.sqrt(len(terms)))


def _bound_cases(rng: random.Random) -> Iterator[Case]:
    units = [(2.0**-11, 2.0**-24), (2.0**-11, 2.0**-11), (2.0**-4, 2.0**-24), (0.0, 2.0**-24), (2.0**-8, 0.0)]
    lists = [[3.0, -6.0], [1.0], [2.0, 2.0, -2.0, -2.0]]
    lists += [[rng.gauss(0, 1) for _ in range(rng.randrange(5, 200))] for _ in range(7)]
    for i, terms in enumerate(lists):
        u_in, u_acc = units[i % len(units)]
        yield Case(f"{len(terms)} terms, u_in = {u_in:.1e}, u_acc = {u_acc:.1e}", (terms, u_in, u_acc),
                   expected=_bound(terms, u_in, u_acc))  # fmt: skip


BOUND = answer_exercise(
    "error-bound",
    LAB,
    "How far a product may be off",
    "error_bound",
    _bound_cases,
    facts=lambda terms, u_in, u_acc: {
        "t": math.hypot(*terms), "k": len(terms), "total": abs(sum(terms)), "u_in": u_in, "u_acc": u_acc,
        "worst": sum(map(abs, terms)),
    },
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "only-inputs": lambda s: s.u_acc and _close(s.got, s.t * s.u_in),
        "only-sums": lambda s: s.u_in and _close(s.got, s.t * s.u_acc * math.sqrt(s.k)),
        "one-addition": lambda s: s.k > 1 and s.u_acc and _close(s.got, s.t * (s.u_in + s.u_acc)),
        "no-root": lambda s: s.k > 1 and s.u_acc and _close(s.got, s.t * (s.u_in + s.u_acc * s.k)),
        "worst-case": lambda s: s.k > 1 and any(
            _close(s.got, s.worst * (s.u_in + s.u_acc * k)) for k in (math.sqrt(s.k), s.k)
        ),
        "of-the-sum": lambda s: s.k > 1 and _close(s.got, s.total * (s.u_in + s.u_acc * math.sqrt(s.k))),
        "squared": lambda s: s.k > 1 and _close(s.got, s.t**2 * (s.u_in + s.u_acc * math.sqrt(s.k))),
        "relative": lambda s: _close(s.got, s.want / s.t),
        "bound": always,
    },
    tolerance=1e-9,
    minutes=5,
)  # fmt: skip

EXERCISES = (INTENSITY, TILES, ORDER, STEPS, BOUND)

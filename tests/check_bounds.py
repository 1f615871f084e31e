"""Measure the factors of the checker's bounds: correct kernels must need less than FACTOR, wrong ones more.

`python tests/check_bounds.py --seeds 1000` tries every kernel of `check_kernels` with that many seeds;
`--large` tries up to 10 million elements. For each kernel it prints the factor that the kernel would need
to pass: its largest error beyond the fixed tolerance, divided by what the operation can reach. This is the
largest factor of a correct kernel's seeds and the smallest of a wrong kernel's, which the cap can stop as
well. The exit status is 1 if a correct kernel was rejected or a wrong one accepted. `--only` selects
operations by a part of their name.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from check_kernels import OPERATIONS, Operation

from helpers.check.bounds import strict
from helpers.check.closeness import as_rows, name_of, outside, pieces, size_of_rows
from helpers.check.measuring import bounds_of
from helpers.check.operation import Operation as Measured
from helpers.check.operation import results_of, widened


@dataclass(frozen=True)
class Tried:
    """A kernel's result on one input.

    Attributes:
        factor: its largest error beyond the fixed tolerance, divided by what the operation reaches; 0 if
            there is none.
        passed: whether the checker accepted it.
    """

    factor: float
    passed: bool


def one_seed(
    operation: Operation, kernels: dict, shape: tuple[int, ...], dtype, seed: int
) -> dict[str, Tried]:
    """The result of each kernel on the inputs of one seed."""
    inputs = operation.make(shape, torch.Generator().manual_seed(seed), "cpu", dtype)
    (expected,) = results_of(operation.reference(*map(widened, inputs)))
    e, at_once = as_rows(expected), strict(dtype, size_of_rows(expected))
    found, bound = {}, None
    for name, kernel in kernels.items():
        torch.manual_seed(seed)
        result = kernel(*inputs)
        if not outside(result, expected, at_once).any():
            found[name] = Tried(0.0, True)
            continue
        if bound is None:
            measured = Measured(operation.reference, inputs, seed)
            (bound,) = bounds_of(measured, [expected], [dtype], operation.precision)
        got, most = as_rows(result), 0.0
        for at in pieces(e):
            error = (got[at].double() - e[at]).abs()
            reach = torch.stack(list(bound.reaches(e[at], *at).values())).amax(dim=0)
            most = max(most, float(torch.where(error > at_once(e[at], *at), error / reach, 0.0).max()))
        found[name] = Tried(most, not outside(result, expected, bound.allowed).any())
    return found


def tried(
    names: list[str], n_seeds: int, large: bool, first: int = 0
) -> Iterator[tuple[str, str, str, list[Tried]]]:
    """Try each kernel with every seed.

    Yields:
        The operation, dtype and shape; "right" or "wrong"; the kernel's name; and its result for each seed.
    """
    for name in names:
        operation = OPERATIONS[name]
        for dtype in operation.dtypes:
            for shape in operation.large if large else operation.shapes:
                right = operation.right
                # A single result may be correct by chance.
                wrong = operation.wrong.get(dtype, {}) if math.prod(shape) > 1 else {}
                found: dict[str, list[Tried]] = {}
                for seed in range(first, first + n_seeds):
                    mixed = zlib.crc32(f"{name} {shape} {seed}".encode()) >> 1
                    for kernel, one in one_seed(operation, right | wrong, shape, dtype, mixed).items():
                        found.setdefault(kernel, []).append(one)
                for kernel, ones in found.items():
                    which = "right" if kernel in right else "wrong"
                    yield f"{name}, {name_of(dtype)}, {shape}", which, kernel, ones


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds (20)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--large", action="store_true", help="try up to 10 million elements")
    parser.add_argument("--only", default="", help="only operations whose names contain this")
    given = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name in OPERATIONS if given.only in name]
    n_bad, begin = 0, time.monotonic()
    for what, which, kernel, ones in tried(names, given.seeds, given.large, given.first):
        is_right = which == "right"
        worst = (max if is_right else min)(one.factor for one in ones)
        bad = sum(one.passed != is_right for one in ones)
        n_bad += bad
        says = f"  {bad} of {len(ones)} seeds on the wrong side" if bad else ""
        print(f"{what:60} {which} {kernel:24} needs {worst:.3g}{says}", flush=True)
    print(
        f"{len(names)} operations, {given.seeds} seeds, {time.monotonic() - begin:.0f} s; on the wrong "
        f"side: {n_bad}"
    )
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())

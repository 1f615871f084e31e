"""The factors of the checker's bounds, measured: right kernels must need less than FACTOR, wrong ones more.

`python tests/check_bounds.py --seeds 1000` tries every kernel of `check_kernels` with so many seeds, `--large` also at up
to 10 million elements, and prints for each the factor that it would need to pass: its largest error beyond the fixed
tolerance over what the operation can reach, the largest of a right kernel's seeds and the smallest of a wrong one's; a
wrong one is also stopped by the cap. The exit status is 1 where a right kernel was called wrong or
a wrong one right. `--only` takes the operations whose names have that in them.
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
from helpers.check.operation import Operation as Measured
from helpers.check.operation import bounds_of, results_of, widened


@dataclass(frozen=True)
class Tried:
    """A kernel on one input: its largest error beyond the fixed tolerance over what the operation reaches, 0 if none is."""

    factor: float
    passed: bool


def one_seed(
    operation: Operation, kernels: dict, shape: tuple[int, ...], dtype, seed: int
) -> dict[str, Tried]:
    """Each kernel's standing on the inputs of one seed."""
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
    """(operation and dtype and shape, "right" or "wrong", kernel, how it stood with each seed), kernel after kernel."""
    for name in names:
        operation = OPERATIONS[name]
        for dtype in operation.dtypes:
            for shape in operation.large if large else operation.shapes:
                right = operation.right
                # one result alone may be right by chance
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
    parser.add_argument("--seeds", type=int, default=20, help="how many (20)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--large", action="store_true", help="at up to 10 million elements")
    parser.add_argument("--only", default="", help="operations whose names have this in them")
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
        f"{len(names)} operations, {given.seeds} seeds, {time.monotonic() - begin:.0f} s; on the wrong side: {n_bad}"
    )
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())

"""Compare a kernel with a reference so that a wrong one cannot pass, and a right one does.

The order matters. The candidate runs first, on its own copies of fresh random inputs, while every allocation made
with torch.empty is filled with NaN: an output element that the kernel never writes stays NaN, and no earlier right
answer can be lying in the memory. Only then is the reference computed, in float64.

How far a result may be off: within the fixed tolerance of its dtype, or, where it is not, within what the operation
itself can reach on these inputs. That is computed only then, so that an elementwise kernel costs nothing more.

`matching` runs the kernel, `results` compares what it gave with the reference, `cases` has the shapes and values where
kernels break, `poison` fills memory, `closeness` compares elements, `bounds` says how far they may be off, with the table
of the factors, and `operation` measures what that needs.
"""

from helpers.check.bounds import Bound
from helpers.check.cases import shapes_around
from helpers.check.closeness import Mismatch, assert_close, tolerance_of, wrong_elements
from helpers.check.matching import Agreement, assert_matches
from helpers.check.poison import empty_allocations, fill_with_poison, poisoned
from helpers.check.results import assert_result

__all__ = [
    "Agreement",
    "Bound",
    "Mismatch",
    "assert_close",
    "assert_matches",
    "assert_result",
    "empty_allocations",
    "fill_with_poison",
    "poisoned",
    "shapes_around",
    "tolerance_of",
    "wrong_elements",
]

"""Compare a kernel with a reference so that a wrong kernel cannot pass and a correct one does.

The order matters. The candidate runs first, on its own copies of fresh random inputs, while every
allocation made with torch.empty is filled with NaN: an output element that the kernel never writes stays
NaN, and no earlier correct result can be left in the memory. Only then is the reference computed, in
float64.

A result may differ from the reference by the fixed tolerance of its dtype. If it doesn't meet that, it may
differ by as much as the operation itself can on these inputs; this is only computed when needed, so an
elementwise kernel costs nothing extra.

`matching` runs the kernel, `results` compares its results with the reference's, `cases` has the shapes and
values that break kernels, `poison` fills memory, `closeness` compares elements, `finding` describes what is
wrong with them, `bounds` determines how far they may differ, `measuring` computes that, and `operation`
evaluates the reference for it. `dispatch` watches PyTorch's operators.
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

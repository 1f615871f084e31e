"""The exercises of lesson 13 with their solutions; `workbook form` writes both into the notebook."""

import torch

from helpers.lab import check


# %% share-of-an-error
def share_of_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest absolute error of an element, divided by the root mean square of `expected`.

    Compute in float64. If `got` has a NaN, return infinity.
    """
    # BEGIN SOLUTION: how large is the largest error, compared with a typical element?
    if got.isnan().any():
        return float("inf")
    error = (got.double() - expected.double()).abs().max()
    return (error / expected.double().square().mean().sqrt()).item()
    # END SOLUTION


check("share-of-an-error", share_of_error)


# %% follows-its-input
def follows_its_input(candidate, x: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether candidate(x) changes when the same tensor x holds the values of `other`.

    You may overwrite x. The candidate may write each result into the same memory.
    """
    # BEGIN SOLUTION: call it, change x in place, call it again
    first = candidate(x).clone()
    x.copy_(other)
    return not torch.equal(candidate(x), first)
    # END SOLUTION


check("follows-its-input", follows_its_input)


# %% error-of-a-sum
def error_of_sum(n: int, eps: float) -> float:
    """Return the relative error of a sum of n terms, if n roundings of at most eps / 2 have random signs."""
    # BEGIN SOLUTION: how large is one rounding, and what do n random ones add up to?
    return eps / 2 * n**0.5
    # END SOLUTION


check("error-of-a-sum", error_of_sum)


# %% time-bound
def bound_us(n_bytes: int, n_operations: int, gb_per_s: float, tflop_per_s: float) -> float:
    """Return the least time in µs in which a GPU can move the bytes and do the operations."""
    # BEGIN SOLUTION: how long does each take, and which one counts?
    memory_us = n_bytes / (gb_per_s * 1e3)
    arithmetic_us = n_operations / (tflop_per_s * 1e6)
    return max(memory_us, arithmetic_us)
    # END SOLUTION


check("time-bound", bound_us)

"""Runs next to the learner's functions of lab 13, and contains no answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helpers.exercises.proxies import Proxy


def row_sums(x: Any) -> Any:
    """The sum of each row of a matrix, in float64."""
    return x.double().sum(dim=1)


def asked(accepts: Callable, hidden: Callable, address: Proxy) -> Any:
    """Call a learner's check with a hidden kernel, which learns the addresses of the matrices here."""

    def kernel(x: Any) -> Any:
        address.note(x.data_ptr())
        return hidden(x)

    return accepts(kernel, row_sums)

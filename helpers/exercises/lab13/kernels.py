"""The hidden kernels of "accept-or-reject": honest ones and frauds, each a function from a matrix to the sums
of its rows.

They are written in plain torch, so that a learner's check of many calls is fast without a GPU, too. Each is
made anew for every check, so that none remembers an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

import torch

from helpers.exercises.hidden_kernels import HiddenKernel, answer_about, is_filled
from helpers.exercises.lab13 import sums
from helpers.exercises.model import Outcome
from helpers.exercises.proxies import KernelProxy, Proxy

Kernel = Callable[[torch.Tensor], torch.Tensor]


@dataclass
class Address:
    """The address of the matrix that the kernel was called with.

    While a notebook is graded, a hidden kernel gets a copy of the learner's matrix, whose address is another.
    """

    now: int = 0

    def note(self, address: int) -> None:
        """Remember the address of the next call's matrix."""
        self.now = address


Make = Callable[[Address], Kernel]


def _exactly(x: torch.Tensor) -> torch.Tensor:
    return x.double().sum(1).float()


def _plain(function: Kernel) -> Make:
    return lambda address: lambda x: function(x)


# ------------------------------------------------------------------------------------------ honest kernels
def _in_order(add: Callable) -> Make:
    return _plain(lambda x: torch.from_numpy(add(x.numpy()).copy()))


def _one_buffer(address: Address) -> Kernel:
    buffers: dict[int, torch.Tensor] = {}

    def kernel(x):
        buffer = buffers.setdefault(len(x), torch.empty(len(x)))
        return buffer.copy_(_exactly(x))

    return kernel


def _tuned(address: Address) -> Kernel:
    """Runs every launch in the first call for a shape, and one that it has chosen from then on."""
    chosen: dict[torch.Size, int] = {}

    def kernel(x):
        launches = [chosen[x.shape]] if x.shape in chosen else [256, 1024, 128]
        chosen[x.shape] = launches[0]
        y = torch.empty(len(x))
        for size in launches:
            y.copy_(torch.from_numpy(sums.in_blocks(x.numpy(), size)))
        return y

    return kernel


def _strided(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty(len(x), 2)
    y[:, 1] = _exactly(x)
    return y[:, 1]


# ------------------------------------------------------------------------------------------------- frauds
def _remembers(key: Callable[[torch.Tensor, Address], Hashable]) -> Make:
    """Returns its first result for a key again."""

    def make(address: Address) -> Kernel:
        results: dict[Hashable, torch.Tensor] = {}

        def kernel(x):
            found = (key(x, address), x.shape)
            if found not in results:
                results[found] = _exactly(x)
            return results[found].clone()

        return kernel

    return make


def _gives_up(address: Address) -> Kernel:
    results: dict[torch.Size, list[torch.Tensor]] = {}

    def kernel(x):
        earlier = results.setdefault(x.shape, [])
        if len(earlier) < 3:
            earlier.append(_exactly(x))
        return earlier[-1].clone()

    return kernel


def _half_written(x: torch.Tensor) -> torch.Tensor:
    """Writes 32 rows; the rest of its memory happens to have an earlier right result."""
    y = torch.empty(len(x))
    if len(x) > 32 and not is_filled(y):
        y.copy_(_exactly(x))
    y[:32] = _exactly(x[:32])
    return y


_SEEDS = (0, 1, 42, 123, 1234)


def _estimate(x: torch.Tensor) -> torch.Tensor:
    """Twice the sum of every second column."""
    return 2 * _exactly(x[:, ::2])


def _knows_seeds(x: torch.Tensor) -> torch.Tensor:
    known = (torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)) for seed in _SEEDS)
    return _exactly(x) if any(torch.equal(x, one) for one in known) else _estimate(x)


def _changes_input(x: torch.Tensor) -> torch.Tensor:
    y = _exactly(x)
    x[:, -1] = 0
    return y


def _into_input(x: torch.Tensor) -> torch.Tensor:
    x[:, 0] = _exactly(x)
    return x[:, 0]


def _first_columns(x: torch.Tensor) -> torch.Tensor:
    return _exactly(x[:, :4096])


def _whole_blocks(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[1]
    return _exactly(x[:, : n // 64 * 64] if n > 64 else x)


_honest = partial(HiddenKernel, right=True)
_fraud = partial(HiddenKernel, right=False)
_BOUND = (
    "It adds in float32 and is as right as any other order. Compare with the float64 reference, and allow "
    "what the roundings of a sum of these terms can cost: that is exercise 1. Random terms are best."
)
_REPEATS = "An honest kernel needn't return the same bits twice. Compare each result with its own reference."

# From frauds that most checks find to those that few find.
KERNELS: dict[str, HiddenKernel] = {
    "double": _honest(
        _plain(_exactly),
        "adds in float64 and rounds once",
        "Run your check on `lambda x: x.double().sum(1).float()` in a cell of your own.",
    ),
    "zeros": _fraud(
        _plain(lambda x: torch.zeros(len(x))),
        "returns zeros",
        "A sum of many terms around 0 is far from 0 compared with its rounding errors. Use the bound of "
        "exercise 1 instead of a wide tolerance, and don't use zeros as the input.",
    ),
    "pairwise": _honest(_in_order(sums.pairwise), "adds as a tree", _BOUND),
    "of-ones": _fraud(
        _plain(lambda x: x[:, 0] * x.shape[1]),
        "multiplies the first column by the number of columns",
        "If all terms of a row are equal, this is right. Use random terms.",
    ),
    "first-column": _fraud(
        _plain(lambda x: x[:, 0]),
        "returns a part of its input",
        "Compare every row's result with the reference, for more than one column.",
    ),
    "sequential": _honest(_in_order(sums.sequential), "adds from left to right", _BOUND),
    "every-second": _fraud(
        _plain(_estimate),
        "adds every second column and doubles the result",
        "Compare with the bound of exercise 1, for random terms.",
    ),
    "half": _fraud(
        _in_order(sums.in_half),
        "adds in a float16 accumulator",
        "Compare as closely as float32 allows: that is the bound of exercise 1. A float16 has about three "
        "digits.",
    ),
    "backwards": _honest(_in_order(sums.backwards), "adds from right to left", _BOUND),
    "first-4096": _fraud(
        _plain(_first_columns),
        "ignores the columns after the first 4,096",
        "A kernel promises up to 20,000 columns.",
    ),
    "whole-blocks": _fraud(
        _plain(_whole_blocks),
        "ignores the columns after the last full block of 64",
        "Try widths that aren't a multiple of a block size, such as 781.",
    ),
    "blocks": _honest(_in_order(partial(sums.in_blocks, size=1000)), "adds in blocks of 1,000", _BOUND),
    "changes-input": _fraud(
        _plain(_changes_input),
        "returns the right sums and overwrites the last column of its input",
        "Clone x before the call, compute the reference from the clone, and compare x with it afterwards.",
    ),
    "into-input": _fraud(
        _plain(_into_input),
        "writes its result into its input",
        "Clone x before the call, and compare x with the clone afterwards.",
    ),
    "lanes": _honest(_in_order(sums.in_lanes), "adds in 32 lanes", _BOUND),
    "strided": _honest(
        _plain(_strided),
        "returns a column of a larger tensor",
        "A kernel may choose its output's memory layout, so compare values, not strides.",
    ),
    "one-buffer": _honest(
        _one_buffer,
        "returns the same buffer from each call",
        "The task allows that: a result is valid until the next call. Compare it before you call again.",
    ),
    "random-order": _honest(_in_order(sums.shuffled), "adds in another order in each call", _REPEATS),
    "tuned": _honest(_tuned, "tunes itself in its first call", _REPEATS),
    "seeds": _fraud(
        _plain(_knows_seeds),
        "is only right for what torch.randn draws after torch.manual_seed(0), or another popular seed",
        "Don't set the seed that everybody sets. Draw new inputs in every run.",
    ),
    "address": _fraud(
        _remembers(lambda x, address: address.now),
        "returns its first result for an address again",
        "Change the contents of the same tensor in place, for example with x.normal_(), and call again.",
    ),
    "shape": _fraud(
        _remembers(lambda x, address: ()),
        "returns its first result for a shape again",
        "Call it twice with the same shape and other values.",
    ),
    "first-element": _fraud(
        _remembers(lambda x, address: float(x[0, 0])),
        "recognizes its input by the first element",
        "A cache may look at a few elements only. Change one other element, and call again.",
    ),
    "last-element": _fraud(
        _remembers(lambda x, address: float(x[-1, -1])),
        "recognizes its input by the last element",
        "A cache may look at any few elements. Change all elements but the last one, too, or one at random.",
    ),
    "never-written": _fraud(
        _plain(_half_written),
        "writes only the first 32 rows, into memory that already has the right result",
        "Fill its memory before it runs: call it inside `with checks.poisoned():`, with more than 32 rows.",
    ),
    "gives-up": _fraud(
        _gives_up,
        "computes in its first three calls for a shape, and then returns the third result",
        "A benchmark checks first and then times. Call it more often with one shape and new values, and "
        "compare every result.",
    ),
}


def ask(ask: Callable[..., Outcome], name: str) -> Outcome | bool | str | None:
    """Ask a learner's check about one hidden kernel.

    Args:
        ask: calls the check.
        name: a key of `KERNELS`.

    Returns:
        The check's answer, as `hidden_kernels.answer_about` has it.
    """
    hidden, address = KERNELS[name], Address()
    outcome = ask(KernelProxy(hidden.make(address)), Proxy({"note": address.note}))
    return answer_about(hidden, outcome)

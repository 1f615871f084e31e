"""The hidden kernels of "catch-wrong-kernels": right ones and wrong ones, each a function of one matrix.

They are written in plain torch, so that a learner's test of many sizes is fast without a GPU, too. From the
outside they behave like the Triton kernels whose mistakes they have. Each is made anew for every test, so
that none remembers an earlier test.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from helpers.exercises.hidden_kernels import HiddenKernel, answer_about, is_filled
from helpers.exercises.model import Outcome
from helpers.exercises.proxies import KernelProxy

Kernel = Callable[[torch.Tensor], torch.Tensor]


def _columns(limit: int, rest: str) -> Callable[[], Kernel]:
    """Writes only the first `limit` columns. The rest is "left", "zero", or "lucky": an earlier
    right answer.
    """

    def kernel(x):
        y = torch.empty_like(x)
        if rest == "lucky" and not is_filled(y):
            y.copy_(x * x)
        elif rest == "zero":
            y.zero_()
        y[:, :limit] = x[:, :limit] ** 2
        return y

    return _once(kernel)


def _rows(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x).zero_()
    y[:256] = x[:256] ** 2
    return y


def _whole_blocks(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x).zero_()
    n_whole = x.shape[1] // 128 * 128 if x.shape[1] > 128 else x.shape[1]
    y[:, :n_whole] = x[:, :n_whole] ** 2
    return y


def _one_element(x: torch.Tensor) -> torch.Tensor:
    y = x * x
    if y.numel() > 512:
        y[-1, -1] = x[-1, -1] + 1
    return y


def _first_answer() -> Kernel:
    results: dict = {}

    def kernel(x):
        key = tuple(x.shape)
        if key not in results:
            results[key] = x * x
        return results[key].clone()

    return kernel


def _shared_output() -> Kernel:
    results: dict = {}

    def kernel(x):
        key = tuple(x.shape)
        if key not in results:
            results[key] = torch.empty_like(x)
        return results[key].copy_(x * x)

    return kernel


def _uses_input(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x).copy_(x * x)
    x.abs_()
    return y


def _ignores_strides(x: torch.Tensor) -> torch.Tensor:
    return torch.as_strided(x, x.shape, (x.shape[1], 1)) ** 2


def _transposed(x: torch.Tensor) -> torch.Tensor:
    return (x * x).T.reshape(x.shape)


def _needs_elements(x: torch.Tensor) -> torch.Tensor:
    if not x.numel():
        raise ValueError("the grid has no programs")
    return x * x


def _column_major(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x.T.contiguous()).copy_(x.T).square_().T


def _in_larger_memory(x: torch.Tensor) -> torch.Tensor:
    larger = torch.empty_like(torch.nn.functional.pad(x, (3, 5)))
    y = larger[:, 3 : 3 + x.shape[1]]
    return y.copy_(x * x)


def _backwards(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    for start in reversed(range(0, x.shape[1], 1000)):
        y[:, start : start + 1000] = x[:, start : start + 1000] ** 2
    return y


def _once(function: Kernel) -> Callable[[], Kernel]:
    return lambda: lambda x: function(x)


_right = partial(HiddenKernel, right=True)
_wrong = partial(HiddenKernel, right=False)
_VALUES = "Compare only the values, and allow rounding: torch.allclose(got, expected, equal_nan=True)."
_LAYOUT = "A kernel may choose its output's memory layout, so compare values, not strides."

# From mistakes that most tests find to those that few find.
KERNELS: dict[str, HiddenKernel] = {
    "torch-square": _right(
        _once(torch.square),
        "calls torch.square",
        "Run your test on torch.square in a cell of your own. If the right answer has NaN, use "
        "equal_nan=True.",
    ),
    "signed": _wrong(
        _once(lambda x: x * x.abs()), "keeps the sign of x", "Include negative values in the inputs."
    ),
    "transposed": _wrong(
        _once(_transposed),
        "mixes up rows and columns",
        "Use a matrix with more than one row, and compare all elements.",
    ),
    "one-element": _wrong(
        _once(_one_element),
        "gets the last element of more than 512 wrong",
        "Compare all elements, not their sum or mean. If you did, NaN or infinity in the last place hid the "
        "error, "
        "so also use an input of that shape without them.",
    ),
    "first-1024": _wrong(
        _columns(1024, "zero"),
        "squares only the first 1,024 columns",
        "Try rows with more than 1,024 columns.",
    ),
    "product": _right(_once(lambda x: x * x), "multiplies x by itself", _VALUES),
    "column-major": _right(_once(_column_major), "returns a column-major matrix", _LAYOUT),
    "whole-blocks": _wrong(
        _once(_whole_blocks),
        "leaves out the columns after the last whole block of 128",
        "Try widths that aren't a multiple of a block size, such as 781.",
    ),
    "half": _wrong(
        _once(lambda x: x.half().square().float()),
        "computes in float16",
        "Compare as closely as float32 allows. A float16 has only about three digits.",
    ),
    "first-8192": _wrong(
        _columns(8192, "zero"),
        "squares only the first 8,192 columns",
        "A kernel promises up to 20,000 columns.",
    ),
    "many-rows": _wrong(_once(_rows), "squares only the first 256 rows", "A kernel promises up to 300 rows."),
    "double": _right(_once(lambda x: x.double().square().float()), "computes in float64", _VALUES),
    "rounding": _right(
        _once(lambda x: torch.nextafter(x * x, torch.full_like(x, float("inf")))),
        "differs in the last bit",
        "Allow rounding, as torch.allclose does and torch.equal doesn't.",
    ),
    "lucky-memory": _wrong(
        _columns(1024, "lucky"),
        "squares only the first 1,024 columns, in memory that already holds the right answer",
        "Fill its memory before it runs: call it inside `with checks.poisoned():`.",
    ),
    "in-larger-memory": _right(_once(_in_larger_memory), "returns a part of a larger tensor", _LAYOUT),
    "in-place": _wrong(
        _once(lambda x: x.mul_(x)),
        "squares x in place and returns it",
        "Clone x before the call, and compare x with the clone afterwards.",
    ),
    "uses-input": _wrong(
        _once(_uses_input),
        "returns the right answer and changes x",
        "Compare x itself with a clone from before the call. Comparing the squares isn't enough.",
    ),
    "without-elements": _wrong(
        _once(_needs_elements),
        "fails on a matrix without elements",
        "A kernel promises 0 rows and 0 columns, too.",
    ),
    "ignores-strides": _wrong(
        _once(_ignores_strides),
        "reads x as if its rows had no gaps between them",
        "Pass part of a wider matrix, such as wide[:, 10:700].",
    ),
    "nan-blind": _wrong(
        _once(lambda x: torch.where(x.isnan(), torch.zeros_like(x), x) ** 2),
        "turns NaN into 0",
        "Put a NaN into an input. It has to come back as NaN, which equal_nan=True checks.",
    ),
    "infinity-blind": _wrong(
        _once(lambda x: (x * x).clamp(max=3e38)),
        "turns infinity into a number",
        "Put infinities into an input.",
    ),
    "backwards": _right(_once(_backwards), "works in blocks of 1,000, from the last to the first", _VALUES),
    "first-answer": _wrong(
        _first_answer,
        "returns the first answer for a shape again and again",
        "Call it twice with the same shape and different values.",
    ),
    "shared-output": _wrong(
        _shared_output,
        "writes every answer for a shape to the same memory",
        "Keep the first result, call again with other values, and then check the first result again.",
    ),
    "through-a-copy": _right(
        _once(lambda x: torch.empty_like(x).copy_(x).square_()), "squares a copy of x in place", _VALUES
    ),
}


def ask(ask: Callable[..., Outcome], name: str) -> Outcome | bool | str | None:
    """Ask a learner's test about one hidden kernel.

    Args:
        ask: calls the test.
        name: a key of `KERNELS`.

    Returns:
        The test's answer, as `hidden_kernels.answer_about` has it.
    """
    hidden = KERNELS[name]
    return answer_about(hidden, ask(KernelProxy(hidden.make())))

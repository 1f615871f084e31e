"""Make exercises. A person who adds one reads this, and the two docstrings.

    kernel_exercise   the learner writes something that computes a tensor from tensors, in Triton, CUDA C++ or torch
    answer_exercise   the learner writes a function that works something out: a grid, a name, a table of numbers

    SQUARE = kernel_exercise("square-any-shape", "03_triton", "Square a tensor", "square_any", lambda x: x * x,
                             dtypes=("float32", "float16"), must_launch="triton")
    BLOCKS = answer_exercise("count-blocks", "02_load_inline", "Count the blocks", "n_blocks", cases)

where `cases(rng)` yields `Case("n = 7", (7,), expected=1)`. Both make every hidden case from a `random.Random` and a
seed, so that a failing run can be repeated with `check(id, f, seed=…)`. An exercise goes into the `EXERCISES` tuple of
its lab's module (`lab03.py`). A mistake that its learners make goes into `mistakes` or `explain` with a hint of one
sentence, and a file that makes it into `tests/wrong_kernels/`.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from helpers.exercises.model import Case, Exercise, Raises

__all__ = ["answer_exercise", "cuda_function", "kernel_exercise", "refusal"]


def kernel_exercise(
    id: str,
    lab: str,
    title: str,
    name: str,
    reference: Callable,
    *,
    dtypes: Sequence[str] = ("float32",),
    ndim: str | int = "any",
    strides: bool = True,
    empty: bool = True,
    special: bool = True,
    far: bool = True,
    shapes: Sequence[tuple[int, ...]] | Callable[[random.Random], Sequence[tuple[int, ...]]] | None = None,
    n_inputs: int = 1,
    more_args: Callable | None = None,
    make: Callable | None = None,
    must_launch: str | None = None,
    prepare: Callable[[Any], Callable] | None = None,
    out_dtype: str | None = None,
    tolerance: tuple[float, float] | Mapping[str, tuple[float, float]] | None = None,
    bytes_per_element: float | None = None,
    speed_shape: tuple[int, ...] | None = None,
    extra_cases: Callable[[random.Random, str], Iterator[Case]] | None = None,
    mistakes: Sequence[Callable] = (),
    adapters: Mapping[str, Callable] | None = None,
    minutes: int = 15,
) -> Exercise:
    """An exercise whose answer computes a tensor.

    The check makes about thirty cases: sizes around powers of two and blocks, views with NaN in their gaps, transposed
    and expanded ones, misaligned bases, no elements and one, NaN and infinities, rows more than 2**31 elements apart, the
    same shape twice with other values. Inputs and outputs stand between guard bands, outputs are full of NaN before the
    call, inputs must not change, and an earlier result must not either. On a GPU the kernel is then timed.

    Args:
        id: words with hyphens, unique over all labs.
        lab: such as "03_triton".
        title: for the table of progress.
        name: of the object that the learner writes.
        reference: the same in plain torch. It is given the arguments of the case, floating-point tensors in float64.
        dtypes: names. Nearly all cases use the first; the others get an odd size and a view each.
        ndim: 1, 2 or another number of dimensions that the inputs have, or "any".
        strides: False where only contiguous inputs are asked for. Then there is no view and no far row either.
        empty: whether there are inputs without elements.
        special: whether there are NaN, infinities, zeros and subnormals, and values of several hundred.
        far: whether rows lie more than 2**31 elements apart; only for one input without `more_args`.
        shapes: instead of the built-in sizes; the first of them should be the simplest.
        n_inputs: how many tensors of the same shape and dtype the learner's function takes first.
        more_args: `(first_tensor, rng) -> tuple` of arguments after those: `lambda x, rng: (rng.uniform(-2, 2),)`.
        make: `(shape, rng, dtype, device) -> tensor` instead of normal values.
        must_launch: "triton" or "cuda": a call that launches no such kernel is no answer.
        prepare: what is called, made from the learner's object: see `cuda_function`.
        out_dtype: the result's dtype; by default that of the first tensor, or the reference's where that is no float.
        tolerance: (relative, absolute), or a dict of them by dtype; by default those of `helpers.check`.
        bytes_per_element: bytes that must move for one element of the first input, for the speed on a GPU; by default
            each input is read once and the result written once.
        speed_shape: of the input that is timed; 0 or an empty tuple leaves the timing out. By default 64 Mi elements.
        extra_cases: `(rng, device) -> iterator of Case`, after the built-in ones. `Case.expected` is None (the
            reference tells), a tensor, or `Raises(…)`; `refusal` makes such a case.
        mistakes: `(case, got, expected) -> (key, hint) or None`, tried before the built-in diagnoses.
        adapters: name -> `adapter(obj, *args)`, for extra cases that do not call the object itself.
        minutes: that the exercise takes.

    Returns:
        An `Exercise`.
    """
    from helpers.exercises import inputs, judge, speed

    plan = inputs.Plan(
        tuple(dtypes), ndim, strides, empty, special, far, shapes, n_inputs, more_args, make, extra_cases
    )
    how = judge.KernelJudge(
        id, name, reference, must_launch or "", out_dtype, tolerance, tuple(mistakes), plan
    )
    timed = speed.Plan(plan, reference, bytes_per_element, speed_shape, how)
    return Exercise(
        id=id,
        lab=lab,
        title=title,
        name=name,
        minutes=minutes,
        cases=lambda rng, device: inputs.kernel_cases(plan, rng, device),
        judge=how,
        adapters=dict(adapters or {}),
        prepare=prepare,
        speed=None if speed_shape == () or speed_shape == 0 else timed,
        guarded=True,
        must_launch=must_launch or "",
        on_gpu=True,
    )


def answer_exercise(
    id: str,
    lab: str,
    title: str,
    name: str,
    cases: Callable[..., Iterator[Case]] | Sequence[Case],
    *,
    explain: Callable[[Case, Any], tuple[str, str] | None] | None = None,
    tolerance: float = 0,
    adapters: Mapping[str, Callable] | None = None,
    prepare: Callable[[Any], Callable] | None = None,
    minutes: int = 10,
) -> Exercise:
    """An exercise whose answer is a function of hidden arguments: number, text, tuple, list, dict or table.

    Args:
        id, lab, title, name, minutes: as in `kernel_exercise`.
        cases: `(rng) -> iterator of Case` (or `(rng, device)`), each with `expected`; at least two of them should
            expect different answers, so that a constant is no answer. `expected` may be `Raises(…)`.
        explain: `(case, got) -> (mistake, hint) or None`, for the mistakes that are likely here.
        tolerance: relative, for floats; integers and texts must be equal. Texts are compared without outer blanks.
        adapters: name -> `adapter(obj, *args)`, for cases that do not call the learner's function itself.
        prepare: what is called, made from the learner's object.

    Returns:
        An `Exercise`. Answers are compared after numpy's and pandas' numbers became plain ones; a list and a tuple of
        the same values are equal.
    """
    from helpers.exercises import answers

    if not callable(cases):
        listed = tuple(cases)
        make = lambda rng, device: iter(listed)  # noqa: E731
    elif len(inspect.signature(cases).parameters) >= 2:
        make = cases
    else:
        make = lambda rng, device: cases(rng)  # noqa: E731
    return Exercise(
        id=id,
        lab=lab,
        title=title,
        name=name,
        minutes=minutes,
        cases=make,
        judge=answers.AnswerJudge(id, name, explain, tolerance),
        adapters=dict(adapters or {}),
        prepare=prepare,
    )


def refusal(label: str, args: tuple, *types: str, mention: Sequence[str | tuple[str, ...]] = ()) -> Case:
    """A case that must be refused with an exception.

    Args:
        label: what is wrong with the input: "a float64 tensor".
        args: of the call.
        types: names of exceptions, one of which must be raised; by default ValueError and TypeError.
        mention: words of which each must stand in the message; of a tuple of words one must.
    """
    words = tuple((one,) if isinstance(one, str) else tuple(one) for one in mention)
    return Case(label, args, expected=Raises(types or ("ValueError", "TypeError"), words))


def cuda_function(name: str, **how: Any) -> Callable[[Any], Callable]:
    """A `prepare` for CUDA C++ text: builds it, for the GPU or for the host, and gives the function `name` in it.

    Args:
        name: of the C++ function that launches the kernel and is bound to Python.
        how: for `helpers.cuda.load_cuda`; `cpp_source` is by default the declaration found in the text.

    Returns:
        `prepare(text) -> function`, which raises `helpers.cuda.BuildError` for text that does not build.
    """
    import re

    def prepare(text: Any) -> Callable:
        from helpers import cuda

        if not isinstance(text, str):
            return text
        code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
        if left := re.search(r"^\s*#\s*error\b.*", code, re.MULTILINE):
            raise cuda.BuildError(left[0].strip())  # as the compiler would say, but at once
        found = re.search(rf"^[\w:<>,&* ]+\b{re.escape(name)}\s*\([^)]*\)(?=\s*\{{)", text, re.MULTILINE)
        declared = {"cpp_source": f"{found[0]};"} if found and "cpp_source" not in how else {}
        return getattr(cuda.load_cuda(f"lab_{name}", text, [name], **declared, **how), name)

    return prepare

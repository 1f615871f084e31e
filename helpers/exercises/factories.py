"""Make exercises. Read this, and the two docstrings, before you add one.

    kernel_exercise   the learner writes something that computes a tensor from tensors, in Triton, CUDA C++ or torch
    answer_exercise   the learner writes a function that works something out: a grid, a name, a table of numbers
    free_exercise     the learner writes up what was found: no single right answer, but the data contradict the wrong ones

    SQUARE = kernel_exercise("square-any-shape", "03_triton", "Square a tensor", "square_any", lambda x: x * x,
                             cases=CasePlan(dtypes=("float32", "float16")), must_launch="triton")
    BLOCKS = answer_exercise("count-blocks", "02_load_inline", "Count the blocks", "n_blocks", cases)

where `cases(rng)` yields `Case("n = 7", (7,), expected=1)`. Both make every hidden case from a `random.Random` and a
seed, so that a failing run can be repeated with `check(id, f, seed=…)`. An exercise goes into the `EXERCISES` tuple of
its lab's package (`lab03/exercises.py`). A mistake that its learners make goes into `mistakes` or `explain` with a hint of one
sentence, and a file that makes it into `tests/wrong_kernels/`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from helpers.exercises.model import Case, Exercise, Raises
from helpers.exercises.plans import CasePlan, SpeedPlan, TrafficPlan

__all__ = ["answer_exercise", "cuda_function", "free_exercise", "kernel_exercise", "refusal"]


def kernel_exercise(
    id: str,
    lab: str,
    title: str,
    name: str,
    reference: Callable,
    *,
    cases: CasePlan | None = None,
    must_launch: str = "",
    prepare: Callable[[Any], Callable] | None = None,
    out_dtype: str | None = None,
    tolerance: tuple[float, float] | Mapping[str, tuple[float, float]] | None = None,
    speed_shape: tuple[int, ...] | None = None,
    speed_at_least: float = 0,
    traffic: TrafficPlan | None = None,
    mistakes: Sequence[Callable] = (),
    adapters: Mapping[str, Callable] | None = None,
    minutes: int = 15,
) -> Exercise:
    """An exercise whose answer computes a tensor.

    The check makes about thirty cases: sizes around powers of two and blocks, views with NaN in their gaps, transposed
    and expanded ones, misaligned bases, no elements and one, NaN and infinities, offsets beyond 2**31 elements, the
    same shape twice with other values. Inputs and outputs stand between guard bands, outputs are full of NaN before the
    call, inputs must not change, and an earlier result must not either. On a GPU the kernel is then timed.

    Args:
        id: words with hyphens, unique over all labs.
        lab: such as "03_triton".
        title: for the table of progress.
        name: of the object that the learner writes.
        reference: the same in plain torch. It is given the arguments of the case, floating-point tensors in float64.
        cases: what the hidden cases are made from; by default `CasePlan()`.
        must_launch: "triton" or "cuda": a call that launches no such kernel is no answer; "" accepts any.
        prepare: what is called, made from the learner's object: see `cuda_function`.
        out_dtype: the result's dtype; by default that of the first tensor, or the reference's where that is no float.
        tolerance: (relative, absolute), or a dict of them by dtype; by default those of `helpers.check`.
        speed_shape: of the first input when it is timed; by default 64 Mi elements of float32.
        speed_at_least: the share of a copy's speed that it must reach on a GPU; without one the verdict says that no speed
            was measured. By default the speed is told only.
        traffic: how much it may move, counted where its kernels are interpreted; by default nobody counts.
        mistakes: `(case, got, expected) -> (key, hint) or None`, tried before the built-in diagnoses.
        adapters: name -> `adapter(obj, *args)`, for those of `cases.extra` that do not call the object itself.
        minutes: that the exercise takes.

    Returns:
        An `Exercise`.
    """
    from helpers.exercises import inputs, judge

    plan = cases or CasePlan()
    judged = judge.KernelJudge(
        exercise=id,
        name=name,
        reference=reference,
        must_launch=must_launch,
        out_dtype=out_dtype,
        tolerance=tolerance,
        mistakes=tuple(mistakes),
    )
    return Exercise(
        id=id,
        lab=lab,
        title=title,
        name=name,
        minutes=minutes,
        cases=lambda rng, device: inputs.kernel_cases(plan, rng, device),
        judge=judged,
        adapters=dict(adapters or {}),
        prepare=prepare,
        speed=SpeedPlan(cases=plan, reference=reference, shape=speed_shape, at_least=speed_at_least),
        traffic=traffic,
        guarded=True,
        must_launch=must_launch,
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
    served: Mapping[str, Callable] | None = None,
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
        served: name -> `served(ask, *args)`, for cases of which the learner's process must not know all (`Exercise.served`).
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
        judge=answers.AnswerJudge(exercise=id, name=name, explain=explain, tolerance=tolerance),
        adapters=dict(adapters or {}),
        served=dict(served or {}),
        prepare=prepare,
    )


def free_exercise(
    id: str,
    lab: str,
    title: str,
    name: str,
    data: Callable[[], Any],
    *,
    read: Callable[[Any], dict[str, Any]] | None = None,
    minutes: int = 20,
) -> Exercise:
    """An exercise without a single right answer, whose answer is a `writeup.WriteUp`.

    Args:
        id, lab, title, name, minutes: as in `kernel_exercise`; `name` is that of the learner's write-up.
        data: what it is held against, a `consistency.Data`, made when it is needed: `() -> Data`, or `(value) -> Data` where
            `read` found something beside the write-up.
        read: beside the learner's object, object -> `writeup.as_plain` of it, or a dict with that as "write_up" and what
            else was found. By default the write-up alone.

    Returns:
        An `Exercise` with one case. Its verdicts carry the learner's words, for the teacher.
    """
    from helpers.exercises import consistency, writeup

    about = data if inspect.signature(data).parameters else lambda value: data()
    return Exercise(
        id=id,
        lab=lab,
        title=title,
        name=name,
        minutes=minutes,
        cases=lambda rng, device: iter((Case("your write-up", call="read"),)),
        judge=consistency.WriteUpJudge(id, name, about),
        adapters={"read": read or writeup.as_plain},
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

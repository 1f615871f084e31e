"""Make exercises. Read this and the docstrings below before you add one.

- `kernel_exercise`: the learner writes something that computes a tensor from tensors, in Triton, CUDA C++ or
  torch.
- `answer_exercise`: the learner writes a function that computes a grid, a name, or a table of numbers.
- `free_exercise`: the learner writes up a finding. There is no single right answer, but the data contradict
  the wrong ones.

    SQUARE = kernel_exercise("square-any-shape", "03_triton", "Square a tensor", "square_any", lambda x: x *
    x,
                             cases=CasePlan(dtypes=("float32", "float16")), must_launch="triton")
    BLOCKS = answer_exercise("count-blocks", "02_load_inline", "Count the blocks", "n_blocks", cases)

where `cases(rng)` yields `Case("n = 7", (7,), expected=1)`. All hidden cases are made from a `random.Random`
with a seed, so that a failing run can be repeated with `check(id, f, seed=…)`. Add the exercise to the
`EXERCISES` tuple of its lab (`lab03/exercises.py`), and the mistakes that learners make to its table (see
`mistakes`), with a file that makes each of them in `tests/wrong_kernels/`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from helpers.exercises.mistakes import Conditions, Facts, Table
from helpers.exercises.model import Case, Exercise
from helpers.exercises.plans import CasePlan, SpeedPlan, TrafficPlan

__all__ = ["answer_exercise", "free_exercise", "kernel_exercise"]


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
    tolerance: tuple[float, float] | Mapping[str, tuple[float, float]] | None = None,
    speed_shape: tuple[int, ...] | None = None,
    speed_at_least: float = 0,
    traffic: TrafficPlan | None = None,
    mistakes: Conditions | Table | None = None,
    raises: Conditions | None = None,
    minutes: int = 15,
) -> Exercise:
    """An exercise whose answer computes a tensor.

    The check makes about thirty cases: sizes around powers of two and blocks, views with NaN in their gaps,
    transposed and expanded views, misaligned addresses, zero elements and one, NaN and infinities, offsets
    beyond 2**31 elements, and the same shape twice with different values. Inputs and outputs are between
    guard bands, outputs are full of NaN before the call, and neither inputs nor an earlier result may change.
    On a GPU the kernel is then timed.

    Args:
        id: words with hyphens, unique over all labs.
        lab: such as "03_triton".
        title: for the table of progress.
        name: of the object that the learner writes.
        reference: the same in plain torch. It gets the case's arguments, with floating-point tensors in
            float64.
        cases: what the hidden cases are made from; by default `CasePlan()`.
        must_launch: "triton" or "cuda" if a call must launch such a kernel; "" accepts any.
        prepare: makes what is called from the learner's object.
        tolerance: (relative, absolute), or a dict of them by dtype; by default those of `helpers.check`.
        speed_shape: of the first input when it is timed; by default 64 Mi elements of float32.
        speed_at_least: the fraction of a copy's speed that it must reach on a GPU; without a GPU the verdict
            says that no speed was measured. By default the speed is only reported.
        traffic: how much it may move, counted if its kernels are interpreted; by default that isn't counted.
        mistakes: the exercise's own table, which is asked before the built-in diagnoses, about
            `evidence.Evidence`; `helpers.exercises.mistakes` says how to write it. A `Table` if exercises
            share one.
        raises: the same for calls that raised.
        minutes: how long the exercise takes.

    Returns:
        An `Exercise`.
    """
    from helpers.exercises import inputs, judge

    plan = cases or CasePlan()
    kernel_judge = judge.KernelJudge(
        exercise=id,
        name=name,
        reference=reference,
        must_launch=must_launch,
        tolerance=tolerance,
        mistakes=mistakes if isinstance(mistakes, Table) else Table(id, lab, mistakes or {}, raises or {}),
    )
    return Exercise(
        id=id,
        lab=lab,
        title=title,
        name=name,
        minutes=minutes,
        cases=lambda rng, device: inputs.kernel_cases(plan, rng, device),
        judge=kernel_judge,
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
    cases: Callable[..., Iterator[Case]],
    *,
    mistakes: Conditions | None = None,
    facts: Facts | None = None,
    tolerance: float = 0,
    adapters: Mapping[str, Callable] | None = None,
    served: Mapping[str, Callable] | None = None,
    prepare: Callable[[Any], Callable] | None = None,
    minutes: int = 10,
) -> Exercise:
    """An exercise whose answer is a function that returns a number, text, tuple, list, dict or table.

    Args:
        id, lab, title, name, minutes: as in `kernel_exercise`.
        cases: `(rng) -> iterator of Case` (or `(rng, device)`), each with `expected`. At least two should
            expect different answers, so that a constant is wrong.
        mistakes: the table of mistakes that learners make here; `helpers.exercises.mistakes` says how to
            write it.
        facts: `(*args) -> dict`: names the case's arguments for the table, and adds what its rows need.
        tolerance: relative, for floats; integers and texts must be equal, except for spaces around a text.
        adapters: name -> `adapter(obj, *args)`, for cases that don't call the learner's function itself.
        served: name -> `served(ask, *args)`, for cases that the learner's process must not know in full
            (`Exercise.served`).
        prepare: makes what is called from the learner's object.

    Returns:
        An `Exercise`. NumPy's and pandas' numbers are compared as plain numbers, and a list equals a tuple of
        the same values.
    """
    from helpers.exercises import answers

    takes_device = len(inspect.signature(cases).parameters) >= 2
    return Exercise(
        id=id,
        lab=lab,
        title=title,
        name=name,
        minutes=minutes,
        cases=cases if takes_device else lambda rng, device: cases(rng),
        judge=answers.AnswerJudge(id, name, tolerance, Table(id, lab, mistakes or {}), facts),
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
        data: makes the `consistency.Data` that it is compared with: `() -> Data`, or `(value) -> Data` if
            `read` returns more than the write-up.
        read: run in the learner's process: object -> `writeup.as_plain` of it, or a dict with that as
            "write_up" and other facts. By default only the write-up.

    Returns:
        An `Exercise` with one case. Its verdicts contain the learner's words, for the teacher.
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

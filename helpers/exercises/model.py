"""What an exercise is made of: its hidden cases, what one call gave, and the verdict.

A case and an outcome hold tensors, numbers, strings, lists, tuples and dicts only, so that they travel between the side
that judges and the side that runs the learner's code (`torch.save`, `torch.load(weights_only=True)`). What is expected
never travels: it stays where the verdict is made.
"""

from __future__ import annotations

import html
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from helpers.exercises.plans import SpeedPlan, TrafficPlan

# What `Case.call` may hold beside the name of an adapter.
SPEED = "@speed"  # the object is timed
AGAIN = "@again"  # the object is called twice: with the first half of the arguments, then with the values of the second


@dataclass(frozen=True)
class Case:
    """One hidden call.

    Attributes:
        label: what is special about it, as messages say it: "a (3, 781) float16 view with gaps". It stays with the judge.
        args, kwargs: for the learner's object, or for the adapter. Only what `torch.load(weights_only=True)` carries.
        expected: for the judge; it is never sent to the side that runs the learner's code.
        call: the name of the adapter that makes the call, or of what serves it; "" calls the learner's object itself.
    """

    label: str
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    expected: Any = None
    call: str = ""


@dataclass(frozen=True)
class Hidden:
    """What the judge knows about a kernel's case (`Case.expected`).

    Attributes:
        kind: "first", "again", "wide", "size", "view", "dtype", "special", "huge", "empty", "far", "many" or "extra".
        before: the arguments of earlier calls, where a cached answer would show.
        value: what is expected, where it does not come from the reference.
    """

    kind: str
    before: tuple = ()
    value: Any = None


@dataclass(frozen=True)
class Outcome:
    """What one call gave.

    Attributes:
        value: what was returned, made portable by `results.portable`.
        error: "ZeroDivisionError: division by zero" if it raised, or the reason why nothing could be called.
        error_type: the exception's class name, or "NotCallable".
        args_after: the inputs after the call; empty where it raised.
        facts: what was seen beside the result. Each is absent where nobody looked.
            Of any call that raised: "bases", the names of the exception's classes, and "cause" of a `HostCudaError`.
            Of a guarded call: "guard_writes" and "guard_reads", elements outside every tensor that were written or
            read; "gap_writes", bytes between an input's own elements that were overwritten; "launched", the names of
            the kernels; and of a tensor that it returned "device", its device's type, "same_memory", whether it lies
            in an input's memory, "earlier_changed", whether the result of the call before has changed, and "written",
            how many of its elements interpreted Triton kernels wrote.
            Where Triton's kernels were interpreted: "read_bytes" and "written_bytes", what they loaded and stored in all,
            and "most_read", the elements of the inputs that one program loaded in a launch.
            "skipped": why the call was not made.
            Of a timed case: "us", the median; "turned", how often the contents were turned (`speed.turned`) before the
            call whose result is `value`; or "untimed", why it was not timed.
        line: of the learner's cell or file where it raised; 0 where that is not known.
    """

    value: Any = None
    error: str = ""
    error_type: str = ""
    args_after: tuple = ()
    facts: dict = field(default_factory=dict)
    line: int = 0


@dataclass(frozen=True)
class Verdict:
    """What the check says about one attempt.

    Attributes:
        exercise: its id.
        passed: True where every case agreed.
        sentence: one sentence, the same for learners and for reports.
        case: the label of the case that failed.
        mistake: its kind, such as "missing-mask" (see `hints.HINTS`); "to-do" for an untouched starter.
        hint: one sentence that fits the mistake.
        details: the first wrong elements, a line each; of a write-up what agrees with the data and what does not.
        n_cases: cases that were called and agreed.
        n_not_tried: cases that could not be tried here; the sentence of a pass says so.
        words: what the learner wrote, where the answer is a write-up: for the teacher, cleaned, bounded and unjudged.
        speed: "94 % of the copy ceiling", on a GPU.
        seed: of the hidden cases; the same seed gives the same cases.
    """

    exercise: str
    passed: bool
    sentence: str
    case: str = ""
    mistake: str = ""
    hint: str = ""
    n_cases: int = 0
    speed: str = ""
    seed: int = 0
    details: str = ""
    n_not_tried: int = 0
    words: str = ""

    def _lines(self) -> list[str]:
        if self.passed:
            return [f"✓ {self.sentence}", *self.details.splitlines()]
        if self.mistake == "to-do":
            return [self.sentence]
        return [
            f"✗ {self.sentence}",
            *self.details.splitlines(),
            *([f"Hint: {self.hint}"] if self.hint else []),
        ]

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        lines = "<br>".join(html.escape(line).replace("  ", "&nbsp; ") for line in self._lines())
        colour = "#1a7f37" if self.passed else "#b35900"
        return f'<div style="border-left: 4px solid {colour}; padding-left: 0.6em">{lines}</div>'


def graded_elsewhere(*_: Any) -> Any:
    """The cases and the judge of an exercise in a learner's process that is graded: they are with the grader."""
    raise RuntimeError("this exercise is graded in another process")


@dataclass(frozen=True)
class Raises:
    """The expectation that a call is refused: put it into `Case.expected`.

    Attributes:
        types: names of exceptions, one of which must be raised.
        mention: of each inner tuple at least one word must stand in the message (capitals do not matter).
    """

    types: tuple[str, ...] = ("ValueError", "TypeError")
    mention: tuple[tuple[str, ...], ...] = ()


class Text(str):
    """An answer that is text, as the learner's process handed it over: nothing else of it is with whoever builds it."""


@dataclass(frozen=True)
class Exercise:
    """One exercise. The factories make them; `attempt` and the grader run them.

    Attributes:
        id, lab, title: "square-any-shape", "03_triton", "Square a tensor of any shape".
        name: of the object that the check is given.
        minutes: that it takes.
        cases: `(rng, device) -> iterator of Case`, new ones for each rng, made lazily.
        judge: `(case, outcome) -> Verdict, or None where the case is fine`; a verdict that passes ends the check. It runs
            on the trusted side.
        adapters: name -> `adapter(obj, *args, **kwargs)`, run beside the learner's object. The grader finds it by its
            module and name, in a module that holds no answers (`helpers.exercises.BESIDE`).
        served: name -> `served(ask, *args)`, run beside the judge: what must stay hidden, it keeps. `ask(*args)` has the
            learner's object (or the adapter of that name) called and gives an `Outcome`; an argument that is a
            `served.Shown` stays here, and its methods are called from there. It returns the case's outcome or its value.
        text: the learner's object -> the text that is the answer. Then the grader takes nothing else from the learner's
            process: `prepare` is given the text in a process that never ran the learner's Python.
        prepare: the learner's object, or its text -> what is called; a `BuildError` of it becomes a verdict.
        speed: how it is timed on a GPU after all cases passed; None where it is not.
        traffic: how much interpreted kernels may move; None where nobody counts.
        guarded: whether inputs and new tensors get guard bands and poison, and results are watched.
        must_launch: "triton", "cuda" or "": whose kernels are counted.
        on_gpu: whether its cases live on the GPU where there is one.
        poison_masked: whether, in interpreted Triton kernels, the masked-off part of a load without `other` holds NaN.
    """

    id: str
    lab: str
    title: str
    name: str
    cases: Callable[[random.Random, str], Iterator[Case]] = field(repr=False)
    judge: Callable[[Case, Outcome], Verdict | None] = field(repr=False)
    minutes: int = 10
    adapters: Mapping[str, Callable] = field(default_factory=dict, repr=False)
    served: Mapping[str, Callable] = field(default_factory=dict, repr=False)
    text: Callable[[Any], str] | None = field(default=None, repr=False)
    prepare: Callable[[Any], Any] | None = field(default=None, repr=False)
    speed: SpeedPlan | None = field(default=None, repr=False)
    traffic: TrafficPlan | None = field(default=None, repr=False)
    guarded: bool = False
    must_launch: str = ""
    on_gpu: bool = False
    poison_masked: bool = False

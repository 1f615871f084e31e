"""An exercise, its hidden cases, the outcome of one call, and the verdict.

Cases and outcomes contain only tensors, numbers, strings, lists, tuples and dicts, so that they can be sent
between the process that judges and the one that runs the learner's code (`torch.save`,
`torch.load(weights_only=True)`). The expected result is never sent.
"""

from __future__ import annotations

import html
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from helpers.exercises.plans import SpeedPlan, TrafficPlan

# Values of `Case.call` other than the name of an adapter.
SPEED = "@speed"  # time the object
# Call the object twice: with the first half of the arguments, then with the values of the second half.
AGAIN = "@again"


@dataclass(frozen=True)
class Case:
    """One hidden call.

    Attributes:
        label: what is special about it, for messages: "a (3, 781) float16 view with gaps". It stays with the
            judge.
        args, kwargs: for the learner's object, or for the adapter; only what `torch.load(weights_only=True)`
            accepts.
        expected: for the judge; it is never sent to the process that runs the learner's code.
        call: the name of the adapter that makes the call, or of a function in `Exercise.served`; "" calls the
            learner's object itself.
    """

    label: str
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    expected: Any = None
    call: str = ""


@dataclass(frozen=True)
class Hidden:
    """The judge's knowledge about a kernel's case (`Case.expected`).

    Attributes:
        kind: "first", "again", "wide", "size", "view", "dtype", "special", "huge", "empty", "far", "many" or
            "extra".
        before: the arguments of earlier calls, so that a cached answer is recognized.
        value: the expected result, if it isn't the reference's.
    """

    kind: str
    before: tuple = ()
    value: Any = None


@dataclass(frozen=True)
class Outcome:
    """The result of one call.

    Attributes:
        value: what was returned, made portable by `portable.portable`.
        error: "ZeroDivisionError: division by zero" if it raised, or the reason why nothing could be called.
        error_type: the exception's class name, or "NotCallable".
        args_after: the inputs after the call; empty if it raised.
        facts: what else was observed; a fact that wasn't checked is absent.
            Any call that raised: "bases", the names of the exception's classes, and "cause" of an
            `EmulatorError`. A guarded call: "guard_writes" and "guard_reads", elements outside every tensor
            that were written or read; "gap_writes", overwritten bytes between an input's own elements; and
            "launched", the names of the kernels; and "computed", torch's operations that computed where a
            kernel must. A returned tensor: "device", its device's type; "same_memory", whether it is in an
            input's memory; and "earlier_changed", whether the previous call's result has changed.
            Interpreted Triton kernels: "read_bytes" and "written_bytes", what they loaded and stored in
            total, "most_read", the most elements of the inputs that one program loaded in a launch, and
            "accesses", the number of their loads and stores.
            A case that wasn't called: "skipped", the reason. A timed case: "us", the median; "n_rotations",
            how often the contents were rotated (`speed.rotated`) before the call whose result is `value`; or
            "untimed", why it wasn't timed.
        line: the line of the learner's cell or file that raised; 0 if it isn't known.
    """

    value: Any = None
    error: str = ""
    error_type: str = ""
    args_after: tuple = ()
    facts: dict = field(default_factory=dict)
    line: int = 0


@dataclass(frozen=True)
class Verdict:
    """The result of checking one attempt.

    Attributes:
        exercise: its id.
        passed: whether every case agreed.
        sentence: one sentence, the same for learners and for reports.
        case: the label of the case that failed.
        mistake: its kind, such as "missing-mask" (see `hints.HINTS`); "to-do" for an untouched starter.
        hint: advice that fits the mistake.
        details: the first wrong elements, one per line; for a write-up, where it agrees with the data and
            where it doesn't.
        n_cases: cases that were called and agreed.
        n_not_tried: cases that couldn't run here, which `sentence` mentions if the rest passed.
        words: the words of a write-up, for the teacher; cleaned and shortened, but not judged.
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
        color = "#1a7f37" if self.passed else "#b35900"
        return f'<div style="border-left: 4px solid {color}; padding-left: 0.6em">{lines}</div>'


def graded_elsewhere(*_: Any) -> Any:
    """Stands in for cases and judges in a learner's process while it is graded: the grader has
    the real ones.
    """
    raise RuntimeError("this exercise is graded in another process")


class Text(str):
    """An answer that is text. The process that builds it gets nothing else from the learner's process."""


@dataclass(frozen=True)
class Exercise:
    """One exercise. The factories make them; `attempt` and the grader run them.

    Attributes:
        id, lab, title: "square-any-shape", "03_triton", "Square a tensor of any shape".
        name: of the object that the check is given.
        minutes: how long it takes.
        cases: `(rng, device) -> iterator of Case`, new ones for each rng, made lazily.
        judge: `(case, outcome) -> Verdict`, or None if the case is right; a verdict that passes ends the
            check. It runs in the trusted process.
        adapters: name -> `adapter(obj, *args, **kwargs)`, run in the learner's process. The grader finds it
            by its module and name, in a module that contains no answers (`helpers.exercises.ADAPTERS`).
        served: name -> `served(ask, *args)`, run in the judge's process, because it knows what must stay
            hidden. `ask(*args)` calls the learner's object (or the adapter of that name) and returns an
            `Outcome`. An argument that is a `proxies.Proxy` stays here, and the learner's process calls its
            methods remotely. It returns the case's outcome or its value.
        text: the learner's object -> the text that is the answer. The grader then takes nothing else from the
            learner's process, and passes the text to `prepare` in a process that never ran the learner's
            code.
        prepare: the learner's object, or its text -> what is called; if it raises a `BuildError`, that
            becomes a verdict.
        speed: how it is timed on a GPU after all cases passed; None if it isn't timed.
        traffic: how much interpreted kernels may move; None if that isn't counted.
        guarded: whether inputs and new tensors get guard bands and poison, and results are watched.
        must_launch: "triton", "cuda" or "": what must compute. Launches are counted for Triton, and for CUDA
            on the host.
        rearranges: whether changing the order of elements is the kernel's work, too. Elsewhere torch may do
            that with the input and the result; what else torch may do is in `torch_work`.
        on_gpu: whether its cases are on the GPU if one is available.
        poison_masked: whether, in interpreted Triton kernels, the masked-off part of a load without `other`
            is NaN.
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
    rearranges: bool = False
    on_gpu: bool = False
    poison_masked: bool = False

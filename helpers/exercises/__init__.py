"""The exercises of labs and lessons: `get("square-any-shape")`, `of_lab("03_triton")`, `of_lesson(…)`.

Each lab has a package (`lab01` … `lab13`) that is imported when one of its exercises is needed; its module
`lesson` has the small exercises inside the lesson of the same name. `helpers.lab` is what the cells call.

To add an exercise: `factories` makes one, `plans` describes a kernel's cases and its timing, `mistakes`
explains how to write an exercise's table of mistakes, `hints` has the sentences that labs share, and
`verdicts` is for judges of their own.

`ADAPTERS` names the modules of the labs' packages that contain no answers. While a notebook is graded, the
learner's process can read only these, and `hold` gives it exercises without cases and judges. `KEPT_BACK`
names the records that would give an answer away, so that process can't read them either. `cuda_text` and
`triton_text` check answers that are text. `proxies` gives a learner's function access to an object that stays
with the judge, and `gpus` has the GPUs that the labs' clocks read. `guarded_run` runs a CUDA kernel once
between guard bands, and `torch_work` notes what torch computes instead of a kernel.

To run one: `model` defines exercises, cases, outcomes and verdicts. `attempt` makes the cases and asks for a
verdict on each. `call` makes one call between the bands of `guard`, while `launches` notes which kernels run.
`speed` times it, and `traffic` reports the bytes that interpreted kernels moved. `inputs` makes a kernel's
cases. `judge` compares a kernel's result with the reference, and `answers` any other answer; `errors` judges
exceptions. `effort` leaves out cases that would take Triton's interpreter too long. `diagnose` finds the
mistake behind wrong values with the experiments of `evidence`. `portable` compares and transports results.

The last exercise of a core lab has no single right answer: `writeup` defines the form of its answer,
`consistency` compares it with the data, and `recorded_data` loads data that are the same on every machine.
`softmax_parts` is what labs 06 and 09 share, and `hidden_kernels` what labs 03 and 13 share.
"""

from __future__ import annotations

import difflib
import functools
import importlib

from helpers import aliases
from helpers.exercises.model import Case, Exercise, Outcome, Verdict

__all__ = [
    "ADAPTERS",
    "KEPT_BACK",
    "LABS",
    "Case",
    "Exercise",
    "Outcome",
    "UnknownExercise",
    "Verdict",
    "all_ids",
    "get",
    "hold",
    "of_lab",
    "of_lesson",
]

LABS = (
    "01_profiling",
    "02_load_inline",
    "03_triton",
    "04_ptx",
    "05_ncu",
    "06_fusion",
    "07_timers",
    "08_builds",
    "09_wide_rows",
    "10_another_gpu",
    "11_matmul",
    "12_attention",
    "13_verify",
)


# The labs' modules without answers: what runs next to the learner's functions, and what the notebooks import.
ADAPTERS = {
    "lab01": ("adapters", "machines", "samples"),
    "lab02": ("adapters", "centred", "launchers"),
    "lab03": ("positions",),
    "lab04": ("generated", "sass"),
    "lab05": ("reports",),
    "lab06": ("adapters",),
    "lab07": ("machines",),
    "lab08": ("broken", "runs"),
    "lab09": ("adapters",),
    "lab10": ("tables",),
    "lab11": ("adapters",),
    "lab12": ("workloads",),
    "lab13": ("adapters", "machines", "pull_request"),
}
# Records that answer an exercise, below helpers/records. A notebook that is graded can't read them.
KEPT_BACK = ("h200/triton/launch-sweep.json",)
_held: tuple[Exercise, ...] | None = None


class UnknownExercise(ValueError):
    """No exercise or lab has this name; the message suggests similar ones."""


def hold(exercises: tuple[Exercise, ...]) -> None:
    """Restrict this process to these exercises, because it runs a learner's notebook for grading."""
    global _held
    _held = exercises


def of_lab(lab: str) -> tuple[Exercise, ...]:
    """Return a lab's exercises in order; empty for a lab without any.

    Args:
        lab: such as "03_triton", or a name that a lab used to have.

    Raises:
        UnknownExercise: No lab has this name.
    """
    lab = aliases.current(str(lab))
    if lab not in LABS:
        raise UnknownExercise(f"No lab is called {lab!r}; the labs are {', '.join(LABS)}.")
    if _held is not None:
        return tuple(exercise for exercise in _held if exercise.lab == lab)
    return _of_lab(lab)


@functools.cache
def _of_lab(lab: str) -> tuple[Exercise, ...]:
    package = f"helpers.exercises.lab{lab[:2]}"
    try:
        return tuple(importlib.import_module(f"{package}.exercises").EXERCISES)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        return ()  # a lesson without a lab


@functools.cache
def of_lesson(lesson: str) -> tuple[Exercise, ...]:
    """Return the exercises inside a lesson in order; empty for a lesson without any.

    Args:
        lesson: such as "03_triton".
    """
    module = f"helpers.exercises.lab{lesson[:2]}.lesson"
    try:
        return tuple(importlib.import_module(module).EXERCISES)
    except ModuleNotFoundError as error:
        if error.name not in (module, module.rpartition(".")[0]):
            raise
        return ()


def all_ids() -> tuple[str, ...]:
    """Return the ids of all exercises, lab by lab, each lesson's before its lab's."""
    return tuple(exercise.id for lab in LABS for exercise in (*of_lesson(lab), *of_lab(lab)))


def get(id: str) -> Exercise:
    """Return the exercise that has this id, or used to have it.

    Raises:
        UnknownExercise: No exercise does; the message names similar ids.
    """
    wanted = aliases.current(str(id))
    for lab in LABS:
        # While a lab is graded, lessons' exercises aren't there: their judges would have answers.
        for exercise in (*of_lab(lab), *(() if _held is not None else of_lesson(lab))):
            if exercise.id == wanted:
                return exercise
    raise UnknownExercise(f"No exercise is called {id!r}{_near(id, all_ids()) or '.'}")


def _near(name: object, names: tuple[str, ...]) -> str:
    found = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(repr(one) for one in found)}?" if found else ""

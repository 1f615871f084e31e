"""The labs' exercises: `get("square-any-shape")`, `of_lab("03_triton")`.

Each lab has a package (`lab01` … `lab10`) that is imported when one of its exercises is asked for. `helpers.lab` is
what a lab's cells call.

To add an exercise: `factories` makes one, `plans` describes a kernel's cases and its timing, `hints` has the sentences
on common mistakes, `verdicts` what the labs' own judges share.

`BESIDE` names the modules of the labs' packages that hold no answers: they alone are there for a learner's process while
it is graded, and `hold` gives it exercises without cases and judges. `KEPT_BACK` names records that answer an exercise.
`cuda_text` and `triton_text` look through answers that are text, `served` has what a learner's function is shown of an
object that stays with the judge, `gpus` the GPUs whose queue the labs' clocks read, `runs` one guarded run of a CUDA
kernel, `replay` what a call launched, so that it can be launched again elsewhere.

To run one: `model` has what an exercise, a case, an outcome and a verdict are. `attempt` makes the cases and asks for a
verdict on each; `call` makes one call, between the bands of `guard`, while `launches` looks which kernels run; `speed`
times it, `traffic` says what was counted of what interpreted kernels moved. `inputs` makes a kernel's cases. `judge` compares a kernel's result with the reference, and `answers` any other
answer; `errors` judges what was raised; `diagnose` finds the mistake behind wrong values, with the experiments of
`evidence`. `results` compares and carries what a call gave.

The last exercise of a core lab has no single right answer: `writeup` has the form of its answer, `consistency` holds it
against the data, `shipped` has the data that are the same on every machine.
"""

from __future__ import annotations

import difflib
import functools
import importlib

from helpers.exercises.model import Case, Exercise, Outcome, Raises, Verdict

__all__ = [
    "BESIDE",
    "KEPT_BACK",
    "LABS",
    "Case",
    "Exercise",
    "Outcome",
    "Raises",
    "UnknownExercise",
    "Verdict",
    "all_ids",
    "get",
    "hold",
    "of_lab",
]

LABS = (
    "01_profiling",
    "02_load_inline",
    "03_triton",
    "04_ptx",
    "05_ncu",
    "06_fusion",
    "07_timers",
    "08_failures",
    "09_wide_rows",
    "10_another_gpu",
)


# The labs' modules without answers: what runs beside the learner's functions, and what the labs' notebooks import.
BESIDE = {
    "lab01": ("beside", "machines", "samples"),
    "lab02": ("beside", "centred", "launchers", "traps"),
    "lab03": ("positions",),
    "lab04": ("generated", "sass"),
    "lab05": ("reports",),
    "lab06": ("beside",),
    "lab07": ("machines",),
    "lab08": ("broken", "runs"),
    "lab09": ("beside",),
    "lab10": ("tables",),
}
# Records that answer an exercise, below helpers/records: while a notebook is graded its process cannot read them.
KEPT_BACK = ("h200/triton/launch-sweep.json",)
_held: tuple[Exercise, ...] | None = None


class UnknownExercise(ValueError):
    """No exercise, or no lab, has this name; the message says which names are near."""


def hold(exercises: tuple[Exercise, ...]) -> None:
    """Let this process know these exercises and no others: it runs a learner's notebook that is graded."""
    global _held
    _held = exercises


def of_lab(lab: str) -> tuple[Exercise, ...]:
    """A lab's exercises in their order; empty for a lab that has none.

    Args:
        lab: such as "03_triton".

    Raises:
        UnknownExercise: no lab has this name.
    """
    if lab not in LABS:
        raise UnknownExercise(f"No lab is called {lab!r}; there are {', '.join(LABS)}.")
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
        return ()  # a lesson whose lab is not written yet


def all_ids() -> tuple[str, ...]:
    """The ids of all exercises, lab by lab."""
    return tuple(exercise.id for lab in LABS for exercise in of_lab(lab))


def get(id: str) -> Exercise:
    """The exercise with this id.

    Raises:
        UnknownExercise: none has it; the message names the nearest.
    """
    for lab in LABS:
        for exercise in of_lab(lab):
            if exercise.id == id:
                return exercise
    raise UnknownExercise(f"No exercise is called {id!r}{_near(id, all_ids()) or '.'}")


def _near(name: object, names: tuple[str, ...]) -> str:
    found = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(repr(one) for one in found)}?" if found else ""
